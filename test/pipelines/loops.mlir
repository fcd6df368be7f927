// RUN: spyre-opt %s --spyre-pipeline="verify-each=true" | filecheck %s
// RUN: spyre-opt %s --spyre-pipeline | spyre-translate - --to-bundle %t.bundle && spyre-validate %t.bundle
// RUN: filecheck %s --check-prefix=BUNDLE < %t.bundle/bundle.mlir

// A loop carries nothing in a bundle: tiles are at addresses that move with it, what is between them stays in LX.
// CHECK-LABEL: func.func @sdsc_bundle(
// CHECK: scf.for %{{.*}} = %{{.*}} to %{{.*}} step %{{.*}} {
// CHECK: affine.apply #{{.*}}(%{{.*}})[%{{.*}}]
// CHECK: sdscbundle.sdsc_execute
// CHECK: sdscbundle.sdsc_execute
// CHECK-NOT: scf.yield %
// BUNDLE: #map0 = affine_map<(d0)[s0] -> (s0 + 16384 * d0)>
// BUNDLE: arith.constant 4 : index
// BUNDLE: scf.for
// BUNDLE: affine.apply #map0
#id = affine_map<(d0, d1) -> (d0, d1)>
func.func @loop(%x: tensor<512x256xf16> {sdsc.host = #sdsc.host<"x", "input", "f16">}, %y: tensor<512x256xf16> {sdsc.host = #sdsc.host<"y", "input", "f16">}) -> (tensor<512x256xf16> {sdsc.host = #sdsc.host<"result0", "result", "f16">}) {
  %c0 = arith.constant 0 : index
  %c128 = arith.constant 128 : index
  %c512 = arith.constant 512 : index
  %e = tensor.empty() : tensor<512x256xf16>
  %d = tensor.empty() : tensor<128x256xf16>
  %r = scf.for %i = %c0 to %c512 step %c128 iter_args(%acc = %e) -> (tensor<512x256xf16>) {
    %s = tensor.extract_slice %x[%i, 0] [128, 256] [1, 1] : tensor<512x256xf16> to tensor<128x256xf16>
    %u = tensor.extract_slice %y[%i, 0] [128, 256] [1, 1] : tensor<512x256xf16> to tensor<128x256xf16>
    %a = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]} ins(%s, %u : tensor<128x256xf16>, tensor<128x256xf16>) outs(%d : tensor<128x256xf16>) attrs = {sdsc.op = #sdsc.op<"add", {}>} {
    ^bb0(%p: f16, %q : f16, %o: f16):
      %1 = arith.addf %p, %q : f16
      linalg.yield %1 : f16
    } -> tensor<128x256xf16>
    %b = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]} ins(%a, %u : tensor<128x256xf16>, tensor<128x256xf16>) outs(%d : tensor<128x256xf16>) attrs = {sdsc.op = #sdsc.op<"mul", {}>} {
    ^bb0(%p: f16, %q : f16, %o: f16):
      %1 = arith.mulf %p, %q : f16
      linalg.yield %1 : f16
    } -> tensor<128x256xf16>
    %n = tensor.insert_slice %b into %acc[%i, 0] [128, 256] [1, 1] : tensor<128x256xf16> into tensor<512x256xf16>
    scf.yield %n : tensor<512x256xf16>
  }
  return %r : tensor<512x256xf16>
}
