func.func @main(%x: tensor<?x64xf16>) -> tensor<?x64xf16> {
  return %x : tensor<?x64xf16>
}
