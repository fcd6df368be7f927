// RUN: spyre-opt %s --split-input-file --verify-diagnostics --attach-hints --linalg-generalize-named-ops --decompose-to-device-ops --canonicalize --propagate-named-dims | filecheck %s

// Names are those of the storage: a view splits the one dim of %x into M and K, and merges the result into M x N.
// CHECK-LABEL: func.func @split
// CHECK: sdsc.dims = {{\[}}["M"], ["N"], ["K"]], {{.*}}<"batchmatmul", {}>
// CHECK: sdsc.dims = {{\[}}["M", "N"]], {{.*}}<"exp", {}>
func.func @split(%x: tensor<16384xf16> {sdsc.dims = ["M", "K"]}, %y: tensor<256x128xf16> {sdsc.dims = ["K", "N"]}) -> tensor<8192xf16>
    attributes {sdsc.dim_sizes = {K = 256 : i64, M = 64 : i64, N = 128 : i64}} {
  %zero = arith.constant 0.0 : f16
  %e = tensor.empty() : tensor<64x128xf16>
  %d = tensor.empty() : tensor<8192xf16>
  %f = linalg.fill ins(%zero : f16) outs(%e : tensor<64x128xf16>) -> tensor<64x128xf16>
  %v = tensor.expand_shape %x [[0, 1]] output_shape [64, 256] : tensor<16384xf16> into tensor<64x256xf16>
  %p = linalg.matmul {sdsc.hints = [{id = 3 : i64, tiles = [{dim = "M", count = 8 : i64}, {dim = "K", count = 4 : i64}]}]}
      ins(%v, %y : tensor<64x256xf16>, tensor<256x128xf16>) outs(%f : tensor<64x128xf16>) -> tensor<64x128xf16>
  %w = tensor.collapse_shape %p [[0, 1]] : tensor<64x128xf16> into tensor<8192xf16>
  %r = linalg.exp ins(%w : tensor<8192xf16>) outs(%d : tensor<8192xf16>) -> tensor<8192xf16>
  return %r : tensor<8192xf16>
}

// -----

// The flattened reduction: one iteration dim is C and D, another A and B.
// CHECK-LABEL: func.func @flattened
// CHECK: sdsc.dims = {{\[}}["A", "B"], ["E"], ["C", "D"]], {{.*}}<"batchmatmul", {}>
func.func @flattened(%x: tensor<2x32x4x64xf16> {sdsc.dims = ["A", "B", "C", "D"]}, %y: tensor<4x64x128xf16> {sdsc.dims = ["C", "D", "E"]}) -> tensor<64x128xf16>
    attributes {sdsc.dim_sizes = {A = 2 : i64, B = 32 : i64, C = 4 : i64, D = 64 : i64, E = 128 : i64}} {
  %zero = arith.constant 0.0 : f16
  %e = tensor.empty() : tensor<64x128xf16>
  %f = linalg.fill ins(%zero : f16) outs(%e : tensor<64x128xf16>) -> tensor<64x128xf16>
  %v = tensor.collapse_shape %x [[0, 1], [2, 3]] : tensor<2x32x4x64xf16> into tensor<64x256xf16>
  %w = tensor.collapse_shape %y [[0, 1], [2]] : tensor<4x64x128xf16> into tensor<256x128xf16>
  %p = linalg.matmul {sdsc.hints = [{id = 1 : i64, tiles = [{dim = "C", count = 4 : i64}]}]}
      ins(%v, %w : tensor<64x256xf16>, tensor<256x128xf16>) outs(%f : tensor<64x128xf16>) -> tensor<64x128xf16>
  return %p : tensor<64x128xf16>
}

// -----

