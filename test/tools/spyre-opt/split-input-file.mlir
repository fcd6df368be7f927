// RUN: spyre-opt %s --canonicalize --split-input-file | filecheck %s
// RUN: not spyre-opt %s --load %S/Inputs/test_passes.py --test-visit="fail-on=second" --split-input-file -o %t 2>&1 \
// RUN:   | filecheck %s --check-prefix=ERROR

// Each part is a module of its own, so the attribute alias of one is free in the next.
#kind = "first"
// CHECK: func.func @first() attributes {kind = "first"}
func.func @first() attributes {kind = #kind} { return }
// -----
#kind = "second"
// CHECK: // -----
// CHECK: func.func @second() attributes {kind = "second"}
// Lines of diagnostics are those of the whole file.
// ERROR: split-input-file.mlir:15:1: error: This function is not wanted.
func.func @second() attributes {kind = #kind} { return }
