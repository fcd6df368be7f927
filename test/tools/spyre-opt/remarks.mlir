// RUN: spyre-opt %s --load %S/Inputs/test_passes.py --test-visit="cost=1" --remarks=%t -o /dev/null
// RUN: filecheck %s < %t

// A decision is one JSON line: pass, place, operation, kind, reason, cost before and after.
// CHECK: {"pass_name": "test-visit", "op_location": "{{.*}}remarks.mlir:6:1", "op_name": "func.func", "kind": "visited", "reason": "saw @main", "before": 2, "after": 1.0}
func.func @main() { return }