// Names of size 1 are skipped: whether a view adds or drops such a dim changes nothing.
// CHECK-LABEL: func.func @units
// CHECK: sdsc.dims = {{\[}}["M"], [], ["N"]], {{.*}}<"exp", {}>
func.func @units(%x: tensor<1x64x128xf16> {sdsc.dims = ["B", "M", "N"]}) -> tensor<64x1x128xf16>
    attributes {sdsc.dim_sizes = {B = 1 : i64, M = 64 : i64, N = 128 : i64}} {
  %e = tensor.empty() : tensor<64x1x128xf16>
  %v = tensor.collapse_shape %x [[0, 1], [2]] : tensor<1x64x128xf16> into tensor<64x128xf16>
  %w = tensor.expand_shape %v [[0, 1], [2]] output_shape [64, 1, 128] : tensor<64x128xf16> into tensor<64x1x128xf16>
  %r = linalg.exp {sdsc.hints = [{id = 1 : i64, tiles = []}]} ins(%w : tensor<64x1x128xf16>) outs(%e : tensor<64x1x128xf16>) -> tensor<64x1x128xf16>
  return %r : tensor<64x1x128xf16>
}

// -----

// A name that a view cuts is back where another view puts it together again.
// CHECK-LABEL: func.func @heads
// CHECK: sdsc.dims = {{\[}}["S"], [], []], {{.*}}<"exp", {}>
// CHECK: sdsc.dims = {{\[}}["S"], ["D"]], {{.*}}<"log", {}>
func.func @heads(%x: tensor<64x256xf16> {sdsc.dims = ["S", "D"]}) -> tensor<64x256xf16>
    attributes {sdsc.dim_sizes = {D = 256 : i64, S = 64 : i64}} {
  %e = tensor.empty() : tensor<4x64x64xf16>
  %d = tensor.empty() : tensor<64x4x64xf16>
  %c = tensor.empty() : tensor<64x256xf16>
  %v = tensor.expand_shape %x [[0], [1, 2]] output_shape [64, 4, 64] : tensor<64x256xf16> into tensor<64x4x64xf16>
  %t = linalg.transpose ins(%v : tensor<64x4x64xf16>) outs(%e : tensor<4x64x64xf16>) permutation = [1, 0, 2]
  %y = linalg.exp {sdsc.hints = [{id = 1 : i64, tiles = [{dim = "S", count = 2 : i64}]}]} ins(%t : tensor<4x64x64xf16>) outs(%e : tensor<4x64x64xf16>) -> tensor<4x64x64xf16>
  %u = linalg.transpose ins(%y : tensor<4x64x64xf16>) outs(%d : tensor<64x4x64xf16>) permutation = [1, 0, 2]
  %w = tensor.collapse_shape %u [[0], [1, 2]] : tensor<64x4x64xf16> into tensor<64x256xf16>
  %r = linalg.log ins(%w : tensor<64x256xf16>) outs(%c : tensor<64x256xf16>) -> tensor<64x256xf16>
  return %r : tensor<64x256xf16>
}

// -----

// A transpose that has to be written moves the names with the dims.
// CHECK-LABEL: func.func @transposed
// CHECK: sdsc.dims = {{\[}}["N", "M"]], {{.*}}<"exp", {}>
func.func @transposed(%x: tensor<64x128xf16> {sdsc.dims = ["M", "N"]}) -> tensor<8192xf16> attributes {sdsc.dim_sizes = {M = 64 : i64, N = 128 : i64}} {
  %e = tensor.empty() : tensor<128x64xf16>
  %d = tensor.empty() : tensor<8192xf16>
  %t = linalg.transpose ins(%x : tensor<64x128xf16>) outs(%e : tensor<128x64xf16>) permutation = [1, 0]
  %v = tensor.collapse_shape %t [[0, 1]] : tensor<128x64xf16> into tensor<8192xf16>
  %r = linalg.exp {sdsc.hints = [{id = 1 : i64, tiles = [{dim = "N", count = 2 : i64}]}]} ins(%v : tensor<8192xf16>) outs(%d : tensor<8192xf16>) -> tensor<8192xf16>
  return %r : tensor<8192xf16>
}

// -----

