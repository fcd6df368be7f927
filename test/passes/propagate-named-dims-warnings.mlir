// RUN: spyre-opt %s --split-input-file --verify-diagnostics --attach-hints --linalg-generalize-named-ops --decompose-to-device-ops --canonicalize --propagate-named-dims | filecheck %s
// RUN: spyre-opt %s --split-input-file --attach-hints --linalg-generalize-named-ops --decompose-to-device-ops --canonicalize --propagate-named-dims 2>&1 >/dev/null | filecheck %s --check-prefix=STDERR

// Tools print warnings; the exit status stays 0.
// STDERR: propagate-named-dims-warnings.mlir:17:8: warning: a hint cannot tile a dim without a name: dim 1 of argument 'arg1'

// A name that no operand has: the operations under the hint go on without it. One warning for all.
// CHECK-LABEL: func.func @missing
// CHECK: sdsc.dims = {{\[}}["M"], [], ["K"]], {{.*}}<"batchmatmul", {}>
// CHECK: sdsc.dims = {{\[}}["M"], []], {{.*}}<"exp", {}>
func.func @missing(%x: tensor<64x256xf16> {sdsc.dims = ["M", "K"]}, %y: tensor<256x128xf16>) -> tensor<64x128xf16> attributes {sdsc.dim_sizes = {K = 256 : i64, M = 64 : i64}} {
  %zero = arith.constant 0.0 : f16
  %e = tensor.empty() : tensor<64x128xf16>
  %d = tensor.empty() : tensor<64x128xf16>
  %f = linalg.fill ins(%zero : f16) outs(%e : tensor<64x128xf16>) -> tensor<64x128xf16>
  // expected-warning@below {{a hint cannot tile a dim without a name: dim 1 of argument 'arg1'}}
  %p = linalg.matmul {sdsc.hints = [{id = 3 : i64, tiles = [{dim = "M", count = 8 : i64}]}]} ins(%x, %y : tensor<64x256xf16>, tensor<256x128xf16>) outs(%f : tensor<64x128xf16>) -> tensor<64x128xf16>
  %r = linalg.exp {sdsc.hints = [{id = 3 : i64, tiles = [{dim = "M", count = 8 : i64}]}]} ins(%p : tensor<64x128xf16>) outs(%d : tensor<64x128xf16>) -> tensor<64x128xf16>
  return %r : tensor<64x128xf16>
}

// -----

// Operands that contradict each other: the first one that knows all names is right, also for the result.
// CHECK-LABEL: func.func @contradiction
// CHECK: sdsc.dims = {{\[}}["M"], ["N"]], {{.*}}<"add", {}>
// CHECK: sdsc.dims = {{\[}}["M"], ["N"]], {{.*}}<"exp", {}>
func.func @contradiction(%x: tensor<64x128xf16> {sdsc.dims = ["M", "N"]}, %y: tensor<64x128xf16> {sdsc.dims = ["Q", "N"]}) -> tensor<64x128xf16>
    attributes {sdsc.dim_sizes = {M = 64 : i64, N = 128 : i64, Q = 64 : i64}} {
  %e = tensor.empty() : tensor<64x128xf16>
  // expected-warning@below {{iteration dim 0 is M = 64 for one operand and Q = 64 for another}}
  %p = linalg.add {sdsc.hints = [{id = 3 : i64, tiles = []}]} ins(%x, %y : tensor<64x128xf16>, tensor<64x128xf16>) outs(%e : tensor<64x128xf16>) -> tensor<64x128xf16>
  %r = linalg.exp ins(%p : tensor<64x128xf16>) outs(%e : tensor<64x128xf16>) -> tensor<64x128xf16>
  return %r : tensor<64x128xf16>
}

// -----

// Names that a view or a slice cuts, where a hint tiles them, and where none does.
// CHECK-LABEL: func.func @cut
// CHECK: sdsc.dims = {{\[}}[], [], ["N"]], {{.*}}<"exp", {}>
// CHECK: sdsc.dims = {{\[}}[], ["N"]], {{.*}}<"log", {}>
// CHECK: sdsc.dims = {{\[}}[], ["N"]], {{.*}}<"neg", {}>
func.func @cut(%x: tensor<64x128xf16> {sdsc.dims = ["M", "N"]}) -> (tensor<8x8x128xf16>, tensor<48x128xf16>, tensor<48x128xf16>)
    attributes {sdsc.dim_sizes = {M = 64 : i64, N = 128 : i64}} {
  %e = tensor.empty() : tensor<8x8x128xf16>
  %d = tensor.empty() : tensor<48x128xf16>
  %v = tensor.expand_shape %x [[0, 1], [2]] output_shape [8, 8, 128] : tensor<64x128xf16> into tensor<8x8x128xf16>
  // expected-warning@below {{iteration dim 0 does not begin with all of 'M'; hint 3 does not tile it}}
  %p = linalg.exp {sdsc.hints = [{id = 3 : i64, tiles = [{dim = "M", count = 8 : i64}]}]} ins(%v : tensor<8x8x128xf16>) outs(%e : tensor<8x8x128xf16>) -> tensor<8x8x128xf16>
  %w = tensor.extract_slice %x[0, 0] [48, 128] [1, 1] : tensor<64x128xf16> to tensor<48x128xf16>
  // expected-warning@below {{iteration dim 0 does not begin with all of 'M': a view splits it or selects a part of it; hint 3 does not tile it}}
  %q = linalg.log {sdsc.hints = [{id = 3 : i64, tiles = [{dim = "M", count = 8 : i64}]}]} ins(%w : tensor<48x128xf16>) outs(%d : tensor<48x128xf16>) -> tensor<48x128xf16>
  %r = linalg.negf {sdsc.hints = [{id = 4 : i64, tiles = [{dim = "N", count = 2 : i64}]}]} ins(%w : tensor<48x128xf16>) outs(%d : tensor<48x128xf16>) -> tensor<48x128xf16>
  return %p, %q, %r : tensor<8x8x128xf16>, tensor<48x128xf16>, tensor<48x128xf16>
}

