// RUN: spyre-opt %s --apply-precision --canonicalize --split-input-file --verify-diagnostics | filecheck %s
// RUN: spyre-opt %s --apply-precision="policy=strict" --canonicalize --split-input-file | filecheck %s --check-prefix=STRICT
// RUN: not spyre-opt %s --apply-precision="policy=none" --split-input-file 2>&1 | filecheck %s --check-prefix=POLICY

// POLICY: error: Precision policy 'none' is unknown; use 'device' or 'strict'.

// An fp32 island between two casts runs as fp16, its constants too.
#id = affine_map<(d0) -> (d0)>
#all = affine_map<(d0) -> ()>
// CHECK-LABEL: func.func @island(
// CHECK-SAME: %[[X:\w+]]: tensor<64xf16>
// CHECK: %[[C:.*]] = arith.constant dense<1.000000e+03> : tensor<f16>
// CHECK: %[[V:.*]] = linalg.generic {{.*}} ins(%[[X]], %[[C]] : tensor<64xf16>, tensor<f16>) {{.*}}"minimum"
// CHECK-NEXT: ^bb0(%[[A:.*]]: f16, %[[B:.*]]: f16, %{{.*}}: f16):
// CHECK-NEXT: arith.minimumf %[[A]], %[[B]] : f16
// CHECK: return %[[V]]
// With policy=strict it stays as the program says.
// STRICT-LABEL: func.func @island(
// STRICT: "dl16tofp32"
// STRICT: ins({{.*}} : tensor<64xf32>, tensor<f32>) {{.*}}"minimum"
// STRICT: "fp32todl16"
// expected-remark@below {{precision: 2 f32 values between fp16 values are computed in fp16}}
func.func @island(%x: tensor<64xf16>) -> tensor<64xf16> {
  %c = arith.constant dense<1.0e3> : tensor<f32>
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
// CHECK-LABEL: func.func @bound(
// CHECK: "dl16tofp32"
// CHECK: ins({{.*}} : tensor<64xf32>, tensor<64xf32>) {{.*}}"add"
// CHECK: "fp32todl16"
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
// CHECK-LABEL: func.func @matmul(
// CHECK: %[[M:.*]] = linalg.generic {{.*}} outs(%{{.*}} : tensor<64x64xf16>) {{.*}}"batchmatmul"
// CHECK: %[[V:.*]] = tensor.collapse_shape %[[M]] {{\[\[}}0, 1]] : tensor<64x64xf16> into tensor<4096xf16>
// Two results of one buffer are kept apart by a clone.
// CHECK: %[[W:.*]] = "sdsc.clone"(%[[V]])
// CHECK: return %[[M]], %[[W]]
// STRICT-LABEL: func.func @matmul(
// STRICT: %[[M:.*]] = linalg.generic {{.*}} outs(%{{.*}} : tensor<64x64xf16>) {{.*}}"batchmatmul"
// STRICT: linalg.generic {{.*}} ins(%[[M]] : tensor<64x64xf16>) {{.*}}"dl16tofp32"
// STRICT: tensor.collapse_shape {{.*}} : tensor<64x64xf32> into tensor<4096xf32>
// STRICT: "fp32todl16"
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
// -----
// A part that only a vanished cast kept apart from an argument is cloned into its place.
// CHECK-LABEL: func.func @part(
// CHECK-SAME: %[[X:\w+]]: tensor<64xf16>
// CHECK: %[[A:.*]] = "sdsc.clone"(%[[X]])
// CHECK: %[[I:.*]] = tensor.insert_slice %[[A]] into %{{.*}}[0] [64] [1] : tensor<64xf16> into tensor<128xf16>
// CHECK: %[[B:.*]] = "sdsc.clone"(%[[X]])
// CHECK: %[[J:.*]] = tensor.insert_slice %[[B]] into %[[I]][64] [64] [1]
// CHECK: return %[[J]]
#id = affine_map<(d0) -> (d0)>
func.func @part(%x: tensor<64xf16>) -> tensor<128xf16> {
  %e = tensor.empty() : tensor<64xf32>
  %w = tensor.empty() : tensor<128xf32>
  %h = tensor.empty() : tensor<128xf16>
  %0 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%x : tensor<64xf16>) outs(%e : tensor<64xf32>) attrs = {sdsc.op = #sdsc.op<"dl16tofp32", {}>} {
  ^bb0(%a: f16, %o: f32):
    %r = arith.extf %a : f16 to f32
    linalg.yield %r : f32
  } -> tensor<64xf32>
  %1 = tensor.insert_slice %0 into %w[0] [64] [1] : tensor<64xf32> into tensor<128xf32>
  %c = "sdsc.clone"(%0) : (tensor<64xf32>) -> tensor<64xf32>
  %2 = tensor.insert_slice %c into %1[64] [64] [1] : tensor<64xf32> into tensor<128xf32>
  %3 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%2 : tensor<128xf32>) outs(%h : tensor<128xf16>) attrs = {sdsc.op = #sdsc.op<"fp32todl16", {}>} {
  ^bb0(%a: f32, %o: f16):
    %r = arith.truncf %a : f32 to f16
    linalg.yield %r : f16
  } -> tensor<128xf16>
  return %3 : tensor<128xf16>
}
// -----
// Pins and restickifies of an island that becomes fp16 get the longer sticks of fp16; elsewhere they stay.
#id = affine_map<(d0) -> (d0)>
#dense32 = affine_map<(d0) -> (d0 floordiv 32, d0 mod 32)>
#sparse = affine_map<(d0) -> (d0, 0)>
// CHECK: #[[DENSE16:.*]] = affine_map<(d0) -> (d0 floordiv 64, d0 mod 64)>
// CHECK: #[[SPARSE:.*]] = affine_map<(d0) -> (d0, 0)>
// CHECK-LABEL: func.func @requests(
// CHECK: %[[X:.*]] = "sdsc.clone"
// CHECK: %[[P:.*]] = "stick.pin"(%[[X]]) {stick.to = #stick.layout<#[[DENSE16]]>} : (tensor<70xf16>) -> tensor<70xf16>
// CHECK: %[[R:.*]] = "stick.restickify"(%[[P]]) {stick.to = #stick.layout<#[[SPARSE]]>} : (tensor<70xf16>) -> tensor<70xf16>
// CHECK: return %[[R]]
// STRICT: #[[DENSE32:.*]] = affine_map<(d0) -> (d0 floordiv 32, d0 mod 32)>
// STRICT-LABEL: func.func @requests(
// STRICT: "stick.pin"(%{{.*}}) {stick.to = #stick.layout<#[[DENSE32]]>} : (tensor<70xf32>) -> tensor<70xf32>
// expected-remark@below {{precision: 3 f32 values between fp16 values are computed in fp16}}
func.func @requests(%x: tensor<70xf16>) -> tensor<70xf16> {
  %e = tensor.empty() : tensor<70xf32>
  %h = tensor.empty() : tensor<70xf16>
  %y = "sdsc.clone"(%x) : (tensor<70xf16>) -> tensor<70xf16>
  %0 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%y : tensor<70xf16>) outs(%e : tensor<70xf32>) attrs = {sdsc.op = #sdsc.op<"dl16tofp32", {}>} {
  ^bb0(%a: f16, %o: f32):
    %r = arith.extf %a : f16 to f32
    linalg.yield %r : f32
  } -> tensor<70xf32>
  %1 = "stick.pin"(%0) {stick.to = #stick.layout<#dense32>} : (tensor<70xf32>) -> tensor<70xf32>
  %2 = "stick.restickify"(%1) {stick.to = #stick.layout<#sparse>} : (tensor<70xf32>) -> tensor<70xf32>
  %3 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%2 : tensor<70xf32>) outs(%h : tensor<70xf16>) attrs = {sdsc.op = #sdsc.op<"fp32todl16", {}>} {
  ^bb0(%a: f32, %o: f16):
    %r = arith.truncf %a : f32 to f16
    linalg.yield %r : f16
  } -> tensor<70xf16>
  return %3 : tensor<70xf16>
}
// -----
// A square may leave the range of fp16: it stays f32, and so does what reads it. An f32 root is that of FP32's table, and
// adds -0.0, which keeps the sign of a zero.
// CHECK-LABEL: func.func @square(
// CHECK: "dl16tofp32"
// CHECK: ins({{.*}} : tensor<64xf32>, tensor<64xf32>) {{.*}}"mul"
// CHECK: outs({{.*}} : tensor<64xf32>) {{.*}}"layernormscale", {eps = -0.000000e+00 : f64}
// CHECK: outs({{.*}} : tensor<64xf32>) {{.*}}"reciprocal"
// CHECK: "fp32todl16"
// STRICT-LABEL: func.func @square(
// STRICT-NOT: "sqrt"
// STRICT: "reciprocal"
#id = affine_map<(d0) -> (d0)>
// expected-remark@below {{precision: 1 f32 values between fp16 values are computed in fp16}}
// expected-remark@below {{precision: 2 f32 values between fp16 values stay f32: fp16 would change results}}
func.func @square(%x: tensor<64xf16>) -> tensor<64xf16> {
  %e = tensor.empty() : tensor<64xf32>
  %h = tensor.empty() : tensor<64xf16>
  %0 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%x : tensor<64xf16>) outs(%e : tensor<64xf32>) attrs = {sdsc.op = #sdsc.op<"dl16tofp32", {}>} {
  ^bb0(%a: f16, %o: f32):
    %r = arith.extf %a : f16 to f32
    linalg.yield %r : f32
  } -> tensor<64xf32>
  %1 = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel"]} ins(%0, %0 : tensor<64xf32>, tensor<64xf32>) outs(%e : tensor<64xf32>) attrs = {sdsc.op = #sdsc.op<"mul", {}>} {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %r = arith.mulf %a, %b : f32
    linalg.yield %r : f32
  } -> tensor<64xf32>
  %2 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%1 : tensor<64xf32>) outs(%e : tensor<64xf32>) attrs = {sdsc.op = #sdsc.op<"sqrt", {}>} {
  ^bb0(%a: f32, %o: f32):
    %r = math.sqrt %a : f32
    linalg.yield %r : f32
  } -> tensor<64xf32>
  %3 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%2 : tensor<64xf32>) outs(%h : tensor<64xf16>) attrs = {sdsc.op = #sdsc.op<"fp32todl16", {}>} {
  ^bb0(%a: f32, %o: f16):
    %r = arith.truncf %a : f32 to f16
    linalg.yield %r : f16
  } -> tensor<64xf16>
  return %3 : tensor<64xf16>
}
// -----
// A maximum is one of the values that it is taken off, in fp16 too; a mean is not, so it and the difference are f32.
// CHECK-LABEL: func.func @less_the_mean(
// CHECK-SAME: %[[X:\w+]]: tensor<4x64xf16>
// CHECK: %[[W:.*]] = linalg.generic {{.*}} ins(%[[X]] : tensor<4x64xf16>) {{.*}}"dl16tofp32"
// CHECK: %[[M:.*]] = linalg.generic {{.*}} ins(%[[W]] : tensor<4x64xf32>) {{.*}}"mean"
// CHECK: ins(%[[W]], %[[M]] : tensor<4x64xf32>, tensor<4xf32>) {{.*}}"sub"
// CHECK-LABEL: func.func @less_the_maximum(
// CHECK-SAME: %[[X:\w+]]: tensor<4x64xf16>
// CHECK: %[[M:.*]] = linalg.generic {{.*}} ins(%[[X]] : tensor<4x64xf16>) {{.*}}"max"
// CHECK: ins(%[[X]], %[[M]] : tensor<4x64xf16>, tensor<4xf16>) {{.*}}"sub"
#all = affine_map<(d0, d1) -> (d0, d1)>
#row = affine_map<(d0, d1) -> (d0)>
// expected-remark@below {{precision: 1 f32 values between fp16 values are computed in fp16}}
// expected-remark@below {{precision: 2 f32 values between fp16 values stay f32: fp16 would change results}}
func.func @less_the_mean(%x: tensor<4x64xf16>) -> tensor<4x64xf16> {
  %z = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<4x64xf32>
  %v = tensor.empty() : tensor<4xf32>
  %h = tensor.empty() : tensor<4x64xf16>
  %f = linalg.fill ins(%z : f32) outs(%v : tensor<4xf32>) -> tensor<4xf32>
  %0 = linalg.generic {indexing_maps = [#all, #all], iterator_types = ["parallel", "parallel"]} ins(%x : tensor<4x64xf16>) outs(%e : tensor<4x64xf32>) attrs = {sdsc.op = #sdsc.op<"dl16tofp32", {}>} {
  ^bb0(%a: f16, %o: f32):
    %r = arith.extf %a : f16 to f32
    linalg.yield %r : f32
  } -> tensor<4x64xf32>
  %1 = linalg.generic {indexing_maps = [#all, #row], iterator_types = ["parallel", "reduction"]} ins(%0 : tensor<4x64xf32>) outs(%f : tensor<4xf32>) attrs = {sdsc.op = #sdsc.op<"mean", {scaling_factor = 0.015625 : f64}>} {
  ^bb0(%a: f32, %o: f32):
    %r = arith.addf %o, %a : f32
    linalg.yield %r : f32
  } -> tensor<4xf32>
  %2 = linalg.generic {indexing_maps = [#all, #row, #all], iterator_types = ["parallel", "parallel"]} ins(%0, %1 : tensor<4x64xf32>, tensor<4xf32>) outs(%e : tensor<4x64xf32>) attrs = {sdsc.op = #sdsc.op<"sub", {}>} {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %r = arith.subf %a, %b : f32
    linalg.yield %r : f32
  } -> tensor<4x64xf32>
  %3 = linalg.generic {indexing_maps = [#all, #all], iterator_types = ["parallel", "parallel"]} ins(%2 : tensor<4x64xf32>) outs(%h : tensor<4x64xf16>) attrs = {sdsc.op = #sdsc.op<"fp32todl16", {}>} {
  ^bb0(%a: f32, %o: f16):
    %r = arith.truncf %a : f32 to f16
    linalg.yield %r : f16
  } -> tensor<4x64xf16>
  return %3 : tensor<4x64xf16>
}
// expected-remark@below {{precision: 3 f32 values between fp16 values are computed in fp16}}
func.func @less_the_maximum(%x: tensor<4x64xf16>) -> tensor<4x64xf16> {
  %z = arith.constant 0xFF800000 : f32
  %e = tensor.empty() : tensor<4x64xf32>
  %v = tensor.empty() : tensor<4xf32>
  %h = tensor.empty() : tensor<4x64xf16>
  %f = linalg.fill ins(%z : f32) outs(%v : tensor<4xf32>) -> tensor<4xf32>
  %0 = linalg.generic {indexing_maps = [#all, #all], iterator_types = ["parallel", "parallel"]} ins(%x : tensor<4x64xf16>) outs(%e : tensor<4x64xf32>) attrs = {sdsc.op = #sdsc.op<"dl16tofp32", {}>} {
  ^bb0(%a: f16, %o: f32):
    %r = arith.extf %a : f16 to f32
    linalg.yield %r : f32
  } -> tensor<4x64xf32>
  %1 = linalg.generic {indexing_maps = [#all, #row], iterator_types = ["parallel", "reduction"]} ins(%0 : tensor<4x64xf32>) outs(%f : tensor<4xf32>) attrs = {sdsc.op = #sdsc.op<"max", {}>} {
  ^bb0(%a: f32, %o: f32):
    %r = arith.maximumf %o, %a : f32
    linalg.yield %r : f32
  } -> tensor<4xf32>
  %2 = linalg.generic {indexing_maps = [#all, #row, #all], iterator_types = ["parallel", "parallel"]} ins(%0, %1 : tensor<4x64xf32>, tensor<4xf32>) outs(%e : tensor<4x64xf32>) attrs = {sdsc.op = #sdsc.op<"sub", {}>} {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %r = arith.subf %a, %b : f32
    linalg.yield %r : f32
  } -> tensor<4x64xf32>
  %3 = linalg.generic {indexing_maps = [#all, #all], iterator_types = ["parallel", "parallel"]} ins(%2 : tensor<4x64xf32>) outs(%h : tensor<4x64xf16>) attrs = {sdsc.op = #sdsc.op<"fp32todl16", {}>} {
  ^bb0(%a: f32, %o: f16):
    %r = arith.truncf %a : f32 to f16
    linalg.yield %r : f16
  } -> tensor<4x64xf16>
  return %3 : tensor<4x64xf16>
}
