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
