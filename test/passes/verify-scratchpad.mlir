// RUN: spyre-opt %s --verify-scratchpad --split-input-file --verify-diagnostics | filecheck %s

// Disjoint while they live, in place where a pointwise operation allows it, used again later.
// CHECK-LABEL: func.func @valid
#rows = affine_map<(d0, d1) -> (d1 floordiv 64, d0, d1 mod 64)>
#id = affine_map<(d0, d1) -> (d0, d1)>
#alone = affine_map<(d0) -> (0, 0)>
!mat = tensor<128x256xf16, #stick.layout<#rows>>
func.func @valid(%x: !mat) -> !mat {
  %e = tensor.empty() : !mat
  %0 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%x : !mat) outs(%e : !mat) attrs = {sdsc.op = #sdsc.op<"exp", {}>, sdsc.division = #sdsc.division<[1, 1], #alone>, sdsc.placement = #sdsc.lx<0 : i64>} {
  ^bb0(%a0: f16, %o: f16):
    linalg.yield %o : f16
  } -> !mat
  %1 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%0 : !mat) outs(%e : !mat) attrs = {sdsc.op = #sdsc.op<"neg", {}>, sdsc.division = #sdsc.division<[1, 1], #alone>, sdsc.placement = #sdsc.lx<0 : i64>} {
  ^bb0(%a0: f16, %o: f16):
    linalg.yield %o : f16
  } -> !mat
  %2 = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]} ins(%1, %x : !mat, !mat) outs(%e : !mat) attrs = {sdsc.op = #sdsc.op<"add", {}>, sdsc.division = #sdsc.division<[1, 1], #alone>, sdsc.placement = #sdsc.lx<65536 : i64>} {
  ^bb0(%a0: f16, %a1: f16, %o: f16):
    linalg.yield %o : f16
  } -> !mat
  %3 = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]} ins(%2, %1 : !mat, !mat) outs(%e : !mat) attrs = {sdsc.op = #sdsc.op<"mul", {}>, sdsc.division = #sdsc.division<[1, 1], #alone>, sdsc.placement = #sdsc.lx<65536 : i64>} {
  ^bb0(%a0: f16, %a1: f16, %o: f16):
    linalg.yield %o : f16
  } -> !mat
  %4 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%3 : !mat) outs(%e : !mat) attrs = {sdsc.op = #sdsc.op<"abs", {}>, sdsc.division = #sdsc.division<[1, 1], #alone>, sdsc.placement = #sdsc.lx<0 : i64>} {
  ^bb0(%a0: f16, %o: f16):
    linalg.yield %o : f16
  } -> !mat
  %5 = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]} ins(%4, %x : !mat, !mat) outs(%e : !mat) attrs = {sdsc.op = #sdsc.op<"add", {}>, sdsc.division = #sdsc.division<[1, 1], #alone>, sdsc.placement = #sdsc.hbm<"result0", 0 : i64>} {
  ^bb0(%a0: f16, %a1: f16, %o: f16):
    linalg.yield %o : f16
  } -> !mat
  return %5 : !mat
}

// -----

// An address is a multiple of the alignment.
#rows = affine_map<(d0, d1) -> (d1 floordiv 64, d0, d1 mod 64)>
#id = affine_map<(d0, d1) -> (d0, d1)>
#alone = affine_map<(d0) -> (0, 0)>
!mat = tensor<128x256xf16, #stick.layout<#rows>>
func.func @aligned(%x: !mat) -> !mat {
  %e = tensor.empty() : !mat
  // expected-error@below {{the LX address 64 is not a multiple of 128 bytes}}
  %0 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%x : !mat) outs(%e : !mat) attrs = {sdsc.op = #sdsc.op<"exp", {}>, sdsc.division = #sdsc.division<[1, 1], #alone>, sdsc.placement = #sdsc.lx<64 : i64>} {
  ^bb0(%a0: f16, %o: f16):
    linalg.yield %o : f16
  } -> !mat
  %1 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%0 : !mat) outs(%e : !mat) attrs = {sdsc.op = #sdsc.op<"neg", {}>, sdsc.division = #sdsc.division<[1, 1], #alone>, sdsc.placement = #sdsc.hbm<"result0", 0 : i64>} {
  ^bb0(%a0: f16, %o: f16):
    linalg.yield %o : f16
  } -> !mat
  return %1 : !mat
}

// -----

// LX begins at 0.
#rows = affine_map<(d0, d1) -> (d1 floordiv 64, d0, d1 mod 64)>
#id = affine_map<(d0, d1) -> (d0, d1)>
#alone = affine_map<(d0) -> (0, 0)>
!mat = tensor<128x256xf16, #stick.layout<#rows>>
func.func @negative(%x: !mat) -> !mat {
  %e = tensor.empty() : !mat
  // expected-error@below {{bytes -128 to 65408 are not inside the 1625344 usable bytes of LX}}
  %0 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%x : !mat) outs(%e : !mat) attrs = {sdsc.op = #sdsc.op<"exp", {}>, sdsc.division = #sdsc.division<[1, 1], #alone>, sdsc.placement = #sdsc.lx<-128 : i64>} {
  ^bb0(%a0: f16, %o: f16):
    linalg.yield %o : f16
  } -> !mat
  %1 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%0 : !mat) outs(%e : !mat) attrs = {sdsc.op = #sdsc.op<"neg", {}>, sdsc.division = #sdsc.division<[1, 1], #alone>, sdsc.placement = #sdsc.hbm<"result0", 0 : i64>} {
  ^bb0(%a0: f16, %o: f16):
    linalg.yield %o : f16
  } -> !mat
  return %1 : !mat
}

