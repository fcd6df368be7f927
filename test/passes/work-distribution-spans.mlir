// RUN: spyre-opt %s --span-reduction --work-distribution="matmul=specified" --verify-divided --verify-diagnostics | filecheck %s

// The span forces K=2 and half the rows, all cores left go to M, the larger output dim; K first.
// CHECK: #[[MAP:map.*]] = affine_map<(d0) -> ((d0 floordiv 2) mod 16, 0, d0 mod 2)>
// CHECK: sdsc.combine = "add", sdsc.division = #sdsc.division<[16, 1, 2], #[[MAP]]>
#rows = affine_map<(d0, d1) -> (d1 floordiv 64, d0, d1 mod 64)>
#mk = affine_map<(m, n, k) -> (m, k)>
#kn = affine_map<(m, n, k) -> (k, n)>
#mn = affine_map<(m, n, k) -> (m, n)>
func.func @forced(%x: tensor<8192x32768xf16, #stick.layout<#rows>>, %y: tensor<32768x4096xf16, #stick.layout<#rows>>) {
  %e0 = tensor.empty() : tensor<8192x4096xf16, #stick.layout<#rows>>
  // expected-remark@below {{span: to fit the span limit, 'batchmatmul' needs dim 0 of 8192 in 2 slices, dim 2 of 512 in 2 slices}}
  // expected-remark@below {{division: 32 of 32 cores: dim 0 of 8192 in 16 slices, dim 2 of 512 in 2 slices; cores 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31 have the finished values}}
  %0 = linalg.generic {indexing_maps = [#mk, #kn, #mn], iterator_types = ["parallel", "parallel", "reduction"]} ins(%x, %y : tensor<8192x32768xf16, #stick.layout<#rows>>, tensor<32768x4096xf16, #stick.layout<#rows>>) outs(%e0 : tensor<8192x4096xf16, #stick.layout<#rows>>) attrs = {sdsc.op = #sdsc.op<"batchmatmul", {}>} {
  ^bb0(%a0: f16, %a1: f16, %o: f16):
    linalg.yield %o : f16
  } -> tensor<8192x4096xf16, #stick.layout<#rows>>
  return
}
