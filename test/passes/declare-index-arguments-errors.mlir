// RUN: spyre-opt %s --declare-index-arguments --verify-diagnostics --split-input-file

// The device cannot give an index to itself.
func.func @computed(%c: tensor<64x128xf16>, %p: tensor<1xi64>, %r: tensor<1x128xf16>) -> tensor<64x128xf16> {
  %q = tensor.extract_slice %p[0] [1] [1] : tensor<1xi64> to tensor<1xi64>
  // expected-error@below {{an index that the program computes is for the host}}
  %i = "sdsc.read_index"(%q) {element = 0 : i64, sdsc.index_bounds = {lower = 0 : i64, upper = 64 : i64, operation = "index_copy"}} : (tensor<1xi64>) -> index
  %0 = tensor.insert_slice %r into %c[%i, 0] [1, 128] [1, 1] : tensor<1x128xf16> into tensor<64x128xf16>
  return %0 : tensor<64x128xf16>
}
// -----
// What is known is checked here.
func.func @outside(%c: tensor<64x128xf16>, %r: tensor<1x128xf16>) -> tensor<64x128xf16> {
  %p = arith.constant dense<[64]> : tensor<1xi64>
  // expected-error@below {{64 is an index of index_copy, which takes 0 to 63}}
  %i = "sdsc.read_index"(%p) {element = 0 : i64, sdsc.index_bounds = {lower = 0 : i64, upper = 64 : i64, operation = "index_copy"}} : (tensor<1xi64>) -> index
  %0 = tensor.insert_slice %r into %c[%i, 0] [1, 128] [1, 1] : tensor<1x128xf16> into tensor<64x128xf16>
  return %0 : tensor<64x128xf16>
}