// -----

// A buffer ends inside the part of LX that the compiler may use: 1,625,344 bytes, of which this one takes 65,536.
#rows = affine_map<(d0, d1) -> (d1 floordiv 64, d0, d1 mod 64)>
#id = affine_map<(d0, d1) -> (d0, d1)>
#alone = affine_map<(d0) -> (0, 0)>
!mat = tensor<128x256xf16, #stick.layout<#rows>>
func.func @capacity(%x: !mat) -> !mat {
  %e = tensor.empty() : !mat
  %0 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%x : !mat) outs(%e : !mat) attrs = {sdsc.op = #sdsc.op<"exp", {}>, sdsc.division = #sdsc.division<[1, 1], #alone>, sdsc.placement = #sdsc.lx<1559808 : i64>} {
  ^bb0(%a0: f16, %o: f16):
    linalg.yield %o : f16
  } -> !mat
  // expected-error@below {{bytes 1559936 to 1625472 are not inside the 1625344 usable bytes of LX}}
  %1 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%0 : !mat) outs(%e : !mat) attrs = {sdsc.op = #sdsc.op<"neg", {}>, sdsc.division = #sdsc.division<[1, 1], #alone>, sdsc.placement = #sdsc.lx<1559936 : i64>} {
  ^bb0(%a0: f16, %o: f16):
    linalg.yield %o : f16
  } -> !mat
  %2 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%1 : !mat) outs(%e : !mat) attrs = {sdsc.op = #sdsc.op<"abs", {}>, sdsc.division = #sdsc.division<[1, 1], #alone>, sdsc.placement = #sdsc.hbm<"result0", 0 : i64>} {
  ^bb0(%a0: f16, %o: f16):
    linalg.yield %o : f16
  } -> !mat
  return %2 : !mat
}

// -----

// Bytes are those of one core, here 32,768 of 65,536: two lie one behind the other, a third one in between does not.
#rows = affine_map<(d0, d1) -> (d1 floordiv 64, d0, d1 mod 64)>
#id = affine_map<(d0, d1) -> (d0, d1)>
#alone = affine_map<(d0) -> (0, 0)>
!mat = tensor<128x256xf16, #stick.layout<#rows>>
#by_row = affine_map<(d0) -> (d0, 0)>
func.func @per_core(%x: !mat) -> !mat {
  %e = tensor.empty() : !mat
  %0 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%x : !mat) outs(%e : !mat) attrs = {sdsc.op = #sdsc.op<"exp", {}>, sdsc.division = #sdsc.division<[2, 1], #by_row>, sdsc.placement = #sdsc.lx<0 : i64>} {
  ^bb0(%a0: f16, %o: f16):
    linalg.yield %o : f16
  } -> !mat
  %1 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%x : !mat) outs(%e : !mat) attrs = {sdsc.op = #sdsc.op<"neg", {}>, sdsc.division = #sdsc.division<[2, 1], #by_row>, sdsc.placement = #sdsc.lx<32768 : i64>} {
  ^bb0(%a0: f16, %o: f16):
    linalg.yield %o : f16
  } -> !mat
  // expected-error@below {{bytes 16384 to 49152 of LX overlap the result of 'exp' at}}
  %2 = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]} ins(%0, %1 : !mat, !mat) outs(%e : !mat) attrs = {sdsc.op = #sdsc.op<"add", {}>, sdsc.division = #sdsc.division<[2, 1], #by_row>, sdsc.placement = #sdsc.lx<16384 : i64>} {
  ^bb0(%a0: f16, %a1: f16, %o: f16):
    linalg.yield %o : f16
  } -> !mat
  %3 = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]} ins(%2, %0 : !mat, !mat) outs(%e : !mat) attrs = {sdsc.op = #sdsc.op<"add", {}>, sdsc.division = #sdsc.division<[2, 1], #by_row>, sdsc.placement = #sdsc.hbm<"result0", 0 : i64>} {
  ^bb0(%a0: f16, %a1: f16, %o: f16):
    linalg.yield %o : f16
  } -> !mat
  return %3 : !mat
}

// -----

// Two that are read by one operation cannot share a byte.
#rows = affine_map<(d0, d1) -> (d1 floordiv 64, d0, d1 mod 64)>
#id = affine_map<(d0, d1) -> (d0, d1)>
#alone = affine_map<(d0) -> (0, 0)>
!mat = tensor<128x256xf16, #stick.layout<#rows>>
func.func @overlap(%x: !mat) -> !mat {
  %e = tensor.empty() : !mat
  %0 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%x : !mat) outs(%e : !mat) attrs = {sdsc.op = #sdsc.op<"exp", {}>, sdsc.division = #sdsc.division<[1, 1], #alone>, sdsc.placement = #sdsc.lx<0 : i64>} {
  ^bb0(%a0: f16, %o: f16):
    linalg.yield %o : f16
  } -> !mat
  // expected-error@below {{bytes 65408 to 130944 of LX overlap the result of 'exp' at}}
  %1 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%x : !mat) outs(%e : !mat) attrs = {sdsc.op = #sdsc.op<"neg", {}>, sdsc.division = #sdsc.division<[1, 1], #alone>, sdsc.placement = #sdsc.lx<65408 : i64>} {
  ^bb0(%a0: f16, %o: f16):
    linalg.yield %o : f16
  } -> !mat
  %2 = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]} ins(%0, %1 : !mat, !mat) outs(%e : !mat) attrs = {sdsc.op = #sdsc.op<"add", {}>, sdsc.division = #sdsc.division<[1, 1], #alone>, sdsc.placement = #sdsc.hbm<"result0", 0 : i64>} {
  ^bb0(%a0: f16, %a1: f16, %o: f16):
    linalg.yield %o : f16
  } -> !mat
  return %2 : !mat
}

