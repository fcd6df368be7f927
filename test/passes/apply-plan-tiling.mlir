// RUN: spyre-opt %s --split-input-file --name-operations --apply-plan="level=device-ops" --verify-diagnostics | filecheck %s
// RUN: spyre-opt %s --split-input-file --name-operations --apply-plan="level=device-ops" --coarse-tiling --name-operations="inserted" --verify-diagnostics | filecheck %s --check-prefix=TILED

// The loops of the plan take the place of those of a hint; an empty list is a decision, too.
// CHECK-LABEL: func.func @pinned(
// CHECK: sdsc.name = "exp.0", {{.*}}sdsc.tiling = [{dim = 0 : i64, loop = "mine", tiles = 4 : i64, unrolled = false}]}
// CHECK: sdsc.name = "abs.0", {{.*}}sdsc.tiling = []}
// CHECK: sdsc.name = "sum.0", {{.*}}sdsc.tiling = [{dim = 0 : i64, loop = "mine", tiles = 2 : i64, unrolled = false}]}

// They are told when they are loops; of a sum the first part keeps the name.
// TILED-LABEL: func.func @pinned(
// TILED-NOT: sdsc.tiling
// TILED: scf.for
// TILED: sdsc.name = "exp.0", {{.*}}sdsc.tiled = [{dim = 0 : i64, loop = "mine", tiles = 4 : i64}]}
// TILED: sdsc.name = "abs.0", {{.*}}sdsc.tiled = []}
// TILED: sdsc.name = "sum.0", {{.*}}sdsc.tiled
// TILED: scf.for
// TILED: sdsc.name = "sum.0/part.0", {{.*}}sdsc.tiled
// TILED: sdsc.name = "sum.0/part.0/add.0"
#id = affine_map<(d0, d1) -> (d0, d1)>
#row = affine_map<(d0, d1) -> (d1)>
!m = tensor<128x256xf16>
!r = tensor<256xf16>
module attributes {sdsc.plan = "{\"version\": 1, \"operations\": [{\"name\": \"exp.0\", \"tiling\": [{\"loop\": \"mine\", \"dim\": 0, \"tiles\": 4}]}, {\"name\": \"abs.0\", \"tiling\": []}, {\"name\": \"sum.0\", \"tiling\": [{\"loop\": \"mine\", \"dim\": 0, \"tiles\": 2}]}]}"} {
  func.func @pinned(%x: !m {sdsc.host = #sdsc.host<"x", "input", "f16">}) -> !r {
    %e = tensor.empty() : !m
    %0 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%x : !m) outs(%e : !m) attrs = {sdsc.op = #sdsc.op<"exp", {}>} {
    ^bb0(%a: f16, %o: f16):
      linalg.yield %o : f16
    } -> !m
    %1 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%0 : !m) outs(%e : !m) attrs = {sdsc.op = #sdsc.op<"abs", {}>, sdsc.tiling = [{loop = "3.M", dim = 0 : i64, tiles = 8 : i64}]} {
    ^bb0(%a: f16, %o: f16):
      linalg.yield %o : f16
    } -> !m
    %er = tensor.empty() : !r
    %zero = arith.constant 0.0 : f16
    %f = linalg.fill ins(%zero : f16) outs(%er : !r) -> !r
    %2 = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["reduction", "parallel"]} ins(%1 : !m) outs(%f : !r) attrs = {sdsc.op = #sdsc.op<"sumnonstick", {}>} {
    ^bb0(%a: f16, %o: f16):
      %s = arith.addf %a, %o : f16
      linalg.yield %s : f16
    } -> !r
    return %2 : !r
  }
}
// -----
#id = affine_map<(d0, d1) -> (d0, d1)>
!m = tensor<128x256xf16>
module attributes {sdsc.plan = "{\"version\": 1, \"operations\": [{\"name\": \"exp.0\", \"tiling\": [{\"loop\": \"mine\", \"dim\": 0, \"tiles\": 3}]}]}"} {
  func.func @refused(%x: !m {sdsc.host = #sdsc.host<"x", "input", "f16">}) -> !m {
    %e = tensor.empty() : !m
    // expected-error@below {{the plan pins the tiling [{"loop": "mine", ".. for 'exp.0', which is not possible: loop mine cuts dim 0 of 128 elements into 3 tiles, but 3 does not divide it}}
    %0 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%x : !m) outs(%e : !m) attrs = {sdsc.op = #sdsc.op<"exp", {}>} {
    ^bb0(%a: f16, %o: f16):
      linalg.yield %o : f16
    } -> !m
    return %0 : !m
  }
}
