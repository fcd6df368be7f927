#id = affine_map<(d0, d1) -> (d0, d1)>
#row = affine_map<(d0, d1) -> (d1)>
func.func @main(%x: tensor<512x1024xf16>, %sum: tensor<1024xf16>) -> tensor<512x1024xf16> {
  %e = tensor.empty() : tensor<512x1024xf16>
  %y = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]}
      ins(%x, %sum : tensor<512x1024xf16>, tensor<1024xf16>) outs(%e : tensor<512x1024xf16>) {
  ^bb0(%a: f16, %s: f16, %o: f16):
    %exp = math.exp %a : f16
    %r = arith.divf %exp, %s : f16
    linalg.yield %r : f16
  } -> tensor<512x1024xf16>
  return %y : tensor<512x1024xf16>
}
