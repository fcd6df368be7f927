// RUN: not spyre-opt %s --spyre-pipeline 2>&1 | filecheck %s
// RUN: not spyre-opt %s --choose-layouts --work-distribution 2>&1 | filecheck %s

// Layouts are chosen through loops, but no level below takes one: it is refused with one error.
// CHECK: loops.mlir:11:8: error: 'scf.for' ends at level laid out: what is lower takes functions without loops
// CHECK-NOT: {{error|Traceback}}
func.func @loop(%x: tensor<64x64xf16> {sdsc.host = #sdsc.host<"x", "input", "f16">}) -> tensor<64x64xf16> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %r = scf.for %i = %c0 to %c4 step %c1 iter_args(%acc = %x) -> (tensor<64x64xf16>) {
    %n = "sdsc.clone"(%acc) : (tensor<64x64xf16>) -> tensor<64x64xf16>
    scf.yield %n : tensor<64x64xf16>
  }
  return %r : tensor<64x64xf16>
}
