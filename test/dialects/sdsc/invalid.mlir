// RUN: spyre-opt %s --verify-diagnostics --split-input-file

// A clone copies: same shape.
func.func @shape(%x: tensor<64xf16>) {
  // expected-error@below {{clone keeps shape and element type of its source}}
  %0 = "sdsc.clone"(%x) : (tensor<64xf16>) -> tensor<128xf16>
  return
}
// -----
// Same element type.
func.func @element(%x: tensor<64xf16>) {
  // expected-error@below {{clone keeps shape and element type of its source}}
  %0 = "sdsc.clone"(%x) : (tensor<64xf16>) -> tensor<64xf32>
  return
}
// -----
// A division has as many slices as the device has cores, at most: nothing is computed for more.
#map = affine_map<(d0) -> (d0 mod 2, 0)>
func.func @cores(%x: tensor<64x64xf16>) {
  // expected-error@below {{the division needs 4294967296 cores, the device has 32}}
  %0 = "sdsc.clone"(%x) {sdsc.division = #sdsc.division<[2147483648, 2], #map>} : (tensor<64x64xf16>) -> tensor<64x64xf16>
  return
}
// -----
// No dim has less than one slice.
#map = affine_map<(d0) -> (d0 mod 2, 0)>
func.func @slices(%x: tensor<64x64xf16>) {
  // expected-error@below {{'sdsc.division' must be slices and a core map}}
  %0 = "sdsc.clone"(%x) {sdsc.division = #sdsc.division<[-1, 1], #map>} : (tensor<64x64xf16>) -> tensor<64x64xf16>
  return
}
// -----
// The core map has a result for each dim.
#map = affine_map<(d0) -> (d0 mod 2)>
func.func @results(%x: tensor<64x64xf16>) {
  // expected-error@below {{the map is from a core to the slices of 2 dims}}
  %0 = "sdsc.clone"(%x) {sdsc.division = #sdsc.division<[2, 1], #map>} : (tensor<64x64xf16>) -> tensor<64x64xf16>
  return
}
// -----
// It divides by constants.
#map = affine_map<(d0) -> (d0 mod 0, 0)>
func.func @constants(%x: tensor<64x64xf16>) {
  // expected-error@below {{'d0 mod 0' divides by an expression that is not a positive constant}}
  %0 = "sdsc.clone"(%x) {sdsc.division = #sdsc.division<[2, 1], #map>} : (tensor<64x64xf16>) -> tensor<64x64xf16>
  return
}
// -----
// A placement is one of the two.
func.func @placement(%x: tensor<64x64xf16>) {
  // expected-error@below {{'sdsc.placement' must be a place like #sdsc.hbm<"pool", 128> or #sdsc.lx<128>: got "pool"}}
  %0 = "sdsc.clone"(%x) {sdsc.placement = "pool"} : (tensor<64x64xf16>) -> tensor<64x64xf16>
  return
}
// -----
// The kind of an argument is known.
// expected-error@below {{'zzz' is not one of input, parameter, constant, result, intermediate}}
func.func @kind(%x: tensor<64x64xf16> {sdsc.host = #sdsc.host<"x", "zzz", "f16">}) {
  return
}
// -----
// A name is a text.
// expected-error@below {{'spyre.name' must be a text: got 3 : i64}}
func.func @name(%x: tensor<64x64xf16> {spyre.name = 3 : i64}) {
  return
}
// -----
// An index needs a range.
func.func @unbounded(%p: tensor<1xi64>) -> index {
  // expected-error@below {{an index has 'sdsc.index_bounds' from 0, or from -size, to the size of its dim}}
  %0 = "sdsc.read_index"(%p) {element = 0 : i64} : (tensor<1xi64>) -> index
  return %0 : index
}
// -----
// It is an element of its tensor.
func.func @beyond(%p: tensor<1xi64>) -> index {
  // expected-error@below {{read_index takes one of the elements of a tensor of i32 or i64}}
  %0 = "sdsc.read_index"(%p) {element = 1 : i64, sdsc.index_bounds = {lower = 0 : i64, upper = 8 : i64, operation = "index_copy"}} : (tensor<1xi64>) -> index
  return %0 : index
}
