// RUN: spyre-opt %s --spyre-pipeline | filecheck %s
// RUN: spyre-opt %s --spyre-pipeline="sencores=2" | filecheck %s --check-prefix=TWO
// RUN: spyre-opt %s --spyre-pipeline="sencores=30 uneven-splits co-optimizing-lx-planning=false" --to-level=divided | filecheck %s --check-prefix=UNEVEN
// RUN: spyre-opt %s --spyre-pipeline="precision=strict" --to-level=device-ops | filecheck %s --check-prefix=STRICT
// RUN: spyre-opt %s --spyre-pipeline --to-level=device-ops | filecheck %s --check-prefix=DEVICE
// RUN: spyre-opt %s --spyre-pipeline="verify-each" --mlir-timing -o /dev/null 2>&1 | filecheck %s --check-prefix=EACH
// RUN: not spyre-opt %s --spyre-pipeline="sencores=33" 2>&1 | filecheck %s --check-prefix=CORES
// RUN: not spyre-opt %s --spyre-pipeline="precision=half" 2>&1 | filecheck %s --check-prefix=POLICY
// RUN: not spyre-opt %s --spyre-pipeline="speed=3" 2>&1 | filecheck %s --check-prefix=OPTION

// The result is a bundle: designs and manifest on the module, only the ops of the SuperDSC specification in it.
// CHECK: module attributes {sdscbundle.designs = {sdsc_0.json = {
// CHECK-SAME: sdscbundle.manifest = {
// CHECK-NEXT: func.func @sdsc_bundle(%{{.*}}: !sdscbundle.input_arg<index, 0 : i64, 0 : i64>, %{{.*}}: !sdscbundle.input_arg<index, 0 : i64, 0 : i64>) {
// CHECK-NEXT: "sdscbundle.input_arg_extract"
// CHECK-NOT: {{linalg|tensor}}
// CHECK: sdsc_filename = "sdsc_0.json"
// CHECK-NOT: {{linalg|tensor}}
// CHECK: sdsc_filename = "sdsc_6.json"
// CHECK-NEXT: return

// Two cores: two addresses per operand in device memory; what the clone writes and five operations share is in LX.
// TWO: "sdscbundle.sdsc_execute"(%{{[^,]*}}, %{{[^,]*}}) {sdsc_filename = "sdsc_0.json"
// TWO-NEXT: "sdscbundle.sdsc_execute"() {sdsc_filename = "sdsc_1.json"

// 128 rows over 30 cores: 16 slices of 8 rows are equal; of slices that may differ the best are 26 of 5, or fewer.
// UNEVEN: sdsc.division = #sdsc.division<[26, 1], #{{.*}}>, sdsc.op = #sdsc.op<"max", {}>

// The fp32 island of the sum is kept by the strict policy only.
// STRICT: sdsc.op = #sdsc.op<"dl16tofp32", {}>
// STRICT: ins({{.*}}xf32>) {{.*}}sdsc.op = #sdsc.op<"sum", {}>
// DEVICE-NOT: f32
// DEVICE: sdsc.op = #sdsc.op<"sum", {}>
// DEVICE-NOT: f32
// DEVICE: return

// verify-each runs the verifier of every level.
// EACH: verify-device-ops
// EACH: verify-laid-out
// EACH: verify-padding
// EACH: span-reduction
// EACH: joint-planning
// EACH: verify-divided
// EACH: clone-inputs
// EACH: reorder-operations
// EACH: evict-and-reload
// EACH: double-buffer
// EACH: scratchpad-planning
// EACH: verify-placed
// EACH: verify-scratchpad
// EACH: verify-bundle

// CORES: error: sencores is 33; the device has 1 to 32 cores.
// POLICY: error: The option 'precision' of the spyre pipeline must be one of device, strict, not 'half'.
// OPTION: error: The spyre pipeline has no option 'speed'; its options: {{.*}} more.
#id = affine_map<(d0, d1) -> (d0, d1)>
#row = affine_map<(d0, d1) -> (d0)>
#vec = affine_map<(d0) -> (d0)>
func.func @softmax(%x: tensor<128x256xf16>) -> tensor<128x256xf16> {
  %low = arith.constant dense<0xFC00> : tensor<128xf16>
  %zero = arith.constant dense<0.0> : tensor<128xf32>
  %w = tensor.empty() : tensor<128xf16>
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
  %wide = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]} ins(%exp : tensor<128x256xf16>) outs(%zero : tensor<128xf32>) {
  ^bb0(%a: f16, %o: f32):
    %b = arith.extf %a : f16 to f32
    %r = arith.addf %b, %o : f32
    linalg.yield %r : f32
  } -> tensor<128xf32>
  %sum = linalg.generic {indexing_maps = [#vec, #vec], iterator_types = ["parallel"]} ins(%wide : tensor<128xf32>) outs(%w : tensor<128xf16>) {
  ^bb0(%a: f32, %o: f16):
    %r = arith.truncf %a : f32 to f16
    linalg.yield %r : f16
  } -> tensor<128xf16>
  %0 = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]} ins(%exp, %sum : tensor<128x256xf16>, tensor<128xf16>) outs(%e : tensor<128x256xf16>) {
  ^bb0(%a: f16, %b: f16, %o: f16):
    %r = arith.divf %a, %b : f16
    linalg.yield %r : f16
  } -> tensor<128x256xf16>
  return %0 : tensor<128x256xf16>
}
