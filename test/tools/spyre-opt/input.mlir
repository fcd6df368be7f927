// RUN: spyre-opt %s --no-implicit-module --pass-pipeline="func.func(canonicalize)" --cse | filecheck %s
// RUN: not spyre-opt %s --no-implicit-module --choose-layouts 2>&1 | filecheck %s --check-prefix=OURS
// RUN: sed 's/@main/@other/' %s > %t && cat %s %t | not spyre-opt --no-implicit-module 2>&1 | filecheck %s --check-prefix=TWO
// RUN: echo "// PART" > %t.part && cat %s %t.part %t \
// RUN:   | spyre-opt --split-input-file="// PART" --output-split-marker="// NEXT" | filecheck %s --check-prefix=SPLIT
// RUN: spyre-opt %s --verify-roundtrip --mlir-disable-threading | filecheck %s --check-prefix=MODULE
// RUN: echo '%%0 = small.constant : i64' | sed 's/small.constant/"small.constant"()/;s/i64/() -> i64/' > %t
// RUN: not spyre-opt %t --irdl-file=%S/Inputs/dialect.irdl.mlir 2>&1 | filecheck %s --check-prefix=IRDL
// RUN: spyre-opt %S/verify-diagnostics-fails.mlir --verify-diagnostics=all --split-input-file 2>&1 -o /dev/null \
// RUN:   --load %S/Inputs/test_passes.py --test-visit="fail-on=bad" || echo failed | filecheck %s --check-prefix=ALL
// RUN: echo 'func.func @f() { foo }' | spyre-opt --verify-diagnostics=only-expected

// The operation of the input is taken as it is: nothing is put around it.
// CHECK-NOT: module {
// CHECK: func.func @main() {
// CHECK-NEXT:   return
// CHECK-NEXT: }
// OURS: error: The pass 'choose-layouts' runs on a module, not on 'func.func'.
// TWO: error: source must contain a single top-level operation, found: 2
// MODULE: module {

// Markers of parts can be chosen.
// SPLIT: func.func @main
// SPLIT: {{^}}// NEXT
// SPLIT: func.func @other

// Dialects of an IRDL file are checked.
// IRDL: error: {{.*}}
// ALL: failed
func.func @main() {
  %0 = arith.constant 1 : index
  return
}
