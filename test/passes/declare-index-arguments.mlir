// RUN: spyre-opt %s --declare-index-arguments --split-input-file | filecheck %s

// Reads of one element are one argument; a reshape keeps the order of elements.
// CHECK-LABEL: func.func @reads(
// CHECK-DAG: %[[A:.*]] = "sdsc.index_argument"() {array = "pos", element = 0 : i64, sdsc.index_bounds = {lower = 0 : i64, operation = "index_copy", upper = 64 : i64}} : () -> index
// CHECK-DAG: %[[B:.*]] = "sdsc.index_argument"() {array = "arg2", element = 3 : i64
// CHECK-NOT: sdsc.read_index
// CHECK: tensor.insert_slice %{{.*}} into %{{.*}}[%[[A]], 0]
// CHECK: tensor.insert_slice %{{.*}} into %{{.*}}[%[[A]], 0]
// CHECK: tensor.insert_slice %{{.*}} into %{{.*}}[%[[B]], 0]
func.func @reads(%c: tensor<64x128xf16>, %p: tensor<1xi64> {spyre.name = "pos"}, %q: tensor<2x2xi32>, %r: tensor<1x128xf16>) -> tensor<64x128xf16> {
  %i = "sdsc.read_index"(%p) {element = 0 : i64, sdsc.index_bounds = {lower = 0 : i64, upper = 64 : i64, operation = "index_copy"}} : (tensor<1xi64>) -> index
  %j = "sdsc.read_index"(%p) {element = 0 : i64, sdsc.index_bounds = {lower = 0 : i64, upper = 64 : i64, operation = "index_copy"}} : (tensor<1xi64>) -> index
  %f = tensor.collapse_shape %q [[0, 1]] : tensor<2x2xi32> into tensor<4xi32>
  %k = "sdsc.read_index"(%f) {element = 3 : i64, sdsc.index_bounds = {lower = -64 : i64, upper = 64 : i64, operation = "index_put"}} : (tensor<4xi32>) -> index
  %0 = tensor.insert_slice %r into %c[%i, 0] [1, 128] [1, 1] : tensor<1x128xf16> into tensor<64x128xf16>
  %1 = tensor.insert_slice %r into %0[%j, 0] [1, 128] [1, 1] : tensor<1x128xf16> into tensor<64x128xf16>
  %2 = tensor.insert_slice %r into %1[%k, 0] [1, 128] [1, 1] : tensor<1x128xf16> into tensor<64x128xf16>
  return %2 : tensor<64x128xf16>
}
// -----
// An element of a constant is a constant; a negative one counts from the end.
// CHECK-LABEL: func.func @known(
// CHECK: %[[I:.*]] = arith.constant 62 : index
// CHECK: tensor.insert_slice %{{.*}} into %{{.*}}[%[[I]], 0]
func.func @known(%c: tensor<64x128xf16>, %r: tensor<1x128xf16>) -> tensor<64x128xf16> {
  %p = arith.constant dense<[5, -2]> : tensor<2xi64>
  %i = "sdsc.read_index"(%p) {element = 1 : i64, sdsc.index_bounds = {lower = -64 : i64, upper = 64 : i64, operation = "index_put"}} : (tensor<2xi64>) -> index
  %0 = tensor.insert_slice %r into %c[%i, 0] [1, 128] [1, 1] : tensor<1x128xf16> into tensor<64x128xf16>
  return %0 : tensor<64x128xf16>
}
