// RUN: spyre-opt %s --verify-laid-out --split-input-file --verify-diagnostics

// A program whose sticks fit passes.
#rows = affine_map<(d0, d1) -> (d1 floordiv 64, d0, d1 mod 64)>
#sparse = affine_map<(d0) -> (d0, 0)>
#id = affine_map<(d0, d1) -> (d0, d1)>
#first = affine_map<(d0, d1) -> (d0)>
func.func @valid(%x: tensor<128x256xf16, #stick.layout<#rows>>) {
  %e0 = tensor.empty() : tensor<128x256xf16, #stick.layout<#rows>>
  %e1 = tensor.empty() : tensor<128xf16, #stick.layout<#sparse>>
  %0 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%x : tensor<128x256xf16, #stick.layout<#rows>>) outs(%e0 : tensor<128x256xf16, #stick.layout<#rows>>) attrs = {sdsc.op = #sdsc.op<"exp", {}>} {
  ^bb0(%a0: f16, %o: f16):
    linalg.yield %o : f16
  } -> tensor<128x256xf16, #stick.layout<#rows>>
  %1 = linalg.generic {indexing_maps = [#id, #first], iterator_types = ["parallel", "reduction"]} ins(%0 : tensor<128x256xf16, #stick.layout<#rows>>) outs(%e1 : tensor<128xf16, #stick.layout<#sparse>>) attrs = {sdsc.op = #sdsc.op<"max", {}>} {
  ^bb0(%a0: f16, %o: f16):
    linalg.yield %o : f16
  } -> tensor<128xf16, #stick.layout<#sparse>>
  return
}
// -----
// An argument without a layout.
// expected-error@below {{argument of type tensor<64xf16> has no #stick.layout}}
func.func @argument(%x: tensor<64xf16>) {
  return
}
// -----
// A tensor without a layout.
#rows = affine_map<(d0, d1) -> (d1 floordiv 64, d0, d1 mod 64)>
func.func @value(%x: tensor<128x256xf16, #stick.layout<#rows>>) {
  // expected-error@below {{this tensor has no #stick.layout}}
  %0 = tensor.empty() : tensor<64xf16>
  return
}
// -----
// A view whose result says something else than its composition.
#rows = affine_map<(d0, d1) -> (d1 floordiv 64, d0, d1 mod 64)>
#columns = affine_map<(d0, d1) -> (d0 floordiv 64, d1, d0 mod 64)>
func.func @view(%x: tensor<128x256xf16, #stick.layout<#rows>>) {
  // expected-error@below {{the result's layout is not the composition of the view; expected (d0, d1) -> (d1 floordiv 64, d0, d1 mod 64)}}
  %0 = tensor.extract_slice %x[0, 0] [64, 256] [1, 1] : tensor<128x256xf16, #stick.layout<#rows>> to tensor<64x256xf16, #stick.layout<#columns>>
  return
}
// -----
// A slice that cuts a stick is no view.
#rows = affine_map<(d0, d1) -> (d1 floordiv 64, d0, d1 mod 64)>
func.func @no_view(%x: tensor<128x256xf16, #stick.layout<#rows>>) {
  // expected-error@below {{'tensor.extract_slice' between these layouts is not a view: a slice from 32 by 1 cuts the sticks of dim 1}}
  %0 = tensor.extract_slice %x[0, 32] [128, 64] [1, 1] : tensor<128x256xf16, #stick.layout<#rows>> to tensor<128x64xf16, #stick.layout<#rows>>
  return
}
// -----
// A dim that is in the stick of one operand has room for whole sticks in all.
#rows = affine_map<(d0, d1) -> (d1 floordiv 64, d0, d1 mod 64)>
#columns = affine_map<(d0, d1) -> (d0 floordiv 64, d1, d0 mod 64)>
func.func @room(%x: tensor<100x64xf16, #stick.layout<#columns>>) {
  // expected-error@below {{dim 0 needs a capacity of 128 positions (whole sticks), not 100}}
  %0 = "stick.restickify"(%x) : (tensor<100x64xf16, #stick.layout<#columns>>) -> tensor<100x64xf16, #stick.layout<#rows>>
  return
}
// -----
// Operands of a pointwise operation have one stick.
#rows = affine_map<(d0, d1) -> (d1 floordiv 64, d0, d1 mod 64)>
#columns = affine_map<(d0, d1) -> (d0 floordiv 64, d1, d0 mod 64)>
#id = affine_map<(d0, d1) -> (d0, d1)>
func.func @pointwise(%x: tensor<128x256xf16, #stick.layout<#rows>>, %y: tensor<128x256xf16, #stick.layout<#columns>>) {
  %e0 = tensor.empty() : tensor<128x256xf16, #stick.layout<#rows>>
  // expected-error@below {{'add' breaks a stick rule: input 2 has dim 0 in the stick; expected dim 1 as in the result: all operands of a pointwise operation have one stick}}
  %0 = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]} ins(%x, %y : tensor<128x256xf16, #stick.layout<#rows>>, tensor<128x256xf16, #stick.layout<#columns>>) outs(%e0 : tensor<128x256xf16, #stick.layout<#rows>>) attrs = {sdsc.op = #sdsc.op<"add", {}>} {
  ^bb0(%a0: f16, %a1: f16, %o: f16):
    linalg.yield %o : f16
  } -> tensor<128x256xf16, #stick.layout<#rows>>
  return
}
// -----
// A reduction over the stick reduces that dim.
#rows = affine_map<(d0, d1) -> (d1 floordiv 64, d0, d1 mod 64)>
#vec = affine_map<(d0) -> (d0 floordiv 64, d0 mod 64)>
#id = affine_map<(d0, d1) -> (d0, d1)>
#second = affine_map<(d0, d1) -> (d1)>
func.func @over_stick(%x: tensor<128x256xf16, #stick.layout<#rows>>) {
  %e0 = tensor.empty() : tensor<256xf16, #stick.layout<#vec>>
  // expected-error@below {{'sum' breaks a stick rule: input 1 has dim 1 in the stick; expected the reduced dim 0: a reduction over the stick reduces the dim in the stick and no other, its result is sparse}}
  %0 = linalg.generic {indexing_maps = [#id, #second], iterator_types = ["reduction", "parallel"]} ins(%x : tensor<128x256xf16, #stick.layout<#rows>>) outs(%e0 : tensor<256xf16, #stick.layout<#vec>>) attrs = {sdsc.op = #sdsc.op<"sum", {}>} {
  ^bb0(%a0: f16, %o: f16):
    linalg.yield %o : f16
  } -> tensor<256xf16, #stick.layout<#vec>>
  return
}
// -----
// Its result is sparse.
#rows = affine_map<(d0, d1) -> (d1 floordiv 64, d0, d1 mod 64)>
#vec = affine_map<(d0) -> (d0 floordiv 64, d0 mod 64)>
#id = affine_map<(d0, d1) -> (d0, d1)>
#first = affine_map<(d0, d1) -> (d0)>
func.func @dense_result(%x: tensor<128x256xf16, #stick.layout<#rows>>) {
  %e0 = tensor.empty() : tensor<128xf16, #stick.layout<#vec>>
  // expected-error@below {{'sum' breaks a stick rule: the result has dim 0 in the stick; expected it sparse, as it lacks dim 1 of input 1: a reduction over the stick reduces the dim in the stick and no other, its result is sparse}}
  %0 = linalg.generic {indexing_maps = [#id, #first], iterator_types = ["parallel", "reduction"]} ins(%x : tensor<128x256xf16, #stick.layout<#rows>>) outs(%e0 : tensor<128xf16, #stick.layout<#vec>>) attrs = {sdsc.op = #sdsc.op<"sum", {}>} {
  ^bb0(%a0: f16, %o: f16):
    linalg.yield %o : f16
  } -> tensor<128xf16, #stick.layout<#vec>>
  return
}
// -----
// A reduction over another dim does not reduce the stick.
#rows = affine_map<(d0, d1) -> (d1 floordiv 64, d0, d1 mod 64)>
#sparse = affine_map<(d0) -> (d0, 0)>
#id = affine_map<(d0, d1) -> (d0, d1)>
#first = affine_map<(d0, d1) -> (d0)>
func.func @over_other(%x: tensor<128x256xf16, #stick.layout<#rows>>) {
  %e0 = tensor.empty() : tensor<128xf16, #stick.layout<#sparse>>
  // expected-error@below {{'sumnonstick' breaks a stick rule: input 1 has dim 1 in the stick; expected the kept dim 0 or sparse: a reduction over other dims than the stick keeps the stick in its result}}
  %0 = linalg.generic {indexing_maps = [#id, #first], iterator_types = ["parallel", "reduction"]} ins(%x : tensor<128x256xf16, #stick.layout<#rows>>) outs(%e0 : tensor<128xf16, #stick.layout<#sparse>>) attrs = {sdsc.op = #sdsc.op<"sumnonstick", {}>} {
  ^bb0(%a0: f16, %o: f16):
    linalg.yield %o : f16
  } -> tensor<128xf16, #stick.layout<#sparse>>
  return
}
// -----
// Its result keeps the stick.
#rows = affine_map<(d0, d1) -> (d1 floordiv 64, d0, d1 mod 64)>
#sparse = affine_map<(d0) -> (d0, 0)>
#id = affine_map<(d0, d1) -> (d0, d1)>
#second = affine_map<(d0, d1) -> (d1)>
func.func @lost_stick(%x: tensor<128x256xf16, #stick.layout<#rows>>) {
  %e0 = tensor.empty() : tensor<256xf16, #stick.layout<#sparse>>
  // expected-error@below {{'sumnonstick' breaks a stick rule: the result is sparse; expected dim 1 as in input 1: a reduction over other dims than the stick keeps the stick in its result}}
  %0 = linalg.generic {indexing_maps = [#id, #second], iterator_types = ["reduction", "parallel"]} ins(%x : tensor<128x256xf16, #stick.layout<#rows>>) outs(%e0 : tensor<256xf16, #stick.layout<#sparse>>) attrs = {sdsc.op = #sdsc.op<"sumnonstick", {}>} {
  ^bb0(%a0: f16, %o: f16):
    linalg.yield %o : f16
  } -> tensor<256xf16, #stick.layout<#sparse>>
  return
}
// -----
// Input 1 of a matmul has the contracted dim in the stick.
#rows = affine_map<(d0, d1) -> (d1 floordiv 64, d0, d1 mod 64)>
#columns = affine_map<(d0, d1) -> (d0 floordiv 64, d1, d0 mod 64)>
#lhs = affine_map<(d0, d1, d2) -> (d0, d2)>
#rhs = affine_map<(d0, d1, d2) -> (d2, d1)>
#out = affine_map<(d0, d1, d2) -> (d0, d1)>
func.func @first(%x: tensor<64x128xf16, #stick.layout<#columns>>, %y: tensor<128x192xf16, #stick.layout<#rows>>) {
  %e0 = tensor.empty() : tensor<64x192xf16, #stick.layout<#rows>>
  // expected-error@below {{'batchmatmul' breaks a stick rule: input 1 has dim 0 in the stick; expected the contracted dim 2: a matmul has the contracted dim in the stick of input 1, its columns in the sticks of input 2 and the result}}
  %0 = linalg.generic {indexing_maps = [#lhs, #rhs, #out], iterator_types = ["parallel", "parallel", "reduction"]} ins(%x, %y : tensor<64x128xf16, #stick.layout<#columns>>, tensor<128x192xf16, #stick.layout<#rows>>) outs(%e0 : tensor<64x192xf16, #stick.layout<#rows>>) attrs = {sdsc.op = #sdsc.op<"batchmatmul", {}>} {
  ^bb0(%a0: f16, %a1: f16, %o: f16):
    linalg.yield %o : f16
  } -> tensor<64x192xf16, #stick.layout<#rows>>
  return
}
// -----
// Input 2 has its columns there.
#rows = affine_map<(d0, d1) -> (d1 floordiv 64, d0, d1 mod 64)>
#columns = affine_map<(d0, d1) -> (d0 floordiv 64, d1, d0 mod 64)>
#lhs = affine_map<(d0, d1, d2) -> (d0, d2)>
#rhs = affine_map<(d0, d1, d2) -> (d2, d1)>
#out = affine_map<(d0, d1, d2) -> (d0, d1)>
func.func @second(%x: tensor<64x128xf16, #stick.layout<#rows>>, %y: tensor<128x192xf16, #stick.layout<#columns>>) {
  %e0 = tensor.empty() : tensor<64x192xf16, #stick.layout<#rows>>
  // expected-error@below {{'batchmatmul' breaks a stick rule: input 2 has dim 2 in the stick; expected the column dim 1: a matmul has the contracted dim in the stick of input 1, its columns in the sticks of input 2 and the result}}
  %0 = linalg.generic {indexing_maps = [#lhs, #rhs, #out], iterator_types = ["parallel", "parallel", "reduction"]} ins(%x, %y : tensor<64x128xf16, #stick.layout<#rows>>, tensor<128x192xf16, #stick.layout<#columns>>) outs(%e0 : tensor<64x192xf16, #stick.layout<#rows>>) attrs = {sdsc.op = #sdsc.op<"batchmatmul", {}>} {
  ^bb0(%a0: f16, %a1: f16, %o: f16):
    linalg.yield %o : f16
  } -> tensor<64x192xf16, #stick.layout<#rows>>
  return
}
// -----
// And so has the result.
#rows = affine_map<(d0, d1) -> (d1 floordiv 64, d0, d1 mod 64)>
#columns = affine_map<(d0, d1) -> (d0 floordiv 64, d1, d0 mod 64)>
#lhs = affine_map<(d0, d1, d2) -> (d0, d2)>
#rhs = affine_map<(d0, d1, d2) -> (d2, d1)>
#out = affine_map<(d0, d1, d2) -> (d0, d1)>
func.func @third(%x: tensor<64x128xf16, #stick.layout<#rows>>, %y: tensor<128x192xf16, #stick.layout<#rows>>) {
  %e0 = tensor.empty() : tensor<64x192xf16, #stick.layout<#columns>>
  // expected-error@below {{'batchmatmul' breaks a stick rule: the result has dim 0 in the stick; expected dim 1 as in input 2: a matmul has the contracted dim in the stick of input 1, its columns in the sticks of input 2 and the result}}
  %0 = linalg.generic {indexing_maps = [#lhs, #rhs, #out], iterator_types = ["parallel", "parallel", "reduction"]} ins(%x, %y : tensor<64x128xf16, #stick.layout<#rows>>, tensor<128x192xf16, #stick.layout<#rows>>) outs(%e0 : tensor<64x192xf16, #stick.layout<#columns>>) attrs = {sdsc.op = #sdsc.op<"batchmatmul", {}>} {
  ^bb0(%a0: f16, %a1: f16, %o: f16):
    linalg.yield %o : f16
  } -> tensor<64x192xf16, #stick.layout<#columns>>
  return
}
// -----
// A reduction over the stick has one dim; of those of size 1 there may be more.
#rows = affine_map<(d0, d1, d2) -> (d0, d2 floordiv 64, d1, d2 mod 64)>
#sparse = affine_map<(d0) -> (d0, 0)>
#id = affine_map<(d0, d1, d2) -> (d0, d1, d2)>
#middle = affine_map<(d0, d1, d2) -> (d1)>
func.func @several(%x: tensor<1x128x256xf16, #stick.layout<#rows>>, %y: tensor<2x128x256xf16, #stick.layout<#rows>>) {
  %e0 = tensor.empty() : tensor<128xf16, #stick.layout<#sparse>>
  %0 = linalg.generic {indexing_maps = [#id, #middle], iterator_types = ["reduction", "parallel", "reduction"]} ins(%x : tensor<1x128x256xf16, #stick.layout<#rows>>) outs(%e0 : tensor<128xf16, #stick.layout<#sparse>>) attrs = {sdsc.op = #sdsc.op<"sum", {}>} {
  ^bb0(%a0: f16, %o: f16):
    linalg.yield %o : f16
  } -> tensor<128xf16, #stick.layout<#sparse>>
  // expected-error@below {{'sum' breaks a stick rule: it has 2 reduced dims of more than one element [0, 2]; expected at most 1: a reduction over the stick reduces the dim in the stick and no other, its result is sparse}}
  %1 = linalg.generic {indexing_maps = [#id, #middle], iterator_types = ["reduction", "parallel", "reduction"]} ins(%y : tensor<2x128x256xf16, #stick.layout<#rows>>) outs(%e0 : tensor<128xf16, #stick.layout<#sparse>>) attrs = {sdsc.op = #sdsc.op<"sum", {}>} {
  ^bb0(%a0: f16, %o: f16):
    linalg.yield %o : f16
  } -> tensor<128xf16, #stick.layout<#sparse>>
  return
}
// -----
// An operand without the stick dim is sparse.
#rows = affine_map<(d0, d1) -> (d1 floordiv 64, d0, d1 mod 64)>
#vec = affine_map<(d0) -> (d0 floordiv 64, d0 mod 64)>
#id = affine_map<(d0, d1) -> (d0, d1)>
#first = affine_map<(d0, d1) -> (d0)>
func.func @column(%x: tensor<128x256xf16, #stick.layout<#rows>>, %y: tensor<128xf16, #stick.layout<#vec>>) {
  %e0 = tensor.empty() : tensor<128x256xf16, #stick.layout<#rows>>
  // expected-error@below {{'add' breaks a stick rule: input 2 has dim 0 in the stick; expected it sparse, as it lacks dim 1 of the result: all operands of a pointwise operation have one stick}}
  %0 = linalg.generic {indexing_maps = [#id, #first, #id], iterator_types = ["parallel", "parallel"]} ins(%x, %y : tensor<128x256xf16, #stick.layout<#rows>>, tensor<128xf16, #stick.layout<#vec>>) outs(%e0 : tensor<128x256xf16, #stick.layout<#rows>>) attrs = {sdsc.op = #sdsc.op<"add", {}>} {
  ^bb0(%a0: f16, %a1: f16, %o: f16):
    linalg.yield %o : f16
  } -> tensor<128x256xf16, #stick.layout<#rows>>
  return
}
// -----
// Both sides of a cast have room for whole sticks of the longer kind.
#half = affine_map<(d0) -> (d0 floordiv 64, d0 mod 64)>
#single = affine_map<(d0) -> (d0 floordiv 32, d0 mod 32)>
#id = affine_map<(d0) -> (d0)>
func.func @cast(%x: tensor<96xf16, #stick.layout<#half>>) {
  %e0 = tensor.empty() : tensor<96xf32, #stick.layout<#single>>
  // expected-error@below {{dim 0 needs a capacity of 128 positions (whole sticks), not 96}}
  %0 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%x : tensor<96xf16, #stick.layout<#half>>) outs(%e0 : tensor<96xf32, #stick.layout<#single>>) attrs = {sdsc.op = #sdsc.op<"dl16tofp32", {}>} {
  ^bb0(%a0: f16, %o: f32):
    linalg.yield %o : f32
  } -> tensor<96xf32, #stick.layout<#single>>
  return
}
// -----
// No copy takes a stick of several dims apart.
#pairs = affine_map<(d0, d1) -> (d1 floordiv 64, d0 floordiv 2, d0 mod 2, d1 mod 64)>
#rows = affine_map<(d0, d1) -> (d1 floordiv 128, d0, d1 mod 128)>
func.func @apart(%x: tensor<128x256xi8, #stick.layout<#pairs>>) {
  %0 = "sdsc.clone"(%x) : (tensor<128x256xi8, #stick.layout<#pairs>>) -> tensor<128x256xi8, #stick.layout<#pairs>>
  // expected-error@below {{'stick.restickify' breaks a stick rule: input 1 has dims [0, 1] in the stick, the result has [1]: a restickify moves the stick from one dim to another}}
  %1 = "stick.restickify"(%x) : (tensor<128x256xi8, #stick.layout<#pairs>>) -> tensor<128x256xi8, #stick.layout<#rows>>
  return
}
// -----
// In a loop, a slice that cuts a stick in some iteration is no view.
#vector = affine_map<(d0) -> (d0 floordiv 64, d0 mod 64)>
func.func @moving(%x: tensor<128xf16, #stick.layout<#vector>>) {
  %c0 = arith.constant 0 : index
  %c32 = arith.constant 32 : index
  %c128 = arith.constant 128 : index
  scf.for %i = %c0 to %c128 step %c32 {
    // expected-error@below {{'tensor.extract_slice' between these layouts is not a view: a slice from 32 by 1 cuts the sticks of dim 0}}
    %s = tensor.extract_slice %x[%i] [32] [1] : tensor<128xf16, #stick.layout<#vector>> to tensor<32xf16, #stick.layout<#vector>>
  }
  return
}
// -----
// The second input of an int8 matmul holds two of the contracted dim side by side, not 64 columns.
#rows = affine_map<(d0, d1) -> (d1 floordiv 128, d0, d1 mod 128)>
#pairs = affine_map<(d0, d1) -> (d1 floordiv 64, d0 floordiv 2, d0 mod 2, d1 mod 64)>
#half = affine_map<(d0, d1) -> (d1 floordiv 64, d0, d1 mod 64)>
func.func @pairs(%x: tensor<32x128xi8, #stick.layout<#rows>>, %w: tensor<128x64xi8, #stick.layout<#pairs>>) {
  %e0 = tensor.empty() : tensor<32x64xf16, #stick.layout<#half>>
  // expected-error@below {{'batchmatmulint8' breaks a stick rule: input 2 has 2 of dim 2 x 64 of dim 1 in the stick; expected 64 of dim 1 x 2 of dim 2}}
  %0 = linalg.generic {indexing_maps = [affine_map<(d0, d1, d2) -> (d0, d2)>, affine_map<(d0, d1, d2) -> (d2, d1)>, affine_map<(d0, d1, d2) -> (d0, d1)>], iterator_types = ["parallel", "parallel", "reduction"]} ins(%x, %w : tensor<32x128xi8, #stick.layout<#rows>>, tensor<128x64xi8, #stick.layout<#pairs>>) outs(%e0 : tensor<32x64xf16, #stick.layout<#half>>) attrs = {sdsc.op = #sdsc.op<"batchmatmulint8", {}>} {
  ^bb0(%a0: i8, %a1: i8, %o: f16):
    linalg.yield %o : f16
  } -> tensor<32x64xf16, #stick.layout<#half>>
  return
}
