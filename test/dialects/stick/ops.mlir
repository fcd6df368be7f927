// RUN: spyre-opt %s | spyre-opt | filecheck %s

// Layouts of every kind of digit survive printing, on arguments and results of views and restickifies.
// CHECK: #[[ROWS:map.*]] = affine_map<(d0, d1) -> (d1 floordiv 64, d0, d1 mod 64)>
// CHECK: #[[SPARSE:map.*]] = affine_map<(d0) -> (d0, 0)>
// CHECK: #[[COLUMNS:map.*]] = affine_map<(d0, d1) -> (d0 floordiv 64, d1 mod 128, d0 mod 64)>
#rows = affine_map<(d0, d1) -> (d1 floordiv 64, d0, d1 mod 64)>
#columns = affine_map<(d0, d1) -> (d0 floordiv 64, d1 mod 128, d0 mod 64)>
#sparse = affine_map<(d0) -> (d0, 0)>
// CHECK-LABEL: func.func @restickify(
// CHECK-SAME: %{{.*}}: tensor<64x128xf16, #stick.layout<#[[ROWS]]>>, %{{.*}}: tensor<64xf16, #stick.layout<#[[SPARSE]]>>)
func.func @restickify(%x: tensor<64x128xf16, #stick.layout<#rows>>, %y: tensor<64xf16, #stick.layout<#sparse>>) {
  // CHECK-NEXT: "stick.restickify"(%{{.*}}) : (tensor<64x128xf16, #stick.layout<#[[ROWS]]>>) -> tensor<64x128xf16, #stick.layout<#[[COLUMNS]]>>
  %0 = "stick.restickify"(%x) : (tensor<64x128xf16, #stick.layout<#rows>>) -> tensor<64x128xf16, #stick.layout<#columns>>
  return
}

// Before layouts are chosen, both ops name one in stick.to; the source may be an argument whose layout is the caller's.
// CHECK-LABEL: func.func @requests(
func.func @requests(%x: tensor<64x128xf16>, %y: tensor<64xf16, #stick.layout<#sparse>>) {
  // CHECK-NEXT: %[[P:.*]] = "stick.pin"(%{{.*}}) {stick.to = #stick.layout<#[[COLUMNS]]>} : (tensor<64x128xf16>) -> tensor<64x128xf16>
  %0 = "stick.pin"(%x) {stick.to = #stick.layout<#columns>} : (tensor<64x128xf16>) -> tensor<64x128xf16>
  // CHECK-NEXT: "stick.restickify"(%[[P]]) {stick.to = #stick.layout<#[[ROWS]]>} : (tensor<64x128xf16>) -> tensor<64x128xf16>
  %1 = "stick.restickify"(%0) {stick.to = #stick.layout<#rows>} : (tensor<64x128xf16>) -> tensor<64x128xf16>
  // CHECK-NEXT: "stick.pin"(%{{.*}}) {stick.to = #stick.layout<#[[SPARSE]]>} : (tensor<64xf16, #stick.layout<#[[SPARSE]]>>) -> tensor<64xf16>
  %2 = "stick.pin"(%y) {stick.to = #stick.layout<#sparse>} : (tensor<64xf16, #stick.layout<#sparse>>) -> tensor<64xf16>
  return
}
