// RUN: spyre-opt %s --load %S/Inputs/test_passes.py --cse -canonicalize="max-iterations=2" --test-visit \
// RUN:   --pass-pipeline="builtin.module(symbol-dce)" --test-visit="{cost=1 crash=false}" --mlir-print-ir-before-all \
// RUN:   -o /dev/null 2>&1 | filecheck %s
// RUN: spyre-opt %s --verify-each -mlir-timing=false --o %t.mlir && filecheck %s --check-prefix=DASHES < %t.mlir
// RUN: not spyre-opt -- --canonicalize 2>&1 | filecheck %s --check-prefix=BEHIND

// One dash or two do for every flag, and one that is true may stand alone; behind -- there are no flags.
// DASHES: func.func @main()
// BEHIND: error: The file '--canonicalize' cannot be read

// Every pass is a flag, and flags run in the order given, --pass-pipeline among them.
// CHECK: IR Dump Before CSEPass
// CHECK: IR Dump Before CanonicalizerPass: canonicalize{{.*}}max-iterations=2
// CHECK: IR Dump Before TestVisit: test-visit (
// CHECK: IR Dump Before {{.*}}symbol-dce
// CHECK: IR Dump Before TestVisit: test-visit{cost=1.0}
func.func @main() {
  return
}