// -----

// Names of an argument that do not fit: it has none.
// CHECK-LABEL: func.func @misfits
// CHECK: sdsc.dims = {{\[}}["M"], ["N"]], {{.*}}<"add", {}>
// CHECK: sdsc.dims = {{\[}}["M"], ["N"]], {{.*}}<"mul", {}>
// CHECK: sdsc.dims = {{\[}}[], []], {{.*}}<"exp", {}>
// expected-warning@below {{argument 'arg1' names the dim 'Q', which is not declared}}
// expected-warning@below {{argument 'arg2' of shape [64, 128] has the dims M = 64, which have another number of elements}}
// expected-warning@below {{argument 'arg3' of shape [64, 128] has the dims T = 3, M = 64, N = 128, which have another number of elements}}
func.func @misfits(%x: tensor<64x128xf16> {sdsc.dims = ["M", "N"]}, %y: tensor<64x128xf16> {sdsc.dims = ["Q", "N"]}, %z: tensor<64x128xf16> {sdsc.dims = ["M"]}, %w: tensor<64x128xf16> {sdsc.dims = ["T", "M", "N"]}) -> (tensor<64x128xf16>, tensor<64x128xf16>)
    attributes {sdsc.dim_sizes = {M = 64 : i64, N = 128 : i64, T = 3 : i64}} {
  %e = tensor.empty() : tensor<64x128xf16>
  %p = linalg.add {sdsc.hints = [{id = 3 : i64, tiles = []}]} ins(%x, %y : tensor<64x128xf16>, tensor<64x128xf16>) outs(%e : tensor<64x128xf16>) -> tensor<64x128xf16>
  %q = linalg.mul {sdsc.hints = [{id = 3 : i64, tiles = []}]} ins(%z, %p : tensor<64x128xf16>, tensor<64x128xf16>) outs(%e : tensor<64x128xf16>) -> tensor<64x128xf16>
  %r = linalg.exp {sdsc.hints = [{id = 3 : i64, tiles = []}]} ins(%w : tensor<64x128xf16>) outs(%e : tensor<64x128xf16>) -> tensor<64x128xf16>
  return %q, %r : tensor<64x128xf16>, tensor<64x128xf16>
}

// -----

// Names that have the elements of an argument but do not fall on its dims.
// CHECK-LABEL: func.func @apart
// expected-warning@below {{argument 'arg0' of shape [64, 96] has the dims A = 96, B = 64, which do not align with its shape}}
func.func @apart(%x: tensor<64x96xf16> {sdsc.dims = ["A", "B"]}) -> tensor<64x96xf16> attributes {sdsc.dim_sizes = {A = 96 : i64, B = 64 : i64}} {
  %e = tensor.empty() : tensor<64x96xf16>
  %r = linalg.exp {sdsc.hints = [{id = 3 : i64, tiles = []}]} ins(%x : tensor<64x96xf16>) outs(%e : tensor<64x96xf16>) -> tensor<64x96xf16>
  return %r : tensor<64x96xf16>
}

// -----

// A dim that is put together of parts is no longer what its parts were.
// CHECK-LABEL: func.func @concat
// CHECK: sdsc.dims = {{\[}}[], ["N"]], {{.*}}<"exp", {}>
func.func @concat(%x: tensor<64x128xf16> {sdsc.dims = ["M", "N"]}, %y: tensor<64x128xf16> {sdsc.dims = ["M", "N"]}) -> tensor<128x128xf16>
    attributes {sdsc.dim_sizes = {M = 64 : i64, N = 128 : i64}} {
  %e = tensor.empty() : tensor<128x128xf16>
  %v = tensor.concat dim(0) %x, %y : (tensor<64x128xf16>, tensor<64x128xf16>) -> tensor<128x128xf16>
  // expected-warning@below {{iteration dim 0 does not begin with all of 'M': its parts are concatenated; hint 3 does not tile it}}
  %r = linalg.exp {sdsc.hints = [{id = 3 : i64, tiles = [{dim = "M", count = 8 : i64}]}]} ins(%v : tensor<128x128xf16>) outs(%e : tensor<128x128xf16>) -> tensor<128x128xf16>
  return %r : tensor<128x128xf16>
}
