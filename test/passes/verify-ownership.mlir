// RUN: spyre-opt %s --verify-ownership --split-input-file --verify-diagnostics | filecheck %s

// Rows written by four cores and read by the same four: nothing to say.
// CHECK-LABEL: func.func @same
#rows = affine_map<(d0, d1) -> (d1 floordiv 64, d0, d1 mod 64)>
#id = affine_map<(d0, d1) -> (d0, d1)>
#by_row = affine_map<(d0) -> (d0, 0)>
!mat = tensor<128x256xf16, #stick.layout<#rows>>
func.func @same(%x: !mat) {
  %e0 = tensor.empty() : !mat
  %0 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%x : !mat) outs(%e0 : !mat) attrs = {sdsc.op = #sdsc.op<"exp", {}>, sdsc.division = #sdsc.division<[4, 1], #by_row>, sdsc.placement = #sdsc.lx<0>} {
  ^bb0(%a0: f16, %o: f16):
    linalg.yield %o : f16
  } -> !mat
  %e1 = tensor.empty() : !mat
  %1 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%0 : !mat) outs(%e1 : !mat) attrs = {sdsc.op = #sdsc.op<"neg", {}>, sdsc.division = #sdsc.division<[4, 1], #by_row>} {
  ^bb0(%a0: f16, %o: f16):
    linalg.yield %o : f16
  } -> !mat
  return
}

// -----

// In device memory another division costs nothing: a remark with both views.
#rows = affine_map<(d0, d1) -> (d1 floordiv 64, d0, d1 mod 64)>
#id = affine_map<(d0, d1) -> (d0, d1)>
#by_row = affine_map<(d0) -> (d0, 0)>
#by_stick = affine_map<(d0) -> (0, d0)>
!mat = tensor<128x256xf16, #stick.layout<#rows>>
func.func @elsewhere(%x: !mat) {
  %e0 = tensor.empty() : !mat
  %0 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%x : !mat) outs(%e0 : !mat) attrs = {sdsc.op = #sdsc.op<"exp", {}>, sdsc.division = #sdsc.division<[4, 1], #by_row>, sdsc.placement = #sdsc.hbm<"pool", 0>} {
  ^bb0(%a0: f16, %o: f16):
    linalg.yield %o : f16
  } -> !mat
  %e1 = tensor.empty() : !mat
  // expected-remark@below {{mismatch: operand 0 of 'neg', made by 'exp' at}}
  %1 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%0 : !mat) outs(%e1 : !mat) attrs = {sdsc.op = #sdsc.op<"neg", {}>, sdsc.division = #sdsc.division<[1, 4], #by_stick>} {
  ^bb0(%a0: f16, %o: f16):
    linalg.yield %o : f16
  } -> !mat
  return
}

// -----

// In a scratchpad it would be wrong numbers.
#rows = affine_map<(d0, d1) -> (d1 floordiv 64, d0, d1 mod 64)>
#id = affine_map<(d0, d1) -> (d0, d1)>
#by_row = affine_map<(d0) -> (d0, 0)>
#by_stick = affine_map<(d0) -> (0, d0)>
!mat = tensor<128x256xf16, #stick.layout<#rows>>
func.func @lost_owner(%x: !mat) {
  %e0 = tensor.empty() : !mat
  %0 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%x : !mat) outs(%e0 : !mat) attrs = {sdsc.op = #sdsc.op<"exp", {}>, sdsc.division = #sdsc.division<[4, 1], #by_row>, sdsc.placement = #sdsc.lx<0>} {
  ^bb0(%a0: f16, %o: f16):
    linalg.yield %o : f16
  } -> !mat
  %e1 = tensor.empty() : !mat
  // expected-error@below {{a buffer in LX is read by cores that do not own it: operand 0 of 'neg', made by 'exp' at}}
  %1 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%0 : !mat) outs(%e1 : !mat) attrs = {sdsc.op = #sdsc.op<"neg", {}>, sdsc.division = #sdsc.division<[1, 4], #by_stick>} {
  ^bb0(%a0: f16, %o: f16):
    linalg.yield %o : f16
  } -> !mat
  return
}

