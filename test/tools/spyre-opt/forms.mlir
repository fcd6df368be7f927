// RUN: spyre-opt %s --mlir-print-local-scope | filecheck %s --check-prefix=LOCAL
// RUN: spyre-opt %s --mlir-print-value-users | filecheck %s --check-prefix=USERS
// RUN: spyre-opt %s --mlir-pretty-debuginfo | filecheck %s --check-prefix=PRETTY
// RUN: spyre-opt %s --mlir-print-skip-regions | filecheck %s --check-prefix=REGIONS
// RUN: spyre-opt %s --mlir-use-nameloc-as-prefix | filecheck %s --check-prefix=NAMES
// RUN: spyre-opt %s --mlir-elide-resource-strings-if-larger=8 | filecheck %s --check-prefix=ELIDED
// RUN: spyre-opt %s --mlir-elide-elementsattrs-if-larger=2 | filecheck %s --check-prefix=SHORT
// RUN: spyre-opt %s --mlir-print-op-generic=false --mlir-print-value-users=true | filecheck %s --check-prefix=USERS

// The forms of mlir-opt: without aliases, with the users of values, for people, without regions, with names.
#map = affine_map<(d0) -> (d0)>
// LOCAL-NOT: #map
// LOCAL: affine_map = affine_map<(d0) -> (d0)>
// USERS: func.func @main(%arg0: i32, %arg1: i32) -> (i32, i32) {{.*}}{ // %arg0 users: %0, %1 // %arg1 unused
// PRETTY: {{.*}} = arith.addi %arg0, %arg0 : i32 "sum"
// REGIONS: module {...}
// ELIDED: dense_resource<blob>
// ELIDED-NOT: blob:
func.func @main(%a: i32, %b: i32) -> (i32, i32) attributes {affine_map = #map} {
  // USERS-NEXT: %0 = arith.addi %arg0, %arg0 : i32 // users: %1, func.return
  // NAMES: %sum = arith.addi
  %0 = arith.addi %a, %a : i32 loc("sum")
  // USERS-NEXT: %1 = arith.addi %0, %arg0 : i32 // user: func.return
  %1 = arith.addi %0, %a : i32
  // USERS-NEXT: %cst = arith.constant {{.*}} // unused
  %2 = arith.constant dense_resource<blob> : tensor<4xi32>
  // SHORT: dense_resource<__elided__> : tensor<3xi32>
  %3 = arith.constant dense<[1, 2, 3]> : tensor<3xi32>
  return %0, %1 : i32, i32
}
{-#
  dialect_resources: { builtin: { blob: "0x0400000001000000020000000300000004000000" } }
#-}
