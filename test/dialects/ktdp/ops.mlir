// RUN: spyre-opt %s | spyre-opt | filecheck %s

// Views, tiles, moves and cores that wait survive printing.
// CHECK-LABEL: func.func @kernel(%{{.*}}: index) attributes {grid = [4]} {
// CHECK: %[[C:.*]] = "ktdp.get_compute_tile_id"() : () -> index
// CHECK: "ktdp.construct_memory_view"(%{{.*}}) {{{.*}}memory_space = "global", sizes = array<i64: 4, 64>, strides = array<i64: 64, 1>} : (index) -> memref<4x64xf16>
// CHECK: "ktdp.construct_access_tile"{{.*}} -> !ktdp.access_tile<tensor<1x64xindex>>
// CHECK: "ktdp.load"
// CHECK: "ktdp.inter_tile_produce"
// CHECK: "ktdp.inter_tile_reduce"
// CHECK: "ktdp.store"
func.func @kernel(%a: index) attributes {grid = [4]} {
  %zero = arith.constant 0 : index
  %core = "ktdp.get_compute_tile_id"() : () -> index
  %v = "ktdp.construct_memory_view"(%a) {sizes = array<i64: 4, 64>, strides = array<i64: 64, 1>, memory_space = "global"} : (index) -> memref<4x64xf16>
  %t = "ktdp.construct_access_tile"(%v, %core, %zero) : (memref<4x64xf16>, index, index) -> !ktdp.access_tile<tensor<1x64xindex>>
  %x = "ktdp.load"(%t) : (!ktdp.access_tile<tensor<1x64xindex>>) -> tensor<1x64xf16>
  %f = "ktdp.inter_tile_produce"() ({
  ^bb0(%g: index):
    "ktdp.yield_partial"(%x) : (tensor<1x64xf16>) -> ()
  }) {producers = "(i)[g] : (i - g >= 0)"} : () -> !ktdp.tile_future<tensor<1x64xf16>, "(g) : (g == 0)">
  %s = "ktdp.inter_tile_reduce"(%f, %x) ({
  ^bb0(%l: tensor<1x64xf16>, %r: tensor<1x64xf16>):
    %y = arith.addf %l, %r : tensor<1x64xf16>
    "ktdp.yield_reduced"(%y) : (tensor<1x64xf16>) -> ()
  }) {producers = "(i)[g] : (i - g >= 0)"} : (!ktdp.tile_future<tensor<1x64xf16>, "(g) : (g == 0)">, tensor<1x64xf16>) -> tensor<1x64xf16>
  "ktdp.store"(%s, %t) : (tensor<1x64xf16>, !ktdp.access_tile<tensor<1x64xindex>>) -> ()
  return
}