// -----

// The same slices in another order of cores are other owners: reordering loops loses them.
#rows = affine_map<(d0, d1) -> (d1 floordiv 64, d0, d1 mod 64)>
#id = affine_map<(d0, d1) -> (d0, d1)>
#rows_first = affine_map<(d0) -> (d0 mod 2, (d0 floordiv 2) mod 2)>
#sticks_first = affine_map<(d0) -> ((d0 floordiv 2) mod 2, d0 mod 2)>
!mat = tensor<128x256xf16, #stick.layout<#rows>>
func.func @reordered(%x: !mat) {
  %e0 = tensor.empty() : !mat
  %0 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%x : !mat) outs(%e0 : !mat) attrs = {sdsc.op = #sdsc.op<"exp", {}>, sdsc.division = #sdsc.division<[2, 2], #rows_first>, sdsc.placement = #sdsc.lx<0>} {
  ^bb0(%a0: f16, %o: f16):
    linalg.yield %o : f16
  } -> !mat
  %e1 = tensor.empty() : !mat
  // expected-error@below {{core division mismatch: core 1 writes}}
  %1 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%0 : !mat) outs(%e1 : !mat) attrs = {sdsc.op = #sdsc.op<"neg", {}>, sdsc.division = #sdsc.division<[2, 2], #sticks_first>} {
  ^bb0(%a0: f16, %o: f16):
    linalg.yield %o : f16
  } -> !mat
  return
}

// -----

// Parts of sums are not the values that a reader wants.
#rows = affine_map<(d0, d1) -> (d1 floordiv 64, d0, d1 mod 64)>
#vec = affine_map<(d0) -> (d0 floordiv 64, d0 mod 64)>
#id = affine_map<(d0, d1) -> (d0, d1)>
#second = affine_map<(d0, d1) -> (d1)>
#first = affine_map<(d0) -> (d0)>
func.func @partial(%x: tensor<128x256xf16, #stick.layout<#rows>>) {
  %e0 = tensor.empty() : tensor<256xf16, #stick.layout<#vec>>
  %0 = linalg.generic {indexing_maps = [#id, #second], iterator_types = ["reduction", "parallel"]} ins(%x : tensor<128x256xf16, #stick.layout<#rows>>) outs(%e0 : tensor<256xf16, #stick.layout<#vec>>) attrs = {sdsc.op = #sdsc.op<"sumnonstick", {}>, sdsc.combine = "add", sdsc.division = #sdsc.division<[2, 4], affine_map<(d0) -> (d0 mod 2, (d0 floordiv 2) mod 4)>>, sdsc.placement = #sdsc.lx<0>} {
  ^bb0(%a0: f16, %o: f16):
    linalg.yield %o : f16
  } -> tensor<256xf16, #stick.layout<#vec>>
  %e1 = tensor.empty() : tensor<256xf16, #stick.layout<#vec>>
  // expected-error@below {{the writer leaves partial sums on its cores, not the final values}}
  %1 = linalg.generic {indexing_maps = [#first, #first], iterator_types = ["parallel"]} ins(%0 : tensor<256xf16, #stick.layout<#vec>>) outs(%e1 : tensor<256xf16, #stick.layout<#vec>>) attrs = {sdsc.op = #sdsc.op<"neg", {}>, sdsc.division = #sdsc.division<[4], affine_map<(d0) -> (d0)>>} {
  ^bb0(%a0: f16, %o: f16):
    linalg.yield %o : f16
  } -> tensor<256xf16, #stick.layout<#vec>>
  return
}

// -----

// Two cores with the same slice would finish it twice.
#rows = affine_map<(d0, d1) -> (d1 floordiv 64, d0, d1 mod 64)>
#id = affine_map<(d0, d1) -> (d0, d1)>
!mat = tensor<128x256xf16, #stick.layout<#rows>>
func.func @twice(%x: !mat) {
  %e0 = tensor.empty() : !mat
  // expected-error@below {{cores [0, 1] compute one part of the result; expected 1 core}}
  %0 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%x : !mat) outs(%e0 : !mat) attrs = {sdsc.op = #sdsc.op<"exp", {}>, sdsc.division = #sdsc.division<[4, 1], affine_map<(d0) -> (d0 floordiv 2, 0)>>, sdsc.placement = #sdsc.hbm<"pool", 0>} {
  ^bb0(%a0: f16, %o: f16):
    linalg.yield %o : f16
  } -> !mat
  return
}

// -----

// A shuffle takes from all cores what each one wants, and its reader finds it there.
// CHECK-LABEL: func.func @relayout
#rows = affine_map<(d0, d1) -> (d1 floordiv 64, d0, d1 mod 64)>
#id = affine_map<(d0, d1) -> (d0, d1)>
#by_row = affine_map<(d0) -> (d0, 0)>
#by_stick = affine_map<(d0) -> (0, d0)>
!mat = tensor<128x256xf16, #stick.layout<#rows>>
func.func @relayout(%x: !mat) {
  %e = tensor.empty() : !mat
  %0 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%x : !mat) outs(%e : !mat) attrs = {sdsc.op = #sdsc.op<"exp", {}>, sdsc.division = #sdsc.division<[4, 1], #by_row>, sdsc.placement = #sdsc.lx<0 : i64>} {
  ^bb0(%a0: f16, %o: f16):
    linalg.yield %o : f16
  } -> !mat
  %1 = "sdsc.shuffle"(%0) {sdsc.division = #sdsc.division<[1, 4], #by_stick>, sdsc.placement = #sdsc.lx<16384 : i64>} : (!mat) -> !mat
  %2 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%1 : !mat) outs(%e : !mat) attrs = {sdsc.op = #sdsc.op<"neg", {}>, sdsc.division = #sdsc.division<[1, 4], #by_stick>} {
  ^bb0(%a0: f16, %o: f16):
    linalg.yield %o : f16
  } -> !mat
  return
}