// -----

// What takes the place of an operand leaves nothing of it for a later reader.
#rows = affine_map<(d0, d1) -> (d1 floordiv 64, d0, d1 mod 64)>
#id = affine_map<(d0, d1) -> (d0, d1)>
#alone = affine_map<(d0) -> (0, 0)>
!mat = tensor<128x256xf16, #stick.layout<#rows>>
func.func @read_later(%x: !mat) -> !mat {
  %e = tensor.empty() : !mat
  %0 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%x : !mat) outs(%e : !mat) attrs = {sdsc.op = #sdsc.op<"exp", {}>, sdsc.division = #sdsc.division<[1, 1], #alone>, sdsc.placement = #sdsc.lx<0 : i64>} {
  ^bb0(%a0: f16, %o: f16):
    linalg.yield %o : f16
  } -> !mat
  // expected-error@below {{which is live: it is read later}}
  %1 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%0 : !mat) outs(%e : !mat) attrs = {sdsc.op = #sdsc.op<"neg", {}>, sdsc.division = #sdsc.division<[1, 1], #alone>, sdsc.placement = #sdsc.lx<0 : i64>} {
  ^bb0(%a0: f16, %o: f16):
    linalg.yield %o : f16
  } -> !mat
  %2 = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]} ins(%0, %1 : !mat, !mat) outs(%e : !mat) attrs = {sdsc.op = #sdsc.op<"add", {}>, sdsc.division = #sdsc.division<[1, 1], #alone>, sdsc.placement = #sdsc.hbm<"result0", 0 : i64>} {
  ^bb0(%a0: f16, %a1: f16, %o: f16):
    linalg.yield %o : f16
  } -> !mat
  return %2 : !mat
}

// -----

// In place both begin at one address.
#rows = affine_map<(d0, d1) -> (d1 floordiv 64, d0, d1 mod 64)>
#id = affine_map<(d0, d1) -> (d0, d1)>
#alone = affine_map<(d0) -> (0, 0)>
!mat = tensor<128x256xf16, #stick.layout<#rows>>
func.func @shifted(%x: !mat) -> !mat {
  %e = tensor.empty() : !mat
  %0 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%x : !mat) outs(%e : !mat) attrs = {sdsc.op = #sdsc.op<"exp", {}>, sdsc.division = #sdsc.division<[1, 1], #alone>, sdsc.placement = #sdsc.lx<0 : i64>} {
  ^bb0(%a0: f16, %o: f16):
    linalg.yield %o : f16
  } -> !mat
  // expected-error@below {{which is live: it begins at 0, and in place both begin at one address}}
  %1 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%0 : !mat) outs(%e : !mat) attrs = {sdsc.op = #sdsc.op<"neg", {}>, sdsc.division = #sdsc.division<[1, 1], #alone>, sdsc.placement = #sdsc.lx<128 : i64>} {
  ^bb0(%a0: f16, %o: f16):
    linalg.yield %o : f16
  } -> !mat
  %2 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%1 : !mat) outs(%e : !mat) attrs = {sdsc.op = #sdsc.op<"abs", {}>, sdsc.division = #sdsc.division<[1, 1], #alone>, sdsc.placement = #sdsc.hbm<"result0", 0 : i64>} {
  ^bb0(%a0: f16, %o: f16):
    linalg.yield %o : f16
  } -> !mat
  return %2 : !mat
}

// -----

