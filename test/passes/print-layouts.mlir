// RUN: spyre-opt %s --print-layouts -o %t 2>&1 | filecheck %s --match-full-lines --strict-whitespace
// RUN: spyre-opt %s -o %t.before && diff %t %t.before
// RUN: spyre-opt %S/../tools/spyre-compile/Inputs/add.mlir --spyre-pipeline --to-level=laid-out --print-layouts 2>&1 >/dev/null | filecheck %s --check-prefix=PIPELINE
// RUN: not spyre-opt %S/../tools/spyre-compile/Inputs/add.mlir --print-layouts 2>&1 | filecheck %s --check-prefix=NONE
// RUN: spyre-opt %s --resolve-padding="host-padding=zero" --print-layouts 2>&1 >/dev/null | filecheck %s --check-prefix=STATES

// Arguments by their names on the host, then every op's tensor; padding, sparse sticks, results; no destinations.
//      CHECK:@chain
// CHECK-NEXT:tensor  op                shape    type  device size  stick    padding          bytes  origin        location
// CHECK-NEXT:x       -                 100x240  f16   4x100x64     d1 x 64  d1 + 16         51,200  input         print-layouts.mlir:22
// CHECK-NEXT:w       -                 240      f16   4x64         d0 x 64  d0 + 16            512  parameter     print-layouts.mlir:22
// CHECK-NEXT:%1      max               100      f16   100x64       sparse   63 of 64 lanes  12,800  intermediate  print-layouts.mlir:24
// CHECK-NEXT:%2      stick.restickify  100x240  f16   2x240x64     d0 x 64  d0 + 28         61,440  copy of x     print-layouts.mlir:28
// CHECK-NEXT:%cst    arith.constant    scalar   f16   1x64         sparse   63 of 64 lanes     128  constant      print-layouts.mlir:29
// CHECK-NEXT:total: buffers 5, bytes 126,080, padding 29,398 (23.3 %), restickifies 1 (61,440 bytes)
#rows = affine_map<(d0, d1) -> (d1 floordiv 64, d0, d1 mod 64)>
#columns = affine_map<(d0, d1) -> (d0 floordiv 64, d1, d0 mod 64)>
#vec = affine_map<(d0) -> (d0 floordiv 64, d0 mod 64)>
#sparse = affine_map<(d0) -> (d0, 0)>
#id = affine_map<(d0, d1) -> (d0, d1)>
#first = affine_map<(d0, d1) -> (d0)>
func.func @chain(%x: tensor<100x240xf16, #stick.layout<#rows>> {sdsc.host = #sdsc.host<"x", "input", "f16">}, %w: tensor<240xf16, #stick.layout<#vec>> {sdsc.host = #sdsc.host<"w", "parameter", "f16">}) {
  %e = tensor.empty() : tensor<100xf16, #stick.layout<#sparse>>
  %0 = linalg.generic {indexing_maps = [#id, #first], iterator_types = ["parallel", "reduction"]} ins(%x : tensor<100x240xf16, #stick.layout<#rows>>) outs(%e : tensor<100xf16, #stick.layout<#sparse>>) attrs = {sdsc.op = #sdsc.op<"max", {}>} {
  ^bb0(%a: f16, %o: f16):
    linalg.yield %o : f16
  } -> tensor<100xf16, #stick.layout<#sparse>>
  %1 = "stick.restickify"(%x) : (tensor<100x240xf16, #stick.layout<#rows>>) -> tensor<100x240xf16, #stick.layout<#columns>>
  %2 = arith.constant dense<1.0> : tensor<f16, #stick.layout<affine_map<() -> (0, 0)>>>
  return
}

// Views and parts lie in the buffer of another tensor; a value can be returned more than once.
//      CHECK:@views
// CHECK-NEXT:tensor            op                    shape    type  device size  stick    padding   bytes  origin             location
// CHECK-NEXT:%arg0             -                     128x256  f16   4x128x64     d1 x 64  -        65,536  argument, result1  print-layouts.mlir:42
// CHECK-NEXT:%extracted_slice  tensor.extract_slice  64x256   f16   4x64x64      d1 x 64  -             0  view of %arg0      print-layouts.mlir:43
// CHECK-NEXT:%0                sdsc.clone            64x256   f16   4x64x64      d1 x 64  -             0  part of %1         print-layouts.mlir:44
// CHECK-NEXT:%1                tensor.empty          128x256  f16   4x128x64     d1 x 64  -        65,536  sum                print-layouts.mlir:45
// CHECK-NEXT:%inserted_slice   tensor.insert_slice   128x256  f16   4x128x64     d1 x 64  -             0  %1 with %0, sum    print-layouts.mlir:46
// CHECK-NEXT:total: buffers 2, bytes 131,072, padding 0 (0.0 %), restickifies 0 (0 bytes)
func.func @views(%x: tensor<128x256xf16, #stick.layout<#rows>>) -> (tensor<128x256xf16, #stick.layout<#rows>> {sdsc.host = #sdsc.host<"sum", "result", "f16">}, tensor<128x256xf16, #stick.layout<#rows>>) {
  %0 = tensor.extract_slice %x[0, 0] [64, 256] [1, 1] : tensor<128x256xf16, #stick.layout<#rows>> to tensor<64x256xf16, #stick.layout<#rows>>
  %1 = "sdsc.clone"(%0) : (tensor<64x256xf16, #stick.layout<#rows>>) -> tensor<64x256xf16, #stick.layout<#rows>>
  %2 = tensor.empty() : tensor<128x256xf16, #stick.layout<#rows>>
  %3 = tensor.insert_slice %1 into %2[64, 0] [64, 256] [1, 1] : tensor<64x256xf16, #stick.layout<#rows>> into tensor<128x256xf16, #stick.layout<#rows>>
  return %3, %x : tensor<128x256xf16, #stick.layout<#rows>>, tensor<128x256xf16, #stick.layout<#rows>>
}

// Once padding is resolved, the table says what it holds: the host writes that of arguments, no operation its own.
// STATES: x {{.*}} d1 x 64  d1 + 16: 0
// STATES: stick.restickify {{.*}} d0 x 64  d0 + 28: undefined
// STATES: @views

// A function without tensors has no table.
// CHECK:@nothing: no tensors
func.func @nothing() {
  return
}

// After the pipeline's layouts; before them the pass says what to run.
// PIPELINE: total: buffers 2,
// NONE: add.mlir:{{[0-9:]+}}: error: this module has no layouts; run choose-layouts, or --spyre-pipeline --to-level=laid-out, first
