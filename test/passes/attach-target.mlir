// RUN: spyre-opt %s --attach-target="sencores=2 lx-frac-avail=0.5" | filecheck %s
// RUN: spyre-opt %s --attach-target="sencores=2" --verify-each=false --work-distribution | filecheck %s --check-prefix=DIVIDED
// RUN: not spyre-opt %s --attach-target="sencores=33" 2>&1 | filecheck %s --check-prefix=CORES
// RUN: not spyre-opt %s --attach-target="device=%t.toml" 2>&1 | filecheck %s --check-prefix=FILE

// The module has what differs from the packaged device.
// CHECK: module attributes {sdsc.target = {cores = {usable = 2 : i64}, lx = {backend_fraction = 5.000000e-01 : f64}}}
// Passes behind it keep to that.
// DIVIDED: sdsc.division = #sdsc.division<[2, 1],
// CORES: error: sencores is 33; the device has 1 to 32 cores.
// FILE: error: The file '{{.*}}.toml' cannot be read: No such file or directory; a device is the path of a TOML file (docs/devices.md).
#rows = affine_map<(d0, d1) -> (d1 floordiv 64, d0, d1 mod 64)>
#id = affine_map<(d0, d1) -> (d0, d1)>
func.func @rows(%x: tensor<128x256xf16, #stick.layout<#rows>>) {
  %e0 = tensor.empty() : tensor<128x256xf16, #stick.layout<#rows>>
  %0 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%x : tensor<128x256xf16, #stick.layout<#rows>>) outs(%e0 : tensor<128x256xf16, #stick.layout<#rows>>) attrs = {sdsc.op = #sdsc.op<"exp", {}>} {
  ^bb0(%a0: f16, %o: f16):
    linalg.yield %o : f16
  } -> tensor<128x256xf16, #stick.layout<#rows>>
  return
}
