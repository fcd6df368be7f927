// RUN: spyre-opt %s --verify-placed --split-input-file --verify-diagnostics

// Two buffers alive at once lie apart, and the result in its argument.
#rows = affine_map<(d0, d1) -> (d1 floordiv 64, d0, d1 mod 64)>
#id = affine_map<(d0, d1) -> (d0, d1)>
func.func @valid(%x: tensor<128x256xf16, #stick.layout<#rows>>) -> tensor<128x256xf16, #stick.layout<#rows>> attributes {sdsc.pool_bytes = 131072 : i64} {
  %e0 = tensor.empty() : tensor<128x256xf16, #stick.layout<#rows>>
  %e1 = tensor.empty() : tensor<128x256xf16, #stick.layout<#rows>>
  %e2 = tensor.empty() : tensor<128x256xf16, #stick.layout<#rows>>
  %0 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%x : tensor<128x256xf16, #stick.layout<#rows>>) outs(%e0 : tensor<128x256xf16, #stick.layout<#rows>>) attrs = {sdsc.op = #sdsc.op<"exp", {}>, sdsc.placement = #sdsc.hbm<"pool", 0 : i64>} {
  ^bb0(%a0: f16, %o: f16):
    linalg.yield %o : f16
  } -> tensor<128x256xf16, #stick.layout<#rows>>
  %1 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%0 : tensor<128x256xf16, #stick.layout<#rows>>) outs(%e1 : tensor<128x256xf16, #stick.layout<#rows>>) attrs = {sdsc.op = #sdsc.op<"exp", {}>, sdsc.placement = #sdsc.hbm<"pool", 65536 : i64>} {
  ^bb0(%a0: f16, %o: f16):
    linalg.yield %o : f16
  } -> tensor<128x256xf16, #stick.layout<#rows>>
  %2 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%1 : tensor<128x256xf16, #stick.layout<#rows>>) outs(%e2 : tensor<128x256xf16, #stick.layout<#rows>>) attrs = {sdsc.op = #sdsc.op<"exp", {}>, sdsc.placement = #sdsc.hbm<"result0", 0 : i64>} {
  ^bb0(%a0: f16, %o: f16):
    linalg.yield %o : f16
  } -> tensor<128x256xf16, #stick.layout<#rows>>
  return %2 : tensor<128x256xf16, #stick.layout<#rows>>
}
// -----
// A buffer without a home.
#rows = affine_map<(d0, d1) -> (d1 floordiv 64, d0, d1 mod 64)>
#id = affine_map<(d0, d1) -> (d0, d1)>
func.func @missing(%x: tensor<128x256xf16, #stick.layout<#rows>>) -> tensor<128x256xf16, #stick.layout<#rows>> attributes {sdsc.pool_bytes = 131072 : i64} {
  %e0 = tensor.empty() : tensor<128x256xf16, #stick.layout<#rows>>
  // expected-error@below {{this buffer has no sdsc.placement}}
  %0 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%x : tensor<128x256xf16, #stick.layout<#rows>>) outs(%e0 : tensor<128x256xf16, #stick.layout<#rows>>) attrs = {sdsc.op = #sdsc.op<"exp", {}>} {
  ^bb0(%a0: f16, %o: f16):
    linalg.yield %o : f16
  } -> tensor<128x256xf16, #stick.layout<#rows>>
  return %0 : tensor<128x256xf16, #stick.layout<#rows>>
}
// -----
// A result that lies in the pool.
#rows = affine_map<(d0, d1) -> (d1 floordiv 64, d0, d1 mod 64)>
#id = affine_map<(d0, d1) -> (d0, d1)>
func.func @result(%x: tensor<128x256xf16, #stick.layout<#rows>>) -> tensor<128x256xf16, #stick.layout<#rows>> attributes {sdsc.pool_bytes = 131072 : i64} {
  %e0 = tensor.empty() : tensor<128x256xf16, #stick.layout<#rows>>
  %0 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%x : tensor<128x256xf16, #stick.layout<#rows>>) outs(%e0 : tensor<128x256xf16, #stick.layout<#rows>>) attrs = {sdsc.op = #sdsc.op<"exp", {}>, sdsc.placement = #sdsc.hbm<"pool", 0 : i64>} {
  ^bb0(%a0: f16, %o: f16):
    linalg.yield %o : f16
  } -> tensor<128x256xf16, #stick.layout<#rows>>
  // expected-error@below {{result 0 is not placed in its own kernel argument}}
  return %0 : tensor<128x256xf16, #stick.layout<#rows>>
}
// -----
// An offset that is not aligned.
#rows = affine_map<(d0, d1) -> (d1 floordiv 64, d0, d1 mod 64)>
#id = affine_map<(d0, d1) -> (d0, d1)>
func.func @aligned(%x: tensor<128x256xf16, #stick.layout<#rows>>) -> tensor<128x256xf16, #stick.layout<#rows>> attributes {sdsc.pool_bytes = 131072 : i64} {
  %e0 = tensor.empty() : tensor<128x256xf16, #stick.layout<#rows>>
  %e1 = tensor.empty() : tensor<128x256xf16, #stick.layout<#rows>>
  // expected-error@below {{bytes 64 to 65600 are not an aligned part of the pool of 131072 bytes}}
  %0 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%x : tensor<128x256xf16, #stick.layout<#rows>>) outs(%e0 : tensor<128x256xf16, #stick.layout<#rows>>) attrs = {sdsc.op = #sdsc.op<"exp", {}>, sdsc.placement = #sdsc.hbm<"pool", 64 : i64>} {
  ^bb0(%a0: f16, %o: f16):
    linalg.yield %o : f16
  } -> tensor<128x256xf16, #stick.layout<#rows>>
  %1 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%0 : tensor<128x256xf16, #stick.layout<#rows>>) outs(%e1 : tensor<128x256xf16, #stick.layout<#rows>>) attrs = {sdsc.op = #sdsc.op<"exp", {}>, sdsc.placement = #sdsc.hbm<"result0", 0 : i64>} {
  ^bb0(%a0: f16, %o: f16):
    linalg.yield %o : f16
  } -> tensor<128x256xf16, #stick.layout<#rows>>
  return %1 : tensor<128x256xf16, #stick.layout<#rows>>
}
// -----
// A buffer beyond the end.
#rows = affine_map<(d0, d1) -> (d1 floordiv 64, d0, d1 mod 64)>
#id = affine_map<(d0, d1) -> (d0, d1)>
func.func @beyond(%x: tensor<128x256xf16, #stick.layout<#rows>>) -> tensor<128x256xf16, #stick.layout<#rows>> attributes {sdsc.pool_bytes = 131072 : i64} {
  %e0 = tensor.empty() : tensor<128x256xf16, #stick.layout<#rows>>
  %e1 = tensor.empty() : tensor<128x256xf16, #stick.layout<#rows>>
  // expected-error@below {{bytes 131072 to 196608 are not an aligned part of the pool of 131072 bytes}}
  %0 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%x : tensor<128x256xf16, #stick.layout<#rows>>) outs(%e0 : tensor<128x256xf16, #stick.layout<#rows>>) attrs = {sdsc.op = #sdsc.op<"exp", {}>, sdsc.placement = #sdsc.hbm<"pool", 131072 : i64>} {
  ^bb0(%a0: f16, %o: f16):
    linalg.yield %o : f16
  } -> tensor<128x256xf16, #stick.layout<#rows>>
  %1 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%0 : tensor<128x256xf16, #stick.layout<#rows>>) outs(%e1 : tensor<128x256xf16, #stick.layout<#rows>>) attrs = {sdsc.op = #sdsc.op<"exp", {}>, sdsc.placement = #sdsc.hbm<"result0", 0 : i64>} {
  ^bb0(%a0: f16, %o: f16):
    linalg.yield %o : f16
  } -> tensor<128x256xf16, #stick.layout<#rows>>
  return %1 : tensor<128x256xf16, #stick.layout<#rows>>
}
// -----
// Two buffers alive at one op on the same bytes.
#rows = affine_map<(d0, d1) -> (d1 floordiv 64, d0, d1 mod 64)>
#id = affine_map<(d0, d1) -> (d0, d1)>
func.func @overlap(%x: tensor<128x256xf16, #stick.layout<#rows>>) -> tensor<128x256xf16, #stick.layout<#rows>> attributes {sdsc.pool_bytes = 131072 : i64} {
  %e0 = tensor.empty() : tensor<128x256xf16, #stick.layout<#rows>>
  %e1 = tensor.empty() : tensor<128x256xf16, #stick.layout<#rows>>
  %e2 = tensor.empty() : tensor<128x256xf16, #stick.layout<#rows>>
  %0 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%x : tensor<128x256xf16, #stick.layout<#rows>>) outs(%e0 : tensor<128x256xf16, #stick.layout<#rows>>) attrs = {sdsc.op = #sdsc.op<"exp", {}>, sdsc.placement = #sdsc.hbm<"pool", 0 : i64>} {
  ^bb0(%a0: f16, %o: f16):
    linalg.yield %o : f16
  } -> tensor<128x256xf16, #stick.layout<#rows>>
  // expected-error@below {{bytes 32768 to 98304 of the pool hold another live buffer}}
  %1 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%0 : tensor<128x256xf16, #stick.layout<#rows>>) outs(%e1 : tensor<128x256xf16, #stick.layout<#rows>>) attrs = {sdsc.op = #sdsc.op<"exp", {}>, sdsc.placement = #sdsc.hbm<"pool", 32768 : i64>} {
  ^bb0(%a0: f16, %o: f16):
    linalg.yield %o : f16
  } -> tensor<128x256xf16, #stick.layout<#rows>>
  %2 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%1 : tensor<128x256xf16, #stick.layout<#rows>>) outs(%e2 : tensor<128x256xf16, #stick.layout<#rows>>) attrs = {sdsc.op = #sdsc.op<"exp", {}>, sdsc.placement = #sdsc.hbm<"result0", 0 : i64>} {
  ^bb0(%a0: f16, %o: f16):
    linalg.yield %o : f16
  } -> tensor<128x256xf16, #stick.layout<#rows>>
  return %2 : tensor<128x256xf16, #stick.layout<#rows>>
}
// -----
// A result goes over an operand that somebody still reads.
#rows = affine_map<(d0, d1) -> (d1 floordiv 64, d0, d1 mod 64)>
#id = affine_map<(d0, d1) -> (d0, d1)>
!m = tensor<128x256xf16, #stick.layout<#rows>>
func.func @over_what_is_read_later(%x: !m) -> !m attributes {sdsc.pool_bytes = 65536 : i64} {
  %e = tensor.empty() : !m
  %0 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%x : !m) outs(%e : !m) attrs = {sdsc.op = #sdsc.op<"exp", {}>, sdsc.placement = #sdsc.hbm<"pool", 0 : i64>} {
  ^bb0(%a0: f16, %o: f16):
    linalg.yield %o : f16
  } -> !m
  // expected-error@below {{this operation cannot write over its operand: the operand is read later}}
  %1 = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]} ins(%0, %x : !m, !m) outs(%e : !m) attrs = {sdsc.op = #sdsc.op<"add", {}>, sdsc.overwrites = 0 : i64} {
  ^bb0(%a0: f16, %a1: f16, %o: f16):
    linalg.yield %o : f16
  } -> !m
  %2 = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]} ins(%1, %0 : !m, !m) outs(%e : !m) attrs = {sdsc.op = #sdsc.op<"mul", {}>, sdsc.placement = #sdsc.hbm<"result0", 0 : i64>} {
  ^bb0(%a0: f16, %a1: f16, %o: f16):
    linalg.yield %o : f16
  } -> !m
  return %2 : !m
}
// -----
// A result goes over an operand of which its elements come from elsewhere.
#rows = affine_map<(d0, d1) -> (d1 floordiv 64, d0, d1 mod 64)>
#id = affine_map<(d0, d1) -> (d0, d1)>
#turned = affine_map<(d0, d1) -> (d1, d0)>
!m = tensor<128x128xf16, #stick.layout<#rows>>
func.func @over_other_elements(%x: !m) -> !m attributes {sdsc.pool_bytes = 32768 : i64} {
  %e = tensor.empty() : !m
  %0 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%x : !m) outs(%e : !m) attrs = {sdsc.op = #sdsc.op<"exp", {}>, sdsc.placement = #sdsc.hbm<"result0", 0 : i64>} {
  ^bb0(%a0: f16, %o: f16):
    linalg.yield %o : f16
  } -> !m
  // expected-error@below {{this operation cannot write over its operand: the result overwrites elements that its computation reads later}}
  %1 = linalg.generic {indexing_maps = [#turned, #id], iterator_types = ["parallel", "parallel"]} ins(%0 : !m) outs(%e : !m) attrs = {sdsc.op = #sdsc.op<"exp", {}>, sdsc.overwrites = 0 : i64} {
  ^bb0(%a0: f16, %o: f16):
    linalg.yield %o : f16
  } -> !m
  return %1 : !m
}
