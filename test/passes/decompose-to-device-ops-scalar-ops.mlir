// RUN: spyre-opt %s --decompose-to-device-ops --split-input-file | filecheck %s

// Comparisons give 0.0 or 1.0 in the operands' format, and where3 takes its condition as a number.
#id = affine_map<(d0) -> (d0)>
func.func @where(%x: tensor<64xf16>, %y: tensor<64xf16>) -> tensor<64xf16> {
  %e = tensor.empty() : tensor<64xf16>
  %0 = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel"]}
      ins(%x, %y : tensor<64xf16>, tensor<64xf16>) outs(%e : tensor<64xf16>) {
  ^bb0(%a: f16, %b: f16, %o: f16):
    %1 = arith.cmpf ult, %a, %b : f16
    %2 = arith.select %1, %a, %b : f16
    linalg.yield %2 : f16
  } -> tensor<64xf16>
  return %0 : tensor<64xf16>
}
// -----
// A fp16 condition of fp32 values is cast to their format.
#id = affine_map<(d0) -> (d0)>
func.func @where_f32(%c: tensor<64xi1>, %x: tensor<64xf32>, %y: tensor<64xf32>) -> tensor<64xf32> {
  %e = tensor.empty() : tensor<64xf32>
  %0 = linalg.generic {indexing_maps = [#id, #id, #id, #id], iterator_types = ["parallel"]}
      ins(%c, %x, %y : tensor<64xi1>, tensor<64xf32>, tensor<64xf32>) outs(%e : tensor<64xf32>) {
  ^bb0(%b: i1, %t: f32, %f: f32, %o: f32):
    %2 = arith.select %b, %t, %f : f32
    linalg.yield %2 : f32
  } -> tensor<64xf32>
  return %0 : tensor<64xf32>
}
// -----
// Every predicate, ordered or not, is one of six comparisons.
#id = affine_map<(d0) -> (d0)>
func.func @predicates(%x: tensor<64xf16>, %y: tensor<64xf16>) -> tensor<64xi1> {
  %e = tensor.empty() : tensor<64xi1>
  %0 = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel"]}
      ins(%x, %y : tensor<64xf16>, tensor<64xf16>) outs(%e : tensor<64xi1>) {
  ^bb0(%a: f16, %b: f16, %o: i1):
    %1 = arith.cmpf oeq, %a, %b : f16
    %2 = arith.cmpf ogt, %a, %b : f16
    %3 = arith.cmpf oge, %a, %b : f16
    %4 = arith.cmpf olt, %a, %b : f16
    %5 = arith.cmpf ole, %a, %b : f16
    %6 = arith.cmpf une, %a, %b : f16
    %7 = arith.andi %1, %2 : i1
    %8 = arith.ori %7, %3 : i1
    %9 = arith.xori %8, %4 : i1
    %10 = arith.andi %9, %5 : i1
    %11 = arith.andi %10, %6 : i1
    linalg.yield %11 : i1
  } -> tensor<64xi1>
  return %0 : tensor<64xi1>
}
// -----
// A power is a chain of multiplications, roots or a reciprocal; 1 / x is a reciprocal.
#id = affine_map<(d0) -> (d0)>
func.func @powers(%x: tensor<64xf16>) -> tensor<64xf16> {
  %c1 = arith.constant 1.0 : f16
  %c3 = arith.constant 3 : i64
  %c4 = arith.constant 4.0 : f16
  %half = arith.constant 0.5 : f16
  %e = tensor.empty() : tensor<64xf16>
  %0 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%x : tensor<64xf16>) outs(%e : tensor<64xf16>) {
  ^bb0(%a: f16, %o: f16):
    %1 = math.fpowi %a, %c3 : f16, i64
    %2 = math.powf %1, %c4 : f16
    %3 = math.powf %2, %half : f16
    %4 = math.powf %3, %c1 : f16
    %5 = arith.divf %c1, %4 : f16
    linalg.yield %5 : f16
  } -> tensor<64xf16>
  return %0 : tensor<64xf16>
}
// -----
// Casts are device operations; between fp16 and integers they go by way of fp32.
#id = affine_map<(d0) -> (d0)>
func.func @casts(%x: tensor<64xf16>) -> tensor<64xf32> {
  %e = tensor.empty() : tensor<64xf32>
  %0 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%x : tensor<64xf16>) outs(%e : tensor<64xf32>) {
  ^bb0(%a: f16, %o: f32):
    %1 = arith.fptosi %a : f16 to i32
    %2 = arith.sitofp %1 : i32 to f16
    %3 = arith.extf %2 : f16 to f32
    linalg.yield %3 : f32
  } -> tensor<64xf32>
  return %0 : tensor<64xf32>
}
// -----
// A cast that changes nothing on the device is none: bf16 and f64 detours, booleans as numbers.
#id = affine_map<(d0) -> (d0)>
func.func @no_casts(%x: tensor<64xi1>) -> tensor<64xf16> {
  %e = tensor.empty() : tensor<64xf16>
  %0 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%x : tensor<64xi1>) outs(%e : tensor<64xf16>) {
  ^bb0(%a: i1, %o: f16):
    %1 = arith.uitofp %a : i1 to f16
    %2 = arith.negf %1 : f16
    linalg.yield %2 : f16
  } -> tensor<64xf16>
  return %0 : tensor<64xf16>
}
// -----
// Each float, integer and boolean op that the device has.
#id = affine_map<(d0) -> (d0)>
func.func @direct(%x: tensor<64xf16>, %y: tensor<64xi32>) -> (tensor<64xf16>, tensor<64xi32>) {
  %e = tensor.empty() : tensor<64xf16>
  %f = tensor.empty() : tensor<64xi32>
  %0 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%x : tensor<64xf16>) outs(%e : tensor<64xf16>) {
  ^bb0(%a: f16, %o: f16):
    %1 = arith.negf %a : f16
    %2 = arith.maximumf %1, %a : f16
    %3 = arith.minimumf %2, %a : f16
    %4 = math.absf %3 : f16
    %5 = math.floor %4 : f16
    %6 = math.log %5 : f16
    %7 = math.sqrt %6 : f16
    %8 = math.rsqrt %7 : f16
    %9 = math.tanh %8 : f16
    %10 = arith.divf %9, %a : f16
    linalg.yield %10 : f16
  } -> tensor<64xf16>
  %1 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%y : tensor<64xi32>) outs(%f : tensor<64xi32>) {
  ^bb0(%a: i32, %o: i32):
    %1 = arith.addi %a, %a : i32
    %2 = arith.muli %1, %a : i32
    linalg.yield %2 : i32
  } -> tensor<64xi32>
  return %0, %1 : tensor<64xf16>, tensor<64xi32>
}
// -----
// fp16 max constants fold in a bare select; constant condition picks.
#id = affine_map<(d0) -> (d0)>
func.func @constant_where(%c: tensor<64xi1>) -> tensor<64xf16> {
  %one = arith.constant 1.0 : f16
  %zero = arith.constant 0.0 : f16
  %true = arith.constant true
  %e = tensor.empty() : tensor<64xf16>
  %0 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%c : tensor<64xi1>) outs(%e : tensor<64xf16>) {
  ^bb0(%b: i1, %o: f16):
    %s = arith.select %b, %one, %zero : f16
    %t = arith.select %true, %s, %one : f16
    linalg.yield %t : f16
  } -> tensor<64xf16>
  return %0 : tensor<64xf16>
}
