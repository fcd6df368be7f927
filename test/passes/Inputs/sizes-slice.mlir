func.func @main(%x: tensor<256x64xf16> {sdsc.symbolic = {d0 = ["S", 1 : i64]}, spyre.name = "x"})
    -> tensor<100x64xf16> attributes {sdsc.sizes = {S = array<i64: 64, 256>}} {
  %s = tensor.extract_slice %x[0, 0] [100, 64] [1, 1] : tensor<256x64xf16> to tensor<100x64xf16>
  %e = tensor.empty() : tensor<100x64xf16>
  %y = linalg.exp ins(%s : tensor<100x64xf16>) outs(%e : tensor<100x64xf16>) -> tensor<100x64xf16>
  return %y : tensor<100x64xf16>
}
