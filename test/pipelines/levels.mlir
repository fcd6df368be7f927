// Each level prints and parses back unchanged, and each stage runs alone on the output of the one before.
// RUN: spyre-opt %s --spyre-pipeline="sencores=4" --to-level=device-ops -o %t.1
// RUN: spyre-opt %t.1 -o %t.1again
// RUN: diff %t.1 %t.1again
// RUN: spyre-opt %t.1 --verify-device-ops --choose-layouts --resolve-padding -o %t.2
// RUN: spyre-opt %t.2 -o %t.2again
// RUN: diff %t.2 %t.2again
// RUN: spyre-opt %t.2 --verify-laid-out --verify-padding --span-reduction --work-distribution --joint-planning -o %t.3
// RUN: spyre-opt %t.3 -o %t.3again
// RUN: diff %t.3 %t.3again
// RUN: spyre-opt %t.3 --verify-divided --clone-outputs --clone-inputs --scratchpad-planning --verify-scratchpad --place-in-hbm --verify-placed -o %t.4
// RUN: spyre-opt %t.4 -o %t.4again
// RUN: diff %t.4 %t.4again
// RUN: spyre-opt %s --spyre-pipeline="sencores=4 verify-each" --to-level=placed -o %t.whole
// RUN: diff %t.4 %t.whole
// RUN: spyre-opt %t.4 --convert-sdsc-to-sdscbundle --verify-bundle -o %t.5
// RUN: spyre-opt %t.5 -o %t.5again
// RUN: diff %t.5 %t.5again
// The level of a stage is what the whole pipeline gives at it.
// RUN: spyre-opt %s --spyre-pipeline="sencores=4" --to-level=laid-out | diff %t.2 -
// RUN: spyre-opt %s --spyre-pipeline="sencores=4" --to-level=divided | diff %t.3 -
// RUN: filecheck %s < %t.4
// RUN: spyre-opt %s --spyre-pipeline="sencores=4 to-level=device-ops" -o %t.1option
// RUN: diff %t.1 %t.1option
// RUN: spyre-opt %t.1 --spyre-pipeline="sencores=4 from-level=device-ops" --to-level=laid-out -o %t.2option
// RUN: spyre-opt %t.1 --spyre-pipeline="sencores=4" --from-level=device-ops --to-level=laid-out -o %t.2flag
// RUN: diff %t.2option %t.2flag
// RUN: spyre-compile %t.2flag -o %t.bundle --sencores 4 --from-level laid-out

// CHECK: func.func @softmax({{.*}}attributes {sdsc.pool_bytes = {{[0-9]+}} : i64}
// CHECK: sdsc.division = #sdsc.division<[4, 1], #{{.*}}>, sdsc.op = #sdsc.op<"max", {}>, sdsc.placement = #sdsc.lx<{{[0-9]+}} : i64>
// CHECK: sdsc.placement = #sdsc.hbm<"result0", 0 : i64>
#id = affine_map<(d0, d1) -> (d0, d1)>
#row = affine_map<(d0, d1) -> (d0)>
func.func @softmax(%x: tensor<128x256xf16>) -> tensor<128x256xf16> {
  %low = arith.constant dense<0xFC00> : tensor<128xf16>
  %zero = arith.constant dense<0.0> : tensor<128xf16>
  %e = tensor.empty() : tensor<128x256xf16>
  %max = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]} ins(%x : tensor<128x256xf16>) outs(%low : tensor<128xf16>) {
  ^bb0(%a: f16, %o: f16):
    %r = arith.maximumf %a, %o : f16
    linalg.yield %r : f16
  } -> tensor<128xf16>
  %exp = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]} ins(%x, %max : tensor<128x256xf16>, tensor<128xf16>) outs(%e : tensor<128x256xf16>) {
  ^bb0(%a: f16, %b: f16, %o: f16):
    %s = arith.subf %a, %b : f16
    %r = math.exp %s : f16
    linalg.yield %r : f16
  } -> tensor<128x256xf16>
  %sum = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]} ins(%exp : tensor<128x256xf16>) outs(%zero : tensor<128xf16>) {
  ^bb0(%a: f16, %o: f16):
    %r = arith.addf %a, %o : f16
    linalg.yield %r : f16
  } -> tensor<128xf16>
  %0 = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]} ins(%exp, %sum : tensor<128x256xf16>, tensor<128xf16>) outs(%e : tensor<128x256xf16>) {
  ^bb0(%a: f16, %b: f16, %o: f16):
    %r = arith.divf %a, %b : f16
    linalg.yield %r : f16
  } -> tensor<128x256xf16>
  return %0 : tensor<128x256xf16>
}
