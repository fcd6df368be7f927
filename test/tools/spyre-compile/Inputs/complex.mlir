func.func @main(%x: tensor<4x64xcomplex<f32>>) -> tensor<4x64xcomplex<f32>> {
  return %x : tensor<4x64xcomplex<f32>>
}
