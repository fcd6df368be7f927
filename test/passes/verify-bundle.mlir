// RUN: spyre-opt %s --convert-sdsc-to-sdscbundle -o %t.mlir
// RUN: spyre-opt %t.mlir --verify-bundle | diff %t.mlir -
// RUN: sed "s/slices = {mb = 2/slices = {mb = 4/" %t.mlir | not spyre-opt --verify-bundle 2>&1 | filecheck %s --check-prefix=CORES
// RUN: sed "s/sdsc_filename = .sdsc_1.json./sdsc_filename = \"sdsc_7.json\"/" %t.mlir | not spyre-opt --verify-bundle 2>&1 | filecheck %s --check-prefix=FILES
// RUN: not spyre-opt %s --verify-bundle 2>&1 | filecheck %s --check-prefix=LEVEL

// What the lowering gives is a bundle, and passes unchanged. A design that breaks a rule is named with the rule,
// at the op that executes it.
// CORES: <stdin>:{{[0-9]+:[0-9]+}}: error: sdsc_0.json (exp): Its dims have 4 slices together; expected one for each of 2 cores. [cores]
// More findings than the first are counted.
// FILES: <stdin>:{{[0-9]+:[0-9]+}}: error: bundle.mlir: The program executes sdsc_7.json, which is not in the bundle. [files] (and 1 more)
// A module of another level has no bundle to check.
// LEVEL: verify-bundle.mlir:{{[0-9]+:[0-9]+}}: error: this module is not at the bundle level; run the spyre pipeline on it first
#rows = affine_map<(d0, d1) -> (d1 floordiv 64, d0, d1 mod 64)>
#id = affine_map<(d0, d1) -> (d0, d1)>
func.func @main(%x: tensor<128x256xf16, #stick.layout<#rows>> {sdsc.host = #sdsc.host<"x", "input", "bf16">}) -> (tensor<128x256xf16, #stick.layout<#rows>> {sdsc.host = #sdsc.host<"result0", "result", "bf16">}) attributes {sdsc.pool_bytes = 65536 : i64} {
  %e0 = tensor.empty() : tensor<128x256xf16, #stick.layout<#rows>>
  %e1 = tensor.empty() : tensor<128x256xf16, #stick.layout<#rows>>
  %0 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%x : tensor<128x256xf16, #stick.layout<#rows>>) outs(%e0 : tensor<128x256xf16, #stick.layout<#rows>>) attrs = {sdsc.op = #sdsc.op<"exp", {}>, sdsc.division = #sdsc.division<[2, 1], affine_map<(d0) -> (d0 mod 2, 0)>>, sdsc.placement = #sdsc.hbm<"pool", 0 : i64>} {
  ^bb0(%a0: f16, %o: f16):
    linalg.yield %o : f16
  } -> tensor<128x256xf16, #stick.layout<#rows>>
  %1 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%0 : tensor<128x256xf16, #stick.layout<#rows>>) outs(%e1 : tensor<128x256xf16, #stick.layout<#rows>>) attrs = {sdsc.op = #sdsc.op<"exp", {}>, sdsc.division = #sdsc.division<[2, 1], affine_map<(d0) -> (d0 mod 2, 0)>>, sdsc.placement = #sdsc.hbm<"result0", 0 : i64>} {
  ^bb0(%a0: f16, %o: f16):
    linalg.yield %o : f16
  } -> tensor<128x256xf16, #stick.layout<#rows>>
  return %1 : tensor<128x256xf16, #stick.layout<#rows>>
}
