// RUN: spyre-opt %s --spyre-pipeline="sencores=4" --candidates exp | filecheck %s
// RUN: spyre-opt %s --spyre-pipeline="sencores=4" --candidates exp.0 | filecheck %s
// RUN: not spyre-opt %s --spyre-pipeline --candidates tanh 2>&1 | filecheck %s --check-prefix=NONE
// RUN: not spyre-opt %s --candidates exp 2>&1 | filecheck %s --check-prefix=PIPELINE

// Each line has a choice of the operation, and bytes and time of the program with it.
// CHECK: choice {{ *}}HBM bytes {{ *}}us
// CHECK-NEXT: exp.0: as compiled {{ *}}32,768 {{ *[0-9.]+}}
// CHECK: exp.0: {"slices": [{{[0-9]+}}, {{[0-9]+}}], "core_order": {{.*}}} {{ *}}32,768 {{ *[0-9.]+}}
// NONE: error: The program has no operation 'tanh'; it has exp.0.
// PIPELINE: error: --candidates needs one whole --spyre-pipeline, and no other pass or level.
func.func @main(%x: tensor<64x128xf16>) -> tensor<64x128xf16> {
  %e = tensor.empty() : tensor<64x128xf16>
  %0 = linalg.exp ins(%x : tensor<64x128xf16>) outs(%e : tensor<64x128xf16>) -> tensor<64x128xf16>
  return %0 : tensor<64x128xf16>
}
