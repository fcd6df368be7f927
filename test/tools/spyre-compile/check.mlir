// RUN: rm -rf %t && spyre-compile %s -o %t --check --sencores 3 --remarks %t.remarks --mlir-timing 2>&1 | filecheck %s
// RUN: filecheck %s --check-prefix=REMARK < %t.remarks
// RUN: spyre-compile %s -o %t --check --numerics dl16 | filecheck %s --check-prefix=DL16
// RUN: %python -c "import numpy; numpy.savez('%t.npz', arg0=numpy.ones((5, 64), numpy.float16))"
// RUN: spyre-run %t --inputs %t.npz --outputs %t.out.npz --stats | filecheck %s --check-prefix=STATS

// One call compiles, writes, runs what it wrote, compares with the CPU, and prints the page.
// CHECK: Execution time report
// CHECK: operations {{ *}}2: {{.*}}batchmatmul
// CHECK: cores {{ *}}{{[1-3]}}
// CHECK: HBM read {{.*}} planned
// CHECK: simulated {{.*}} bytes written, as planned
// CHECK: predicted time
// CHECK: check against the CPU (seed {{[0-9]+}}: floats normal(0, 1)
// CHECK: PASS  result0: largest error {{[0-9.e+-]+}}, allowed

// Decisions are JSON lines.
// REMARK: "kind": "division"

// The bit-true format has its own tolerance.
// DL16: PASS  result0

// The parameters of the check are in the bundle, so it runs with the inputs alone.
// STATS: batchmatmul
func.func @main(%x: tensor<5x64xf16>,
                %w: tensor<64x128xf16> {spyre.kind = "parameter", spyre.name = "weight"}) -> tensor<5x128xf16> {
  %zero = arith.constant 0.0 : f16
  %e = tensor.empty() : tensor<5x128xf16>
  %f = linalg.fill ins(%zero : f16) outs(%e : tensor<5x128xf16>) -> tensor<5x128xf16>
  %y = linalg.matmul ins(%x, %w : tensor<5x64xf16>, tensor<64x128xf16>) outs(%f : tensor<5x128xf16>) -> tensor<5x128xf16>
  %z = linalg.exp ins(%y : tensor<5x128xf16>) outs(%e : tensor<5x128xf16>) -> tensor<5x128xf16>
  return %z : tensor<5x128xf16>
}
