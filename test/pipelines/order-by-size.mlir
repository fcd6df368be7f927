// The largest buffers first, in every memory: two live at once, of which the small one is made first.
//
// RUN: spyre-opt %s --spyre-pipeline="sencores=1 layout-solver=greedy" --to-level=placed | filecheck %s --check-prefix=GREEDY
// RUN: spyre-opt %s --spyre-pipeline="sencores=1 order-by-size=true" --to-level=placed | filecheck %s --check-prefix=SIZE
// RUN: spyre-opt %s --spyre-pipeline="sencores=1" --to-level=divided -o %t.mlir
// RUN: spyre-opt %t.mlir --scratchpad-planning="order-by-size=true" | filecheck %s --check-prefix=SIZE
// RUN: spyre-compile %s --order-by-size --sencores=1 -o %t.bundle && filecheck %s --input-file %t.bundle/sdsc_0.json --check-prefix=BUNDLE
//
// GREEDY: placement = #sdsc.lx<0
// GREEDY: placement = #sdsc.lx<8192
// SIZE: placement = #sdsc.lx<65536
// SIZE: placement = #sdsc.lx<0
// BUNDLE: "[0, 0, 0]": "65536"

func.func @main(%x: tensor<64x64xf16>, %y: tensor<512x64xf16>) -> (tensor<64x64xf16>, tensor<512x64xf16>) {
  %e = tensor.empty() : tensor<64x64xf16>
  %l = tensor.empty() : tensor<512x64xf16>
  %a = linalg.exp ins(%x : tensor<64x64xf16>) outs(%e : tensor<64x64xf16>) -> tensor<64x64xf16>
  %b = linalg.exp ins(%y : tensor<512x64xf16>) outs(%l : tensor<512x64xf16>) -> tensor<512x64xf16>
  %c = linalg.abs ins(%a : tensor<64x64xf16>) outs(%e : tensor<64x64xf16>) -> tensor<64x64xf16>
  %d = linalg.abs ins(%b : tensor<512x64xf16>) outs(%l : tensor<512x64xf16>) -> tensor<512x64xf16>
  return %c, %d : tensor<64x64xf16>, tensor<512x64xf16>
}

// In device memory: without LX both are in the pool.
//
// RUN: spyre-opt %s --spyre-pipeline="sencores=1 lx-planning=false order-by-size=true" --to-level=placed | filecheck %s --check-prefix=POOL
// POOL: placement = #sdsc.hbm<"pool", 65536
// POOL: placement = #sdsc.hbm<"pool", 0
