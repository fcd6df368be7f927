// RUN: spyre-opt %s --verify-diagnostics --split-input-file

// There are two kinds of memory.
func.func @memory(%a: index) {
  // expected-error@below {{the memory_space of a view is 'global' or 'ct_local'}}
  %v = "ktdp.construct_memory_view"(%a) {sizes = array<i64: 4>, strides = array<i64: 1>, memory_space = "shared"} : (index) -> memref<4xf16>
  return
}
// -----
// Each dim has a stride.
func.func @strides(%a: index) {
  // expected-error@below {{a memory view has a size and a stride for each dim}}
  %v = "ktdp.construct_memory_view"(%a) {sizes = array<i64: 4, 64>, strides = array<i64: 64>, memory_space = "global"} : (index) -> memref<4x64xf16>
  return
}
// -----
// The type repeats the sizes.
func.func @sizes(%a: index) {
  // expected-error@below {{the sizes of a memory view equal the shape of its type}}
  %v = "ktdp.construct_memory_view"(%a) {sizes = array<i64: 4>, strides = array<i64: 1>, memory_space = "global"} : (index) -> memref<8xf16>
  return
}
// -----
// Each dim has a subscript.
func.func @subscripts(%v: memref<4x64xf16>, %i: index) {
  // expected-error@below {{an access tile has a subscript and an extent for each dim of its view}}
  %t = "ktdp.construct_access_tile"(%v, %i) : (memref<4x64xf16>, index) -> !ktdp.access_tile<tensor<1x64xindex>>
  return
}
// -----
// A tile is a part of its view.
func.func @extents(%v: memref<4x64xf16>, %i: index) {
  // expected-error@below {{an access tile is no larger than its view}}
  %t = "ktdp.construct_access_tile"(%v, %i, %i) : (memref<4x64xf16>, index, index) -> !ktdp.access_tile<tensor<8x64xindex>>
  return
}
// -----
// What is loaded has the shape of the tile.
func.func @load(%t: !ktdp.access_tile<tensor<1x64xindex>>) {
  // expected-error@below {{a tensor that is moved has the shape of its access tile}}
  %x = "ktdp.load"(%t) : (!ktdp.access_tile<tensor<1x64xindex>>) -> tensor<64xf16>
  return
}
