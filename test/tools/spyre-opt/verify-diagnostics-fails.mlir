// RUN: not spyre-opt %s --load %S/Inputs/test_passes.py --test-visit="fail-on=bad" --split-input-file \
// RUN:   --verify-diagnostics 2>&1 | filecheck %s

// What is expected must come.
// CHECK: verify-diagnostics-fails.mlir:6:1: error: expected error "no such thing" was not produced
// expected-error@+1 {{no such thing}}
func.func @good() { return }
// -----
// What comes must be expected, on its line.
// CHECK: verify-diagnostics-fails.mlir:11:1: error: unexpected error: This function is not wanted.
func.func @bad() { return }
