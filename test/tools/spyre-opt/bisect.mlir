// RUN: spyre-opt %s --load %S/Inputs/test_swap.py --bisect simulator \
// RUN:   --spyre-pipeline='sencores=4 insert="test-swap@fuse-device-ops"' | filecheck %s
// RUN: spyre-opt %s --spyre-pipeline --bisect "total_us>0.001" | filecheck %s --check-prefix=LIMIT
// RUN: not spyre-opt %s --spyre-pipeline --bisect simulator 2>&1 | filecheck %s --check-prefix=NONE
// RUN: not spyre-opt %s --spyre-pipeline --bisect wrong 2>&1 | filecheck %s --check-prefix=WRONG
// RUN: not spyre-opt %s --cse --bisect simulator 2>&1 | filecheck %s --check-prefix=OTHER

// The pass that swaps the operands of a difference is named, and the one option that brings it.
// CHECK: fault: FAIL  result0: largest error
// CHECK-NEXT: pass: test-swap (number {{[0-9]+}} of {{[0-9]+}}); the numbers differ after it, on the CPU
// CHECK-NEXT: options that the fault needs: insert=test-swap@fuse-device-ops
// LIMIT: fault: total_us is {{.*}}, above 0.001
// LIMIT-NEXT: pass: none can be left out alone such that the fault vanishes
// NONE: error: The program does not have the fault 'simulator', so there is nothing to bisect.
// WRONG: error: --bisect takes 'simulator' or a limit such as 'total_us>90', not 'wrong'.
// OTHER: error: --bisect needs one whole --spyre-pipeline, and no other pass or level.
#id = affine_map<(d0, d1) -> (d0, d1)>
func.func @main(%x: tensor<64x64xf16>, %y: tensor<64x64xf16>) -> tensor<64x64xf16> {
  %e = tensor.empty() : tensor<64x64xf16>
  %0 = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%x, %y : tensor<64x64xf16>, tensor<64x64xf16>) outs(%e : tensor<64x64xf16>) {
  ^bb0(%a: f16, %b: f16, %o: f16):
    %v = arith.subf %a, %b : f16
    linalg.yield %v : f16
  } -> tensor<64x64xf16>
  return %0 : tensor<64x64xf16>
}