// A slice keeps the names of dims that it takes whole, and those inside of the part that it takes.
// CHECK-LABEL: func.func @slices
// CHECK: sdsc.dims = {{\[}}[], ["N"]], {{.*}}<"exp", {}>
// CHECK: sdsc.dims = {{\[}}["M"], ["N"]], {{.*}}<"log", {}>
func.func @slices(%x: tensor<192x128xf16> {sdsc.dims = ["T", "M", "N"]}) -> (tensor<32x128xf16>, tensor<64x128xf16>)
    attributes {sdsc.dim_sizes = {M = 64 : i64, N = 128 : i64, T = 3 : i64}} {
  %e = tensor.empty() : tensor<32x128xf16>
  %d = tensor.empty() : tensor<64x128xf16>
  %v = tensor.extract_slice %x[0, 0] [32, 128] [1, 1] : tensor<192x128xf16> to tensor<32x128xf16>
  %w = tensor.extract_slice %x[64, 0] [64, 128] [1, 1] : tensor<192x128xf16> to tensor<64x128xf16>
  %r = linalg.exp {sdsc.hints = [{id = 1 : i64, tiles = [{dim = "N", count = 2 : i64}]}]} ins(%v : tensor<32x128xf16>) outs(%e : tensor<32x128xf16>) -> tensor<32x128xf16>
  %s = linalg.log ins(%w : tensor<64x128xf16>) outs(%d : tensor<64x128xf16>) -> tensor<64x128xf16>
  return %r, %s : tensor<32x128xf16>, tensor<64x128xf16>
}

// -----

// A concatenation keeps the names of the other dims; a part that is put into a buffer takes the names of the buffer.
// CHECK-LABEL: func.func @assembled
// CHECK: sdsc.dims = {{\[}}[], ["N"]], {{.*}}<"exp", {}>
// CHECK: sdsc.dims = {{\[}}["M"], ["N"]], {{.*}}<"log", {}>
func.func @assembled(%x: tensor<64x128xf16> {sdsc.dims = ["M", "N"]}, %y: tensor<1x128xf16>) -> (tensor<65x128xf16>, tensor<64x128xf16>)
    attributes {sdsc.dim_sizes = {M = 64 : i64, N = 128 : i64}} {
  %e = tensor.empty() : tensor<65x128xf16>
  %d = tensor.empty() : tensor<64x128xf16>
  %v = tensor.concat dim(0) %x, %y : (tensor<64x128xf16>, tensor<1x128xf16>) -> tensor<65x128xf16>
  %w = tensor.insert_slice %y into %x[3, 0] [1, 128] [1, 1] : tensor<1x128xf16> into tensor<64x128xf16>
  %r = linalg.exp {sdsc.hints = [{id = 1 : i64, tiles = [{dim = "N", count = 2 : i64}]}]} ins(%v : tensor<65x128xf16>) outs(%e : tensor<65x128xf16>) -> tensor<65x128xf16>
  %s = linalg.log ins(%w : tensor<64x128xf16>) outs(%d : tensor<64x128xf16>) -> tensor<64x128xf16>
  return %r, %s : tensor<65x128xf16>, tensor<64x128xf16>
}

// -----

// Of a weight that the host cuts, the names are those of the part; a stick.pin and copies keep all.
// CHECK-LABEL: func.func @weight
// CHECK: sdsc.dims = {{\[}}["M"], ["N"]], {{.*}}<"exp", {}>
func.func @weight(%w: tensor<64x128xf16> {sdsc.dims = ["T", "M", "N"], sdsc.host = #sdsc.host<"w", "parameter", "f16">,
                                          sdsc.host_view = {array = array<i64: 3, 8192>, offset = 8192 : i64, strides = array<i64: 128, 1>}}) -> tensor<64x128xf16>
    attributes {sdsc.dim_sizes = {M = 64 : i64, N = 128 : i64, T = 3 : i64}} {
  %e = tensor.empty() : tensor<64x128xf16>
  %c = "sdsc.clone"(%w) : (tensor<64x128xf16>) -> tensor<64x128xf16>
  %p = "stick.pin"(%c) {stick.to = #stick.layout<affine_map<(d0, d1) -> (d1 floordiv 64, d0, d1 mod 64)>>} : (tensor<64x128xf16>) -> tensor<64x128xf16>
  %r = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]}
      ins(%p : tensor<64x128xf16>) outs(%e : tensor<64x128xf16>) attrs = {sdsc.op = #sdsc.op<"exp", {}>, sdsc.hints = [{id = 1 : i64, tiles = []}]} {
  ^bb0(%a: f16, %o: f16):
    %x = math.exp %a : f16
    linalg.yield %x : f16
  } -> tensor<64x128xf16>
  return %r : tensor<64x128xf16>
}
