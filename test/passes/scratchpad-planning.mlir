// RUN: spyre-opt %s --choose-layouts --work-distribution --clone-inputs --scratchpad-planning --split-input-file --verify-diagnostics | filecheck %s
// RUN: spyre-opt %s --choose-layouts --work-distribution --scratchpad-planning="in-place=false" --split-input-file | filecheck %s --check-prefix=APART
// RUN: spyre-opt %s --choose-layouts --work-distribution --scratchpad-planning="lx-ops=abs" --split-input-file | filecheck %s --check-prefix=ABS
// RUN: spyre-opt %s --attach-target="lx-frac-avail=1.0" --choose-layouts --work-distribution --scratchpad-planning --split-input-file | filecheck %s --check-prefix=FULL
// RUN: not spyre-opt %s --choose-layouts --work-distribution --scratchpad-planning="lx-ops=absolute" --split-input-file 2>&1 | filecheck %s --check-prefix=OPERATION
// RUN: not spyre-opt %s --choose-layouts --work-distribution --scratchpad-planning="layout-solver=best" --split-input-file 2>&1 | filecheck %s --check-prefix=SOLVER
// RUN: not spyre-opt %s --attach-target="lx-frac-avail=1.5" --choose-layouts --work-distribution --scratchpad-planning --split-input-file 2>&1 | filecheck %s --check-prefix=FRACTION

// OPERATION: error: lx-ops names 'absolute', which is not a device operation.
// SOLVER: scratchpad-planning.mlir:{{.*}}: error: the scratchpads cannot be planned: There is no solver 'best'; the solvers are bestfit,
// FRACTION: error: lx-frac-avail is 1.5; it is a part of LX, 0 to 1.

