// RUN: spyre-opt %s --load %S/Inputs/test_passes.py --test-visit --cse --test-visit="cost=1" --attach-hints \
// RUN:   --mlir-pass-statistics -o /dev/null 2>&1 | filecheck %s --match-full-lines
// RUN: spyre-opt %s --load %S/Inputs/test_passes.py --cse --test-visit --mlir-pass-statistics \
// RUN:   --mlir-pass-statistics-display=list -o /dev/null 2>&1 | filecheck %s --match-full-lines --check-prefix=LIST
// RUN: spyre-opt %s --cse --canonicalize --cse --mlir-timing --mlir-timing-display=list -o /dev/null 2>&1 \
// RUN:   | filecheck %s --check-prefix=TIME
// RUN: spyre-opt %s --cse --mlir-timing --mlir-output-format=json -o /dev/null 2>&1 | filecheck %s --check-prefix=JSON
// RUN: spyre-opt %s --cse --debug-only=cse -o /dev/null 2>&1 | filecheck %s --check-prefix=DEBUG

// Decisions are counted by pass and kind, in the order of the pipeline or by name.
// CHECK: {{ *}}... Pass statistics report ...
// CHECK: test-visit
// CHECK-NEXT:   (S) 2 visited
// CHECK-NEXT: cse
// CHECK-NEXT: attach-hints
// CHECK-NEXT: Total: 2 decisions
// LIST: ===-{{-*}}-===
// LIST: test-visit
// LIST-NEXT:   (S) 1 visited
// LIST-NEXT: Total: 1 decisions

// Times as a list are the longest first, each name once.
// TIME-DAG: cse (2 times)
// TIME-DAG: canonicalize
// TIME: Total

// As JSON they have the form of mlir-opt.
// JSON: {"wall": {"duration": {{[0-9.e-]+}}, "percentage": {{[0-9.]+}}}, "name": "cse", "passes": []},

// The log has the name that it has in mlir-opt.
// DEBUG: debug: [cse] {{[0-9.]+}} s
func.func @main() {
  return
}
