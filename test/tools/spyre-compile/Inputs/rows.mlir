func.func @main(%x: tensor<197x768xf16>, %y: tensor<768x768xf16>) -> tensor<197x768xf16> {
  %zero = arith.constant 0.0 : f16
  %empty = tensor.empty() : tensor<197x768xf16>
  %fill = linalg.fill ins(%zero : f16) outs(%empty : tensor<197x768xf16>) -> tensor<197x768xf16>
  %0 = linalg.matmul ins(%x, %y : tensor<197x768xf16>, tensor<768x768xf16>)
         outs(%fill : tensor<197x768xf16>) -> tensor<197x768xf16>
  %1 = linalg.exp ins(%0 : tensor<197x768xf16>) outs(%empty : tensor<197x768xf16>) -> tensor<197x768xf16>
  return %1 : tensor<197x768xf16>
}
