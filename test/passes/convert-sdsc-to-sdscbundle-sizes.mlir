// Dims that follow a run-time size: a parameter with granularity and largest value, addresses that are linear in it,
// and designs that name its symbol.
//
// RUN: spyre-opt --spyre-pipeline="sencores=2" %s | FileCheck %s
// RUN: not spyre-opt --spyre-pipeline="sencores=2" %S/Inputs/sizes-misfit.mlir 2>&1 | FileCheck %s --check-prefix=MISFIT
// RUN: not spyre-opt --spyre-pipeline="sencores=2" %S/Inputs/sizes-slice.mlir 2>&1 | FileCheck %s --check-prefix=SLICE
// RUN: not spyre-opt --spyre-pipeline="sencores=2 target=ktir" %s 2>&1 | FileCheck %s --check-prefix=KTIR

// CHECK: sdscbundle.designs
// CHECK-SAME: symbolic = {mb = {granularity = 64 : i64, symbol = -[[SYMBOL:[0-9]+]] : i64, tag = "S"}}
// CHECK-SAME: sdscbundle.manifest
// CHECK-SAME: sizes = [{granularity = 64 : i64, max_value = 256 : i64, name = "S", parameter = "arg_2_index"}]
// CHECK: func.func @sdsc_bundle
// CHECK-SAME: %[[SIZE:arg[0-9]+]]: !sdscbundle.input_arg<index, 64 : i64, 256 : i64>
// CHECK: %[[S:.*]] = "sdscbundle.input_arg_extract"(%[[SIZE]])
// CHECK: affine.apply #{{.*}}(%[[S]])
// CHECK: "sdscbundle.sdsc_execute"({{.*}}, %[[S]])
// CHECK-SAME: symbol_ids = [-1, -2, -3, -4, -[[SYMBOL]]]
func.func @main(%x: tensor<256x64xf16> {sdsc.symbolic = {d0 = ["S", 1 : i64]}, spyre.name = "x"})
    -> tensor<256x64xf16> attributes {sdsc.sizes = {S = array<i64: 64, 256>}} {
  %e = tensor.empty() : tensor<256x64xf16>
  %y = linalg.exp ins(%x : tensor<256x64xf16>) outs(%e : tensor<256x64xf16>) -> tensor<256x64xf16>
  return %y : tensor<256x64xf16>
}

// MISFIT: error: d0 of a tensor of shape [200, 64] is not 256, 1 times the largest 'S'
// SLICE: error: a slice to position 100 exceeds 64, the least run-time size 'S'
// KTIR: error: KTIR has one size of each dim, and this program has run-time sizes: 'S'
