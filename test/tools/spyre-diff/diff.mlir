// Two bundles of one program side by side: what is planned in LX, and the same all in device memory.
// RUN: rm -rf %t && spyre-compile %s --sencores=2 -o %t/spilled --pipeline lx-planning=false > %t.log
// RUN: spyre-compile %s --sencores=2 -o %t/kept > %t.log
// RUN: spyre-diff %t/spilled %t/kept | filecheck %s
// RUN: spyre-diff %t/spilled %t/kept -o %t/diff.html && filecheck %s --check-prefix=PAGE < %t/diff.html
// RUN: spyre-diff %t/kept %t/kept --exit-code | filecheck %s --check-prefix=SAME
// RUN: not spyre-diff %t/spilled %t/kept --exit-code | filecheck %s

// tanh writes 8 KiB less and exp reads 8 KiB less.
// CHECK:      A: {{.*}}spilled
// CHECK-NEXT: B: {{.*}}kept
// CHECK-NEXT: B takes {{[0-9.]+}} % less: {{[0-9.]+}} -> {{[0-9.]+}} us, 50.0 % less bytes read, 50.0 % less bytes written, 1 buffer
// CHECK:      operations           2       2 same
// CHECK:      bytes read      16,384   8,192 -50.0 %
// CHECK-NEXT: bytes written   16,384   8,192 -50.0 %
// CHECK:      buffers in LX        0       1
// CHECK:      time (us)
// CHECK:      opcodes: no difference
// CHECK:      operations: 2 changed
// CHECK:      changed 0 0 tanh diff.mlir:{{[0-9]+}}:8 output pool -> LX 0; bytes written 8,192 -> 0
// CHECK-NEXT: changed 1 1 exp diff.mlir:{{[0-9]+}}:8 input 0 pool -> LX 0; bytes read 8,192 -> 0
// CHECK:      buffers: 2 same, 1 changed
// CHECK:      changed buffer0 buffer0 tanh memory pool -> LX; cores none -> 2; bytes 8,192 -> 4,096; bytes read 8,192 -> 0

// PAGE:     <title>Difference of {{.*}}spilled and {{.*}}kept</title>
// PAGE-NOT: <script
// PAGE:     <p class="headline gain">B takes {{[0-9.]+}} % less:
// PAGE:     <td>bytes read</td><td class="number">16,384</td><td class="number">8,192</td><td class="number"><span class="gain">-50.0 %</span></td>
// PAGE:     <h2>operations: 2 changed</h2>
// PAGE:     class="status changed">changed</td><td{{.*}}>0</td><td{{.*}}>0</td><td{{.*}}>tanh</td>

// SAME:     operations 2 2 same
// SAME-NOT: %
// SAME:     opcodes: no difference
// SAME:     operations: no difference
// SAME:     buffers: no difference
func.func @main(%x: tensor<64x64xf16>) -> tensor<64x64xf16> {
  %e = tensor.empty() : tensor<64x64xf16>
  %0 = linalg.tanh ins(%x : tensor<64x64xf16>) outs(%e : tensor<64x64xf16>) -> tensor<64x64xf16>
  %1 = linalg.exp ins(%0 : tensor<64x64xf16>) outs(%e : tensor<64x64xf16>) -> tensor<64x64xf16>
  return %1 : tensor<64x64xf16>
}
