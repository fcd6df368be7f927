// RUN: spyre-opt %s --pass-pipeline="builtin.module(func.func(canonicalize))" --mlir-print-ir-after=canonicalize \
// RUN:   -o /dev/null 2>&1 | filecheck %s --check-prefix=MODULE
// RUN: spyre-opt %s --pass-pipeline="builtin.module(func.func(canonicalize))" --mlir-print-ir-after=canonicalize \
// RUN:   --mlir-print-ir-module-scope=false -o /dev/null 2>&1 | filecheck %s --check-prefix=FUNCTION
// RUN: spyre-opt %s --cse --mlir-print-ir-after-all --mlir-print-local-scope --mlir-print-debuginfo -o /dev/null 2>&1 \
// RUN:   | filecheck %s --check-prefix=LOCAL
// RUN: spyre-opt %s --cse --mlir-print-ir-after-all --mlir-print-value-users -o /dev/null 2>&1 \
// RUN:   | filecheck %s --check-prefix=USERS
// RUN: not spyre-opt %s --load %S/Inputs/test_passes.py --cse --test-visit="fail-on=second" --symbol-dce \
// RUN:   --mlir-print-ir-after-failure 2>&1 | filecheck %s --check-prefix=FAILURE
// RUN: rm -rf %t.tree && spyre-opt %s --cse --pass-pipeline="builtin.module(func.func(canonicalize),cse)" \
// RUN:   --mlir-print-ir-after-all --mlir-print-ir-tree-dir=%t.tree --mlir-print-ir-module-scope=false -o /dev/null 2>&1 \
// RUN:   | filecheck %s --check-prefix=SILENT --allow-empty
// RUN: cd %t.tree && find . -type f | sort | filecheck %s --check-prefix=TREE --match-full-lines
// RUN: filecheck %s --check-prefix=FILE < %t.tree/builtin_module_no-symbol-name/func_func_first/1_0_canonicalize.mlir

// The whole module is printed for a pass on functions, unless the function alone is wanted.
// MODULE: ('func.func' operation: @first) //----- //
// MODULE-NEXT: module {
// FUNCTION: IR Dump After CanonicalizerPass
// FUNCTION-NEXT: func.func @first
// FUNCTION: IR Dump After CanonicalizerPass
// FUNCTION-NEXT: func.func @second
// FUNCTION-NOT: module

// Forms that upstream's pass managers do not print.
// LOCAL: IR Dump After CSEPass
// LOCAL: arith.addi %arg0, %arg0 : i32 loc("{{.*}}print-ir-scope.mlir":[[#]]:8)
// LOCAL-NOT: #loc
// USERS: IR Dump After CSEPass
// USERS: func.func @first(%arg0: i32) -> i32 { // %arg0 user: %0
// USERS-NEXT: %0 = arith.addi %arg0, %arg0 : i32 // user: func.return

// A pass of ours that fails is printed as one of upstream's is.
// FAILURE-NOT: CSEPass
// FAILURE: IR Dump After TestVisit Failed: test-visit{fail-on=second} ('builtin.module' operation)
// FAILURE: func.func @second
// FAILURE: error: This function is not wanted.

// The files of a tree are numbered over the whole pipeline.
// SILENT-NOT: {{.}}
// TREE: ./builtin_module_no-symbol-name/0_cse.mlir
// TREE-NEXT: ./builtin_module_no-symbol-name/2_cse.mlir
// TREE-NEXT: ./builtin_module_no-symbol-name/func_func_first/1_0_canonicalize.mlir
// TREE-NEXT: ./builtin_module_no-symbol-name/func_func_second/1_0_canonicalize.mlir
// FILE: IR Dump After CanonicalizerPass
// FILE-NEXT: func.func @first
func.func @first(%a: i32) -> i32 {
  %0 = arith.addi %a, %a : i32
  return %0 : i32
}
func.func @second() {
  return
}
