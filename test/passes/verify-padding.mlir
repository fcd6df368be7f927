// RUN: spyre-opt %s --verify-padding --split-input-file --verify-diagnostics

// A mask where padding is undefined.
#rows = affine_map<(d0, d1) -> (d1 floordiv 64, d0, d1 mod 64)>
#sparse = affine_map<(d0) -> (d0, 0)>
#id = affine_map<(d0, d1) -> (d0, d1)>
#first = affine_map<(d0, d1) -> (d0)>
func.func @masked(%x: tensor<8x65xf16, #stick.layout<#rows>> {stick.padding = {d1 = "undefined"}}) {
  %e = tensor.empty() : tensor<8xf16, #stick.layout<#sparse>>
  %0 = linalg.generic {indexing_maps = [#id, #first], iterator_types = ["parallel", "reduction"]} ins(%x : tensor<8x65xf16, #stick.layout<#rows>>) outs(%e : tensor<8xf16, #stick.layout<#sparse>>) attrs = {sdsc.op = #sdsc.op<"sum", {}>, sdsc.masks = {d1 = 0.0 : f64}} {
  ^bb0(%a: f16, %o: f16):
    linalg.yield %o : f16
  } -> tensor<8xf16, #stick.layout<#sparse>>
  return
}
// -----
// None where it is neutral already.
#rows = affine_map<(d0, d1) -> (d1 floordiv 64, d0, d1 mod 64)>
#sparse = affine_map<(d0) -> (d0, 0)>
#id = affine_map<(d0, d1) -> (d0, d1)>
#first = affine_map<(d0, d1) -> (d0)>
func.func @neutral(%x: tensor<8x65xf16, #stick.layout<#rows>> {stick.padding = {d1 = 0.0 : f64}}) {
  %e = tensor.empty() : tensor<8xf16, #stick.layout<#sparse>>
  %0 = linalg.generic {indexing_maps = [#id, #first], iterator_types = ["parallel", "reduction"]} ins(%x : tensor<8x65xf16, #stick.layout<#rows>>) outs(%e : tensor<8xf16, #stick.layout<#sparse>>) attrs = {sdsc.op = #sdsc.op<"sum", {}>} {
  ^bb0(%a: f16, %o: f16):
    linalg.yield %o : f16
  } -> tensor<8xf16, #stick.layout<#sparse>>
  return
}
// -----
// A need without a mask.
#rows = affine_map<(d0, d1) -> (d1 floordiv 64, d0, d1 mod 64)>
#sparse = affine_map<(d0) -> (d0, 0)>
#id = affine_map<(d0, d1) -> (d0, d1)>
#first = affine_map<(d0, d1) -> (d0)>
func.func @unmet(%x: tensor<8x65xf16, #stick.layout<#rows>> {stick.padding = {d1 = "undefined"}}) {
  %e = tensor.empty() : tensor<8xf16, #stick.layout<#sparse>>
  // expected-error@below {{padding d1 65..127 of operand 1 is undefined and reaches the result of 'sum'; expected a mask}}
  %0 = linalg.generic {indexing_maps = [#id, #first], iterator_types = ["parallel", "reduction"]} ins(%x : tensor<8x65xf16, #stick.layout<#rows>>) outs(%e : tensor<8xf16, #stick.layout<#sparse>>) attrs = {sdsc.op = #sdsc.op<"sum", {}>} {
  ^bb0(%a: f16, %o: f16):
    linalg.yield %o : f16
  } -> tensor<8xf16, #stick.layout<#sparse>>
  return
}
// -----
// A known value that is not the neutral one.
#rows = affine_map<(d0, d1) -> (d1 floordiv 64, d0, d1 mod 64)>
#sparse = affine_map<(d0) -> (d0, 0)>
#id = affine_map<(d0, d1) -> (d0, d1)>
#first = affine_map<(d0, d1) -> (d0)>
func.func @other_value(%x: tensor<8x65xf16, #stick.layout<#rows>> {stick.padding = {d1 = 0.0 : f64}}) {
  %e = tensor.empty() : tensor<8xf16, #stick.layout<#sparse>>
  // expected-error@below {{padding d1 65..127 of operand 1 is 0 and reaches the result of 'max'; expected a mask}}
  %0 = linalg.generic {indexing_maps = [#id, #first], iterator_types = ["parallel", "reduction"]} ins(%x : tensor<8x65xf16, #stick.layout<#rows>>) outs(%e : tensor<8xf16, #stick.layout<#sparse>>) attrs = {sdsc.op = #sdsc.op<"max", {}>} {
  ^bb0(%a: f16, %o: f16):
    linalg.yield %o : f16
  } -> tensor<8xf16, #stick.layout<#sparse>>
  return
}
// -----
// A mask of what is neutral already.
#rows = affine_map<(d0, d1) -> (d1 floordiv 64, d0, d1 mod 64)>
#sparse = affine_map<(d0) -> (d0, 0)>
#id = affine_map<(d0, d1) -> (d0, d1)>
#first = affine_map<(d0, d1) -> (d0)>
func.func @idle(%x: tensor<8x65xf16, #stick.layout<#rows>> {stick.padding = {d1 = 0.0 : f64}}) {
  %e = tensor.empty() : tensor<8xf16, #stick.layout<#sparse>>
  // expected-error@below {{the mask of d1 is redundant: no padding there changes the result of 'sum'}}
  %0 = linalg.generic {indexing_maps = [#id, #first], iterator_types = ["parallel", "reduction"]} ins(%x : tensor<8x65xf16, #stick.layout<#rows>>) outs(%e : tensor<8xf16, #stick.layout<#sparse>>) attrs = {sdsc.op = #sdsc.op<"sum", {}>, sdsc.masks = {d1 = 0.0 : f64}} {
  ^bb0(%a: f16, %o: f16):
    linalg.yield %o : f16
  } -> tensor<8xf16, #stick.layout<#sparse>>
  return
}
// -----
// A mask of what is not reduced.
#rows = affine_map<(d0, d1) -> (d1 floordiv 64, d0, d1 mod 64)>
#sparse = affine_map<(d0) -> (d0, 0)>
#id = affine_map<(d0, d1) -> (d0, d1)>
#first = affine_map<(d0, d1) -> (d0)>
func.func @kept(%x: tensor<8x65xf16, #stick.layout<#rows>> {stick.padding = {d1 = "undefined"}}) {
  %e = tensor.empty() : tensor<8xf16, #stick.layout<#sparse>>
  // expected-error@below {{the mask of d0 is redundant: no padding there changes the result of 'sum'}}
  %0 = linalg.generic {indexing_maps = [#id, #first], iterator_types = ["parallel", "reduction"]} ins(%x : tensor<8x65xf16, #stick.layout<#rows>>) outs(%e : tensor<8xf16, #stick.layout<#sparse>>) attrs = {sdsc.op = #sdsc.op<"sum", {}>, sdsc.masks = {d0 = 0.0 : f64, d1 = 0.0 : f64}} {
  ^bb0(%a: f16, %o: f16):
    linalg.yield %o : f16
  } -> tensor<8xf16, #stick.layout<#sparse>>
  return
}
// -----
// A mask with another value than the neutral one.
#rows = affine_map<(d0, d1) -> (d1 floordiv 64, d0, d1 mod 64)>
#sparse = affine_map<(d0) -> (d0, 0)>
#id = affine_map<(d0, d1) -> (d0, d1)>
#first = affine_map<(d0, d1) -> (d0)>
func.func @value(%x: tensor<8x65xf16, #stick.layout<#rows>> {stick.padding = {d1 = "undefined"}}) {
  %e = tensor.empty() : tensor<8xf16, #stick.layout<#sparse>>
  // expected-error@below {{the mask of d1 reads as 0; 'max' needs -inf}}
  %0 = linalg.generic {indexing_maps = [#id, #first], iterator_types = ["parallel", "reduction"]} ins(%x : tensor<8x65xf16, #stick.layout<#rows>>) outs(%e : tensor<8xf16, #stick.layout<#sparse>>) attrs = {sdsc.op = #sdsc.op<"max", {}>, sdsc.masks = {d1 = 0.0 : f64}} {
  ^bb0(%a: f16, %o: f16):
    linalg.yield %o : f16
  } -> tensor<8xf16, #stick.layout<#sparse>>
  return
}
// -----
// A padded dim without a state.
#rows = affine_map<(d0, d1) -> (d1 floordiv 64, d0, d1 mod 64)>
#sparse = affine_map<(d0) -> (d0, 0)>
#id = affine_map<(d0, d1) -> (d0, d1)>
#first = affine_map<(d0, d1) -> (d0)>
// expected-error@below {{the padding of d1 has no state; run resolve-padding first}}
func.func @no_state(%x: tensor<8x65xf16, #stick.layout<#rows>>) {
  %e = tensor.empty() : tensor<8xf16, #stick.layout<#sparse>>
  %0 = linalg.generic {indexing_maps = [#id, #first], iterator_types = ["parallel", "reduction"]} ins(%x : tensor<8x65xf16, #stick.layout<#rows>>) outs(%e : tensor<8xf16, #stick.layout<#sparse>>) attrs = {sdsc.op = #sdsc.op<"sum", {}>, sdsc.masks = {d1 = 0.0 : f64}} {
  ^bb0(%a: f16, %o: f16):
    linalg.yield %o : f16
  } -> tensor<8xf16, #stick.layout<#sparse>>
  return
}
// -----
// A state for a dim without padding.
#rows = affine_map<(d0, d1) -> (d1 floordiv 64, d0, d1 mod 64)>
#sparse = affine_map<(d0) -> (d0, 0)>
#id = affine_map<(d0, d1) -> (d0, d1)>
#first = affine_map<(d0, d1) -> (d0)>
// expected-error@below {{'stick.padding' has a state for d0, which has no padding}}
func.func @no_padding(%x: tensor<8x65xf16, #stick.layout<#rows>> {stick.padding = {d0 = "undefined", d1 = "undefined"}}) {
  %e = tensor.empty() : tensor<8xf16, #stick.layout<#sparse>>
  %0 = linalg.generic {indexing_maps = [#id, #first], iterator_types = ["parallel", "reduction"]} ins(%x : tensor<8x65xf16, #stick.layout<#rows>>) outs(%e : tensor<8xf16, #stick.layout<#sparse>>) attrs = {sdsc.op = #sdsc.op<"sum", {}>, sdsc.masks = {d1 = 0.0 : f64}} {
  ^bb0(%a: f16, %o: f16):
    linalg.yield %o : f16
  } -> tensor<8xf16, #stick.layout<#sparse>>
  return
}
// -----
// No operation writes the padding of its result, copies neither.
#rows = affine_map<(d0, d1) -> (d1 floordiv 64, d0, d1 mod 64)>
func.func @written(%x: tensor<8x65xf16, #stick.layout<#rows>> {stick.padding = {d1 = 0.0 : f64}}) {
  // expected-error@below {{no operation writes padding: d1 is undefined, not 0}}
  %0 = "sdsc.clone"(%x) {stick.padding = {d1 = 0.0 : f64}} : (tensor<8x65xf16, #stick.layout<#rows>>) -> tensor<8x65xf16, #stick.layout<#rows>>
  return
}
// -----
// Through views: behind the end of a slice lies an element, behind the last column padding.
#wide = affine_map<(d0, d1, d2) -> (d1, d2 floordiv 64, d0, d2 mod 64)>
#all = affine_map<(d0, d1, d2) -> (d0, d1, d2)>
#two = affine_map<(d0, d1, d2) -> (d0, d1)>
#thin = affine_map<(d0, d1) -> (d0, d1, 0)>
#columns = affine_map<(d0, d1, d2) -> (d0, d2 floordiv 64, d1, d2 mod 64)>
func.func @views(%x: tensor<4x2x130xf16, #stick.layout<#wide>> {stick.padding = {d2 = 0.0 : f64}}) {
  %e = tensor.empty() : tensor<2x4xf16, #stick.layout<#thin>>
  %t = tensor.empty() : tensor<2x4x130xf16, #stick.layout<#columns>>
  %0 = linalg.transpose ins(%x : tensor<4x2x130xf16, #stick.layout<#wide>>) outs(%t : tensor<2x4x130xf16, #stick.layout<#columns>>) permutation = [1, 0, 2]
  %1 = tensor.extract_slice %0[0, 0, 64] [2, 4, 66] [1, 1, 1] : tensor<2x4x130xf16, #stick.layout<#columns>> to tensor<2x4x66xf16, #stick.layout<#columns>>
  %2 = tensor.extract_slice %0[0, 0, 0] [2, 4, 66] [1, 1, 1] : tensor<2x4x130xf16, #stick.layout<#columns>> to tensor<2x4x66xf16, #stick.layout<#columns>>
  %3 = linalg.generic {indexing_maps = [#all, #two], iterator_types = ["parallel", "parallel", "reduction"]} ins(%1 : tensor<2x4x66xf16, #stick.layout<#columns>>) outs(%e : tensor<2x4xf16, #stick.layout<#thin>>) attrs = {sdsc.op = #sdsc.op<"sum", {}>} {
  ^bb0(%a: f16, %o: f16):
    linalg.yield %o : f16
  } -> tensor<2x4xf16, #stick.layout<#thin>>
  // expected-error@below {{padding d2 66..127 of operand 1 is undefined and reaches the result of 'sum'; expected a mask}}
  %4 = linalg.generic {indexing_maps = [#all, #two], iterator_types = ["parallel", "parallel", "reduction"]} ins(%2 : tensor<2x4x66xf16, #stick.layout<#columns>>) outs(%e : tensor<2x4xf16, #stick.layout<#thin>>) attrs = {sdsc.op = #sdsc.op<"sum", {}>} {
  ^bb0(%a: f16, %o: f16):
    linalg.yield %o : f16
  } -> tensor<2x4xf16, #stick.layout<#thin>>
  return
}
// -----
// What is no state.
#rows = affine_map<(d0, d1) -> (d1 floordiv 64, d0, d1 mod 64)>
// expected-error@unknown {{'stick.padding' has 0 : i64 for d1; expected a float or "undefined"}}
func.func @no_state(%x: tensor<8x65xf16, #stick.layout<#rows>> {stick.padding = {d1 = 0 : i64}}) {
  return
}
// -----
// What names no dim.
#rows = affine_map<(d0, d1) -> (d1 floordiv 64, d0, d1 mod 64)>
// expected-error@unknown {{'stick.padding' has the key 'lanes', which is not a dim; dims are d0, d1, ..}}
func.func @no_dim(%x: tensor<8x65xf16, #stick.layout<#rows>> {stick.padding = {lanes = 0.0 : f64}}) {
  return
}
