// Tiles of scaled weights are loaded while the product of the tile before computes: two buffers in turn, one behind the
// other, whatever the order of planning. No option, no pairs.
//
// RUN: spyre-opt %s --spyre-pipeline="sencores=1 verify-each" --to-level=placed | filecheck %s
// RUN: spyre-opt %s --spyre-pipeline="sencores=1 order-by-size=true" --to-level=placed | filecheck %s
// RUN: spyre-opt %s --spyre-pipeline="sencores=1 layout-solver=greedy" --to-level=placed | filecheck %s
// RUN: spyre-opt %s --spyre-pipeline="sencores=1 double-buffer=false" --to-level=placed | filecheck %s --check-prefix=OFF
// RUN: spyre-compile %s --sencores=1 -o %t.bundle --check | filecheck %s --check-prefix=NUMBERS
// RUN: filecheck %s --input-file %t.bundle/bundle.mlir --check-prefix=BUNDLE
//
// CHECK: "mul"{{.*}}sdsc.ping_pong = [0, 0], sdsc.placement = #sdsc.lx<262144 : i64>
// CHECK: scf.for
// CHECK: "batchmatmul"
// CHECK: "mul"{{.*}}sdsc.ping_pong = [0, 1], sdsc.placement = #sdsc.lx<327680 : i64>
// OFF-NOT: sdsc.ping_pong
// NUMBERS: PASS
//
// The load, of the weights and of their scale, is in front of the loop and, twice, behind the product in it.
// BUNDLE: sdsc_execute (%arg_1, %arg_2) {sdsc_filename="sdsc_1.json"
// BUNDLE: scf.for
// BUNDLE: sdsc_filename="sdsc_2.json"
// BUNDLE: sdsc_execute (%{{.*}}, %{{.*}}) {sdsc_filename="sdsc_3.json"
// BUNDLE: sdsc_filename="sdsc_5.json"
// BUNDLE: sdsc_execute (%{{.*}}, %{{.*}}) {sdsc_filename="sdsc_6.json"
#id = affine_map<(d0, d1) -> (d0, d1)>
#columns = affine_map<(d0, d1) -> (d1)>
func.func @main(%x: tensor<512x256xf16> {sdsc.dims = ["M", "K"]}, %w: tensor<256x640xf16> {sdsc.dims = ["K", "N"]}, %s: tensor<640xf16> {sdsc.dims = ["N"]}) -> tensor<512x640xf16>
    attributes {sdsc.dim_sizes = {M = 512 : i64, K = 256 : i64, N = 640 : i64}} {
  %zero = arith.constant 0.0 : f16
  %ew = tensor.empty() : tensor<256x640xf16>
  %e = tensor.empty() : tensor<512x640xf16>
  %scaled = linalg.generic {indexing_maps = [#id, #columns, #id], iterator_types = ["parallel", "parallel"], sdsc.hints = [{id = 1 : i64, tiles = [{dim = "N", count = 5 : i64}]}]} ins(%w, %s : tensor<256x640xf16>, tensor<640xf16>) outs(%ew : tensor<256x640xf16>) {
  ^bb0(%a: f16, %b: f16, %o: f16):
    %r = arith.mulf %a, %b : f16
    linalg.yield %r : f16
  } -> tensor<256x640xf16>
  %f = linalg.fill ins(%zero : f16) outs(%e : tensor<512x640xf16>) -> tensor<512x640xf16>
  %p = linalg.matmul {sdsc.hints = [{id = 1 : i64, tiles = [{dim = "N", count = 5 : i64}]}]} ins(%x, %scaled : tensor<512x256xf16>, tensor<256x640xf16>) outs(%f : tensor<512x640xf16>) -> tensor<512x640xf16>
  %y = linalg.tanh {sdsc.hints = [{id = 1 : i64, tiles = [{dim = "N", count = 5 : i64}]}]} ins(%p : tensor<512x640xf16>) outs(%e : tensor<512x640xf16>) -> tensor<512x640xf16>
  return %y : tensor<512x640xf16>
}
