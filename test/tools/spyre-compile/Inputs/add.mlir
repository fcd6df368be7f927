func.func @main(%x: tensor<3x65xf16>) -> tensor<3x65xf16> {
  %e = tensor.empty() : tensor<3x65xf16>
  %y = linalg.add ins(%x, %x : tensor<3x65xf16>, tensor<3x65xf16>) outs(%e : tensor<3x65xf16>) -> tensor<3x65xf16>
  return %y : tensor<3x65xf16>
}
