// The scratchpads of a bundle over time: the map with its tables as a page, or a picture alone.
// RUN: rm -rf %t && spyre-compile %s --sencores=2 -o %t/kept
// RUN: spyre-report --lx %t/kept -o %t/lx.html && filecheck %s --check-prefix=PAGE < %t/lx.html
// RUN: spyre-report --lx %t/kept -o - > %t/stdout.html && cmp %t/lx.html %t/stdout.html
// RUN: spyre-report --lx %t/kept -o %t/lx.svg && filecheck %s --check-prefix=PICTURE < %t/lx.svg
// RUN: spyre-opt %s --spyre-pipeline="lx-planning=false" | spyre-translate - --to-bundle %t/spilled
// RUN: spyre-report --lx %t/spilled -o - | filecheck %s --check-prefix=EMPTY

// exp takes the place of tanh; the result is no buffer of the program's own.
// PAGE: <title>LX map of kept</title>
// PAGE: >3 steps. 2 buffers in LX, in 1 place; 0 spilled to device memory.
// PAGE: id="lx-chart"
// PAGE: Every buffer of this program that is not an argument or a result is in LX.
// PAGE: <tr><td>buffer0</td><td><a href="#op-0">tanh (step 0)</a></td>
// PAGE-NEXT: <tr><td>buffer1</td><td><a href="#op-1">exp (step 1)</a></td>
// PAGE-SAME: <td>buffer0</td>
// The links of the tables lead to the operations, the only other panel.
// PAGE: <section id="operations"
// PAGE: <tr id="op-0">
// PAGE-NOT: <section

// PICTURE: <svg xmlns="http://www.w3.org/2000/svg"
// PICTURE-NOT: <table
// PICTURE: data-buffer="buffer0"
// PICTURE-SAME: <title>buffer0: tanh (step 0)
// PICTURE: data-buffer="buffer1"
// PICTURE: in place of buffer0
// PICTURE-NOT: <script

// EMPTY: <tr><td>buffer0</td>
// EMPTY: <p>No buffer of this program is in LX.</p>
func.func @main(%x: tensor<64x64xf16>) -> tensor<64x64xf16> {
  %e = tensor.empty() : tensor<64x64xf16>
  %0 = linalg.tanh ins(%x : tensor<64x64xf16>) outs(%e : tensor<64x64xf16>) -> tensor<64x64xf16>
  %1 = linalg.exp ins(%0 : tensor<64x64xf16>) outs(%e : tensor<64x64xf16>) -> tensor<64x64xf16>
  %2 = linalg.abs ins(%1 : tensor<64x64xf16>) outs(%e : tensor<64x64xf16>) -> tensor<64x64xf16>
  return %2 : tensor<64x64xf16>
}
