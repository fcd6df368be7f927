// RUN: spyre-opt %s --unroll-windows --split-input-file --verify-diagnostics | filecheck %s

// A convolution is a sum of matmuls, one per position of its kernel, of slices of one transposed input.
// CHECK-LABEL: func.func @convolution(
// CHECK-SAME: %[[X:\w+]]: tensor<1x64x8x9xf16>, %[[W:\w+]]: tensor<32x64x1x2xf16>
// CHECK: %[[T:.*]] = linalg.transpose ins(%[[X]] {{.*}} permutation = [2, 3, 0, 1]
// CHECK: %[[ZERO:.*]] = linalg.fill ins(%{{.*}} : f32) outs(%{{.*}} : tensor<8x8x1x32xf32>)
// CHECK: %[[X0:.*]] = tensor.extract_slice %[[T]][0, 0, 0, 0] [8, 8, 1, 64] [1, 1, 1, 1]
// CHECK: %[[W0:.*]] = tensor.extract_slice %[[W]][0, 0, 0, 0] [32, 64, 1, 1] [1, 1, 1, 1] {{.*}} to tensor<32x64xf16>
// CHECK: %[[Y0:.*]] = linalg.generic {{.*}}"parallel", "reduction"]} ins(%[[X0]], %[[W0]] {{.*}} outs(%[[ZERO]]
// CHECK: arith.mulf
// CHECK: arith.addf
// CHECK: %[[X1:.*]] = tensor.extract_slice %[[T]][0, 1, 0, 0] [8, 8, 1, 64] [1, 1, 1, 1]
// CHECK: %[[W1:.*]] = tensor.extract_slice %[[W]][0, 0, 0, 1] [32, 64, 1, 1] [1, 1, 1, 1]
// CHECK: %[[Y1:.*]] = linalg.generic {{.*}} ins(%[[X1]], %[[W1]] {{.*}} outs(%[[Y0]]
// CHECK: %[[R:.*]] = linalg.transpose ins(%[[Y1]] {{.*}} permutation = [2, 3, 0, 1]
// CHECK-NEXT: return %[[R]]
func.func @convolution(%x: tensor<1x64x8x9xf16>, %w: tensor<32x64x1x2xf16>) -> tensor<1x32x8x8xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<1x32x8x8xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<1x32x8x8xf32>) -> tensor<1x32x8x8xf32>
  // expected-remark@below {{unroll: a window of 1 x 2}}
  %0 = linalg.conv_2d_nchw_fchw ins(%x, %w : tensor<1x64x8x9xf16>, tensor<32x64x1x2xf16>) outs(%f : tensor<1x32x8x8xf32>) -> tensor<1x32x8x8xf32>
  return %0 : tensor<1x32x8x8xf32>
}
// -----
// A pad is transposed with what it pads, and goes on to whole steps; dilation moves the slices.
// CHECK-LABEL: func.func @pad(
// CHECK: %[[P:.*]] = tensor.pad %{{.*}} low[1, 0, 0] high[3, 0, 0]
// CHECK: tensor<8x1x64xf16> to tensor<12x1x64xf16>
// CHECK: tensor.extract_slice %[[P]][0, 0, 0] [4, 1, 64] [2, 1, 1]
// CHECK: tensor.extract_slice %[[P]][3, 0, 0] [4, 1, 64] [2, 1, 1]
func.func @pad(%x: tensor<1x64x8xf16>, %w: tensor<32x64x2xf16>) -> tensor<1x32x4xf16> {
  %zero = arith.constant 0.0 : f16
  %e = tensor.empty() : tensor<1x32x4xf16>
  %f = linalg.fill ins(%zero : f16) outs(%e : tensor<1x32x4xf16>) -> tensor<1x32x4xf16>
  %p = tensor.pad %x low[0, 0, 1] high[0, 0, 2] {
  ^bb0(%i: index, %j: index, %k: index):
    tensor.yield %zero : f16
  } : tensor<1x64x8xf16> to tensor<1x64x11xf16>
  // expected-remark@below {{unroll: a window of 2}}
  %2 = linalg.conv_1d_ncw_fcw {strides = dense<2> : tensor<1xi64>, dilations = dense<3> : tensor<1xi64>} ins(%p, %w : tensor<1x64x11xf16>, tensor<32x64x2xf16>) outs(%f : tensor<1x32x4xf16>) -> tensor<1x32x4xf16>
  return %2 : tensor<1x32x4xf16>
}
// -----
// The images of a batch are rows, one dim with those of the first window.
// CHECK-LABEL: func.func @batch(
// CHECK: %[[T:.*]] = linalg.transpose {{.*}} permutation = [2, 0, 3, 1]
// CHECK: %[[S:.*]] = tensor.extract_slice %[[T]][1, 0, 0, 0] [8, 2, 8, 64] [1, 1, 1, 1]
// CHECK-NEXT: %[[C:.*]] = tensor.collapse_shape %[[S]] {{\[\[}}0, 1], [2], [3]] : tensor<8x2x8x64xf16> into tensor<16x8x64xf16>
// CHECK: %[[Y:.*]] = linalg.generic {{.*}}"parallel", "reduction"]} ins(%[[C]],
// CHECK: %[[R:.*]] = linalg.generic {{.*}} ins(%{{.*}}, %[[Y]] : tensor<16x8x32xf16>, tensor<16x8x32xf16>)
// CHECK: %[[E:.*]] = tensor.expand_shape %[[R]] {{\[\[}}0, 1], [2], [3]] output_shape [8, 2, 8, 32]
// CHECK: linalg.transpose ins(%[[E]] {{.*}} permutation = [1, 3, 0, 2]
func.func @batch(%x: tensor<2x64x9x8xf16>, %w: tensor<32x64x2x1xf16>) -> tensor<2x32x8x8xf16> {
  %zero = arith.constant 0.0 : f16
  %e = tensor.empty() : tensor<2x32x8x8xf16>
  %f = linalg.fill ins(%zero : f16) outs(%e : tensor<2x32x8x8xf16>) -> tensor<2x32x8x8xf16>
  // expected-remark@below {{unroll: a window of 2 x 1}}
  %0 = linalg.conv_2d_nchw_fchw ins(%x, %w : tensor<2x64x9x8xf16>, tensor<32x64x2x1xf16>) outs(%f : tensor<2x32x8x8xf16>) -> tensor<2x32x8x8xf16>
  return %0 : tensor<2x32x8x8xf16>
}
// -----
// Rows that do not follow each other are copied before they are one dim.
// CHECK-LABEL: func.func @batch_in_steps(
// CHECK: %[[S:.*]] = tensor.extract_slice %{{.*}}[0, 0, 0, 0] [4, 2, 4, 64] [2, 1, 2, 1]
// CHECK-NEXT: %[[C:.*]] = "sdsc.clone"(%[[S]])
// CHECK-NEXT: tensor.collapse_shape %[[C]] {{\[\[}}0, 1], [2], [3]]
func.func @batch_in_steps(%x: tensor<2x64x8x8xf16>, %w: tensor<32x64x1x1xf16>) -> tensor<2x32x4x4xf16> {
  %zero = arith.constant 0.0 : f16
  %e = tensor.empty() : tensor<2x32x4x4xf16>
  %f = linalg.fill ins(%zero : f16) outs(%e : tensor<2x32x4x4xf16>) -> tensor<2x32x4x4xf16>
  // expected-remark@below {{unroll: a window of 1 x 1}}
  %0 = linalg.conv_2d_nchw_fchw {strides = dense<2> : tensor<2xi64>} ins(%x, %w : tensor<2x64x8x8xf16>, tensor<32x64x1x1xf16>) outs(%f : tensor<2x32x4x4xf16>) -> tensor<2x32x4x4xf16>
  return %0 : tensor<2x32x4x4xf16>
}
// -----
// A depthwise convolution has a product per tap, its images stay apart.
// CHECK-LABEL: func.func @depthwise(
// CHECK: %[[W0:.*]] = tensor.extract_slice %{{.*}}[0, 0] [64, 1] [1, 1] : tensor<64x2xf16> to tensor<64xf16>
// CHECK: %[[Y0:.*]] = linalg.generic {{.*}}iterator_types = ["parallel", "parallel", "parallel"]} ins(%{{.*}}, %[[W0]] : tensor<8x2x64xf16>, tensor<64xf16>)
// CHECK-NEXT: ^bb0(%[[A:\w+]]: f16, %[[B:\w+]]: f16, %{{.*}}: f16):
// CHECK-NEXT: %[[P:.*]] = arith.mulf %[[A]], %[[B]]
// CHECK-NEXT: linalg.yield %[[P]]
// CHECK: linalg.generic {{.*}} outs(%[[Y0]] :
// CHECK: arith.mulf
// CHECK-NEXT: arith.addf
func.func @depthwise(%x: tensor<2x64x9xf16>, %w: tensor<64x2xf16>) -> tensor<2x64x8xf16> {
  %zero = arith.constant 0.0 : f16
  %e = tensor.empty() : tensor<2x64x8xf16>
  %f = linalg.fill ins(%zero : f16) outs(%e : tensor<2x64x8xf16>) -> tensor<2x64x8xf16>
  // expected-remark@below {{unroll: a window of 2}}
  %0 = linalg.depthwise_conv_1d_ncw_cw {strides = dense<1> : tensor<1xi64>, dilations = dense<1> : tensor<1xi64>} ins(%x, %w : tensor<2x64x9xf16>, tensor<64x2xf16>) outs(%f : tensor<2x64x8xf16>) -> tensor<2x64x8xf16>
  return %0 : tensor<2x64x8xf16>
}
// -----
// A pooling combines slices; the operand that says how large its window is has no reader any more.
// CHECK-LABEL: func.func @pooling(
// CHECK: %[[Y0:.*]] = linalg.generic {{.*}} ins(%{{.*}} : tensor<4x4x1x64xf16>)
// CHECK-NEXT: ^bb0(%[[A:\w+]]: f16, %{{.*}}: f16):
// CHECK-NEXT: linalg.yield %[[A]]
// CHECK: linalg.generic {{.*}} outs(%[[Y0]] :
// CHECK: arith.maximumf
func.func @pooling(%x: tensor<1x64x8x8xf16>) -> tensor<1x64x4x4xf16> {
  %lowest = arith.constant 0xFC00 : f16
  %e = tensor.empty() : tensor<1x64x4x4xf16>
  %k = tensor.empty() : tensor<2x2xf16>
  %f = linalg.fill ins(%lowest : f16) outs(%e : tensor<1x64x4x4xf16>) -> tensor<1x64x4x4xf16>
  // expected-remark@below {{unroll: a window of 2 x 2}}
  %0 = linalg.pooling_nchw_max {strides = dense<2> : tensor<2xi64>} ins(%x, %k : tensor<1x64x8x8xf16>, tensor<2x2xf16>) outs(%f : tensor<1x64x4x4xf16>) -> tensor<1x64x4x4xf16>
  return %0 : tensor<1x64x4x4xf16>
}
// -----
// What the destination holds, a bias, is added at the end.
// CHECK-LABEL: func.func @bias(
// CHECK-SAME: %[[B:\w+]]: tensor<1x32x8xf16>)
// CHECK: %[[R:.*]] = linalg.transpose
// CHECK: %[[S:.*]] = linalg.generic {{.*}} ins(%{{.*}}, %[[B]] : tensor<1x32x8xf16>, tensor<1x32x8xf16>)
// CHECK: return %[[S]]
func.func @bias(%x: tensor<1x64x9xf16>, %w: tensor<32x64x2xf16>, %b: tensor<1x32x8xf16>) -> tensor<1x32x8xf16> {
  // expected-remark@below {{unroll: a window of 2}}
  %0 = linalg.conv_1d_ncw_fcw ins(%x, %w : tensor<1x64x9xf16>, tensor<32x64x2xf16>) outs(%b : tensor<1x32x8xf16>) -> tensor<1x32x8xf16>
  return %0 : tensor<1x32x8xf16>
}
// -----
// Any structured op with windows is meant, whatever it is called.
// CHECK-LABEL: func.func @generic(
// CHECK: tensor.extract_slice %{{.*}}[0] [64] [1] : tensor<66xf16> to tensor<64xf16>
// CHECK: tensor.extract_slice %{{.*}}[1] [64] [1]
// CHECK: tensor.extract_slice %{{.*}}[2] [64] [1]
// CHECK-NOT: d0 + d1
func.func @generic(%x: tensor<66xf16>, %w: tensor<3xf16>) -> tensor<64xf16> {
  %one = arith.constant 1.0 : f16
  %e = tensor.empty() : tensor<64xf16>
  %f = linalg.fill ins(%one : f16) outs(%e : tensor<64xf16>) -> tensor<64xf16>
  // expected-remark@below {{unroll: a window of 3}}
  %0 = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0 + d1)>, affine_map<(d0, d1) -> (d1)>, affine_map<(d0, d1) -> (d0)>], iterator_types = ["parallel", "reduction"]}
      ins(%x, %w : tensor<66xf16>, tensor<3xf16>) outs(%f : tensor<64xf16>) {
  ^bb0(%a: f16, %k: f16, %o: f16):
    %s = arith.addf %a, %k : f16
    %r = arith.mulf %s, %o : f16
    linalg.yield %r : f16
  } -> tensor<64xf16>
  return %0 : tensor<64xf16>
}
// -----
// A matmul has no window.
// CHECK-LABEL: func.func @matmul(
// CHECK: linalg.matmul
func.func @matmul(%x: tensor<64x64xf16>) -> tensor<64x64xf16> {
  %0 = linalg.matmul ins(%x, %x : tensor<64x64xf16>, tensor<64x64xf16>) outs(%x : tensor<64x64xf16>) -> tensor<64x64xf16>
  return %0 : tensor<64x64xf16>
}
// -----
// Windows of integers: their maxima are no device operation.
func.func @integers(%x: tensor<1x8x8x1xi32>) -> tensor<1x4x4x1xi32> {
  %e = tensor.empty() : tensor<1x4x4x1xi32>
  %k = tensor.empty() : tensor<2x2xi32>
  // expected-error@below {{the windows of this 'linalg.pooling_nhwc_max' have no device operation; sums, products, minima and maxima have}}
  %0 = linalg.pooling_nhwc_max {strides = dense<2> : tensor<2xi64>} ins(%x, %k : tensor<1x8x8x1xi32>, tensor<2x2xi32>) outs(%e : tensor<1x4x4x1xi32>) -> tensor<1x4x4x1xi32>
  return %0 : tensor<1x4x4x1xi32>
}
// -----
// Windows of booleans.
func.func @booleans(%x: tensor<66xi1>) -> tensor<64xi1> {
  %e = tensor.empty() : tensor<64xi1>
  %k = tensor.empty() : tensor<3xi1>
  // expected-error@below {{the windows of this 'linalg.generic' have no device operation; windows of floating-point numbers have}}
  %0 = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0 + d1)>, affine_map<(d0, d1) -> (d1)>, affine_map<(d0, d1) -> (d0)>], iterator_types = ["parallel", "reduction"]}
      ins(%x, %k : tensor<66xi1>, tensor<3xi1>) outs(%e : tensor<64xi1>) {
  ^bb0(%a: i1, %b: i1, %o: i1):
    %r = arith.ori %a, %o : i1
    linalg.yield %r : i1
  } -> tensor<64xi1>
  return %0 : tensor<64xi1>
}
// -----
// What uses its accumulator twice is a recurrence over the positions, which have no order here.
func.func @recurrence(%x: tensor<66xf16>, %f: tensor<64xf16>) -> tensor<64xf16> {
  %k = tensor.empty() : tensor<3xf16>
  // expected-error@below {{the windows of this 'linalg.generic' have no device operation; sums, products, minima and maxima have}}
  %0 = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0 + d1)>, affine_map<(d0, d1) -> (d1)>, affine_map<(d0, d1) -> (d0)>], iterator_types = ["parallel", "reduction"]}
      ins(%x, %k : tensor<66xf16>, tensor<3xf16>) outs(%f : tensor<64xf16>) {
  ^bb0(%a: f16, %b: f16, %o: f16):
    %m = arith.mulf %a, %o : f16
    %r = arith.addf %o, %m : f16
    linalg.yield %r : f16
  } -> tensor<64xf16>
  return %0 : tensor<64xf16>
}
// -----
// Without sizes there is nothing to unroll; a later pass says so.
// CHECK-LABEL: func.func @dynamic(
// CHECK: linalg.pooling_nchw_max
func.func @dynamic(%x: tensor<1x64x?x8xf16>, %f: tensor<1x64x?x4xf16>) -> tensor<1x64x?x4xf16> {
  %k = tensor.empty() : tensor<2x2xf16>
  %0 = linalg.pooling_nchw_max {strides = dense<2> : tensor<2xi64>} ins(%x, %k : tensor<1x64x?x8xf16>, tensor<2x2xf16>) outs(%f : tensor<1x64x?x4xf16>) -> tensor<1x64x?x4xf16>
  return %0 : tensor<1x64x?x4xf16>
}
// -----
// Windows side by side over an argument are one matmul of patches; rows of the image and of patches come apart.
// CHECK-LABEL: func.func @patches(
// CHECK-SAME: %[[X:\w+]]: tensor<1x3x32x48xf16>, %[[W:\w+]]: tensor<64x3x16x16xf16>
// CHECK: %[[E:.*]] = tensor.expand_shape %[[X]] {{\[\[}}0], [1], [2, 3], [4, 5]] output_shape [1, 3, 2, 16, 3, 16]
// CHECK: %[[T:.*]] = linalg.transpose ins(%[[E]] {{.*}} permutation = [0, 2, 4, 1, 3, 5]
// CHECK: %[[P:.*]] = tensor.collapse_shape %[[T]] {{\[\[}}0], [1], [2], [3, 4, 5]]
// CHECK: %[[K:.*]] = tensor.collapse_shape %[[W]] {{\[\[}}0], [1, 2, 3]]
// CHECK: %[[Y:.*]] = linalg.generic {{.*}}"parallel", "reduction"]} ins(%[[P]], %[[K]] : tensor<1x2x3x768xf16>, tensor<64x768xf16>)
// CHECK: linalg.transpose ins(%{{.*}} : tensor<1x2x3x64xf32>) {{.*}} permutation = [0, 3, 1, 2]
func.func @patches(%x: tensor<1x3x32x48xf16>, %w: tensor<64x3x16x16xf16>) -> tensor<1x64x2x3xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<1x64x2x3xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<1x64x2x3xf32>) -> tensor<1x64x2x3xf32>
  // expected-remark@below {{unroll: a window of 16 x 16; the positions are adjacent, so one matmul computes all of them}}
  %0 = linalg.conv_2d_nchw_fchw {strides = dense<16> : tensor<2xi64>} ins(%x, %w : tensor<1x3x32x48xf16>, tensor<64x3x16x16xf16>) outs(%f : tensor<1x64x2x3xf32>) -> tensor<1x64x2x3xf32>
  return %0 : tensor<1x64x2x3xf32>
}
// -----
// Patches of 14 x 14 lie across sticks.
// CHECK-LABEL: func.func @beside_sticks(
// CHECK-NOT: tensor.expand_shape
// CHECK-COUNT-196: linalg.generic
func.func @beside_sticks(%x: tensor<1x3x196x196xf16>, %w: tensor<64x3x14x14xf16>) -> tensor<1x64x14x14xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<1x64x14x14xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<1x64x14x14xf32>) -> tensor<1x64x14x14xf32>
  // expected-remark@below {{unroll: a window of 14 x 14}}
  %0 = linalg.conv_2d_nchw_fchw {strides = dense<14> : tensor<2xi64>} ins(%x, %w : tensor<1x3x196x196xf16>, tensor<64x3x14x14xf16>) outs(%f : tensor<1x64x14x14xf32>) -> tensor<1x64x14x14xf32>
  return %0 : tensor<1x64x14x14xf32>
}
// -----
// Where taps read a large image, it is cut into bands: here 7 of 8 rows, each with the last row of the band before, the
// first one of the band after, and zeros around. A tap is one slice of rows and columns together, of all bands alike.
// CHECK-LABEL: func.func @bands(
// CHECK-SAME: %[[X:\w+]]: tensor<1x64x56x56xf16>
// CHECK: %[[T:.*]] = linalg.transpose ins(%[[X]] {{.*}} permutation = [0, 2, 3, 1]
// CHECK: %[[ROWS:.*]] = tensor.collapse_shape %[[T]] {{\[\[}}0, 1], [2], [3]] : {{.*}} into tensor<56x56x64xf16>
// CHECK: %[[OWN:.*]] = tensor.expand_shape %[[ROWS]] {{.*}} into tensor<7x8x56x64xf16>
// CHECK: %[[P:.*]] = tensor.pad %[[OWN]] low[0, 1, 1, 0] high[0, 2, 1, 0]
// CHECK: tensor<7x8x56x64xf16> to tensor<7x11x58x64xf16>
// CHECK: %[[LAST:.*]] = tensor.extract_slice %[[OWN]][0, 7, 0, 0] [7, 1, 56, 64] [1, 1, 1, 1]
// CHECK: %[[END:.*]] = linalg.fill {{.*}} tensor<1x1x56x64xf16>
// CHECK: %[[A:.*]] = tensor.concat dim(0) %[[END]], %[[LAST]] : {{.*}} -> tensor<8x1x56x64xf16>
// CHECK: %[[ABOVE:.*]] = tensor.extract_slice %[[A]][0, 0, 0, 0] [7, 1, 56, 64] [1, 1, 1, 1]
// CHECK: %[[P1:.*]] = tensor.insert_slice %[[ABOVE]] into %[[P]][0, 0, 1, 0] [7, 1, 56, 64] [1, 1, 1, 1]
// CHECK: %[[FIRST:.*]] = tensor.extract_slice %[[OWN]][0, 0, 0, 0] [7, 1, 56, 64] [1, 1, 1, 1]
// CHECK: %[[B:.*]] = tensor.concat dim(0) %[[FIRST]], %{{.*}} -> tensor<8x1x56x64xf16>
// CHECK: %[[BELOW:.*]] = tensor.extract_slice %[[B]][1, 0, 0, 0] [7, 1, 56, 64] [1, 1, 1, 1]
// CHECK: %[[P2:.*]] = tensor.insert_slice %[[BELOW]] into %[[P1]][0, 9, 1, 0] [7, 1, 56, 64] [1, 1, 1, 1]
// CHECK: %[[BANDS:.*]] = tensor.collapse_shape %[[P2]] {{\[\[}}0], [1, 2], [3]] : {{.*}} into tensor<7x638x64xf16>
// CHECK: tensor.extract_slice %[[BANDS]][0, 0, 0] [7, 464, 64] [1, 1, 1]
// CHECK: tensor.extract_slice %[[BANDS]][0, 1, 0] [7, 464, 64] [1, 1, 1]
// CHECK: tensor.extract_slice %[[BANDS]][0, 2, 0] [7, 464, 64] [1, 1, 1]
// CHECK: tensor.extract_slice %[[BANDS]][0, 58, 0] [7, 464, 64] [1, 1, 1]
// CHECK: tensor.extract_slice %[[BANDS]][0, 118, 0] [7, 464, 64] [1, 1, 1]
// CHECK: %[[Y:.*]] = tensor.expand_shape %{{.*}} output_shape [7, 8, 58, 64]
// CHECK: %[[YS:.*]] = tensor.extract_slice %[[Y]][0, 0, 0, 0] [7, 8, 56, 64] [1, 1, 1, 1]
// CHECK: tensor.collapse_shape %[[YS]] {{\[\[}}0, 1], [2], [3]] : {{.*}} into tensor<56x56x64xf16>
func.func @bands(%x: tensor<1x64x56x56xf16>, %w: tensor<64x64x3x3xf16>) -> tensor<1x64x56x56xf16> {
  %zero = arith.constant 0.0 : f16
  %e = tensor.empty() : tensor<1x64x56x56xf16>
  %f = linalg.fill ins(%zero : f16) outs(%e : tensor<1x64x56x56xf16>) -> tensor<1x64x56x56xf16>
  %p = tensor.pad %x low[0, 0, 1, 1] high[0, 0, 1, 1] {
  ^bb0(%i: index, %j: index, %k: index, %l: index):
    tensor.yield %zero : f16
  } : tensor<1x64x56x56xf16> to tensor<1x64x58x58xf16>
  // expected-remark@below {{unroll: a window of 3 x 3; each image in 7 bands of 8 rows, with halos}}
  %0 = linalg.conv_2d_nchw_fchw ins(%p, %w : tensor<1x64x58x58xf16>, tensor<64x64x3x3xf16>) outs(%f : tensor<1x64x56x56xf16>) -> tensor<1x64x56x56xf16>
  return %0 : tensor<1x64x56x56xf16>
}
// -----
// With more positions of the kernel than of the result, as a gradient of a weight has, there is a matmul per position of the result.
// CHECK-LABEL: func.func @positions(
// CHECK: %[[W:.*]] = tensor.collapse_shape %{{.*}} : tensor<32x8x16x1xf16> into tensor<32x128xf16>
// CHECK: %[[P0:.*]] = tensor.extract_slice %{{.*}}[0, 0, 0, 0] [8, 16, 1, 64] [1, 1, 1, 1]
// CHECK: %[[C0:.*]] = "sdsc.clone"(%[[P0]])
// CHECK: %[[X0:.*]] = tensor.collapse_shape %[[C0]] {{.*}} into tensor<128x64xf16>
// CHECK: linalg.generic {{.*}}"reduction"]} ins(%[[X0]], %[[W]]
// CHECK: tensor.extract_slice %{{.*}}[0, 1, 0, 0] [8, 16, 1, 64] [1, 1, 1, 1]
// CHECK: %[[Y:.*]] = tensor.concat dim(0)
// CHECK: tensor.expand_shape %[[Y]] {{.*}} output_shape [1, 2, 32, 64]
func.func @positions(%x: tensor<64x1x8x17xf16>, %w: tensor<32x1x8x16xf16>) -> tensor<64x32x1x2xf16> {
  %zero = arith.constant 0.0 : f16
  %e = tensor.empty() : tensor<64x32x1x2xf16>
  %f = linalg.fill ins(%zero : f16) outs(%e : tensor<64x32x1x2xf16>) -> tensor<64x32x1x2xf16>
  // expected-remark@below {{unroll: a window of 8 x 16; the result has fewer positions: a matmul for each of them}}
  %0 = linalg.conv_2d_nchw_fchw ins(%x, %w : tensor<64x1x8x17xf16>, tensor<32x1x8x16xf16>) outs(%f : tensor<64x32x1x2xf16>) -> tensor<64x32x1x2xf16>
  return %0 : tensor<64x32x1x2xf16>
}
// -----
// Windows that overlap are reduced dim by dim, the last first: each dim has a slice per position of its own.
// CHECK-LABEL: func.func @overlapping(
// CHECK: %[[T:.*]] = linalg.transpose {{.*}} permutation = [2, 3, 0, 1]
// CHECK: %[[A:.*]] = tensor.extract_slice %[[T]][0, 0, 0, 0] [9, 6, 1, 64] [1, 1, 1, 1]
// CHECK: %[[R0:.*]] = linalg.generic {{.*}} ins(%[[A]] : tensor<9x6x1x64xf16>)
// CHECK: %[[B:.*]] = tensor.extract_slice %[[T]][0, 1, 0, 0] [9, 6, 1, 64] [1, 1, 1, 1]
// CHECK: %[[R1:.*]] = linalg.generic {{.*}} ins(%[[B]] : tensor<9x6x1x64xf16>) outs(%[[R0]]
// CHECK: arith.maximumf
// CHECK: tensor.extract_slice %[[T]][0, 2, 0, 0] [9, 6, 1, 64] [1, 1, 1, 1]
// CHECK: %[[R2:.*]] = linalg.generic {{.*}} outs(%[[R1]]
// CHECK: tensor.extract_slice %[[R2]][0, 0, 0, 0] [3, 6, 1, 64] [2, 1, 1, 1]
// CHECK: tensor.extract_slice %[[R2]][1, 0, 0, 0] [3, 6, 1, 64] [2, 1, 1, 1]
// CHECK: tensor.extract_slice %[[R2]][2, 0, 0, 0] [3, 6, 1, 64] [2, 1, 1, 1]
// CHECK: tensor.extract_slice %[[R2]][3, 0, 0, 0] [3, 6, 1, 64] [2, 1, 1, 1]
// CHECK: tensor.extract_slice %[[R2]][4, 0, 0, 0] [3, 6, 1, 64] [2, 1, 1, 1]
// CHECK-NOT: tensor.extract_slice
// CHECK: return
func.func @overlapping(%x: tensor<1x64x9x8xf16>) -> tensor<1x64x3x6xf16> {
  %lowest = arith.constant 0xFC00 : f16
  %e = tensor.empty() : tensor<1x64x3x6xf16>
  %k = tensor.empty() : tensor<5x3xf16>
  %f = linalg.fill ins(%lowest : f16) outs(%e : tensor<1x64x3x6xf16>) -> tensor<1x64x3x6xf16>
  // expected-remark@below {{unroll: a window of 5 x 3; its dims are reduced one by one}}
  %0 = linalg.pooling_nchw_max {strides = dense<[2, 1]> : tensor<2xi64>} ins(%x, %k : tensor<1x64x9x8xf16>, tensor<5x3xf16>) outs(%f : tensor<1x64x3x6xf16>) -> tensor<1x64x3x6xf16>
  return %0 : tensor<1x64x3x6xf16>
}
// -----
// What would be thousands of operations is refused.
func.func @thousands(%x: tensor<1x64x48x48xf16>, %w: tensor<64x24x24xf16>) -> tensor<1x64x25x25xf16> {
  %zero = arith.constant 0.0 : f16
  %e = tensor.empty() : tensor<1x64x25x25xf16>
  %f = linalg.fill ins(%zero : f16) outs(%e : tensor<1x64x25x25xf16>) -> tensor<1x64x25x25xf16>
  // expected-error@below {{a window of 576 positions needs an operation for each; at most 512 are supported}}
  %0 = linalg.depthwise_conv_2d_nchw_chw ins(%x, %w : tensor<1x64x48x48xf16>, tensor<64x24x24xf16>) outs(%f : tensor<1x64x25x25xf16>) -> tensor<1x64x25x25xf16>
  return %0 : tensor<1x64x25x25xf16>
}
