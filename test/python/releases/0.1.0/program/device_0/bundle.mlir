module {
  func.func @sdsc_bundle(%arg_0_base_addr: !sdscbundle.input_arg<index>, %arg_1_base_addr: !sdscbundle.input_arg<index>, %arg_2_base_addr: !sdscbundle.input_arg<index>, %arg_3_base_addr: !sdscbundle.input_arg<index>) {
    %arg_0 = sdscbundle.input_arg_extract value from %arg_0_base_addr : !sdscbundle.input_arg<index> -> index
    %arg_1 = sdscbundle.input_arg_extract value from %arg_1_base_addr : !sdscbundle.input_arg<index> -> index
    %arg_2 = sdscbundle.input_arg_extract value from %arg_2_base_addr : !sdscbundle.input_arg<index> -> index
    %arg_3 = sdscbundle.input_arg_extract value from %arg_3_base_addr : !sdscbundle.input_arg<index> -> index
    %v8 = arith.constant 512 : index
    %v9 = arith.addi %arg_1, %v8 : index
    sdscbundle.sdsc_execute (%arg_1, %v9, %arg_0) {sdsc_filename="sdsc_0.json", symbol_ids=[-1, -2, -3]}
    sdscbundle.sdsc_execute (%arg_2) {sdsc_filename="sdsc_1.json", symbol_ids=[-4]}
    %v10 = arith.constant 512 : index
    %v11 = arith.addi %arg_3, %v10 : index
    sdscbundle.sdsc_execute (%arg_3, %v11) {sdsc_filename="sdsc_2.json", symbol_ids=[-5, -6]}
    return
  }
}
