// RUN: spyre-opt %s --pass-pipeline="builtin.module(fold-repeated-layers{kept=3 least-operations=4},func.func(linalg-generalize-named-ops),decompose-to-device-ops,choose-layouts,resolve-padding,work-distribution,unfold-repeated-layers)" | filecheck %s

// All seven layers are back, each with its weight and its division, and arguments are in the order of the program.
// CHECK-NOT: sdsc.folded
// CHECK-LABEL: func.func @layers(
// CHECK-SAME: %arg0: {{.*}}#sdsc.host<"arg0"
// CHECK-SAME: %arg7: {{.*}}#sdsc.host<"arg7"
// CHECK: ins(%arg0, %arg1 {{.*}}sdsc.division{{.*}}"mul"
// CHECK: ins(%{{[0-9]+}}, %arg2 {{.*}}"mul"
// CHECK: ins(%{{[0-9]+}}, %arg3 {{.*}}"mul"
// CHECK: ins(%{{[0-9]+}}, %arg4 {{.*}}"mul"
// CHECK: ins(%{{[0-9]+}}, %arg5 {{.*}}"mul"
// CHECK: ins(%{{[0-9]+}}, %arg6 {{.*}}"mul"
// CHECK: ins(%{{[0-9]+}}, %arg7 {{.*}}"mul"
// CHECK: "exp"
// CHECK-NEXT: ^bb0
// CHECK: return
#id = affine_map<(d0, d1) -> (d0, d1)>
!x = tensor<64x128xf16>
func.func @layers(%x: !x, %w0: !x, %w1: !x, %w2: !x, %w3: !x, %w4: !x, %w5: !x, %w6: !x) -> !x {
  %e = tensor.empty() : !x
  %a0 = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]} ins(%x, %w0 : !x, !x) outs(%e : !x) {
  ^bb0(%p: f16, %q: f16, %o: f16):
    %r = arith.mulf %p, %q : f16
    linalg.yield %r : f16
  } -> !x
  %b0 = linalg.exp ins(%a0 : !x) outs(%e : !x) -> !x
  %a1 = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]} ins(%b0, %w1 : !x, !x) outs(%e : !x) {
  ^bb0(%p: f16, %q: f16, %o: f16):
    %r = arith.mulf %p, %q : f16
    linalg.yield %r : f16
  } -> !x
  %b1 = linalg.exp ins(%a1 : !x) outs(%e : !x) -> !x
  %a2 = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]} ins(%b1, %w2 : !x, !x) outs(%e : !x) {
  ^bb0(%p: f16, %q: f16, %o: f16):
    %r = arith.mulf %p, %q : f16
    linalg.yield %r : f16
  } -> !x
  %b2 = linalg.exp ins(%a2 : !x) outs(%e : !x) -> !x
  %a3 = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]} ins(%b2, %w3 : !x, !x) outs(%e : !x) {
  ^bb0(%p: f16, %q: f16, %o: f16):
    %r = arith.mulf %p, %q : f16
    linalg.yield %r : f16
  } -> !x
  %b3 = linalg.exp ins(%a3 : !x) outs(%e : !x) -> !x
  %a4 = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]} ins(%b3, %w4 : !x, !x) outs(%e : !x) {
  ^bb0(%p: f16, %q: f16, %o: f16):
    %r = arith.mulf %p, %q : f16
    linalg.yield %r : f16
  } -> !x
  %b4 = linalg.exp ins(%a4 : !x) outs(%e : !x) -> !x
  %a5 = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]} ins(%b4, %w5 : !x, !x) outs(%e : !x) {
  ^bb0(%p: f16, %q: f16, %o: f16):
    %r = arith.mulf %p, %q : f16
    linalg.yield %r : f16
  } -> !x
  %b5 = linalg.exp ins(%a5 : !x) outs(%e : !x) -> !x
  %a6 = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]} ins(%b5, %w6 : !x, !x) outs(%e : !x) {
  ^bb0(%p: f16, %q: f16, %o: f16):
    %r = arith.mulf %p, %q : f16
    linalg.yield %r : f16
  } -> !x
  %b6 = linalg.exp ins(%a6 : !x) outs(%e : !x) -> !x
  return %b6 : !x
}
