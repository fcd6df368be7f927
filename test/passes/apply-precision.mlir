// RUN: spyre-opt %s --apply-precision --canonicalize --split-input-file --verify-diagnostics | filecheck %s
// RUN: spyre-opt %s --apply-precision="policy=strict" --canonicalize --split-input-file | filecheck %s --check-prefix=STRICT

// An fp32 island between two casts runs as fp16, its constants too.
#id = affine_map<(d0) -> (d0)>
#all = affine_map<(d0) -> ()>
// expected-remark@below {{precision: 2 f32 values between fp16 values run as fp16}}
func.func @island(%x: tensor<64xf16>) -> tensor<64xf16> {
  %c = arith.constant dense<1.0e6> : tensor<f32>
  %e = tensor.empty() : tensor<64xf32>
  %h = tensor.empty() : tensor<64xf16>
  %0 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%x : tensor<64xf16>) outs(%e : tensor<64xf32>) attrs = {sdsc.op = #sdsc.op<"dl16tofp32", {}>} {
  ^bb0(%a: f16, %o: f32):
    %r = arith.extf %a : f16 to f32
    linalg.yield %r : f32
  } -> tensor<64xf32>
  %1 = linalg.generic {indexing_maps = [#id, #all, #id], iterator_types = ["parallel"]} ins(%0, %c : tensor<64xf32>, tensor<f32>) outs(%e : tensor<64xf32>) attrs = {sdsc.op = #sdsc.op<"minimum", {}>} {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %r = arith.minimumf %a, %b : f32
    linalg.yield %r : f32
  } -> tensor<64xf32>
  %2 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%1 : tensor<64xf32>) outs(%h : tensor<64xf16>) attrs = {sdsc.op = #sdsc.op<"fp32todl16", {}>} {
  ^bb0(%a: f32, %o: f16):
    %r = arith.truncf %a : f32 to f16
    linalg.yield %r : f16
  } -> tensor<64xf16>
  return %2 : tensor<64xf16>
}
// -----
// An island that an fp32 argument or result belongs to stays.
#id = affine_map<(d0) -> (d0)>
func.func @bound(%x: tensor<64xf16>, %y: tensor<64xf32>) -> tensor<64xf16> {
  %e = tensor.empty() : tensor<64xf32>
  %h = tensor.empty() : tensor<64xf16>
  %0 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%x : tensor<64xf16>) outs(%e : tensor<64xf32>) attrs = {sdsc.op = #sdsc.op<"dl16tofp32", {}>} {
  ^bb0(%a: f16, %o: f32):
    %r = arith.extf %a : f16 to f32
    linalg.yield %r : f32
  } -> tensor<64xf32>
  %1 = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel"]} ins(%0, %y : tensor<64xf32>, tensor<64xf32>) outs(%e : tensor<64xf32>) attrs = {sdsc.op = #sdsc.op<"add", {}>} {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %r = arith.addf %a, %b : f32
    linalg.yield %r : f32
  } -> tensor<64xf32>
  %2 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%1 : tensor<64xf32>) outs(%h : tensor<64xf16>) attrs = {sdsc.op = #sdsc.op<"fp32todl16", {}>} {
  ^bb0(%a: f32, %o: f16):
    %r = arith.truncf %a : f32 to f16
    linalg.yield %r : f16
  } -> tensor<64xf16>
  return %2 : tensor<64xf16>
}
// -----
// A matmul that is rounded at once is one operation under both policies; views of an island follow it.
#lhs = affine_map<(d0, d1, d2) -> (d0, d2)>
#rhs = affine_map<(d0, d1, d2) -> (d2, d1)>
#out = affine_map<(d0, d1, d2) -> (d0, d1)>
#id = affine_map<(d0, d1) -> (d0, d1)>
#vec = affine_map<(d0) -> (d0)>
func.func @matmul(%x: tensor<64x64xf16>) -> (tensor<64x64xf16>, tensor<4096xf16>) {
  %z = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<64x64xf32>
  %h = tensor.empty() : tensor<64x64xf16>
  %v = tensor.empty() : tensor<4096xf16>
  %f = linalg.fill ins(%z : f32) outs(%e : tensor<64x64xf32>) -> tensor<64x64xf32>
  %0 = linalg.generic {indexing_maps = [#lhs, #rhs, #out], iterator_types = ["parallel", "parallel", "reduction"]} ins(%x, %x : tensor<64x64xf16>, tensor<64x64xf16>) outs(%f : tensor<64x64xf32>) attrs = {sdsc.op = #sdsc.op<"batchmatmul", {}>} {
  ^bb0(%a: f16, %b: f16, %o: f32):
    %c = arith.extf %a : f16 to f32
    %d = arith.extf %b : f16 to f32
    %p = arith.mulf %c, %d : f32
    %r = arith.addf %o, %p : f32
    linalg.yield %r : f32
  } -> tensor<64x64xf32>
  %1 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%0 : tensor<64x64xf32>) outs(%h : tensor<64x64xf16>) attrs = {sdsc.op = #sdsc.op<"fp32todl16", {}>} {
  ^bb0(%a: f32, %o: f16):
    %r = arith.truncf %a : f32 to f16
    linalg.yield %r : f16
  } -> tensor<64x64xf16>
  %2 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%1 : tensor<64x64xf16>) outs(%e : tensor<64x64xf32>) attrs = {sdsc.op = #sdsc.op<"dl16tofp32", {}>} {
  ^bb0(%a: f16, %o: f32):
    %r = arith.extf %a : f16 to f32
    linalg.yield %r : f32
  } -> tensor<64x64xf32>
  %3 = tensor.collapse_shape %2 [[0, 1]] : tensor<64x64xf32> into tensor<4096xf32>
  %4 = linalg.generic {indexing_maps = [#vec, #vec], iterator_types = ["parallel"]} ins(%3 : tensor<4096xf32>) outs(%v : tensor<4096xf16>) attrs = {sdsc.op = #sdsc.op<"fp32todl16", {}>} {
  ^bb0(%a: f32, %o: f16):
    %r = arith.truncf %a : f32 to f16
    linalg.yield %r : f16
  } -> tensor<4096xf16>
  return %1, %4 : tensor<64x64xf16>, tensor<4096xf16>
}
