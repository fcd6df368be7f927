// RUN: spyre-opt %s --verify-divided --split-input-file --verify-diagnostics

// Splits that divide rows and sticks, and a core map that gives each slice one owner.
#rows = affine_map<(d0, d1) -> (d1 floordiv 64, d0, d1 mod 64)>
#id = affine_map<(d0, d1) -> (d0, d1)>
func.func @valid(%x: tensor<128x256xf16, #stick.layout<#rows>>) {
  %e0 = tensor.empty() : tensor<128x256xf16, #stick.layout<#rows>>
  %0 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%x : tensor<128x256xf16, #stick.layout<#rows>>) outs(%e0 : tensor<128x256xf16, #stick.layout<#rows>>) attrs = {sdsc.op = #sdsc.op<"exp", {}>, sdsc.division = #sdsc.division<[4, 2], affine_map<(d0) -> (d0 mod 4, (d0 floordiv 4) mod 2)>>} {
  ^bb0(%a0: f16, %o: f16):
    linalg.yield %o : f16
  } -> tensor<128x256xf16, #stick.layout<#rows>>
  return
}
// -----
// A last slice that is smaller: 5 sticks in 3 slices are 2, 2 and 1.
#rows = affine_map<(d0, d1) -> (d1 floordiv 64, d0, d1 mod 64)>
#id = affine_map<(d0, d1) -> (d0, d1)>
func.func @uneven(%x: tensor<1x320xf16, #stick.layout<#rows>>) {
  %e0 = tensor.empty() : tensor<1x320xf16, #stick.layout<#rows>>
  %0 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%x : tensor<1x320xf16, #stick.layout<#rows>>) outs(%e0 : tensor<1x320xf16, #stick.layout<#rows>>) attrs = {sdsc.op = #sdsc.op<"exp", {}>, sdsc.division = #sdsc.division<[1, 3], affine_map<(d0) -> (0, d0)>>} {
  ^bb0(%a0: f16, %o: f16):
    linalg.yield %o : f16
  } -> tensor<1x320xf16, #stick.layout<#rows>>
  return
}
// -----
// Partial sums that are added.
#rows = affine_map<(d0, d1) -> (d1 floordiv 64, d0, d1 mod 64)>
#vec = affine_map<(d0) -> (d0 floordiv 64, d0 mod 64)>
#id = affine_map<(d0, d1) -> (d0, d1)>
#second = affine_map<(d0, d1) -> (d1)>
func.func @added(%x: tensor<128x256xf16, #stick.layout<#rows>>) {
  %e0 = tensor.empty() : tensor<256xf16, #stick.layout<#vec>>
  %0 = linalg.generic {indexing_maps = [#id, #second], iterator_types = ["reduction", "parallel"]} ins(%x : tensor<128x256xf16, #stick.layout<#rows>>) outs(%e0 : tensor<256xf16, #stick.layout<#vec>>) attrs = {sdsc.op = #sdsc.op<"sumnonstick", {}>, sdsc.combine = "add", sdsc.division = #sdsc.division<[2, 1], affine_map<(d0) -> (d0, 0)>>} {
  ^bb0(%a0: f16, %o: f16):
    linalg.yield %o : f16
  } -> tensor<256xf16, #stick.layout<#vec>>
  return
}
// -----
// An operation without a division.
#rows = affine_map<(d0, d1) -> (d1 floordiv 64, d0, d1 mod 64)>
#id = affine_map<(d0, d1) -> (d0, d1)>
func.func @missing(%x: tensor<128x256xf16, #stick.layout<#rows>>) {
  %e0 = tensor.empty() : tensor<128x256xf16, #stick.layout<#rows>>
  // expected-error@below {{this operation has no sdsc.division}}
  %0 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%x : tensor<128x256xf16, #stick.layout<#rows>>) outs(%e0 : tensor<128x256xf16, #stick.layout<#rows>>) attrs = {sdsc.op = #sdsc.op<"exp", {}>} {
  ^bb0(%a0: f16, %o: f16):
    linalg.yield %o : f16
  } -> tensor<128x256xf16, #stick.layout<#rows>>
  return
}
// -----
// A split for each dim.
#rows = affine_map<(d0, d1) -> (d1 floordiv 64, d0, d1 mod 64)>
#id = affine_map<(d0, d1) -> (d0, d1)>
func.func @dims(%x: tensor<128x256xf16, #stick.layout<#rows>>) {
  %e0 = tensor.empty() : tensor<128x256xf16, #stick.layout<#rows>>
  // expected-error@below {{the division has 1 dim, not 2}}
  %0 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%x : tensor<128x256xf16, #stick.layout<#rows>>) outs(%e0 : tensor<128x256xf16, #stick.layout<#rows>>) attrs = {sdsc.op = #sdsc.op<"exp", {}>, sdsc.division = #sdsc.division<[4], affine_map<(d0) -> (d0)>>} {
  ^bb0(%a0: f16, %o: f16):
    linalg.yield %o : f16
  } -> tensor<128x256xf16, #stick.layout<#rows>>
  return
}
// -----
// No more slices than cores.
#rows = affine_map<(d0, d1) -> (d1 floordiv 64, d0, d1 mod 64)>
#id = affine_map<(d0, d1) -> (d0, d1)>
func.func @cores(%x: tensor<128x256xf16, #stick.layout<#rows>>) {
  %e0 = tensor.empty() : tensor<128x256xf16, #stick.layout<#rows>>
  // expected-error@below {{the division needs 64 cores, the device has 32}}
  %0 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%x : tensor<128x256xf16, #stick.layout<#rows>>) outs(%e0 : tensor<128x256xf16, #stick.layout<#rows>>) attrs = {sdsc.op = #sdsc.op<"exp", {}>, sdsc.division = #sdsc.division<[64, 1], affine_map<(d0) -> (d0, 0)>>} {
  ^bb0(%a0: f16, %o: f16):
    linalg.yield %o : f16
  } -> tensor<128x256xf16, #stick.layout<#rows>>
  return
}
// -----
// A last slice without sticks: 4 sticks in 3 slices are 2 and 2.
#rows = affine_map<(d0, d1) -> (d1 floordiv 64, d0, d1 mod 64)>
#id = affine_map<(d0, d1) -> (d0, d1)>
func.func @sticks(%x: tensor<128x256xf16, #stick.layout<#rows>>) {
  %e0 = tensor.empty() : tensor<128x256xf16, #stick.layout<#rows>>
  // expected-error@below {{dim 1 has 4 rows or sticks, so the last of 3 slices has no work}}
  %0 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%x : tensor<128x256xf16, #stick.layout<#rows>>) outs(%e0 : tensor<128x256xf16, #stick.layout<#rows>>) attrs = {sdsc.op = #sdsc.op<"exp", {}>, sdsc.division = #sdsc.division<[1, 3], affine_map<(d0) -> (0, d0)>>} {
  ^bb0(%a0: f16, %o: f16):
    linalg.yield %o : f16
  } -> tensor<128x256xf16, #stick.layout<#rows>>
  return
}
// -----
// A reduced dim is divided only if the partial results are combined.
#rows = affine_map<(d0, d1) -> (d1 floordiv 64, d0, d1 mod 64)>
#vec = affine_map<(d0) -> (d0 floordiv 64, d0 mod 64)>
#id = affine_map<(d0, d1) -> (d0, d1)>
#second = affine_map<(d0, d1) -> (d1)>
func.func @reduced(%x: tensor<128x256xf16, #stick.layout<#rows>>) {
  %e0 = tensor.empty() : tensor<256xf16, #stick.layout<#vec>>
  // expected-error@below {{dim 0 is reduced and divided, but no operation combines the partial results}}
  %0 = linalg.generic {indexing_maps = [#id, #second], iterator_types = ["reduction", "parallel"]} ins(%x : tensor<128x256xf16, #stick.layout<#rows>>) outs(%e0 : tensor<256xf16, #stick.layout<#vec>>) attrs = {sdsc.op = #sdsc.op<"sumnonstick", {}>, sdsc.division = #sdsc.division<[2, 1], affine_map<(d0) -> (d0, 0)>>} {
  ^bb0(%a0: f16, %o: f16):
    linalg.yield %o : f16
  } -> tensor<256xf16, #stick.layout<#vec>>
  return
}
// -----
// Two cores with the same slice.
#rows = affine_map<(d0, d1) -> (d1 floordiv 64, d0, d1 mod 64)>
#id = affine_map<(d0, d1) -> (d0, d1)>
func.func @owners(%x: tensor<128x256xf16, #stick.layout<#rows>>) {
  %e0 = tensor.empty() : tensor<128x256xf16, #stick.layout<#rows>>
  // expected-error@below {{the core map does not give each of the 4 slices one core}}
  %0 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%x : tensor<128x256xf16, #stick.layout<#rows>>) outs(%e0 : tensor<128x256xf16, #stick.layout<#rows>>) attrs = {sdsc.op = #sdsc.op<"exp", {}>, sdsc.division = #sdsc.division<[4, 1], affine_map<(d0) -> (d0 mod 2, 0)>>} {
  ^bb0(%a0: f16, %o: f16):
    linalg.yield %o : f16
  } -> tensor<128x256xf16, #stick.layout<#rows>>
  return
}
// -----
// A slice beyond the last.
#rows = affine_map<(d0, d1) -> (d1 floordiv 64, d0, d1 mod 64)>
#id = affine_map<(d0, d1) -> (d0, d1)>
func.func @range(%x: tensor<128x256xf16, #stick.layout<#rows>>) {
  %e0 = tensor.empty() : tensor<128x256xf16, #stick.layout<#rows>>
  // expected-error@below {{the core map does not give each of the 4 slices one core}}
  %0 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%x : tensor<128x256xf16, #stick.layout<#rows>>) outs(%e0 : tensor<128x256xf16, #stick.layout<#rows>>) attrs = {sdsc.op = #sdsc.op<"exp", {}>, sdsc.division = #sdsc.division<[4, 1], affine_map<(d0) -> (d0 * 2, 0)>>} {
  ^bb0(%a0: f16, %o: f16):
    linalg.yield %o : f16
  } -> tensor<128x256xf16, #stick.layout<#rows>>
  return
}
// -----
// No core addresses more of a tensor than the device can span.
#rows = affine_map<(d0, d1) -> (d1 floordiv 64, d0, d1 mod 64)>
#id = affine_map<(d0, d1) -> (d0, d1)>
func.func @span(%x: tensor<2097152x128xf16, #stick.layout<#rows>>) {
  %e0 = tensor.empty() : tensor<2097152x128xf16, #stick.layout<#rows>>
  // expected-error@below {{a core addresses 402653184 bytes of operand 0, of shape [2097152, 128]; the limit is 268431360}}
  %0 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%x : tensor<2097152x128xf16, #stick.layout<#rows>>) outs(%e0 : tensor<2097152x128xf16, #stick.layout<#rows>>) attrs = {sdsc.op = #sdsc.op<"exp", {}>, sdsc.division = #sdsc.division<[2, 1], affine_map<(d0) -> (d0, 0)>>} {
  ^bb0(%a0: f16, %o: f16):
    linalg.yield %o : f16
  } -> tensor<2097152x128xf16, #stick.layout<#rows>>
  return
}
// -----
// Partial results are combined by what the operation is made of.
#rows = affine_map<(d0, d1) -> (d1 floordiv 64, d0, d1 mod 64)>
#vec = affine_map<(d0) -> (d0 floordiv 64, d0 mod 64)>
#id = affine_map<(d0, d1) -> (d0, d1)>
#second = affine_map<(d0, d1) -> (d1)>
func.func @other(%x: tensor<128x256xf16, #stick.layout<#rows>>) {
  %e0 = tensor.empty() : tensor<256xf16, #stick.layout<#vec>>
  // expected-error@below {{partial results of 'maxnonstick' are combined by 'maximum', not by 'add'}}
  %0 = linalg.generic {indexing_maps = [#id, #second], iterator_types = ["reduction", "parallel"]} ins(%x : tensor<128x256xf16, #stick.layout<#rows>>) outs(%e0 : tensor<256xf16, #stick.layout<#vec>>) attrs = {sdsc.op = #sdsc.op<"maxnonstick", {}>, sdsc.combine = "add", sdsc.division = #sdsc.division<[2, 1], affine_map<(d0) -> (d0, 0)>>} {
  ^bb0(%a0: f16, %o: f16):
    linalg.yield %o : f16
  } -> tensor<256xf16, #stick.layout<#vec>>
  return
}
// -----
// What is not split is not combined.
#rows = affine_map<(d0, d1) -> (d1 floordiv 64, d0, d1 mod 64)>
#vec = affine_map<(d0) -> (d0 floordiv 64, d0 mod 64)>
#id = affine_map<(d0, d1) -> (d0, d1)>
#second = affine_map<(d0, d1) -> (d1)>
func.func @idle(%x: tensor<128x256xf16, #stick.layout<#rows>>) {
  %e0 = tensor.empty() : tensor<256xf16, #stick.layout<#vec>>
  // expected-error@below {{no reduction is split, so there is nothing to combine by 'add'}}
  %0 = linalg.generic {indexing_maps = [#id, #second], iterator_types = ["reduction", "parallel"]} ins(%x : tensor<128x256xf16, #stick.layout<#rows>>) outs(%e0 : tensor<256xf16, #stick.layout<#vec>>) attrs = {sdsc.op = #sdsc.op<"sumnonstick", {}>, sdsc.combine = "add", sdsc.division = #sdsc.division<[1, 2], affine_map<(d0) -> (0, d0)>>} {
  ^bb0(%a0: f16, %o: f16):
    linalg.yield %o : f16
  } -> tensor<256xf16, #stick.layout<#vec>>
  return
}
// -----
// One reduced dim at most.
#cube = affine_map<(d0, d1, d2) -> (d0, d1, d2 floordiv 64, d2 mod 64)>
#vec = affine_map<(d0) -> (d0 floordiv 64, d0 mod 64)>
#all = affine_map<(d0, d1, d2) -> (d0, d1, d2)>
#last = affine_map<(d0, d1, d2) -> (d2)>
func.func @two(%x: tensor<4x8x64xf16, #stick.layout<#cube>>) {
  %e0 = tensor.empty() : tensor<64xf16, #stick.layout<#vec>>
  // expected-error@below {{the reduced dims [0, 1] are divided; at most one may be}}
  %0 = linalg.generic {indexing_maps = [#all, #last], iterator_types = ["reduction", "reduction", "parallel"]} ins(%x : tensor<4x8x64xf16, #stick.layout<#cube>>) outs(%e0 : tensor<64xf16, #stick.layout<#vec>>) attrs = {sdsc.op = #sdsc.op<"sumnonstick", {}>, sdsc.combine = "add", sdsc.division = #sdsc.division<[2, 4, 1], affine_map<(d0) -> (d0 mod 2, d0 floordiv 2, 0)>>} {
  ^bb0(%a0: f16, %o: f16):
    linalg.yield %o : f16
  } -> tensor<64xf16, #stick.layout<#vec>>
  return
}
