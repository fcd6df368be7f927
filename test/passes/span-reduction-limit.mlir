// RUN: spyre-opt %s --span-reduction="limit-bytes=32768" | filecheck %s
// RUN: spyre-opt %s --span-reduction="limit-bytes=65536" | filecheck %s --check-prefix=ENOUGH
// RUN: not spyre-opt %s --span-reduction="limit-bytes=1024" 2>&1 | filecheck %s --check-prefix=ERROR
// RUN: not spyre-opt %s --attach-target="sencores=33" --span-reduction 2>&1 | filecheck %s --check-prefix=CORES

// 64 KiB within a limit of 32 KiB are two slices of the outermost device dim, the sticks.
// CHECK: sdsc.division = #sdsc.division<[1, 2], #{{.*}}>
// ENOUGH-NOT: sdsc.division
// 32 cores do not suffice for 1 KiB each; the error is at the op, with its name, shape and the limit.
// ERROR: span-reduction-limit.mlir:17:8: error: 'exp' cannot address operand 0, of shape [128, 256].
// ERROR-SAME: one core still spans 2048 bytes, the limit is 1024
// CORES: error: sencores is 33; the device has 1 to 32 cores.
#rows = affine_map<(d0, d1) -> (d1 floordiv 64, d0, d1 mod 64)>
#id = affine_map<(d0, d1) -> (d0, d1)>
func.func @limit(%x: tensor<128x256xf16, #stick.layout<#rows>>) {
  %e0 = tensor.empty() : tensor<128x256xf16, #stick.layout<#rows>>
  %0 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%x : tensor<128x256xf16, #stick.layout<#rows>>) outs(%e0 : tensor<128x256xf16, #stick.layout<#rows>>) attrs = {sdsc.op = #sdsc.op<"exp", {}>} {
  ^bb0(%a0: f16, %o: f16):
    linalg.yield %o : f16
  } -> tensor<128x256xf16, #stick.layout<#rows>>
  return
}
