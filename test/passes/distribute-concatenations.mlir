// RUN: spyre-opt %s --distribute-concatenations=compare=false --canonicalize --cse --split-input-file | filecheck %s

#id = affine_map<(d0, d1) -> (d0, d1)>
#rows = affine_map<(d0, d1) -> (d0)>


// The sum of the second part starts from the sum of the first part.
// CHECK-LABEL: func.func @reduced
// CHECK-SAME: %[[A:.*]]: tensor<8x64xf16>, %[[B:.*]]: tensor<8x32xf16>
// CHECK-NOT: tensor.concat
// CHECK: %[[EA:.*]] = linalg.generic {{.*}} ins(%[[A]] : tensor<8x64xf16>)
// CHECK: %[[EB:.*]] = linalg.generic {{.*}} ins(%[[B]] : tensor<8x32xf16>)
// CHECK: %[[SA:.*]] = linalg.generic {{.*}} ins(%[[EA]] : tensor<8x64xf16>) outs(%{{.*}} : tensor<8xf32>)
// CHECK: %[[SB:.*]] = linalg.generic {{.*}} ins(%[[EB]] : tensor<8x32xf16>) outs(%[[SA]] : tensor<8xf32>)
// CHECK: return %[[SB]]
func.func @reduced(%a: tensor<8x64xf16>, %b: tensor<8x32xf16>) -> tensor<8xf32> {
  %zero = arith.constant 0.0 : f32
  %c = tensor.concat dim(1) %a, %b : (tensor<8x64xf16>, tensor<8x32xf16>) -> tensor<8x96xf16>
  %e0 = tensor.empty() : tensor<8x96xf16>
  %e = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%c : tensor<8x96xf16>) outs(%e0 : tensor<8x96xf16>) {
  ^bb0(%i: f16, %o: f16):
    %x = math.exp %i : f16
    linalg.yield %x : f16
  } -> tensor<8x96xf16>
  %s0 = tensor.empty() : tensor<8xf32>
  %init = linalg.fill ins(%zero : f32) outs(%s0 : tensor<8xf32>) -> tensor<8xf32>
  %s = linalg.generic {indexing_maps = [#id, #rows], iterator_types = ["parallel", "reduction"]}
      ins(%e : tensor<8x96xf16>) outs(%init : tensor<8xf32>) {
  ^bb0(%i: f16, %o: f32):
    %x = arith.extf %i : f16 to f32
    %y = arith.addf %x, %o : f32
    linalg.yield %y : f32
  } -> tensor<8xf32>
  return %s : tensor<8xf32>
}

// -----

#lhs = affine_map<(d0, d1, d2) -> (d0, d2)>
#rhs = affine_map<(d0, d1, d2) -> (d2, d1)>
#out = affine_map<(d0, d1, d2) -> (d0, d1)>

// A product of the parts with the rows of a weight.
// CHECK-LABEL: func.func @product
// CHECK-SAME: %[[A:.*]]: tensor<8x64xf16>, %[[B:.*]]: tensor<8x32xf16>, %[[W:.*]]: tensor<96x16xf16>
// CHECK-NOT: tensor.concat
// CHECK: %[[WA:.*]] = tensor.extract_slice %[[W]][0, 0] [64, 16]
// CHECK: %[[PA:.*]] = linalg.generic {{.*}} ins(%[[A]], %[[WA]] :
// CHECK: %[[WB:.*]] = tensor.extract_slice %[[W]][64, 0] [32, 16]
// CHECK: linalg.generic {{.*}} ins(%[[B]], %[[WB]] : {{.*}}outs(%[[PA]] :
func.func @product(%a: tensor<8x64xf16>, %b: tensor<8x32xf16>, %w: tensor<96x16xf16>) -> tensor<8x16xf32> {
  %zero = arith.constant 0.0 : f32
  %c = tensor.concat dim(1) %a, %b : (tensor<8x64xf16>, tensor<8x32xf16>) -> tensor<8x96xf16>
  %s0 = tensor.empty() : tensor<8x16xf32>
  %init = linalg.fill ins(%zero : f32) outs(%s0 : tensor<8x16xf32>) -> tensor<8x16xf32>
  %p = linalg.generic {indexing_maps = [#lhs, #rhs, #out], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%c, %w : tensor<8x96xf16>, tensor<96x16xf16>) outs(%init : tensor<8x16xf32>) {
  ^bb0(%i: f16, %j: f16, %o: f32):
    %x = arith.extf %i : f16 to f32
    %y = arith.extf %j : f16 to f32
    %m = arith.mulf %x, %y : f32
    %r = arith.addf %m, %o : f32
    linalg.yield %r : f32
  } -> tensor<8x16xf32>
  return %p : tensor<8x16xf32>
}

// -----

// Slices of one part, of two parts, and a concatenation along the same dim.
// CHECK-LABEL: func.func @slices
// CHECK-SAME: %[[A:.*]]: tensor<8x64xf16>, %[[B:.*]]: tensor<8x32xf16>
// CHECK-DAG: tensor.extract_slice %[[B]][0, 6] [8, 10]
// CHECK-DAG: tensor.concat dim(1) %[[A]], %[[B]], %[[A]]
func.func @slices(%a: tensor<8x64xf16>, %b: tensor<8x32xf16>) -> (tensor<8x10xf16>, tensor<8x160xf16>) {
  %c = tensor.concat dim(1) %a, %b : (tensor<8x64xf16>, tensor<8x32xf16>) -> tensor<8x96xf16>
  %d = tensor.concat dim(1) %c, %a : (tensor<8x96xf16>, tensor<8x64xf16>) -> tensor<8x160xf16>
  %s = tensor.extract_slice %c[0, 70] [8, 10] [1, 1] : tensor<8x96xf16> to tensor<8x10xf16>
  return %s, %d : tensor<8x10xf16>, tensor<8x160xf16>
}

// -----

// Another operation reads the whole concatenation.
// CHECK-LABEL: func.func @returned
// CHECK: %[[C:.*]] = tensor.concat
// CHECK: tensor.extract_slice %[[C]]
func.func @returned(%a: tensor<8x64xf16>, %b: tensor<8x32xf16>) -> (tensor<8x10xf16>, tensor<8x96xf16>) {
  %c = tensor.concat dim(1) %a, %b : (tensor<8x64xf16>, tensor<8x32xf16>) -> tensor<8x96xf16>
  %s = tensor.extract_slice %c[0, 70] [8, 10] [1, 1] : tensor<8x96xf16> to tensor<8x10xf16>
  return %s, %c : tensor<8x10xf16>, tensor<8x96xf16>
}
