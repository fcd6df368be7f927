// RUN: spyre-opt %s --print-layouts 2>&1 >/dev/null | filecheck %s --match-full-lines --strict-whitespace

// What a loop carries is one buffer, named by what it is at first; what is put into it is part of that.
//      CHECK:@loop
// CHECK-NEXT:tensor            op                    shape    type  device size  stick    padding   bytes  origin               location
// CHECK-NEXT:x                 -                     128x256  f16   4x128x64     d1 x 64  -        65,536  input                print-layouts-loops.mlir:14
// CHECK-NEXT:%0                tensor.empty          128x256  f16   4x128x64     d1 x 64  -        65,536  result0              print-layouts-loops.mlir:18
// CHECK-NEXT:%1                scf.for               128x256  f16   4x128x64     d1 x 64  -             0  part of %0, result0  print-layouts-loops.mlir:19
// CHECK-NEXT:%extracted_slice  tensor.extract_slice  64x256   f16   4x64x64      d1 x 64  -             0  view of x            print-layouts-loops.mlir:20
// CHECK-NEXT:%2                sdsc.clone            64x256   f16   4x64x64      d1 x 64  -             0  part of %0           print-layouts-loops.mlir:21
// CHECK-NEXT:%inserted_slice   tensor.insert_slice   128x256  f16   4x128x64     d1 x 64  -             0  %0 with %2           print-layouts-loops.mlir:22
// CHECK-NEXT:total: buffers 2, bytes 131,072, padding 0 (0.0 %), restickifies 0 (0 bytes)
#rows = affine_map<(d0, d1) -> (d1 floordiv 64, d0, d1 mod 64)>
func.func @loop(%x: tensor<128x256xf16, #stick.layout<#rows>> {sdsc.host = #sdsc.host<"x", "input", "f16">}) -> tensor<128x256xf16, #stick.layout<#rows>> {
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  %c128 = arith.constant 128 : index
  %e = tensor.empty() : tensor<128x256xf16, #stick.layout<#rows>>
  %r = scf.for %i = %c0 to %c128 step %c64 iter_args(%acc = %e) -> (tensor<128x256xf16, #stick.layout<#rows>>) {
    %s = tensor.extract_slice %x[%i, 0] [64, 256] [1, 1] : tensor<128x256xf16, #stick.layout<#rows>> to tensor<64x256xf16, #stick.layout<#rows>>
    %t = "sdsc.clone"(%s) : (tensor<64x256xf16, #stick.layout<#rows>>) -> tensor<64x256xf16, #stick.layout<#rows>>
    %n = tensor.insert_slice %t into %acc[%i, 0] [64, 256] [1, 1] : tensor<64x256xf16, #stick.layout<#rows>> into tensor<128x256xf16, #stick.layout<#rows>>
    scf.yield %n : tensor<128x256xf16, #stick.layout<#rows>>
  }
  return %r : tensor<128x256xf16, #stick.layout<#rows>>
}
