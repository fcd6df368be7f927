// RUN: spyre-opt %s --verify-each=false --convert-sdsc-to-sdscbundle --split-input-file --verify-diagnostics | filecheck %s

// One execution per operation, one parameter per argument and result, one address per core and operand.
// CHECK: module attributes {sdscbundle.designs = {sdsc_0.json = {
// CHECK-SAME: opcode = "exp"
// CHECK-SAME: start = array<i64: -1, -2>
// CHECK-SAME: start = array<i64: -3, -4>
// CHECK-SAME: shares = {mb = 64 : i64, out = 256 : i64}, sizes = {mb = 128 : i64, out = 256 : i64}, slices = {mb = 2 : i64, out = 1 : i64}
// CHECK-SAME: sdsc_1.json
// CHECK-SAME: sdscbundle.manifest = {arguments = [{bytes = 65536 : i64, {{.*}} host_dtype = "bfloat16", {{.*}} name = "x"
// CHECK-SAME: name = "result0"
// CHECK-SAME: uses = {{\[\[}}"x", "buffer0"], ["buffer0", "result0"]]
// CHECK-LABEL: func.func @sdsc_bundle(
// CHECK-SAME: %[[A:.*]]: !sdscbundle.input_arg<index, 0 : i64, 0 : i64>, %[[B:.*]]: !sdscbundle.input_arg<index, 0 : i64, 0 : i64>) {
// CHECK-NEXT: %[[X:.*]] = "sdscbundle.input_arg_extract"(%[[A]]) {what = "value"}
// CHECK-NEXT: %[[R:.*]] = "sdscbundle.input_arg_extract"(%[[B]]) {what = "value"}
// CHECK-NEXT: %[[P:.*]] = "sdscbundle.device_mem_allocate"() {bytes = 65536 : i64}
// CHECK-NEXT: %[[C:.*]] = arith.constant 8192 : index
// CHECK-NEXT: %[[X1:.*]] = arith.addi %[[X]], %[[C]]
// CHECK: %[[P1:.*]] = arith.addi %[[P]], %{{.*}}
// CHECK-NEXT: "sdscbundle.sdsc_execute"(%[[X]], %[[X1]], %[[P]], %[[P1]]) {sdsc_filename = "sdsc_0.json", symbol_ids = [-1, -2, -3, -4]}
// CHECK: %[[R1:.*]] = arith.addi %[[R]], %{{.*}}
// CHECK-NEXT: "sdscbundle.sdsc_execute"(%[[P]], %[[P1]], %[[R]], %[[R1]]) {sdsc_filename = "sdsc_1.json", symbol_ids = [-3, -4, -5, -6]}
// CHECK-NEXT: return
#rows = affine_map<(d0, d1) -> (d1 floordiv 64, d0, d1 mod 64)>
#id = affine_map<(d0, d1) -> (d0, d1)>
func.func @main(%x: tensor<128x256xf16, #stick.layout<#rows>> {sdsc.host = #sdsc.host<"x", "input", "bf16">}) -> (tensor<128x256xf16, #stick.layout<#rows>> {sdsc.host = #sdsc.host<"result0", "result", "bf16">}) attributes {sdsc.pool_bytes = 65536 : i64} {
  %e0 = tensor.empty() : tensor<128x256xf16, #stick.layout<#rows>>
  %e1 = tensor.empty() : tensor<128x256xf16, #stick.layout<#rows>>
  %0 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%x : tensor<128x256xf16, #stick.layout<#rows>>) outs(%e0 : tensor<128x256xf16, #stick.layout<#rows>>) attrs = {sdsc.op = #sdsc.op<"exp", {}>, sdsc.division = #sdsc.division<[2, 1], affine_map<(d0) -> (d0 mod 2, 0)>>, sdsc.placement = #sdsc.hbm<"pool", 0 : i64>} {
  ^bb0(%a0: f16, %o: f16):
    linalg.yield %o : f16
  } -> tensor<128x256xf16, #stick.layout<#rows>>
  %1 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%0 : tensor<128x256xf16, #stick.layout<#rows>>) outs(%e1 : tensor<128x256xf16, #stick.layout<#rows>>) attrs = {sdsc.op = #sdsc.op<"exp", {}>, sdsc.division = #sdsc.division<[2, 1], affine_map<(d0) -> (d0 mod 2, 0)>>, sdsc.placement = #sdsc.hbm<"result0", 0 : i64>} {
  ^bb0(%a0: f16, %o: f16):
    linalg.yield %o : f16
  } -> tensor<128x256xf16, #stick.layout<#rows>>
  return %1 : tensor<128x256xf16, #stick.layout<#rows>>
}
// -----
// Two operations with the same design share its file.
// CHECK-LABEL: func.func @sdsc_bundle(
// CHECK: sdsc_filename = "sdsc_0.json"
// CHECK-NEXT: sdsc_filename = "sdsc_0.json"
// CHECK: sdsc_filename = "sdsc_1.json"
// CHECK-NEXT: return
#rows = affine_map<(d0, d1) -> (d1 floordiv 64, d0, d1 mod 64)>
#id = affine_map<(d0, d1) -> (d0, d1)>
func.func @shared(%x: tensor<128x256xf16, #stick.layout<#rows>> {sdsc.host = #sdsc.host<"x", "input", "bf16">}) -> (tensor<128x256xf16, #stick.layout<#rows>> {sdsc.host = #sdsc.host<"result0", "result", "bf16">}) attributes {sdsc.pool_bytes = 65536 : i64} {
  %e0 = tensor.empty() : tensor<128x256xf16, #stick.layout<#rows>>
  %e2 = tensor.empty() : tensor<128x256xf16, #stick.layout<#rows>>
  %e1 = tensor.empty() : tensor<128x256xf16, #stick.layout<#rows>>
  %0 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%x : tensor<128x256xf16, #stick.layout<#rows>>) outs(%e0 : tensor<128x256xf16, #stick.layout<#rows>>) attrs = {sdsc.op = #sdsc.op<"exp", {}>, sdsc.division = #sdsc.division<[2, 1], affine_map<(d0) -> (d0 mod 2, 0)>>, sdsc.placement = #sdsc.hbm<"pool", 0 : i64>} {
  ^bb0(%a0: f16, %o: f16):
    linalg.yield %o : f16
  } -> tensor<128x256xf16, #stick.layout<#rows>>
  %2 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%x : tensor<128x256xf16, #stick.layout<#rows>>) outs(%e2 : tensor<128x256xf16, #stick.layout<#rows>>) attrs = {sdsc.op = #sdsc.op<"exp", {}>, sdsc.division = #sdsc.division<[2, 1], affine_map<(d0) -> (d0 mod 2, 0)>>, sdsc.placement = #sdsc.hbm<"pool", 0 : i64>} {
  ^bb0(%a0: f16, %o: f16):
    linalg.yield %o : f16
  } -> tensor<128x256xf16, #stick.layout<#rows>>
  %1 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%2 : tensor<128x256xf16, #stick.layout<#rows>>) outs(%e1 : tensor<128x256xf16, #stick.layout<#rows>>) attrs = {sdsc.op = #sdsc.op<"exp", {}>, sdsc.division = #sdsc.division<[2, 1], affine_map<(d0) -> (d0 mod 2, 0)>>, sdsc.placement = #sdsc.hbm<"result0", 0 : i64>} {
  ^bb0(%a0: f16, %o: f16):
    linalg.yield %o : f16
  } -> tensor<128x256xf16, #stick.layout<#rows>>
  return %1 : tensor<128x256xf16, #stick.layout<#rows>>
}
// -----
// An operand in LX is a literal address, the same on both cores; its buffer has 64 of the 128 rows, and no argument.
// CHECK: memory = "hbm", role = "OUTPUT", scale = {mb = 1 : i64, out = 1 : i64}, start = array<i64: -1, -2>
// CHECK-SAME: memory = "lx", role = "OUTPUT", scale = {mb = 1 : i64, out = 1 : i64}, start = array<i64: 256, 256>
// CHECK-SAME: sdsc_1.json
// CHECK-SAME: memory = "lx", role = "OUTPUT", scale = {mb = 1 : i64, out = 1 : i64}, start = array<i64: 256, 256>
// CHECK-SAME: memory = "hbm", role = "OUTPUT", scale = {mb = 1 : i64, out = 1 : i64}, start = array<i64: -3, -4>
// CHECK-SAME: {base = "lx", bytes = 32768 : i64, name = "buffer0", offset = 256 : i64}
// CHECK-SAME: uses = {{\[\[}}"x", "buffer0"], ["buffer0", "result0"]]
// CHECK-LABEL: func.func @sdsc_bundle(
// CHECK: %[[X:.*]] = "sdscbundle.input_arg_extract"
// CHECK: %[[R:.*]] = "sdscbundle.input_arg_extract"
// CHECK: "sdscbundle.sdsc_execute"(%[[X]], %{{[^,]*}}) {sdsc_filename = "sdsc_0.json", symbol_ids = [-1, -2]}
// CHECK: "sdscbundle.sdsc_execute"(%[[R]], %{{[^,]*}}) {sdsc_filename = "sdsc_1.json", symbol_ids = [-3, -4]}
#rows = affine_map<(d0, d1) -> (d1 floordiv 64, d0, d1 mod 64)>
#id = affine_map<(d0, d1) -> (d0, d1)>
#by_row = affine_map<(d0) -> (d0, 0)>
!mat = tensor<128x256xf16, #stick.layout<#rows>>
func.func @lx(%x: !mat {sdsc.host = #sdsc.host<"x", "input", "bf16">}) -> (!mat {sdsc.host = #sdsc.host<"result0", "result", "bf16">}) {
  %e = tensor.empty() : !mat
  %0 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%x : !mat) outs(%e : !mat) attrs = {sdsc.op = #sdsc.op<"exp", {}>, sdsc.division = #sdsc.division<[2, 1], #by_row>, sdsc.placement = #sdsc.lx<256 : i64>} {
  ^bb0(%a0: f16, %o: f16):
    linalg.yield %o : f16
  } -> !mat
  %1 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%0 : !mat) outs(%e : !mat) attrs = {sdsc.op = #sdsc.op<"exp", {}>, sdsc.division = #sdsc.division<[2, 1], #by_row>, sdsc.placement = #sdsc.hbm<"result0", 0 : i64>} {
  ^bb0(%a0: f16, %o: f16):
    linalg.yield %o : f16
  } -> !mat
  return %1 : !mat
}
// -----
// Another address in LX is another design, the same one is the same; an operation all in LX takes no address.
// CHECK-LABEL: func.func @sdsc_bundle(
// CHECK: "sdscbundle.sdsc_execute"(%{{[^,]*}}) {sdsc_filename = "sdsc_0.json", symbol_ids = [-1]}
// CHECK: "sdscbundle.sdsc_execute"() {sdsc_filename = "sdsc_1.json", symbol_ids = []}
// CHECK: "sdscbundle.sdsc_execute"() {sdsc_filename = "sdsc_2.json", symbol_ids = []}
// CHECK: "sdscbundle.sdsc_execute"() {sdsc_filename = "sdsc_1.json", symbol_ids = []}
// CHECK: "sdscbundle.sdsc_execute"(%{{[^,]*}}) {sdsc_filename = "sdsc_3.json", symbol_ids = [-2]}
#rows = affine_map<(d0, d1) -> (d1 floordiv 64, d0, d1 mod 64)>
#id = affine_map<(d0, d1) -> (d0, d1)>
#alone = affine_map<(d0) -> (0, 0)>
!mat = tensor<128x256xf16, #stick.layout<#rows>>
func.func @addresses(%x: !mat {sdsc.host = #sdsc.host<"x", "input", "bf16">}) -> (!mat {sdsc.host = #sdsc.host<"result0", "result", "bf16">}) {
  %e = tensor.empty() : !mat
  %0 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%x : !mat) outs(%e : !mat) attrs = {sdsc.op = #sdsc.op<"exp", {}>, sdsc.division = #sdsc.division<[1, 1], #alone>, sdsc.placement = #sdsc.lx<0 : i64>} {
  ^bb0(%a0: f16, %o: f16):
    linalg.yield %o : f16
  } -> !mat
  %1 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%0 : !mat) outs(%e : !mat) attrs = {sdsc.op = #sdsc.op<"exp", {}>, sdsc.division = #sdsc.division<[1, 1], #alone>, sdsc.placement = #sdsc.lx<65536 : i64>} {
  ^bb0(%a0: f16, %o: f16):
    linalg.yield %o : f16
  } -> !mat
  %2 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%1 : !mat) outs(%e : !mat) attrs = {sdsc.op = #sdsc.op<"exp", {}>, sdsc.division = #sdsc.division<[1, 1], #alone>, sdsc.placement = #sdsc.lx<0 : i64>} {
  ^bb0(%a0: f16, %o: f16):
    linalg.yield %o : f16
  } -> !mat
  %3 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%2 : !mat) outs(%e : !mat) attrs = {sdsc.op = #sdsc.op<"exp", {}>, sdsc.division = #sdsc.division<[1, 1], #alone>, sdsc.placement = #sdsc.lx<65536 : i64>} {
  ^bb0(%a0: f16, %o: f16):
    linalg.yield %o : f16
  } -> !mat
  %4 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%3 : !mat) outs(%e : !mat) attrs = {sdsc.op = #sdsc.op<"exp", {}>, sdsc.division = #sdsc.division<[1, 1], #alone>, sdsc.placement = #sdsc.hbm<"result0", 0 : i64>} {
  ^bb0(%a0: f16, %o: f16):
    linalg.yield %o : f16
  } -> !mat
  return %4 : !mat
}
// -----
// An operation that is not divided.
#rows = affine_map<(d0, d1) -> (d1 floordiv 64, d0, d1 mod 64)>
#id = affine_map<(d0, d1) -> (d0, d1)>
func.func @undivided(%x: tensor<128x256xf16, #stick.layout<#rows>> {sdsc.host = #sdsc.host<"x", "input", "bf16">}) -> (tensor<128x256xf16, #stick.layout<#rows>> {sdsc.host = #sdsc.host<"result0", "result", "bf16">}) attributes {sdsc.pool_bytes = 65536 : i64} {
  %e1 = tensor.empty() : tensor<128x256xf16, #stick.layout<#rows>>
  // expected-error@below {{this operation has no division; run work-distribution first}}
  %1 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%x : tensor<128x256xf16, #stick.layout<#rows>>) outs(%e1 : tensor<128x256xf16, #stick.layout<#rows>>) attrs = {sdsc.op = #sdsc.op<"exp", {}>, sdsc.placement = #sdsc.hbm<"result0", 0 : i64>} {
  ^bb0(%a0: f16, %o: f16):
    linalg.yield %o : f16
  } -> tensor<128x256xf16, #stick.layout<#rows>>
  return %1 : tensor<128x256xf16, #stick.layout<#rows>>
}
// -----
// A buffer that is not placed.
#rows = affine_map<(d0, d1) -> (d1 floordiv 64, d0, d1 mod 64)>
#id = affine_map<(d0, d1) -> (d0, d1)>
func.func @unplaced(%x: tensor<128x256xf16, #stick.layout<#rows>> {sdsc.host = #sdsc.host<"x", "input", "bf16">}) -> (tensor<128x256xf16, #stick.layout<#rows>> {sdsc.host = #sdsc.host<"result0", "result", "bf16">}) attributes {sdsc.pool_bytes = 65536 : i64} {
  %e0 = tensor.empty() : tensor<128x256xf16, #stick.layout<#rows>>
  %e1 = tensor.empty() : tensor<128x256xf16, #stick.layout<#rows>>
  // expected-error@below {{this buffer has no placement; run place-in-hbm first}}
  %0 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%x : tensor<128x256xf16, #stick.layout<#rows>>) outs(%e0 : tensor<128x256xf16, #stick.layout<#rows>>) attrs = {sdsc.op = #sdsc.op<"exp", {}>, sdsc.division = #sdsc.division<[2, 1], affine_map<(d0) -> (d0 mod 2, 0)>>} {
  ^bb0(%a0: f16, %o: f16):
    linalg.yield %o : f16
  } -> tensor<128x256xf16, #stick.layout<#rows>>
  %1 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%0 : tensor<128x256xf16, #stick.layout<#rows>>) outs(%e1 : tensor<128x256xf16, #stick.layout<#rows>>) attrs = {sdsc.op = #sdsc.op<"exp", {}>, sdsc.division = #sdsc.division<[2, 1], affine_map<(d0) -> (d0 mod 2, 0)>>, sdsc.placement = #sdsc.hbm<"result0", 0 : i64>} {
  ^bb0(%a0: f16, %o: f16):
    linalg.yield %o : f16
  } -> tensor<128x256xf16, #stick.layout<#rows>>
  return %1 : tensor<128x256xf16, #stick.layout<#rows>>
}
// -----
// A weight that two readers want in two layouts is two arguments and one array of the host.
// CHECK: sdscbundle.manifest = {arguments = [{{.*}}name = "w", {{[^}]*}}}}, {{.*}}name = "w@1", {{[^}]*}}source = "w", {{[^}]*}}}}, {{.*}}name = "result0"
#rows = affine_map<(d0, d1) -> (d1 floordiv 64, d0, d1 mod 64)>
#columns = affine_map<(d0, d1) -> (d0 floordiv 64, d1, d0 mod 64)>
#id = affine_map<(d0, d1) -> (d0, d1)>
func.func @source(%w: tensor<64x64xf16, #stick.layout<#rows>> {sdsc.host = #sdsc.host<"w", "parameter", "f16">}, %v: tensor<64x64xf16, #stick.layout<#columns>> {sdsc.host = #sdsc.host<"w@1", "parameter", "f16">, sdsc.source = "w"}) -> (tensor<64x64xf16, #stick.layout<#rows>> {sdsc.host = #sdsc.host<"result0", "result", "f16">}) {
  %e = tensor.empty() : tensor<64x64xf16, #stick.layout<#rows>>
  %0 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%w : tensor<64x64xf16, #stick.layout<#rows>>) outs(%e : tensor<64x64xf16, #stick.layout<#rows>>) attrs = {sdsc.op = #sdsc.op<"exp", {}>, sdsc.division = #sdsc.division<[1, 1], affine_map<(d0) -> (0, 0)>>, sdsc.placement = #sdsc.hbm<"result0", 0 : i64>} {
  ^bb0(%a: f16, %o: f16):
    linalg.yield %o : f16
  } -> tensor<64x64xf16, #stick.layout<#rows>>
  return %0 : tensor<64x64xf16, #stick.layout<#rows>>
}
// -----
// Masks and the fill of arguments are those of the IR: here 2 for a maximum of what the host makes 1.
// CHECK: constants = [{bits = {{[0-9]+}} : i64, data_format = "SEN169_FP16", name = "samv-maskvalue"}]{{.*}}masks = {out = array<i64: 65, 63>}
// CHECK-SAME: fill = 1.000000e+00 : f64
#rows = affine_map<(d0, d1) -> (d1 floordiv 64, d0, d1 mod 64)>
#sparse = affine_map<(d0) -> (d0, 0)>
#id = affine_map<(d0, d1) -> (d0, d1)>
#first = affine_map<(d0, d1) -> (d0)>
func.func @masks(%x: tensor<8x65xf16, #stick.layout<#rows>> {sdsc.host = #sdsc.host<"x", "input", "f16">, stick.padding = {d1 = 1.0 : f64}}) -> (tensor<8xf16, #stick.layout<#sparse>> {sdsc.host = #sdsc.host<"result0", "result", "f16">}) {
  %e = tensor.empty() : tensor<8xf16, #stick.layout<#sparse>>
  %0 = linalg.generic {indexing_maps = [#id, #first], iterator_types = ["parallel", "reduction"]} ins(%x : tensor<8x65xf16, #stick.layout<#rows>>) outs(%e : tensor<8xf16, #stick.layout<#sparse>>) attrs = {sdsc.op = #sdsc.op<"max", {}>, sdsc.masks = {d1 = 2.0 : f64}, sdsc.division = #sdsc.division<[1, 1], affine_map<(d0) -> (0, 0)>>, sdsc.placement = #sdsc.hbm<"result0", 0 : i64>} {
  ^bb0(%a: f16, %o: f16):
    linalg.yield %o : f16
  } -> tensor<8xf16, #stick.layout<#sparse>>
  return %0 : tensor<8xf16, #stick.layout<#sparse>>
}
// -----
// The manifest says why a buffer is not in LX; of the result, an argument, it says nothing.
// CHECK: buffers = [{{.*}}name = "result0", offset = 0 : i64}, {{.*}}name = "buffer0", offset = 0 : i64, reasons = ["too large: 8 bytes", "lost the competition"]}]
#rows = affine_map<(d0, d1) -> (d1 floordiv 64, d0, d1 mod 64)>
#id = affine_map<(d0, d1) -> (d0, d1)>
func.func @reasons(%x: tensor<8x64xf16, #stick.layout<#rows>> {sdsc.host = #sdsc.host<"x", "input", "f16">}) -> (tensor<8x64xf16, #stick.layout<#rows>> {sdsc.host = #sdsc.host<"result0", "result", "f16">}) attributes {sdsc.pool_bytes = 1024 : i64} {
  %e = tensor.empty() : tensor<8x64xf16, #stick.layout<#rows>>
  %0 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%x : tensor<8x64xf16, #stick.layout<#rows>>) outs(%e : tensor<8x64xf16, #stick.layout<#rows>>) attrs = {sdsc.op = #sdsc.op<"exp", {}>, sdsc.division = #sdsc.division<[1, 1], affine_map<(d0) -> (0, 0)>>, sdsc.placement = #sdsc.hbm<"pool", 0 : i64>, sdsc.spilled = ["too large: 8 bytes", "lost the competition"]} {
  ^bb0(%a: f16, %o: f16):
    linalg.yield %o : f16
  } -> tensor<8x64xf16, #stick.layout<#rows>>
  %1 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%0 : tensor<8x64xf16, #stick.layout<#rows>>) outs(%e : tensor<8x64xf16, #stick.layout<#rows>>) attrs = {sdsc.op = #sdsc.op<"exp", {}>, sdsc.division = #sdsc.division<[1, 1], affine_map<(d0) -> (0, 0)>>, sdsc.placement = #sdsc.hbm<"result0", 0 : i64>, sdsc.spilled = ["graph input or output"]} {
  ^bb0(%a: f16, %o: f16):
    linalg.yield %o : f16
  } -> tensor<8x64xf16, #stick.layout<#rows>>
  return %1 : tensor<8x64xf16, #stick.layout<#rows>>
}
// -----
// A mask needs padding.
#rows = affine_map<(d0, d1) -> (d1 floordiv 64, d0, d1 mod 64)>
#sparse = affine_map<(d0) -> (d0, 0)>
#id = affine_map<(d0, d1) -> (d0, d1)>
#first = affine_map<(d0, d1) -> (d0)>
// expected-error@unknown {{'max' masks d0, which has no padding}}
func.func @no_padding(%x: tensor<8x65xf16, #stick.layout<#rows>> {sdsc.host = #sdsc.host<"x", "input", "f16">}) -> (tensor<8xf16, #stick.layout<#sparse>> {sdsc.host = #sdsc.host<"result0", "result", "f16">}) {
  %e = tensor.empty() : tensor<8xf16, #stick.layout<#sparse>>
  %0 = linalg.generic {indexing_maps = [#id, #first], iterator_types = ["parallel", "reduction"]} ins(%x : tensor<8x65xf16, #stick.layout<#rows>>) outs(%e : tensor<8xf16, #stick.layout<#sparse>>) attrs = {sdsc.op = #sdsc.op<"max", {}>, sdsc.masks = {d0 = 0.0 : f64}, sdsc.division = #sdsc.division<[1, 1], affine_map<(d0) -> (0, 0)>>, sdsc.placement = #sdsc.hbm<"result0", 0 : i64>} {
  ^bb0(%a: f16, %o: f16):
    linalg.yield %o : f16
  } -> tensor<8xf16, #stick.layout<#sparse>>
  return %0 : tensor<8xf16, #stick.layout<#sparse>>
}
// -----
// Exactly one function with a body.
func.func @one() { return }
// expected-error@unknown {{a bundle needs one function with a body, but this module has 2}}
func.func @two() { return }
// -----
// A core would find in its LX rows where it wants columns: nobody has to have run verify-ownership.
#rows = affine_map<(d0, d1) -> (d1 floordiv 64, d0, d1 mod 64)>
#id = affine_map<(d0, d1) -> (d0, d1)>
#by_column = affine_map<(d0) -> (0, d0)>
#by_row = affine_map<(d0) -> (d0, 0)>
!mat = tensor<128x256xf16, #stick.layout<#rows>>
func.func @stranger(%x: !mat {sdsc.host = #sdsc.host<"x", "input", "bf16">}) -> (!mat {sdsc.host = #sdsc.host<"result0", "result", "bf16">}) {
  %e = tensor.empty() : !mat
  %0 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%x : !mat) outs(%e : !mat) attrs = {sdsc.op = #sdsc.op<"exp", {}>, sdsc.division = #sdsc.division<[2, 1], #by_row>, sdsc.placement = #sdsc.lx<256 : i64>} {
  ^bb0(%a0: f16, %o: f16):
    linalg.yield %o : f16
  } -> !mat
  // expected-error@below {{a buffer in LX is read by cores that do not own it: operand 0 of 'exp', made by 'exp' at}}
  %1 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%0 : !mat) outs(%e : !mat) attrs = {sdsc.op = #sdsc.op<"exp", {}>, sdsc.division = #sdsc.division<[1, 2], #by_column>, sdsc.placement = #sdsc.hbm<"result0", 0 : i64>} {
  ^bb0(%a0: f16, %o: f16):
    linalg.yield %o : f16
  } -> !mat
  return %1 : !mat
}
// -----
// The host has the types of PyTorch, by the names of MLIR.
#rows = affine_map<(d0, d1) -> (d1 floordiv 64, d0, d1 mod 64)>
!mat = tensor<128x256xf16, #stick.layout<#rows>>
// expected-error@below {{'x' has the host type 'float16'; known here are f16, bf16, f32, i1, i8, i32, i64, f8E4M3FN}}
func.func @host_type(%x: !mat {sdsc.host = #sdsc.host<"x", "input", "float16">}) {
  return
}
