#loc = loc(unknown)
#loc1 = loc("model.py":7:0)
#map = affine_map<(d0, d1) -> (d0, d1)>
#loc2 = loc(fused<{node = "p_l_weight"}>[#loc])
#loc4 = loc(fused<{aten = "aten.sin.default", node = "sin"}>[#loc1])
#loc5 = loc(fused<{aten = "aten.relu.default", node = "relu"}>[#loc1])
module attributes {sdsc.target = {cores = {usable = 2 : i64}}} {
  func.func @main(%arg0: tensor<8x64xf16> {spyre.kind = "input", spyre.name = "device_0.0"} loc(fused<{node = "p_l_weight"}>[#loc])) -> tensor<8x64xf16> {
    %0 = tensor.empty() : tensor<8x64xf16> loc(#loc3)
    %1 = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel"]} ins(%arg0 : tensor<8x64xf16>) outs(%0 : tensor<8x64xf16>) {
    ^bb0(%in: f16 loc(fused<{aten = "aten.relu.default", node = "relu"}>[#loc1]), %out: f16 loc(fused<{aten = "aten.sin.default", node = "sin"}>[#loc1])):
      %2 = math.sin %in : f16 loc(#loc4)
      linalg.yield %2 : f16 loc(#loc4)
    } -> tensor<8x64xf16> loc(#loc4)
    return %1 : tensor<8x64xf16> loc(#loc2)
  } loc(#loc2)
} loc(#loc2)
#loc3 = loc(fused<{aten = "aten.linear.default", module = "l", node = "addmm"}>[#loc1])