// A pointwise result takes the place of its operand; the one that leaves the chip does not.
// CHECK-LABEL: func.func @chain(
// CHECK: sdsc.op<"exp", {}>, sdsc.placement = #sdsc.lx<0 : i64>
// CHECK: sdsc.op<"abs", {}>, sdsc.placement = #sdsc.lx<0 : i64>
// CHECK-NOT: sdsc.lx
// CHECK: sdsc.op<"neg", {}>, sdsc.spilled = ["graph input or output: the host reads it", "no reader in LX: no operation reads it"]
// APART-LABEL: func.func @chain(
// APART: sdsc.op<"exp", {}>, sdsc.placement = #sdsc.lx<[[A:0|2048]] : i64>
// APART-NOT: sdsc.lx<[[A]]
// APART: sdsc.op<"abs", {}>, sdsc.placement = #sdsc.lx<
// ABS-LABEL: func.func @chain(
// ABS: sdsc.op<"exp", {}>, sdsc.spilled = ["operation not eligible: 'exp' is not among lx-ops"]
// ABS: sdsc.op<"abs", {}>, sdsc.placement = #sdsc.lx<0 : i64>
// FULL-LABEL: func.func @chain(
// FULL: sdsc.op<"exp", {}>, sdsc.spilled = ["too large: 2048 bytes per core, LX has 0"]
#id = affine_map<(d0, d1) -> (d0, d1)>
!m = tensor<128x256xf16>
// expected-remark@below {{plan: 2 buffers in LX, 1 in device memory; bytes of traffic 393216 without LX, 131072 with it, 131072 at least for these operations; peak 2048 of 1625344}}
func.func @chain(%x: !m {sdsc.host = #sdsc.host<"x", "input", "f16">}) -> !m {
  %e = tensor.empty() : !m
  // expected-remark@below {{in LX: 2048 bytes per core at 0}}
  %0 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%x : !m) outs(%e : !m) attrs = {sdsc.op = #sdsc.op<"exp", {}>} {
  ^bb0(%a: f16, %o: f16):
    linalg.yield %o : f16
  } -> !m
  // expected-remark@below {{in LX: 2048 bytes per core at 0}}
  %1 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%0 : !m) outs(%e : !m) attrs = {sdsc.op = #sdsc.op<"abs", {}>} {
  ^bb0(%a: f16, %o: f16):
    linalg.yield %o : f16
  } -> !m
  // expected-remark@below {{spill: graph input or output: the host reads it; no reader in LX: no operation reads it}}
  %2 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%1 : !m) outs(%e : !m) attrs = {sdsc.op = #sdsc.op<"neg", {}>} {
  ^bb0(%a: f16, %o: f16):
    linalg.yield %o : f16
  } -> !m
  return %2 : !m
}
// -----
// A clone that is placed stays and reads device memory once; without an address it is not there.
// CHECK-LABEL: func.func @clone(
// CHECK: "sdsc.clone"({{.*}}sdsc.placement = #sdsc.lx<
// FULL-LABEL: func.func @clone(
// FULL-NOT: sdsc.clone
#id = affine_map<(d0, d1) -> (d0, d1)>
!m = tensor<128x256xf16>
// expected-remark@below {{bytes of traffic 327680 without LX, 131072 with it}}
func.func @clone(%x: !m {sdsc.host = #sdsc.host<"x", "input", "f16">}) -> !m {
  %e = tensor.empty() : !m
  // expected-remark@below {{clone: 2 of 2 readers}}
  // expected-remark@below {{in LX: 2048 bytes per core at 0}}
  // expected-remark@below {{in LX: 2048 bytes per core at 2048}}
  %0 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%x : !m) outs(%e : !m) attrs = {sdsc.op = #sdsc.op<"exp", {}>} {
  ^bb0(%a: f16, %o: f16):
    linalg.yield %o : f16
  } -> !m
  // expected-remark@below {{spill: graph input or output}}
  %1 = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]} ins(%0, %x : !m, !m) outs(%e : !m) attrs = {sdsc.op = #sdsc.op<"add", {}>} {
  ^bb0(%a: f16, %b: f16, %o: f16):
    linalg.yield %o : f16
  } -> !m
  return %1 : !m
}
// -----
// The sums of cores that share a value are not on the cores that read it; a slice of rows is divided in another way.
// CHECK-LABEL: func.func @barred(
// CHECK: sdsc.op<"sumnonstick", {}>, sdsc.spilled = ["core division mismatch: 'add' reads it: the writer leaves partial sums on its cores, not the final values"]
// CHECK: sdsc.op<"exp", {}>, sdsc.spilled = ["core division mismatch: 'abs' reads a part of it: core 0 writes 4 x 4 sticks {{.*}}, but reads 4 x 2 sticks
#id = affine_map<(d0, d1) -> (d0, d1)>
#column = affine_map<(d0, d1) -> (d1)>
!m = tensor<128x256xf16>
!h = tensor<64x256xf16>
!v = tensor<256xf16>
// expected-remark@below {{plan: 1 buffers in LX, 4 in device memory}}
func.func @barred(%x: !m {sdsc.host = #sdsc.host<"x", "input", "f16">}) -> (!m, !h) {
  %e = tensor.empty() : !m
  %eh = tensor.empty() : !h
  %ev = tensor.empty() : !v
  // expected-remark@below {{32 of 32 cores}}
  // expected-remark@below {{spill: core division mismatch}}
  %0 = linalg.generic {indexing_maps = [#id, #column], iterator_types = ["reduction", "parallel"]} ins(%x : !m) outs(%ev : !v) attrs = {sdsc.op = #sdsc.op<"sumnonstick", {}>} {
  ^bb0(%a: f16, %o: f16):
    linalg.yield %o : f16
  } -> !v
  // expected-remark@below {{clone: 2 of 3 readers of one input}}
  // expected-remark@below {{in LX: 2048 bytes per core at 0}}
  // expected-remark@below {{spill: core division mismatch}}
  %1 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%x : !m) outs(%e : !m) attrs = {sdsc.op = #sdsc.op<"exp", {}>} {
  ^bb0(%a: f16, %o: f16):
    linalg.yield %o : f16
  } -> !m
  %s = tensor.extract_slice %1[64, 0] [64, 256] [1, 1] : !m to !h
  // expected-remark@below {{spill: graph input or output}}
  %2 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%s : !h) outs(%eh : !h) attrs = {sdsc.op = #sdsc.op<"abs", {}>} {
  ^bb0(%a: f16, %o: f16):
    linalg.yield %o : f16
  } -> !h
  // expected-remark@below {{spill: graph input or output}}
  %3 = linalg.generic {indexing_maps = [#id, #column, #id], iterator_types = ["parallel", "parallel"]} ins(%x, %0 : !m, !v) outs(%e : !m) attrs = {sdsc.op = #sdsc.op<"add", {}>} {
  ^bb0(%a: f16, %b: f16, %o: f16):
    linalg.yield %o : f16
  } -> !m
  return %3, %2 : !m, !h
}
