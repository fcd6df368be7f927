// RUN: spyre-opt %s --load %S/Inputs/test_passes.py --test-visit="cost=1" --remarks=%t -o /dev/null
// RUN: filecheck %s < %t
// RUN: spyre-opt %s --load %S/Inputs/test_passes.py --test-visit --test-visit="cost=1" --remarks=%t -o /dev/null \
// RUN:   --remarks-filter="^test-visit: seen" && filecheck %s --check-prefix=NONE --allow-empty < %t
// RUN: spyre-opt %s --load %S/Inputs/test_passes.py --test-visit --remarks-output-file=%t -o /dev/null \
// RUN:   --remarks-filter="visit" && filecheck %s --check-prefix=SOME < %t

// A decision is one JSON line: pass, place, operation, kind, reason, cost before and after.
// NONE-NOT: {{.}}
// SOME: "kind": "visited"
// CHECK: {"pass_name": "test-visit", "op_location": "{{.*}}remarks.mlir:{{[0-9]+}}:1", "op_name": "func.func", "kind": "visited", "reason": "saw @main", "before": 2, "after": 1.0}
func.func @main() { return }
