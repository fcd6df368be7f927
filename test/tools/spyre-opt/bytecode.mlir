// RUN: spyre-opt %s --emit-bytecode -o %t.mlirbc
// RUN: spyre-opt %t.mlirbc --mlir-print-debuginfo --mlir-print-local-scope | filecheck %s
// RUN: spyre-opt %s --emit-bytecode --emit-bytecode-version=5 | spyre-opt --cse | filecheck %s --check-prefix=STDIN
// RUN: spyre-opt %s --verify-roundtrip --spyre-pipeline --to-level=placed --emit-bytecode -o %t.placed
// RUN: spyre-opt %t.placed --verify-roundtrip --verify-placed | filecheck %s --check-prefix=PLACED
// RUN: spyre-compile %t.mlirbc -o %t.bundle | filecheck %s --check-prefix=COMPILE
// RUN: head -c 200 %t.mlirbc > %t.cut && not spyre-opt %t.cut 2>&1 | filecheck %s --check-prefix=CUT
// RUN: not spyre-opt %s --emit-bytecode --emit-bytecode-version=99999 2>&1 | filecheck %s --check-prefix=VERSION
// RUN: not spyre-opt %s --emit-bytecode --split-input-file 2>&1 | filecheck %s --check-prefix=SPLIT
// RUN: not spyre-opt %t.mlirbc --no-implicit-module 2>&1 | filecheck %s --check-prefix=OPERATION

// Bytecode has locations, and attributes of our dialects; it is read like text, wherever a tool takes a program.
// CHECK: linalg.exp {{.*}} loc("{{.*}}bytecode.mlir":[[#]]:8)
// STDIN: linalg.exp
// PLACED: sdsc.lx
// COMPILE: operations

// Damaged bytecode is one diagnostic.
// CUT-NOT: note:
// CUT: {{.*}}.cut: error: The bytecode is damaged or has an invalid module: {{.*}}.
// CUT-NOT: {{.}}
// VERSION-NOT: error: unsupported
// VERSION: error: The module cannot be written as bytecode: {{.*}}.
// SPLIT: error: --emit-bytecode writes one module
// OPERATION: error: --no-implicit-module requires text
func.func @main(%x: tensor<512x64xf16>) -> tensor<512x64xf16> {
  %e = tensor.empty() : tensor<512x64xf16>
  %0 = linalg.exp ins(%x : tensor<512x64xf16>) outs(%e : tensor<512x64xf16>) -> tensor<512x64xf16>
  %1 = linalg.exp ins(%0 : tensor<512x64xf16>) outs(%e : tensor<512x64xf16>) -> tensor<512x64xf16>
  return %1 : tensor<512x64xf16>
}
