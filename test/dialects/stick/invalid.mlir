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
  // expected-error@below {{restickify needs a layout on its source and on its result, or 'stick.to'}}
  %0 = "stick.restickify"(%x) : (tensor<64x64xf16, #stick.layout<#rows>>) -> tensor<64x64xf16>
  return
}
// -----
// stick.to holds a layout.
func.func @request(%x: tensor<64x64xf16>) {
  // expected-error@below {{'stick.to' must be a #stick.layout, not "columns"}}
  %0 = "stick.restickify"(%x) {stick.to = "columns"} : (tensor<64x64xf16>) -> tensor<64x64xf16>
  return
}
// -----
// It has the rank of the tensor.
#dense = affine_map<(d0) -> (d0 floordiv 64, d0 mod 64)>
func.func @rank(%x: tensor<64x64xf16>) {
  // expected-error@below {{'stick.to' is a layout of 1 dim, but the tensor has 2}}
  %0 = "stick.restickify"(%x) {stick.to = #stick.layout<#dense>} : (tensor<64x64xf16>) -> tensor<64x64xf16>
  return
}
// -----
// It is made of digits.
#sum = affine_map<(d0, d1) -> (d0 + d1)>
func.func @digits(%x: tensor<64x64xf16>) {
  // expected-error@below {{'stick.to' is not a layout: 'd0 + d1' is not a digit of one dim}}
  %0 = "stick.pin"(%x) {stick.to = #stick.layout<#sum>} : (tensor<64x64xf16>) -> tensor<64x64xf16>
  return
}
// -----
// A pin is the tensor that it pins.
#rows = affine_map<(d0, d1) -> (d1 floordiv 64, d0, d1 mod 64)>
func.func @pin(%x: tensor<64x64xf16>) {
  // expected-error@below {{pin keeps shape and element type of its operand}}
  %0 = "stick.pin"(%x) {stick.to = #stick.layout<#rows>} : (tensor<64x64xf16>) -> tensor<64x128xf16>
  return
}
// -----
// It says in which layout.
func.func @pin(%x: tensor<64x64xf16>) {
  // expected-error@below {{pin names the layout of its operand in 'stick.to'}}
  %0 = "stick.pin"(%x) : (tensor<64x64xf16>) -> tensor<64x64xf16>
  return
}
// -----
// The layout of a tensor has its rank.
#dense = affine_map<(d0) -> (d0 floordiv 64, d0 mod 64)>
// expected-error@below {{the layout of this tensor is invalid: its map has 1 dim and 0 symbols; the rank is 2}}
func.func @rank(%x: tensor<64x64xf16, #stick.layout<#dense>>) {
  return
}
// -----
// It is made of digits.
#sum = affine_map<(d0, d1) -> (d0 + d1)>
// expected-error@below {{the layout of this tensor is invalid: 'd0 + d1' is not a digit of one dim}}
func.func @digits(%x: tensor<64x64xf16, #stick.layout<#sum>>) {
  return
}
// -----
// A tensor with a layout has constant sizes.
#rows = affine_map<(d0, d1) -> (d1 floordiv 64, d0, d1 mod 64)>
// expected-error@below {{a tensor with a layout has a constant size of 1 or more in each dim, not [0, 64]}}
func.func @empty(%x: tensor<0x64xf16, #stick.layout<#rows>>) {
  return
}
// -----
// It fits the memory of the device.
#rows = affine_map<(d0, d1) -> (d1 floordiv 64, d0, d1 mod 64)>
// expected-error@below {{this tensor takes 140737488355328 bytes, the device has 120259084288}}
func.func @large(%x: tensor<1099511627776x64xf16, #stick.layout<#rows>>) {
  return
}
// -----
// Its elements are of a type that the device has.
#rows = affine_map<(d0, d1) -> (d1 floordiv 64, d0, d1 mod 64)>
// expected-error@below {{a tensor of f64 has no layout on the device}}
func.func @element(%x: tensor<64x64xf64, #stick.layout<#rows>>) {
  return
}
