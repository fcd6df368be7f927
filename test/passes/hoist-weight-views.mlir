// RUN: spyre-opt %s --hoist-weight-views --split-input-file --verify-diagnostics | filecheck %s

// A slice of a weight becomes the argument; its host array stays the whole one.
// expected-remark @+3 {{the host cuts [512, 64] out of [512, 96]}}
// CHECK: func.func @slice(%arg0: tensor<512x64xf16> {sdsc.host = #sdsc.host<"w", "parameter", "f16">, sdsc.host_view = {array = array<i64: 512, 96>, offset = 5 : i64, strides = array<i64: 96, 1>}}) -> tensor<512x64xf16>
func.func @slice(%w: tensor<512x96xf16> {sdsc.host = #sdsc.host<"w", "parameter", "f16">}) -> tensor<512x64xf16> {
  %v = tensor.extract_slice %w[0, 5] [512, 64] [1, 1] : tensor<512x96xf16> to tensor<512x64xf16>
  // CHECK-NEXT: %0 = "sdsc.clone"(%arg0)
  %c = "sdsc.clone"(%v) : (tensor<512x64xf16>) -> tensor<512x64xf16>
  return %c : tensor<512x64xf16>
}

// -----

// A weight that is also read as a whole is given twice.
// CHECK: func.func @both(%arg0: tensor<4x6xf16> {sdsc.host = #sdsc.host<"w", "parameter", "f16">},
// CHECK-SAME: %arg1: tensor<24xf16> {sdsc.host = #sdsc.host<"w@1", "parameter", "f16">, sdsc.host_view = {array = array<i64: 4, 6>, offset = 0 : i64, strides = array<i64: 1>}, sdsc.source = "w"})
// expected-remark @+2 {{the host cuts [24] out of [4, 6]}}
func.func @both(%w: tensor<4x6xf16> {sdsc.host = #sdsc.host<"w", "parameter", "f16">}) -> (tensor<4x6xf16>, tensor<24xf16>) {
  %v = tensor.collapse_shape %w [[0, 1]] : tensor<4x6xf16> into tensor<24xf16>
  %c = "sdsc.clone"(%w) : (tensor<4x6xf16>) -> tensor<4x6xf16>
  %d = "sdsc.clone"(%v) : (tensor<24xf16>) -> tensor<24xf16>
  return %c, %d : tensor<4x6xf16>, tensor<24xf16>
}

// -----

// Views of an input, and transposes of a weight, stay views.
// CHECK: func.func @stay(%arg0: tensor<4x6xf16> {sdsc.host = #sdsc.host<"w", "parameter", "f16">}, %arg1
// CHECK: tensor.collapse_shape %arg1
// CHECK: linalg.transpose ins(%arg0
func.func @stay(%w: tensor<4x6xf16> {sdsc.host = #sdsc.host<"w", "parameter", "f16">},
                %x: tensor<4x6xf16> {sdsc.host = #sdsc.host<"x", "input", "f16">}) -> (tensor<24xf16>, tensor<6x4xf16>) {
  %v = tensor.collapse_shape %x [[0, 1]] : tensor<4x6xf16> into tensor<24xf16>
  %e = tensor.empty() : tensor<6x4xf16>
  %t = linalg.transpose ins(%w : tensor<4x6xf16>) outs(%e : tensor<6x4xf16>) permutation = [1, 0]
  %c = "sdsc.clone"(%v) : (tensor<24xf16>) -> tensor<24xf16>
  %d = "sdsc.clone"(%t) : (tensor<6x4xf16>) -> tensor<6x4xf16>
  return %c, %d : tensor<24xf16>, tensor<6x4xf16>
}

// -----

// Patches of an input, which no layout shows, are cut by the host; rows lie in pieces of 3, so columns are in the stick.
// CHECK: func.func @patches(%arg0: tensor<6x32xf16, #{{.*}}> {sdsc.host = #sdsc.host<"x", "input", "f16">,
// CHECK-SAME: sdsc.host_view = {array = array<i64: 16, 12>, offset = 0 : i64, sizes = array<i64: 2, 3, 4, 4, 2>, strides = array<i64: 96, 4, 12, 1, 48>}
func.func @patches(%x: tensor<16x12xf16> {sdsc.host = #sdsc.host<"x", "input", "f16">}) -> tensor<6x32xf16> {
  %a = tensor.expand_shape %x [[0, 1, 2], [3, 4]] output_shape [2, 2, 4, 3, 4] : tensor<16x12xf16> into tensor<2x2x4x3x4xf16>
  %e = tensor.empty() : tensor<2x3x4x4x2xf16>
  %t = linalg.transpose ins(%a : tensor<2x2x4x3x4xf16>) outs(%e : tensor<2x3x4x4x2xf16>) permutation = [0, 3, 2, 4, 1]
  // expected-remark @below {{the host cuts [6, 32] out of [16, 12]}}
  %v = tensor.collapse_shape %t [[0, 1], [2, 3, 4]] : tensor<2x3x4x4x2xf16> into tensor<6x32xf16>
  // CHECK: "sdsc.clone"(%arg0)
  %c = "sdsc.clone"(%v) : (tensor<6x32xf16>) -> tensor<6x32xf16>
  return %c : tensor<6x32xf16>
}
