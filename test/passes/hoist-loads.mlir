// RUN: spyre-opt %s --choose-layouts --work-distribution --hoist-loads=compare=false --verify-divided --split-input-file | filecheck %s


// The exponential of %v reads what the host gave, so its loads can overlap the matmul: it goes behind that.
// CHECK-LABEL: func.func @behind_the_matmul(
// CHECK: batchmatmul
// CHECK: ins(%arg2 {{.*}}"exp"
// CHECK: ins(%{{[0-9]+}} {{.*}}"exp"
// CHECK: "add"
#id = affine_map<(d0, d1) -> (d0, d1)>
#rows = affine_map<(d0, d1, d2) -> (d0, d2)>
#columns = affine_map<(d0, d1, d2) -> (d2, d1)>
#result = affine_map<(d0, d1, d2) -> (d0, d1)>
!m = tensor<1024x1024xf16>
!x = tensor<1024x4096xf16>
!w = tensor<4096x1024xf16>
func.func @behind_the_matmul(%x: !x {sdsc.host = #sdsc.host<"x", "input", "float16">}, %w: !w {sdsc.host = #sdsc.host<"w", "input", "float16">}, %v: !m {sdsc.host = #sdsc.host<"v", "input", "float16">}) -> !m {
  %e = tensor.empty() : !m
  %0 = linalg.generic {indexing_maps = [#rows, #columns, #result], iterator_types = ["parallel", "parallel", "reduction"]} ins(%x, %w : !x, !w) outs(%e : !m) attrs = {sdsc.op = #sdsc.op<"batchmatmul", {}>} {
  ^bb0(%a: f16, %b: f16, %o: f16):
    linalg.yield %o : f16
  } -> !m
  %1 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%0 : !m) outs(%e : !m) attrs = {sdsc.op = #sdsc.op<"exp", {}>} {
  ^bb0(%a: f16, %o: f16):
    linalg.yield %o : f16
  } -> !m
  %2 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%v : !m) outs(%e : !m) attrs = {sdsc.op = #sdsc.op<"exp", {}>} {
  ^bb0(%a: f16, %o: f16):
    linalg.yield %o : f16
  } -> !m
  %3 = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]} ins(%1, %2 : !m, !m) outs(%e : !m) attrs = {sdsc.op = #sdsc.op<"add", {}>} {
  ^bb0(%a: f16, %b: f16, %o: f16):
    linalg.yield %o : f16
  } -> !m
  return %3 : !m
}
// -----
// What a product is needed for stays behind it, and nothing moves without something that computes.
// CHECK-LABEL: func.func @nothing_computes(
// CHECK: ins(%arg0 {{.*}}"exp"
// CHECK: ins(%{{[0-9]+}} {{.*}}"exp"
// CHECK: ins(%arg1 {{.*}}"exp"
#id = affine_map<(d0, d1) -> (d0, d1)>
!m = tensor<1024x1024xf16>
func.func @nothing_computes(%x: !m {sdsc.host = #sdsc.host<"x", "input", "float16">}, %v: !m {sdsc.host = #sdsc.host<"v", "input", "float16">}) -> (!m, !m) {
  %e = tensor.empty() : !m
  %0 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%x : !m) outs(%e : !m) attrs = {sdsc.op = #sdsc.op<"exp", {}>} {
  ^bb0(%a: f16, %o: f16):
    linalg.yield %o : f16
  } -> !m
  %1 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%0 : !m) outs(%e : !m) attrs = {sdsc.op = #sdsc.op<"exp", {}>} {
  ^bb0(%a: f16, %o: f16):
    linalg.yield %o : f16
  } -> !m
  %2 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%v : !m) outs(%e : !m) attrs = {sdsc.op = #sdsc.op<"exp", {}>} {
  ^bb0(%a: f16, %o: f16):
    linalg.yield %o : f16
  } -> !m
  return %1, %2 : !m, !m
}