// A result is no larger than what it takes the place of: here a row that is broadcast.
#rows = affine_map<(d0, d1) -> (d1 floordiv 64, d0, d1 mod 64)>
#id = affine_map<(d0, d1) -> (d0, d1)>
#alone = affine_map<(d0) -> (0, 0)>
!mat = tensor<128x256xf16, #stick.layout<#rows>>
#one = affine_map<(d0) -> (d0)>
#last = affine_map<(d0, d1) -> (d1)>
!row = tensor<256xf16, #stick.layout<affine_map<(d0) -> (d0 floordiv 64, d0 mod 64)>>>
func.func @larger(%x: !mat, %v: !row) -> !mat {
  %e = tensor.empty() : !mat
  %r = tensor.empty() : !row
  %e1 = linalg.generic {indexing_maps = [#one, #one], iterator_types = ["parallel"]} ins(%v : !row) outs(%r : !row) attrs = {sdsc.op = #sdsc.op<"exp", {}>, sdsc.division = #sdsc.division<[1], affine_map<(d0) -> (0)>>, sdsc.placement = #sdsc.lx<0 : i64>} {
  ^bb0(%a0: f16, %o: f16):
    linalg.yield %o : f16
  } -> !row
  // expected-error@below {{which is live: it is smaller than the buffer that takes its address}}
  %1 = linalg.generic {indexing_maps = [#id, #last, #id], iterator_types = ["parallel", "parallel"]} ins(%x, %e1 : !mat, !row) outs(%e : !mat) attrs = {sdsc.op = #sdsc.op<"add", {}>, sdsc.division = #sdsc.division<[1, 1], #alone>, sdsc.placement = #sdsc.lx<0 : i64>} {
  ^bb0(%a0: f16, %a1: f16, %o: f16):
    linalg.yield %o : f16
  } -> !mat
  %2 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%1 : !mat) outs(%e : !mat) attrs = {sdsc.op = #sdsc.op<"abs", {}>, sdsc.division = #sdsc.division<[1, 1], #alone>, sdsc.placement = #sdsc.hbm<"result0", 0 : i64>} {
  ^bb0(%a0: f16, %o: f16):
    linalg.yield %o : f16
  } -> !mat
  return %2 : !mat
}

// -----

// A reduction needs its operand until it is done.
#rows = affine_map<(d0, d1) -> (d1 floordiv 64, d0, d1 mod 64)>
#id = affine_map<(d0, d1) -> (d0, d1)>
#alone = affine_map<(d0) -> (0, 0)>
!mat = tensor<128x256xf16, #stick.layout<#rows>>
#one = affine_map<(d0) -> (d0)>
#last = affine_map<(d0, d1) -> (d1)>
!row = tensor<256xf16, #stick.layout<affine_map<(d0) -> (d0 floordiv 64, d0 mod 64)>>>
func.func @reduction(%x: !mat) -> !row {
  %e = tensor.empty() : !mat
  %r = tensor.empty() : !row
  %0 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%x : !mat) outs(%e : !mat) attrs = {sdsc.op = #sdsc.op<"exp", {}>, sdsc.division = #sdsc.division<[1, 1], #alone>, sdsc.placement = #sdsc.lx<0 : i64>} {
  ^bb0(%a0: f16, %o: f16):
    linalg.yield %o : f16
  } -> !mat
  // expected-error@below {{which is live: 'sumnonstick' does not work element by element}}
  %1 = linalg.generic {indexing_maps = [#id, #last], iterator_types = ["reduction", "parallel"]} ins(%0 : !mat) outs(%r : !row) attrs = {sdsc.op = #sdsc.op<"sumnonstick", {}>, sdsc.division = #sdsc.division<[1, 1], #alone>, sdsc.placement = #sdsc.lx<0 : i64>} {
  ^bb0(%a0: f16, %o: f16):
    linalg.yield %o : f16
  } -> !row
  %2 = linalg.generic {indexing_maps = [#one, #one], iterator_types = ["parallel"]} ins(%1 : !row) outs(%r : !row) attrs = {sdsc.op = #sdsc.op<"neg", {}>, sdsc.division = #sdsc.division<[1], affine_map<(d0) -> (0)>>, sdsc.placement = #sdsc.hbm<"result0", 0 : i64>} {
  ^bb0(%a0: f16, %o: f16):
    linalg.yield %o : f16
  } -> !row
  return %2 : !row
}

// -----

// Written in another order of rows than they are read, an element would be gone before its turn.
#id3 = affine_map<(d0, d1, d2) -> (d0, d1, d2)>
#turned = affine_map<(d0, d1, d2) -> (d1, d0, d2)>
#alone3 = affine_map<(d0) -> (0, 0, 0)>
!mat = tensor<8x8x64xf16, #stick.layout<affine_map<(d0, d1, d2) -> (d0, d1, d2)>>>
func.func @order(%x: !mat) -> !mat {
  %e = tensor.empty() : !mat
  %0 = linalg.generic {indexing_maps = [#id3, #id3], iterator_types = ["parallel", "parallel", "parallel"]} ins(%x : !mat) outs(%e : !mat) attrs = {sdsc.op = #sdsc.op<"exp", {}>, sdsc.division = #sdsc.division<[1, 1, 1], #alone3>, sdsc.placement = #sdsc.lx<0 : i64>} {
  ^bb0(%a0: f16, %o: f16):
    linalg.yield %o : f16
  } -> !mat
  // expected-error@below {{which is live: 'add' does not read it element for element where it writes}}
  %1 = linalg.generic {indexing_maps = [#id3, #turned, #id3], iterator_types = ["parallel", "parallel", "parallel"]} ins(%x, %0 : !mat, !mat) outs(%e : !mat) attrs = {sdsc.op = #sdsc.op<"add", {}>, sdsc.division = #sdsc.division<[1, 1, 1], #alone3>, sdsc.placement = #sdsc.lx<0 : i64>} {
  ^bb0(%a0: f16, %a1: f16, %o: f16):
    linalg.yield %o : f16
  } -> !mat
  %2 = linalg.generic {indexing_maps = [#id3, #id3], iterator_types = ["parallel", "parallel", "parallel"]} ins(%1 : !mat) outs(%e : !mat) attrs = {sdsc.op = #sdsc.op<"abs", {}>, sdsc.division = #sdsc.division<[1, 1, 1], #alone3>, sdsc.placement = #sdsc.hbm<"result0", 0 : i64>} {
  ^bb0(%a0: f16, %o: f16):
    linalg.yield %o : f16
  } -> !mat
  return %2 : !mat
}

// -----

// Read twice in one operation, once element for element and once not.
#id3 = affine_map<(d0, d1, d2) -> (d0, d1, d2)>
#turned = affine_map<(d0, d1, d2) -> (d1, d0, d2)>
#alone3 = affine_map<(d0) -> (0, 0, 0)>
!mat = tensor<8x8x64xf16, #stick.layout<affine_map<(d0, d1, d2) -> (d0, d1, d2)>>>
func.func @twice(%x: !mat) -> !mat {
  %e = tensor.empty() : !mat
  %0 = linalg.generic {indexing_maps = [#id3, #id3], iterator_types = ["parallel", "parallel", "parallel"]} ins(%x : !mat) outs(%e : !mat) attrs = {sdsc.op = #sdsc.op<"exp", {}>, sdsc.division = #sdsc.division<[1, 1, 1], #alone3>, sdsc.placement = #sdsc.lx<0 : i64>} {
  ^bb0(%a0: f16, %o: f16):
    linalg.yield %o : f16
  } -> !mat
  // expected-error@below {{which is live: 'add' does not read it element for element where it writes}}
  %1 = linalg.generic {indexing_maps = [#id3, #turned, #id3], iterator_types = ["parallel", "parallel", "parallel"]} ins(%0, %0 : !mat, !mat) outs(%e : !mat) attrs = {sdsc.op = #sdsc.op<"add", {}>, sdsc.division = #sdsc.division<[1, 1, 1], #alone3>, sdsc.placement = #sdsc.lx<0 : i64>} {
  ^bb0(%a0: f16, %a1: f16, %o: f16):
    linalg.yield %o : f16
  } -> !mat
  %2 = linalg.generic {indexing_maps = [#id3, #id3], iterator_types = ["parallel", "parallel", "parallel"]} ins(%1 : !mat) outs(%e : !mat) attrs = {sdsc.op = #sdsc.op<"abs", {}>, sdsc.division = #sdsc.division<[1, 1, 1], #alone3>, sdsc.placement = #sdsc.hbm<"result0", 0 : i64>} {
  ^bb0(%a0: f16, %o: f16):
    linalg.yield %o : f16
  } -> !mat
  return %2 : !mat
}

// -----

// The host reads a result in device memory, through a view too.
#rows = affine_map<(d0, d1) -> (d1 floordiv 64, d0, d1 mod 64)>
#id = affine_map<(d0, d1) -> (d0, d1)>
#alone = affine_map<(d0) -> (0, 0)>
!mat = tensor<128x256xf16, #stick.layout<#rows>>
!three = tensor<2x64x256xf16, #stick.layout<affine_map<(d0, d1, d2) -> (d2 floordiv 64, d0, d1, d2 mod 64)>>>
func.func @result(%x: !mat) -> !three {
  %e = tensor.empty() : !mat
  // expected-error@below {{result 0 is in device memory, where the host reads it, not in LX}}
  %0 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%x : !mat) outs(%e : !mat) attrs = {sdsc.op = #sdsc.op<"exp", {}>, sdsc.division = #sdsc.division<[1, 1], #alone>, sdsc.placement = #sdsc.lx<0 : i64>} {
  ^bb0(%a0: f16, %o: f16):
    linalg.yield %o : f16
  } -> !mat
  %1 = tensor.expand_shape %0 [[0, 1], [2]] output_shape [2, 64, 256] : !mat into !three
  return %1 : !three
}

// -----

// The host puts arguments and constants into device memory.
#rows = affine_map<(d0, d1) -> (d1 floordiv 64, d0, d1 mod 64)>
#id = affine_map<(d0, d1) -> (d0, d1)>
#alone = affine_map<(d0) -> (0, 0)>
!mat = tensor<128x256xf16, #stick.layout<#rows>>
// expected-error@below {{argument 0 is in device memory, where the host puts it, not in LX}}
func.func @argument(%x: !mat {sdsc.placement = #sdsc.lx<0 : i64>}) {
  return
}

// -----

// A constant likewise.
#rows = affine_map<(d0, d1) -> (d1 floordiv 64, d0, d1 mod 64)>
#id = affine_map<(d0, d1) -> (d0, d1)>
#alone = affine_map<(d0) -> (0, 0)>
!mat = tensor<128x256xf16, #stick.layout<#rows>>
func.func @constant(%x: !mat) -> !mat {
  %e = tensor.empty() : !mat
  // expected-error@below {{a constant is in device memory, where the host puts it, not in LX}}
  %c = arith.constant {sdsc.placement = #sdsc.lx<0 : i64>} dense<1.0> : !mat
  %0 = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]} ins(%x, %c : !mat, !mat) outs(%e : !mat) attrs = {sdsc.op = #sdsc.op<"add", {}>, sdsc.division = #sdsc.division<[1, 1], #alone>, sdsc.placement = #sdsc.hbm<"result0", 0 : i64>} {
  ^bb0(%a0: f16, %a1: f16, %o: f16):
    linalg.yield %o : f16
  } -> !mat
  return %0 : !mat
}

// -----

// A buffer can be put together from parts where one operation touches all of it; here none does.
#rows = affine_map<(d0, d1) -> (d1 floordiv 64, d0, d1 mod 64)>
#id = affine_map<(d0, d1) -> (d0, d1)>
#alone = affine_map<(d0) -> (0, 0)>
!mat = tensor<128x256xf16, #stick.layout<#rows>>
!half = tensor<64x256xf16, #stick.layout<#rows>>
func.func @parts(%x: !half, %y: !half) -> !half {
  // expected-error@below {{this buffer is in LX: partial or offset access: no operation accesses the whole buffer, so its distribution is unknown}}
  %e = tensor.empty() {sdsc.placement = #sdsc.lx<0 : i64>} : !mat
  %a = "sdsc.clone"(%x) {sdsc.division = #sdsc.division<[1, 1], #alone>} : (!half) -> !half
  %b = "sdsc.clone"(%y) {sdsc.division = #sdsc.division<[1, 1], #alone>} : (!half) -> !half
  %0 = tensor.insert_slice %a into %e[0, 0] [64, 256] [1, 1] : !half into !mat
  %1 = tensor.insert_slice %b into %0[64, 0] [64, 256] [1, 1] : !half into !mat
  %2 = tensor.extract_slice %1[64, 0] [64, 256] [1, 1] : !mat to !half
  %3 = "sdsc.clone"(%2) {sdsc.division = #sdsc.division<[1, 1], #alone>, sdsc.placement = #sdsc.hbm<"result0", 0 : i64>} : (!half) -> !half
  return %3 : !half
}

// -----

// It has the bytes of all its parts.
#rows = affine_map<(d0, d1) -> (d1 floordiv 64, d0, d1 mod 64)>
#alone = affine_map<(d0) -> (0, 0)>
!mat = tensor<128x256xf16, #stick.layout<#rows>>
!half = tensor<64x256xf16, #stick.layout<#rows>>
func.func @size(%x: !half, %y: !half) -> !mat {
  %e = tensor.empty() {sdsc.placement = #sdsc.lx<1572864 : i64>} : !mat
  // expected-error@below {{bytes 1572864 to 1638400 are not inside the 1625344 usable bytes of LX}}
  %a = "sdsc.clone"(%x) {sdsc.division = #sdsc.division<[1, 1], #alone>} : (!half) -> !half
  %b = "sdsc.clone"(%y) {sdsc.division = #sdsc.division<[1, 1], #alone>} : (!half) -> !half
  %0 = tensor.insert_slice %a into %e[0, 0] [64, 256] [1, 1] : !half into !mat
  %1 = tensor.insert_slice %b into %0[64, 0] [64, 256] [1, 1] : !half into !mat
  %2 = "sdsc.clone"(%1) {sdsc.division = #sdsc.division<[1, 1], #alone>, sdsc.placement = #sdsc.hbm<"result0", 0 : i64>} : (!mat) -> !mat
  return %2 : !mat
}

// -----

// No result takes the place of a part of a buffer.
#rows = affine_map<(d0, d1) -> (d1 floordiv 64, d0, d1 mod 64)>
#id = affine_map<(d0, d1) -> (d0, d1)>
#alone = affine_map<(d0) -> (0, 0)>
!mat = tensor<128x256xf16, #stick.layout<#rows>>
!half = tensor<64x256xf16, #stick.layout<#rows>>
func.func @in_place_of_a_part(%x: !mat) -> !half {
  %0 = "sdsc.clone"(%x) {sdsc.division = #sdsc.division<[1, 1], #alone>, sdsc.placement = #sdsc.lx<0 : i64>} : (!mat) -> !mat
  %1 = tensor.extract_slice %0[0, 0] [64, 256] [1, 1] : !mat to !half
  %e = tensor.empty() : !half
  // expected-error@below {{'neg' accesses a part of a buffer}}
  %2 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%1 : !half) outs(%e : !half) attrs = {sdsc.op = #sdsc.op<"neg", {}>, sdsc.division = #sdsc.division<[1, 1], #alone>, sdsc.placement = #sdsc.lx<0 : i64>} {
  ^bb0(%a: f16, %o: f16):
    linalg.yield %o : f16
  } -> !half
  %3 = "sdsc.clone"(%2) {sdsc.division = #sdsc.division<[1, 1], #alone>, sdsc.placement = #sdsc.hbm<"result0", 0 : i64>} : (!half) -> !half
  return %3 : !half
}

// -----

// A part has no place of its own.
#rows = affine_map<(d0, d1) -> (d1 floordiv 64, d0, d1 mod 64)>
#id = affine_map<(d0, d1) -> (d0, d1)>
#alone = affine_map<(d0) -> (0, 0)>
!mat = tensor<128x256xf16, #stick.layout<#rows>>
!half = tensor<64x256xf16, #stick.layout<#rows>>
func.func @part(%x: !half, %y: !half) -> !mat {
  %e = tensor.empty() {sdsc.placement = #sdsc.hbm<"result0", 0 : i64>} : !mat
  // expected-error@below {{this buffer is in LX, and no operation writes it}}
  %a = "sdsc.clone"(%x) {sdsc.division = #sdsc.division<[1, 1], #alone>, sdsc.placement = #sdsc.lx<0 : i64>} : (!half) -> !half
  %b = "sdsc.clone"(%y) {sdsc.division = #sdsc.division<[1, 1], #alone>} : (!half) -> !half
  %0 = tensor.insert_slice %a into %e[0, 0] [64, 256] [1, 1] : !half into !mat
  %1 = tensor.insert_slice %b into %0[64, 0] [64, 256] [1, 1] : !half into !mat
  return %1 : !mat
}

// -----

// On one core a restickify reads from LX.
// CHECK-LABEL: func.func @restickify
#rows = affine_map<(d0, d1) -> (d1 floordiv 64, d0, d1 mod 64)>
#columns = affine_map<(d0, d1) -> (d0 floordiv 64, d1, d0 mod 64)>
#id = affine_map<(d0, d1) -> (d0, d1)>
#cores = affine_map<(d0) -> (0, 0)>
!mat = tensor<128x256xf16, #stick.layout<#rows>>
!turned = tensor<128x256xf16, #stick.layout<#columns>>
func.func @restickify(%x: !mat) -> !turned {
  %e = tensor.empty() : !mat
  %0 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%x : !mat) outs(%e : !mat) attrs = {sdsc.op = #sdsc.op<"exp", {}>, sdsc.division = #sdsc.division<[1, 1], #cores>, sdsc.placement = #sdsc.lx<0 : i64>} {
  ^bb0(%a0: f16, %o: f16):
    linalg.yield %o : f16
  } -> !mat
  %1 = "stick.restickify"(%0) {sdsc.division = #sdsc.division<[1, 1], #cores>, sdsc.placement = #sdsc.hbm<"result0", 0 : i64>} : (!mat) -> !turned
  return %1 : !turned
}

// -----

// Across cores it reads what other cores hold.
#rows = affine_map<(d0, d1) -> (d1 floordiv 64, d0, d1 mod 64)>
#columns = affine_map<(d0, d1) -> (d0 floordiv 64, d1, d0 mod 64)>
#id = affine_map<(d0, d1) -> (d0, d1)>
#cores = affine_map<(d0) -> (0, d0)>
!mat = tensor<128x256xf16, #stick.layout<#rows>>
!turned = tensor<128x256xf16, #stick.layout<#columns>>
func.func @across(%x: !mat) -> !turned {
  %e = tensor.empty() : !mat
  %0 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%x : !mat) outs(%e : !mat) attrs = {sdsc.op = #sdsc.op<"exp", {}>, sdsc.division = #sdsc.division<[1, 2], #cores>, sdsc.placement = #sdsc.lx<0 : i64>} {
  ^bb0(%a0: f16, %o: f16):
    linalg.yield %o : f16
  } -> !mat
  // expected-error@below {{a restickify across 2 cores cannot read from LX}}
  %1 = "stick.restickify"(%0) {sdsc.division = #sdsc.division<[1, 2], #cores>, sdsc.placement = #sdsc.hbm<"result0", 0 : i64>} : (!mat) -> !turned
  return %1 : !turned
}

// -----

// A shuffle takes rows to the cores of their columns, disjoint from where they were.
// CHECK-LABEL: func.func @relayout
#rows = affine_map<(d0, d1) -> (d1 floordiv 64, d0, d1 mod 64)>
#id = affine_map<(d0, d1) -> (d0, d1)>
#by_row = affine_map<(d0) -> (d0, 0)>
#by_stick = affine_map<(d0) -> (0, d0)>
!mat = tensor<128x256xf16, #stick.layout<#rows>>
func.func @relayout(%x: !mat) -> !mat {
  %e = tensor.empty() : !mat
  %0 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%x : !mat) outs(%e : !mat) attrs = {sdsc.op = #sdsc.op<"exp", {}>, sdsc.division = #sdsc.division<[4, 1], #by_row>, sdsc.placement = #sdsc.lx<0 : i64>} {
  ^bb0(%a0: f16, %o: f16):
    linalg.yield %o : f16
  } -> !mat
  %1 = "sdsc.shuffle"(%0) {sdsc.division = #sdsc.division<[1, 4], #by_stick>, sdsc.placement = #sdsc.lx<16384 : i64>} : (!mat) -> !mat
  %2 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%1 : !mat) outs(%e : !mat) attrs = {sdsc.op = #sdsc.op<"neg", {}>, sdsc.division = #sdsc.division<[1, 4], #by_stick>, sdsc.placement = #sdsc.hbm<"result0", 0 : i64>} {
  ^bb0(%a0: f16, %o: f16):
    linalg.yield %o : f16
  } -> !mat
  return %2 : !mat
}

// -----

// What a shuffle takes is in LX, as device memory has no cores.
#rows = affine_map<(d0, d1) -> (d1 floordiv 64, d0, d1 mod 64)>
#id = affine_map<(d0, d1) -> (d0, d1)>
#by_row = affine_map<(d0) -> (d0, 0)>
#by_stick = affine_map<(d0) -> (0, d0)>
!mat = tensor<128x256xf16, #stick.layout<#rows>>
func.func @from_device_memory(%x: !mat) -> !mat {
  %e = tensor.empty() : !mat
  %0 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%x : !mat) outs(%e : !mat) attrs = {sdsc.op = #sdsc.op<"exp", {}>, sdsc.division = #sdsc.division<[4, 1], #by_row>, sdsc.placement = #sdsc.hbm<"pool", 0 : i64>} {
  ^bb0(%a0: f16, %o: f16):
    linalg.yield %o : f16
  } -> !mat
  // expected-error@below {{the source of a shuffle must be in LX, but it is in device memory}}
  %1 = "sdsc.shuffle"(%0) {sdsc.division = #sdsc.division<[1, 4], #by_stick>, sdsc.placement = #sdsc.lx<0 : i64>} : (!mat) -> !mat
  %2 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%1 : !mat) outs(%e : !mat) attrs = {sdsc.op = #sdsc.op<"neg", {}>, sdsc.division = #sdsc.division<[1, 4], #by_stick>, sdsc.placement = #sdsc.hbm<"result0", 0 : i64>} {
  ^bb0(%a0: f16, %o: f16):
    linalg.yield %o : f16
  } -> !mat
  return %2 : !mat
}

// -----

// What it makes is in LX, too.
#rows = affine_map<(d0, d1) -> (d1 floordiv 64, d0, d1 mod 64)>
#id = affine_map<(d0, d1) -> (d0, d1)>
#by_row = affine_map<(d0) -> (d0, 0)>
#by_stick = affine_map<(d0) -> (0, d0)>
!mat = tensor<128x256xf16, #stick.layout<#rows>>
func.func @to_device_memory(%x: !mat) -> !mat {
  %e = tensor.empty() : !mat
  %0 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%x : !mat) outs(%e : !mat) attrs = {sdsc.op = #sdsc.op<"exp", {}>, sdsc.division = #sdsc.division<[4, 1], #by_row>, sdsc.placement = #sdsc.lx<0 : i64>} {
  ^bb0(%a0: f16, %o: f16):
    linalg.yield %o : f16
  } -> !mat
  // expected-error@below {{the result of a shuffle must be in LX, but it is in device memory}}
  %1 = "sdsc.shuffle"(%0) {sdsc.division = #sdsc.division<[1, 4], #by_stick>, sdsc.placement = #sdsc.hbm<"pool", 0 : i64>} : (!mat) -> !mat
  %2 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%1 : !mat) outs(%e : !mat) attrs = {sdsc.op = #sdsc.op<"neg", {}>, sdsc.division = #sdsc.division<[1, 4], #by_stick>, sdsc.placement = #sdsc.hbm<"result0", 0 : i64>} {
  ^bb0(%a0: f16, %o: f16):
    linalg.yield %o : f16
  } -> !mat
  return %2 : !mat
}

// -----

// Copies for several cores are in LX, too: in device memory they would be one.
#rows = affine_map<(d0, d1) -> (d1 floordiv 64, d0, d1 mod 64)>
#id = affine_map<(d0, d1) -> (d0, d1)>
#by_row = affine_map<(d0) -> (d0, 0)>
#by_stick = affine_map<(d0) -> (0, d0)>
!mat = tensor<128x256xf16, #stick.layout<#rows>>
func.func @copies(%x: !mat) -> !mat {
  %e = tensor.empty() : !mat
  // expected-error@below {{the result of a shuffle must be in LX, but it is in device memory}}
  %1 = "sdsc.clone"(%x) {sdsc.copies = 2 : i64, sdsc.division = #sdsc.division<[1, 2, 2], affine_map<(d0) -> (0, d0 mod 2, (d0 floordiv 2) mod 2)>>, sdsc.placement = #sdsc.hbm<"pool", 0 : i64>} : (!mat) -> !mat
  %2 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%1 : !mat) outs(%e : !mat) attrs = {sdsc.op = #sdsc.op<"neg", {}>, sdsc.division = #sdsc.division<[1, 4], #by_stick>, sdsc.placement = #sdsc.hbm<"result0", 0 : i64>} {
  ^bb0(%a0: f16, %o: f16):
    linalg.yield %o : f16
  } -> !mat
  return %2 : !mat
}

// -----

// What it brings cannot take the place of what it takes: each core still sends that to others.
#rows = affine_map<(d0, d1) -> (d1 floordiv 64, d0, d1 mod 64)>
#id = affine_map<(d0, d1) -> (d0, d1)>
#by_row = affine_map<(d0) -> (d0, 0)>
#by_stick = affine_map<(d0) -> (0, d0)>
!mat = tensor<128x256xf16, #stick.layout<#rows>>
func.func @over_its_source(%x: !mat) -> !mat {
  %e = tensor.empty() : !mat
  %0 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%x : !mat) outs(%e : !mat) attrs = {sdsc.op = #sdsc.op<"exp", {}>, sdsc.division = #sdsc.division<[4, 1], #by_row>, sdsc.placement = #sdsc.lx<0 : i64>} {
  ^bb0(%a0: f16, %o: f16):
    linalg.yield %o : f16
  } -> !mat
  // expected-error@below {{which is live: 'shuffle' does not work element by element}}
  %1 = "sdsc.shuffle"(%0) {sdsc.division = #sdsc.division<[1, 4], #by_stick>, sdsc.placement = #sdsc.lx<0 : i64>} : (!mat) -> !mat
  %2 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%1 : !mat) outs(%e : !mat) attrs = {sdsc.op = #sdsc.op<"neg", {}>, sdsc.division = #sdsc.division<[1, 4], #by_stick>, sdsc.placement = #sdsc.hbm<"result0", 0 : i64>} {
  ^bb0(%a0: f16, %o: f16):
    linalg.yield %o : f16
  } -> !mat
  return %2 : !mat
}
