// RUN: spyre-opt %s --canonicalize --cse | filecheck %s

// Equal restickifies merge and one that nobody reads goes; a pin holds for its operand, whoever reads the result.
// CHECK-LABEL: func.func @requests(
// CHECK-SAME: %[[X:\w+]]: tensor<70xf16>
// CHECK-NEXT: "stick.pin"(%[[X]])
// CHECK-NEXT: %[[R:.*]] = "stick.restickify"(%[[X]])
// CHECK-NEXT: return %[[R]], %[[R]]
#dense = affine_map<(d0) -> (d0 floordiv 64, d0 mod 64)>
#sparse = affine_map<(d0) -> (d0, 0)>
func.func @requests(%x: tensor<70xf16>) -> (tensor<70xf16>, tensor<70xf16>) {
  %0 = "stick.pin"(%x) {stick.to = #stick.layout<#dense>} : (tensor<70xf16>) -> tensor<70xf16>
  %1 = "stick.restickify"(%x) {stick.to = #stick.layout<#sparse>} : (tensor<70xf16>) -> tensor<70xf16>
  %2 = "stick.restickify"(%x) {stick.to = #stick.layout<#sparse>} : (tensor<70xf16>) -> tensor<70xf16>
  %3 = "stick.restickify"(%x) {stick.to = #stick.layout<#dense>} : (tensor<70xf16>) -> tensor<70xf16>
  return %1, %2 : tensor<70xf16>, tensor<70xf16>
}
