// RUN: spyre-opt %s --verify-each=false --span-reduction --split-input-file --verify-diagnostics | filecheck %s

// One core would reach over 512 MiB of the first operand: two slices of K bring it to 256 MiB, of which the limit is
// 4 KiB short, so rows are halved too.
// CHECK: #[[MAP:map.*]] = affine_map<(d0) -> ((d0 floordiv 2) mod 2, 0, d0 mod 2)>
// CHECK-LABEL: func.func @depth(
// CHECK: sdsc.combine = "add", sdsc.division = #sdsc.division<[2, 1, 2], #[[MAP]]>
#rows = affine_map<(d0, d1) -> (d1 floordiv 64, d0, d1 mod 64)>
#mk = affine_map<(m, n, k) -> (m, k)>
#kn = affine_map<(m, n, k) -> (k, n)>
#mn = affine_map<(m, n, k) -> (m, n)>
func.func @depth(%x: tensor<8192x32768xf16, #stick.layout<#rows>>, %y: tensor<32768x4096xf16, #stick.layout<#rows>>) {
  %e0 = tensor.empty() : tensor<8192x4096xf16, #stick.layout<#rows>>
  // expected-remark@below {{span: to fit the span limit, 'batchmatmul' needs dim 0 of 8192 in 2 slices, dim 2 of 512 in 2 slices}}
  %0 = linalg.generic {indexing_maps = [#mk, #kn, #mn], iterator_types = ["parallel", "parallel", "reduction"]} ins(%x, %y : tensor<8192x32768xf16, #stick.layout<#rows>>, tensor<32768x4096xf16, #stick.layout<#rows>>) outs(%e0 : tensor<8192x4096xf16, #stick.layout<#rows>>) attrs = {sdsc.op = #sdsc.op<"batchmatmul", {}>} {
  ^bb0(%a0: f16, %a1: f16, %o: f16):
    linalg.yield %o : f16
  } -> tensor<8192x4096xf16, #stick.layout<#rows>>
  return
}
// -----
// What one core just reaches, 256 MiB - 4 KiB, stays as it is.
// CHECK-LABEL: func.func @small(
// CHECK-NOT: sdsc.division
#rows = affine_map<(d0, d1) -> (d1 floordiv 64, d0, d1 mod 64)>
#id = affine_map<(d0, d1) -> (d0, d1)>
func.func @small(%x: tensor<2097120x64xf16, #stick.layout<#rows>>) {
  %e0 = tensor.empty() : tensor<2097120x64xf16, #stick.layout<#rows>>
  %0 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%x : tensor<2097120x64xf16, #stick.layout<#rows>>) outs(%e0 : tensor<2097120x64xf16, #stick.layout<#rows>>) attrs = {sdsc.op = #sdsc.op<"exp", {}>} {
  ^bb0(%a0: f16, %o: f16):
    linalg.yield %o : f16
  } -> tensor<2097120x64xf16, #stick.layout<#rows>>
  return
}
// -----
// A tensor over the limit whose rows are a prime number and whose columns are one stick.
#rows = affine_map<(d0, d1) -> (d1 floordiv 64, d0, d1 mod 64)>
#id = affine_map<(d0, d1) -> (d0, d1)>
func.func @prime(%x: tensor<2097169x64xf16, #stick.layout<#rows>>) {
  %e0 = tensor.empty() : tensor<2097169x64xf16, #stick.layout<#rows>>
  // expected-error@below {{'exp' cannot address operand 0, of shape [2097169, 64]. It cannot be split legally: one core still spans 268437632 bytes, the limit is 268431360, with [1, 1] slices of [2097169, 1] sticks or rows on at most 32 cores.}}
  %0 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%x : tensor<2097169x64xf16, #stick.layout<#rows>>) outs(%e0 : tensor<2097169x64xf16, #stick.layout<#rows>>) attrs = {sdsc.op = #sdsc.op<"exp", {}>} {
  ^bb0(%a0: f16, %o: f16):
    linalg.yield %o : f16
  } -> tensor<2097169x64xf16, #stick.layout<#rows>>
  return
}
// -----
// The 65537 sticks of a masked dim, a prime number, have no equal slices.
#rows = affine_map<(d0, d1) -> (d1 floordiv 64, d0, d1 mod 64)>
#sparse = affine_map<(d0) -> (d0, 0)>
#id = affine_map<(d0, d1) -> (d0, d1)>
#first = affine_map<(d0, d1) -> (d0)>
func.func @masked(%x: tensor<64x4194305xf16, #stick.layout<#rows>>) {
  %e0 = tensor.empty() : tensor<64xf16, #stick.layout<#sparse>>
  // expected-error@below {{one core still spans 536871168 bytes, the limit is 268431360, with}}
  %0 = linalg.generic {indexing_maps = [#id, #first], iterator_types = ["parallel", "reduction"]} ins(%x : tensor<64x4194305xf16, #stick.layout<#rows>>) outs(%e0 : tensor<64xf16, #stick.layout<#sparse>>) attrs = {sdsc.op = #sdsc.op<"sum", {}>, sdsc.masks = {d1 = 0.0 : f64}} {
  ^bb0(%a0: f16, %o: f16):
    linalg.yield %o : f16
  } -> tensor<64xf16, #stick.layout<#sparse>>
  return
}
// -----
// All four matrices of a sum over both need their own slice, and each of them four more.
#cube = affine_map<(d0, d1, d2) -> (d0, d1, d2 floordiv 64, d2 mod 64)>
#vec = affine_map<(d0) -> (d0 floordiv 64, d0 mod 64)>
#all = affine_map<(d0, d1, d2) -> (d0, d1, d2)>
#last = affine_map<(d0, d1, d2) -> (d2)>
func.func @two(%x: tensor<4x8000000x64xf16, #stick.layout<#cube>>) {
  %e0 = tensor.empty() : tensor<64xf16, #stick.layout<#vec>>
  // expected-error@below {{fits the span limit of 268431360 bytes only if reduction dims [0, 1] are split [4, 4] times; at most one reduction dim may be.}}
  %0 = linalg.generic {indexing_maps = [#all, #last], iterator_types = ["reduction", "reduction", "parallel"]} ins(%x : tensor<4x8000000x64xf16, #stick.layout<#cube>>) outs(%e0 : tensor<64xf16, #stick.layout<#vec>>) attrs = {sdsc.op = #sdsc.op<"sumnonstick", {}>} {
  ^bb0(%a0: f16, %o: f16):
    linalg.yield %o : f16
  } -> tensor<64xf16, #stick.layout<#vec>>
  return
}
// -----
// A transposed weight: the input needs 5 slices of the columns, the output 8 of the rows, 40 cores together. Half of it
// fits, so it is converted in two parts.
// CHECK-LABEL: func.func @transposed(
// CHECK: %[[WHOLE:.*]] = tensor.empty() : tensor<131072x5120xf16, #stick.layout<#{{.*}}>>
// CHECK: tensor.extract_slice %{{.*}}[0, 0] [65536, 5120] [1, 1]
// CHECK: "stick.restickify"(%{{.*}}) {sdsc.division = #sdsc.division<[{{.*}}], #{{.*}}>}
// CHECK: tensor.insert_slice %{{.*}} into %[[WHOLE]][0, 0] [65536, 5120] [1, 1]
// CHECK: tensor.extract_slice %{{.*}}[65536, 0] [65536, 5120] [1, 1]
#rows = affine_map<(d0, d1) -> (d1 floordiv 64, d0, d1 mod 64)>
#columns = affine_map<(d0, d1) -> (d0 floordiv 64, d1, d0 mod 64)>
func.func @transposed(%x: tensor<131072x5120xf16, #stick.layout<#rows>>) -> tensor<131072x5120xf16, #stick.layout<#columns>> {
  // expected-remark@below {{span: 2 parts of dim 0 are converted; no division fits the span limit}}
  %0 = "stick.restickify"(%x) : (tensor<131072x5120xf16, #stick.layout<#rows>>) -> tensor<131072x5120xf16, #stick.layout<#columns>>
  return %0 : tensor<131072x5120xf16, #stick.layout<#columns>>
}
