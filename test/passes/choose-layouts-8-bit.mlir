// RUN: spyre-opt %s --choose-layouts --split-input-file --verify-diagnostics | filecheck %s

// Input 1 of an int8 matmul has 128 of K in the stick, input 2 has 64 columns of 2 each, and room for K = 256. The
// caller's arrays are laid out so: no operation would convert them.
// CHECK: #[[X:.*]] = affine_map<(d0, d1) -> (d1 floordiv 128, d0, d1 mod 128)>
// CHECK: #[[W:.*]] = affine_map<(d0, d1) -> (d1 floordiv 64, (d0 floordiv 2) mod 128, d1 mod 64, d0 mod 2)>
// CHECK-LABEL: func.func @straight(
// CHECK-SAME: tensor<64x200xi8, #stick.layout<#[[X]]>>
// CHECK-SAME: tensor<200x64xi8, #stick.layout<#[[W]]>>
// CHECK-NOT: sdsc.clone
// CHECK-NOT: restickify
// CHECK: "batchmatmulint8"
#x = affine_map<(d0, d1, d2) -> (d0, d2)>
#w = affine_map<(d0, d1, d2) -> (d2, d1)>
#y = affine_map<(d0, d1, d2) -> (d0, d1)>
#id = affine_map<(d0, d1) -> (d0, d1)>
func.func @straight(%x: tensor<64x200xi8> {sdsc.host = #sdsc.host<"x", "input", "i8">}, %w: tensor<200x64xi8> {sdsc.host = #sdsc.host<"w", "input", "i8">}) -> tensor<64x64xf16> {
  %e0 = tensor.empty() : tensor<64x64xf16>
  %m = linalg.generic {indexing_maps = [#x, #w, #y], iterator_types = ["parallel", "parallel", "reduction"]} ins(%x, %w : tensor<64x200xi8>, tensor<200x64xi8>) outs(%e0 : tensor<64x64xf16>) attrs = {sdsc.op = #sdsc.op<"batchmatmulint8", {}>} {
  ^bb0(%a0: i8, %a1: i8, %o: f16):
    linalg.yield %o : f16
  } -> tensor<64x64xf16>
  return %m : tensor<64x64xf16>
}
// -----
// One tensor as both inputs is given twice.
// CHECK-LABEL: func.func @both(
// CHECK-SAME: %[[A:\w+]]: tensor<64x128xi8,
// CHECK-SAME: %[[B:\w+]]: tensor<64x128xi8, {{.*}} sdsc.source = "x"
// CHECK: linalg.generic {{.*}} ins(%[[A]], %[[B]] :
#x = affine_map<(d0, d1, d2) -> (d0, d2)>
#t = affine_map<(d0, d1, d2) -> (d1, d2)>
#y = affine_map<(d0, d1, d2) -> (d0, d1)>
func.func @both(%x: tensor<64x128xi8> {sdsc.host = #sdsc.host<"x", "input", "i8">}) -> tensor<64x64xf16> {
  %e0 = tensor.empty() : tensor<64x64xf16>
  %m = linalg.generic {indexing_maps = [#x, #t, #y], iterator_types = ["parallel", "parallel", "reduction"]} ins(%x, %x : tensor<64x128xi8>, tensor<64x128xi8>) outs(%e0 : tensor<64x64xf16>) attrs = {sdsc.op = #sdsc.op<"batchmatmulint8", {}>} {
  ^bb0(%a0: i8, %a1: i8, %o: f16):
    linalg.yield %o : f16
  } -> tensor<64x64xf16>
  return %m : tensor<64x64xf16>
}
// -----
// What the caller lays out in another way cannot be converted.
#x = affine_map<(d0, d1, d2) -> (d0, d2)>
#w = affine_map<(d0, d1, d2) -> (d2, d1)>
#y = affine_map<(d0, d1, d2) -> (d0, d1)>
#id = affine_map<(d0, d1) -> (d0, d1)>
func.func @pinned(%x: tensor<33x200xi8> {sdsc.host = #sdsc.host<"x", "input", "i8">}, %w: tensor<200x70xi8, #stick.layout<affine_map<(d0, d1) -> (d1 floordiv 128, d0, d1 mod 128)>>> {sdsc.host = #sdsc.host<"w", "input", "i8">}) -> tensor<33x70xf16> {
  %e0 = tensor.empty() : tensor<33x70xf16>
  // expected-error@below {{the result of 'batchmatmulint8', tensor<33x70xf16>: an operand has an unsupported layout, and no operation converts 8-bit tensors: a matmul has the contracted dim in the stick of input 1}}
  %m = linalg.generic {indexing_maps = [#x, #w, #y], iterator_types = ["parallel", "parallel", "reduction"]} ins(%x, %w : tensor<33x200xi8>, tensor<200x70xi8, #stick.layout<affine_map<(d0, d1) -> (d1 floordiv 128, d0, d1 mod 128)>>>) outs(%e0 : tensor<33x70xf16>) attrs = {sdsc.op = #sdsc.op<"batchmatmulint8", {}>} {
  ^bb0(%a0: i8, %a1: i8, %o: f16):
    linalg.yield %o : f16
  } -> tensor<33x70xf16>
  return %m : tensor<33x70xf16>
}
// -----
// Nor be given room for whole sticks.
#x = affine_map<(d0, d1, d2) -> (d0, d2)>
#w = affine_map<(d0, d1, d2) -> (d2, d1)>
#y = affine_map<(d0, d1, d2) -> (d0, d1)>
#id = affine_map<(d0, d1) -> (d0, d1)>
func.func @no_room(%x: tensor<33x200xi8> {sdsc.host = #sdsc.host<"x", "input", "i8">}, %w: tensor<200x70xi8, #stick.layout<affine_map<(d0, d1) -> (d1 floordiv 64, d0 floordiv 2, d1 mod 64, d0 mod 2)>>> {sdsc.host = #sdsc.host<"w", "input", "i8">}) -> tensor<33x70xf16> {
  %e0 = tensor.empty() : tensor<33x70xf16>
  // expected-error@below {{is not padded to whole sticks, and no operation copies it}}
  %m = linalg.generic {indexing_maps = [#x, #w, #y], iterator_types = ["parallel", "parallel", "reduction"]} ins(%x, %w : tensor<33x200xi8>, tensor<200x70xi8, #stick.layout<affine_map<(d0, d1) -> (d1 floordiv 64, d0 floordiv 2, d1 mod 64, d0 mod 2)>>>) outs(%e0 : tensor<33x70xf16>) attrs = {sdsc.op = #sdsc.op<"batchmatmulint8", {}>} {
  ^bb0(%a0: i8, %a1: i8, %o: f16):
    linalg.yield %o : f16
  } -> tensor<33x70xf16>
  return %m : tensor<33x70xf16>
}