// -----

// Of a clone with two copies, cores 0 and 2 have the same half of the columns.
// CHECK-LABEL: func.func @copies
#rows = affine_map<(d0, d1) -> (d1 floordiv 64, d0, d1 mod 64)>
#id = affine_map<(d0, d1) -> (d0, d1)>
#by_row = affine_map<(d0) -> (d0, 0)>
#by_stick = affine_map<(d0) -> (0, d0)>
!mat = tensor<128x256xf16, #stick.layout<#rows>>
func.func @copies(%x: !mat) {
  %e = tensor.empty() : !mat
  %1 = "sdsc.clone"(%x) {sdsc.copies = 2 : i64, sdsc.division = #sdsc.division<[1, 2, 2], affine_map<(d0) -> (0, d0 mod 2, (d0 floordiv 2) mod 2)>>, sdsc.placement = #sdsc.lx<0 : i64>} : (!mat) -> !mat
  return
}

// -----

// Both copies of a half on one core are none for the other one.
#rows = affine_map<(d0, d1) -> (d1 floordiv 64, d0, d1 mod 64)>
#id = affine_map<(d0, d1) -> (d0, d1)>
#by_row = affine_map<(d0) -> (d0, 0)>
#by_stick = affine_map<(d0) -> (0, d0)>
!mat = tensor<128x256xf16, #stick.layout<#rows>>
func.func @same_copy(%x: !mat) {
  %e = tensor.empty() : !mat
  // expected-error@below {{cores [0, 2] compute one part of the result; expected 1 core}}
  %1 = "sdsc.clone"(%x) {sdsc.copies = 2 : i64, sdsc.division = #sdsc.division<[1, 2, 2], affine_map<(d0) -> (0, d0 mod 2, 0)>>, sdsc.placement = #sdsc.lx<0 : i64>} : (!mat) -> !mat
  return
}

// -----

// There are as many cores as copies: here two cores for three copies of each half.
#rows = affine_map<(d0, d1) -> (d1 floordiv 64, d0, d1 mod 64)>
#id = affine_map<(d0, d1) -> (d0, d1)>
#by_row = affine_map<(d0) -> (d0, 0)>
#by_stick = affine_map<(d0) -> (0, d0)>
!mat = tensor<128x256xf16, #stick.layout<#rows>>
func.func @too_few_cores(%x: !mat) {
  %e = tensor.empty() : !mat
  // expected-error@below {{the cores finish 1024 sticks of the result, which has 1536}}
  %1 = "sdsc.clone"(%x) {sdsc.copies = 3 : i64, sdsc.division = #sdsc.division<[1, 2, 2], affine_map<(d0) -> (0, d0 mod 2, (d0 floordiv 2) mod 2)>>, sdsc.placement = #sdsc.lx<0 : i64>} : (!mat) -> !mat
  return
}

// -----

// A reader behind a shuffle wants what that brought, not what its source was.
#rows = affine_map<(d0, d1) -> (d1 floordiv 64, d0, d1 mod 64)>
#id = affine_map<(d0, d1) -> (d0, d1)>
#by_row = affine_map<(d0) -> (d0, 0)>
#by_stick = affine_map<(d0) -> (0, d0)>
!mat = tensor<128x256xf16, #stick.layout<#rows>>
func.func @before_the_shuffle(%x: !mat) {
  %e = tensor.empty() : !mat
  %0 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%x : !mat) outs(%e : !mat) attrs = {sdsc.op = #sdsc.op<"exp", {}>, sdsc.division = #sdsc.division<[4, 1], #by_row>, sdsc.placement = #sdsc.lx<0 : i64>} {
  ^bb0(%a0: f16, %o: f16):
    linalg.yield %o : f16
  } -> !mat
  %1 = "sdsc.shuffle"(%0) {sdsc.division = #sdsc.division<[1, 4], #by_stick>, sdsc.placement = #sdsc.lx<16384 : i64>} : (!mat) -> !mat
  // expected-error@below {{a buffer in LX is read by cores that do not own it: operand 0 of 'neg', made by 'sdsc.shuffle' at}}
  %2 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%1 : !mat) outs(%e : !mat) attrs = {sdsc.op = #sdsc.op<"neg", {}>, sdsc.division = #sdsc.division<[4, 1], #by_row>} {
  ^bb0(%a0: f16, %o: f16):
    linalg.yield %o : f16
  } -> !mat
  return
}

// -----

// The finished values are on every other core; a shuffle takes them from there to two cores each.
// CHECK-LABEL: func.func @finished
#rows = affine_map<(d0, d1) -> (d1 floordiv 64, d0, d1 mod 64)>
#vec = affine_map<(d0) -> (d0 floordiv 64, d0 mod 64)>
#id = affine_map<(d0, d1) -> (d0, d1)>
#second = affine_map<(d0, d1) -> (d1)>
!vec = tensor<256xf16, #stick.layout<#vec>>
func.func @finished(%x: tensor<128x256xf16, #stick.layout<#rows>>) {
  %e = tensor.empty() : !vec
  %0 = linalg.generic {indexing_maps = [#id, #second], iterator_types = ["reduction", "parallel"]} ins(%x : tensor<128x256xf16, #stick.layout<#rows>>) outs(%e : !vec) attrs = {sdsc.op = #sdsc.op<"sumnonstick", {}>, sdsc.combine = "add", sdsc.division = #sdsc.division<[2, 4], affine_map<(d0) -> (d0 mod 2, (d0 floordiv 2) mod 4)>>, sdsc.placement = #sdsc.lx<0>} {
  ^bb0(%a0: f16, %o: f16):
    linalg.yield %o : f16
  } -> !vec
  %1 = "sdsc.shuffle"(%0) {sdsc.copies = 2 : i64, sdsc.division = #sdsc.division<[4, 2], affine_map<(d0) -> ((d0 floordiv 2) mod 4, d0 mod 2)>>, sdsc.placement = #sdsc.lx<128>} : (!vec) -> !vec
  return
}

// -----

// What a loop carries is left by rows at first and by sticks later: a shuffle in it takes one of the two.
#rows = affine_map<(d0, d1) -> (d1 floordiv 64, d0, d1 mod 64)>
#id = affine_map<(d0, d1) -> (d0, d1)>
#by_row = affine_map<(d0) -> (d0, 0)>
#by_stick = affine_map<(d0) -> (0, d0)>
!mat = tensor<128x256xf16, #stick.layout<#rows>>
func.func @left_in_two_ways(%x: !mat) {
  %zero = arith.constant 0 : index
  %one = arith.constant 1 : index
  %many = arith.constant 3 : index
  %e = tensor.empty() : !mat
  %0 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%x : !mat) outs(%e : !mat) attrs = {sdsc.op = #sdsc.op<"exp", {}>, sdsc.division = #sdsc.division<[4, 1], #by_row>, sdsc.placement = #sdsc.lx<0 : i64>} {
  ^bb0(%a0: f16, %o: f16):
    linalg.yield %o : f16
  } -> !mat
  %1 = scf.for %i = %zero to %many step %one iter_args(%carried = %0) -> (!mat) {
    // expected-error@below {{the operations that write it distribute it differently over the cores}}
    %2 = "sdsc.shuffle"(%carried) {sdsc.division = #sdsc.division<[2, 2], affine_map<(d0) -> (d0 mod 2, d0 floordiv 2)>>, sdsc.placement = #sdsc.lx<16384 : i64>} : (!mat) -> !mat
    %3 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%x : !mat) outs(%e : !mat) attrs = {sdsc.op = #sdsc.op<"neg", {}>, sdsc.division = #sdsc.division<[1, 4], #by_stick>} {
    ^bb0(%a0: f16, %o: f16):
      linalg.yield %o : f16
    } -> !mat
    scf.yield %3 : !mat
  }
  return
}

// -----

// Each core reads, and writes, the last two sticks of its own rows: 64 sticks behind the first on all cores.
// CHECK-LABEL: func.func @parts
#rows = affine_map<(d0, d1) -> (d1 floordiv 64, d0, d1 mod 64)>
#part = affine_map<(d0, d1) -> (d1 floordiv 64, d0, d1 mod 64)>
#by_row = affine_map<(d0) -> (d0, 0)>
!mat = tensor<128x256xf16, #stick.layout<#rows>>
!half = tensor<128x128xf16, #stick.layout<#part>>
func.func @parts(%x: !mat, %y: !half) -> !half {
  %0 = "sdsc.clone"(%x) {sdsc.division = #sdsc.division<[4, 1], #by_row>, sdsc.placement = #sdsc.lx<0>} : (!mat) -> !mat
  %1 = "sdsc.clone"(%y) {sdsc.division = #sdsc.division<[4, 1], #by_row>} : (!half) -> !half
  %2 = tensor.insert_slice %1 into %0[0, 128] [128, 128] [1, 1] : !half into !mat
  %3 = tensor.extract_slice %2[0, 64] [128, 128] [1, 1] : !mat to !half
  %4 = "sdsc.clone"(%3) {sdsc.division = #sdsc.division<[4, 1], #by_row>, sdsc.placement = #sdsc.hbm<"result0", 0>} : (!half) -> !half
  return %4 : !half
}

// -----

// A part that begins one row later is one row into what core 0 has, and none into what core 1 has.
#rows = affine_map<(d0, d1) -> (d1 floordiv 64, d0, d1 mod 64)>
#part = affine_map<(d0, d1) -> (d1 floordiv 64, d0, d1 mod 64)>
#by_row = affine_map<(d0) -> (d0, 0)>
!mat = tensor<128x256xf16, #stick.layout<#rows>>
!most = tensor<124x256xf16, #stick.layout<#part>>
func.func @a_row_off(%x: !mat) -> !most {
  %0 = "sdsc.clone"(%x) {sdsc.division = #sdsc.division<[4, 1], #by_row>, sdsc.placement = #sdsc.lx<0>} : (!mat) -> !mat
  %1 = tensor.extract_slice %0[1, 0] [124, 256] [1, 1] : !mat to !most
  // expected-error@below {{a buffer in LX is read by cores that do not own it: operand 0 of 'sdsc.clone'}}
  %2 = "sdsc.clone"(%1) {sdsc.division = #sdsc.division<[4, 1], #by_row>, sdsc.placement = #sdsc.hbm<"result0", 0>} : (!most) -> !most
  return %2 : !most
}

// -----

// Nor can a part be written there.
#rows = affine_map<(d0, d1) -> (d1 floordiv 64, d0, d1 mod 64)>
#part = affine_map<(d0, d1) -> (d1 floordiv 64, d0, d1 mod 64)>
#by_row = affine_map<(d0) -> (d0, 0)>
!mat = tensor<128x256xf16, #stick.layout<#rows>>
!most = tensor<124x256xf16, #stick.layout<#part>>
func.func @written_a_row_off(%x: !mat, %y: !most) -> !mat {
  %0 = "sdsc.clone"(%x) {sdsc.division = #sdsc.division<[4, 1], #by_row>, sdsc.placement = #sdsc.lx<0>} : (!mat) -> !mat
  // expected-error@below {{a buffer in LX is written by cores that do not own it: operand 1 of 'sdsc.clone'}}
  %1 = "sdsc.clone"(%y) {sdsc.division = #sdsc.division<[4, 1], #by_row>} : (!most) -> !most
  %2 = tensor.insert_slice %1 into %0[1, 0] [124, 256] [1, 1] : !most into !mat
  %3 = "sdsc.clone"(%2) {sdsc.division = #sdsc.division<[4, 1], #by_row>, sdsc.placement = #sdsc.hbm<"result0", 0>} : (!mat) -> !mat
  return %3 : !mat
}

// -----

// A loop that writes one slice of a buffer after the other: in LX its address would be the same in each iteration.
#rows = affine_map<(d0, d1) -> (d1 floordiv 64, d0, d1 mod 64)>
#id = affine_map<(d0, d1) -> (d0, d1)>
#one = affine_map<(d0) -> (0, 0)>
#by_tile = affine_map<(d0) -> (d0 * 128)>
!mat = tensor<64x256xf16, #stick.layout<#rows>>
!tile = tensor<64x128xf16, #stick.layout<#rows>>
func.func @moving(%x: !mat) -> !mat {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %e = tensor.empty() {sdsc.placement = #sdsc.lx<0>} : !mat
  %0 = scf.for %i = %c0 to %c2 step %c1 iter_args(%all = %e) -> (!mat) {
    %at = affine.apply #by_tile(%i)
    %s = tensor.extract_slice %x[0, %at] [64, 128] [1, 1] : !mat to !tile
    %f = tensor.empty() : !tile
    // expected-error@below {{the part moves with a loop, but LX addresses are constant}}
    %t = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%s : !tile) outs(%f : !tile) attrs = {sdsc.op = #sdsc.op<"exp", {}>, sdsc.division = #sdsc.division<[1, 1], #one>} {
    ^bb0(%a0: f16, %o: f16):
      %r = math.exp %a0 : f16
      linalg.yield %r : f16
    } -> !tile
    %next = tensor.insert_slice %t into %all[0, %at] [64, 128] [1, 1] : !tile into !mat
    scf.yield %next : !mat
  }
  %g = tensor.empty() : !mat
  %1 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%0 : !mat) outs(%g : !mat) attrs = {sdsc.op = #sdsc.op<"neg", {}>, sdsc.division = #sdsc.division<[1, 1], #one>} {
  ^bb0(%a0: f16, %o: f16):
    %r = arith.negf %a0 : f16
    linalg.yield %r : f16
  } -> !mat
  return %1 : !mat
}
