// RUN: rm -rf %t && spyre-opt %s --spyre-pipeline | spyre-translate - --to-bundle %t
// RUN: filecheck %s < %t/bundle.mlir
// RUN: spyre-validate %t | filecheck %s --check-prefix=VALID

// The folder has the custom syntax of the SuperDSC specification, and satisfies its rules.
// CHECK: func.func @sdsc_bundle(%arg_0_base_addr: !sdscbundle.input_arg<index>
// CHECK: sdscbundle.sdsc_execute ({{.*}}) {sdsc_filename="sdsc_0.json", symbol_ids=[-1
// VALID: valid (1 design, 1 execute)
func.func @main(%x: tensor<4x64xf16>) -> tensor<4x64xf16> {
  %e = tensor.empty() : tensor<4x64xf16>
  %y = linalg.exp ins(%x : tensor<4x64xf16>) outs(%e : tensor<4x64xf16>) -> tensor<4x64xf16>
  return %y : tensor<4x64xf16>
}
