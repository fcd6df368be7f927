// RUN: spyre-opt %s --load %S/Inputs/test_passes.py --mlir-print-ir-after-all \
// RUN:   --pass-pipeline="builtin.module(func.func(canonicalize{max-iterations=3},cse),test-visit{cost=1.5})" 2>&1 \
// RUN:   | filecheck %s

// A pipeline nests, takes options, and mixes upstream passes with ours; printing shows our options.
// CHECK: IR Dump After CanonicalizerPass: canonicalize{{.*}}max-iterations=3
// CHECK: IR Dump After CSEPass: cse
// CHECK: IR Dump After TestVisit: test-visit{cost=1.5}
// CHECK: func.func @main() {
// CHECK-NEXT: return
func.func @main() {
  %unused = arith.constant 1 : index
  return
}
