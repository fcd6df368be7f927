// RUN: spyre-opt %s --work-distribution --split-input-file | filecheck %s

// The contracted dim of an 8-bit matmul is not split, whatever that leaves idle: its kernel has no partial sums.
// CHECK-LABEL: func.func @whole_sums(
// CHECK: sdsc.division = #sdsc.division<[4, 1, 1], #{{.*}}>, sdsc.op = #sdsc.op<"batchmatmulint8", {}>
#rows = affine_map<(d0, d1) -> (d1 floordiv 128, d0, d1 mod 128)>
#pairs = affine_map<(d0, d1) -> (d1 floordiv 64, d0 floordiv 2, d1 mod 64, d0 mod 2)>
#half = affine_map<(d0, d1) -> (d1 floordiv 64, d0, d1 mod 64)>
func.func @whole_sums(%x: tensor<4x65536xi8, #stick.layout<#rows>>, %w: tensor<65536x64xi8, #stick.layout<#pairs>>) {
  %e0 = tensor.empty() : tensor<4x64xf16, #stick.layout<#half>>
  %0 = linalg.generic {indexing_maps = [affine_map<(d0, d1, d2) -> (d0, d2)>, affine_map<(d0, d1, d2) -> (d2, d1)>, affine_map<(d0, d1, d2) -> (d0, d1)>], iterator_types = ["parallel", "parallel", "reduction"]} ins(%x, %w : tensor<4x65536xi8, #stick.layout<#rows>>, tensor<65536x64xi8, #stick.layout<#pairs>>) outs(%e0 : tensor<4x64xf16, #stick.layout<#half>>) attrs = {sdsc.op = #sdsc.op<"batchmatmulint8", {}>} {
  ^bb0(%a0: i8, %a1: i8, %o: f16):
    linalg.yield %o : f16
  } -> tensor<4x64xf16, #stick.layout<#half>>
  return
}
