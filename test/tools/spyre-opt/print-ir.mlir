// RUN: spyre-opt %s --canonicalize --cse --symbol-dce --mlir-print-ir-before=cse --mlir-print-ir-after=symbol-dce \
// RUN:   2>&1 | filecheck %s --check-prefix=SOME
// RUN: spyre-opt %s --canonicalize --cse --mlir-print-ir-after-change -o /dev/null 2>&1 | filecheck %s --check-prefix=CHANGE
// RUN: spyre-opt %s --mlir-print-debuginfo --mlir-print-op-generic | filecheck %s --check-prefix=FORM
// RUN: spyre-opt %s --cse --mlir-timing -o /dev/null 2>&1 | filecheck %s --check-prefix=TIME

// Printing selects passes by name.
// SOME-NOT: Canonicalizer
// SOME: IR Dump Before CSEPass
// SOME: IR Dump After {{.*}}symbol-dce

// -change prints after those passes only that changed something.
// CHANGE: IR Dump After CanonicalizerPass
// CHANGE-NOT: IR Dump After CSEPass

// The forms of printing are those of mlir-opt.
// FORM: "func.func"()
// FORM: loc({{.*}}print-ir.mlir":26:1

// Timing is a table on stderr with one row per pass.
// TIME: Execution time report
// TIME: cse
// TIME: Total

func.func @main() {
  %unused = arith.constant 1 : index
  return
}
