// RUN: spyre-opt %s --outline-loop-bodies --linalg-generalize-named-ops --decompose-to-device-ops --inline-loop-bodies --canonicalize --cse | filecheck %s

// Sums over tiles of K in tiles of rows: the accumulator begins anew in each tile of rows, in front of the inner loop.
#id = affine_map<(d0, d1) -> (d0, d1)>
// CHECK-LABEL: func.func @product
func.func @product(%a: tensor<4x64x4x64xf16>, %b: tensor<4x64x128xf16>) -> tensor<4x64x128xf16> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %zero = arith.constant 0.0 : f16
  %o = tensor.empty() : tensor<4x64x128xf16>
  %e = tensor.empty() : tensor<64x128xf16>
  // CHECK: scf.for %[[I:.*]] = {{.*}} iter_args(%[[WHOLE:.*]] = %{{.*}}) -> (tensor<4x64x128xf16>)
  %r = scf.for %i = %c0 to %c4 step %c1 iter_args(%whole = %o) -> tensor<4x64x128xf16> {
    // CHECK: %[[ZERO:.*]] = linalg.generic {{.*}} attrs = {sdsc.op = #sdsc.op<"identity", {}>}
    %begin = linalg.fill ins(%zero : f16) outs(%e : tensor<64x128xf16>) -> tensor<64x128xf16>
    // CHECK: %[[SUM:.*]] = scf.for %[[K:.*]] = {{.*}} iter_args(%[[ACC:.*]] = %[[ZERO]]) -> (tensor<64x128xf16>)
    %sum = scf.for %k = %c0 to %c4 step %c1 iter_args(%acc = %begin) -> tensor<64x128xf16> {
      // CHECK: tensor.extract_slice %arg0[%[[I]], 0, %[[K]], 0]
      // CHECK: tensor.extract_slice %arg1[%[[K]], 0, 0]
      %left = tensor.extract_slice %a[%i, 0, %k, 0] [1, 64, 1, 64] [1, 1, 1, 1] : tensor<4x64x4x64xf16> to tensor<64x64xf16>
      %right = tensor.extract_slice %b[%k, 0, 0] [1, 64, 128] [1, 1, 1] : tensor<4x64x128xf16> to tensor<64x128xf16>
      // CHECK: %[[PART:.*]] = linalg.generic {{.*}} attrs = {sdsc.op = #sdsc.op<"batchmatmul", {}>}
      %part = linalg.matmul ins(%left, %right : tensor<64x64xf16>, tensor<64x128xf16>) outs(%begin : tensor<64x128xf16>) -> tensor<64x128xf16>
      // CHECK: linalg.generic {{.*}} ins(%[[ACC]], %[[PART]] : {{.*}} attrs = {sdsc.op = #sdsc.op<"add", {}>}
      %next = linalg.add ins(%acc, %part : tensor<64x128xf16>, tensor<64x128xf16>) outs(%e : tensor<64x128xf16>) -> tensor<64x128xf16>
      scf.yield %next : tensor<64x128xf16>
    }
    // CHECK: tensor.insert_slice %{{.*}} into %[[WHOLE]][%[[I]], 0, 0]
    %w = tensor.insert_slice %sum into %whole[%i, 0, 0] [1, 64, 128] [1, 1, 1] : tensor<64x128xf16> into tensor<4x64x128xf16>
    scf.yield %w : tensor<4x64x128xf16>
  }
  return %r : tensor<4x64x128xf16>
}
