// RUN: spyre-opt %s --verify-diagnostics --split-input-file

// A restickify changes nothing but the layout: not the shape.
#rows = affine_map<(d0, d1) -> (d1 floordiv 64, d0, d1 mod 64)>
func.func @shape(%x: tensor<64x64xf16, #stick.layout<#rows>>) {
  // expected-error@below {{restickify keeps shape and element type, only the layout changes}}
  %0 = "stick.restickify"(%x) : (tensor<64x64xf16, #stick.layout<#rows>>) -> tensor<64x128xf16, #stick.layout<#rows>>
  return
}
// -----
// Not the element type.
#rows = affine_map<(d0, d1) -> (d1 floordiv 64, d0, d1 mod 64)>
func.func @element(%x: tensor<64x64xf16, #stick.layout<#rows>>) {
  // expected-error@below {{restickify keeps shape and element type, only the layout changes}}
  %0 = "stick.restickify"(%x) : (tensor<64x64xf16, #stick.layout<#rows>>) -> tensor<64x64xf32, #stick.layout<#rows>>
  return
}
// -----
// Both sides have a layout.
#rows = affine_map<(d0, d1) -> (d1 floordiv 64, d0, d1 mod 64)>
func.func @layout(%x: tensor<64x64xf16, #stick.layout<#rows>>) {
  // expected-error@below {{restickify needs a layout on its source and on its result}}
  %0 = "stick.restickify"(%x) : (tensor<64x64xf16, #stick.layout<#rows>>) -> tensor<64x64xf16>
  return
}
