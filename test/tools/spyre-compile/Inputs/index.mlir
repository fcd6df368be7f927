// Nothing on the device adds over an index of the iteration.
func.func @main(%x: tensor<64xf16>) -> tensor<64xf16> {
  %e = tensor.empty() : tensor<64xf16>
  %y = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]}
      ins(%x : tensor<64xf16>) outs(%e : tensor<64xf16>) {
  ^bb0(%a: f16, %o: f16):
    %i = linalg.index 0 : index
    %j = arith.index_cast %i : index to i16
    %k = arith.sitofp %j : i16 to f16
    %r = math.atan2 %a, %k : f16
    linalg.yield %r : f16
  } -> tensor<64xf16>
  return %y : tensor<64xf16>
}
