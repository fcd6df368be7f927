// RUN: spyre-opt %s --decompose-to-device-ops --verify-device-ops --split-input-file | filecheck %s

// A lookup of rows is a gather; its last dim, which is reduced, runs over the rows of the table.
// CHECK: #[[AT:.*]] = affine_map<(d0, d1, d2) -> (d0)>
// CHECK: #[[TABLE:.*]] = affine_map<(d0, d1, d2) -> (d2, d1)>
// CHECK: #[[ROWS:.*]] = affine_map<(d0, d1, d2) -> (d0, d1)>
// CHECK-LABEL: func.func @rows(
// CHECK-SAME: %[[T:\w+]]: tensor<9x64xf16> {{.*}}, %[[I:\w+]]: tensor<5xi32>
// CHECK: linalg.generic {indexing_maps = [#[[AT]], #[[TABLE]], #[[ROWS]]], iterator_types = ["parallel", "parallel", "reduction"]} ins(%[[I]], %[[T]] : tensor<5xi32>, tensor<9x64xf16>) outs({{.*}} : tensor<5x64xf16>) attrs =  {sdsc.op = #sdsc.op<"gather", {}>}
#i = affine_map<(d0, d1) -> (d0)>
#id = affine_map<(d0, d1) -> (d0, d1)>
func.func @rows(%t: tensor<9x64xf16>, %i: tensor<5xi64>) -> tensor<5x64xf16> {
  %e = tensor.empty() : tensor<5x64xf16>
  %y = linalg.generic {indexing_maps = [#i, #id], iterator_types = ["parallel", "parallel"]}
      ins(%i : tensor<5xi64>) outs(%e : tensor<5x64xf16>) {
  ^bb0(%p: i64, %o: f16):
    %row = arith.index_cast %p : i64 to index
    %column = linalg.index 1 : index
    %v = tensor.extract %t[%row, %column] : tensor<9x64xf16>
    linalg.yield %v : f16
  } -> tensor<5x64xf16>
  return %y : tensor<5x64xf16>
}
// -----
// Any one dim of the table may be looked up, here its columns.
// CHECK: #[[TABLE:.*]] = affine_map<(d0, d1, d2) -> (d0, d2)>
// CHECK-LABEL: func.func @columns(
// CHECK: linalg.generic {indexing_maps = [{{.*}}, #[[TABLE]], {{.*}}]{{.*}}"gather"
#i = affine_map<(d0, d1) -> (d1)>
#id = affine_map<(d0, d1) -> (d0, d1)>
func.func @columns(%t: tensor<7x64xf16>, %i: tensor<5xi32>) -> tensor<7x5xf16> {
  %e = tensor.empty() : tensor<7x5xf16>
  %y = linalg.generic {indexing_maps = [#i, #id], iterator_types = ["parallel", "parallel"]}
      ins(%i : tensor<5xi32>) outs(%e : tensor<7x5xf16>) {
  ^bb0(%p: i32, %o: f16):
    %column = arith.index_cast %p : i32 to index
    %row = linalg.index 0 : index
    %v = tensor.extract %t[%row, %column] : tensor<7x64xf16>
    linalg.yield %v : f16
  } -> tensor<7x5xf16>
  return %y : tensor<7x5xf16>
}
// -----
// Positions that count from the end are computed before: p + 9 * (p < 0), compared in f32.
// CHECK-LABEL: func.func @from_the_end(
// CHECK-SAME: %[[T:\w+]]: {{.*}}, %[[I:\w+]]: tensor<5xi32>
// CHECK: %[[F:.*]] = linalg.generic {{.*}} ins(%[[I]] : {{.*}}"int32tofp32"
// CHECK: %[[B:.*]] = linalg.generic {{.*}} ins(%[[F]], {{.*}}"lesserthan"
// CHECK: %[[N:.*]] = linalg.generic {{.*}} ins(%[[B]] : {{.*}}"fp32toint32"
// CHECK: arith.constant dense<9> : tensor<i32>
// CHECK: %[[R:.*]] = linalg.generic {{.*}} ins(%[[N]], {{.*}}"muli32toi32"
// CHECK: %[[P:.*]] = linalg.generic {{.*}} ins(%[[I]], %[[R]] : {{.*}}"addi32toi32"
// CHECK: linalg.generic {{.*}} ins(%[[P]], %[[T]] : {{.*}}"gather"
#i = affine_map<(d0, d1) -> (d0)>
#id = affine_map<(d0, d1) -> (d0, d1)>
func.func @from_the_end(%t: tensor<9x64xf16>, %i: tensor<5xi64>) -> tensor<5x64xf16> {
  %zero = arith.constant 0 : i64
  %rows = arith.constant 9 : i64
  %e = tensor.empty() : tensor<5x64xf16>
  %y = linalg.generic {indexing_maps = [#i, #id], iterator_types = ["parallel", "parallel"]}
      ins(%i : tensor<5xi64>) outs(%e : tensor<5x64xf16>) {
  ^bb0(%p: i64, %o: f16):
    %below = arith.cmpi slt, %p, %zero : i64
    %wrapped = arith.addi %p, %rows : i64
    %at = arith.select %below, %wrapped, %p : i64
    %row = arith.index_cast %at : i64 to index
    %column = linalg.index 1 : index
    %v = tensor.extract %t[%row, %column] : tensor<9x64xf16>
    linalg.yield %v : f16
  } -> tensor<5x64xf16>
  return %y : tensor<5x64xf16>
}
// -----
// A lookup at a known position is a slice, which its readers take for all rows.
// CHECK-LABEL: func.func @known(
// CHECK-SAME: %[[T:\w+]]: tensor<9x64xf16> {{.*}}, %[[X:\w+]]: tensor<5x64xf16>
// CHECK: %[[R:.*]] = tensor.extract_slice %[[T]][3, 0] [1, 64] [1, 1] : tensor<9x64xf16> to tensor<64xf16>
// CHECK: linalg.generic {{.*}} ins(%[[X]], %[[R]] : tensor<5x64xf16>, tensor<64xf16>) {{.*}}"add"
#id = affine_map<(d0, d1) -> (d0, d1)>
func.func @known(%t: tensor<9x64xf16>, %x: tensor<5x64xf16>) -> tensor<5x64xf16> {
  %c3 = arith.constant 3 : index
  %e = tensor.empty() : tensor<5x64xf16>
  %y = linalg.generic {indexing_maps = [#id], iterator_types = ["parallel", "parallel"]} outs(%e : tensor<5x64xf16>) {
  ^bb0(%o: f16):
    %column = linalg.index 1 : index
    %v = tensor.extract %t[%c3, %column] : tensor<9x64xf16>
    linalg.yield %v : f16
  } -> tensor<5x64xf16>
  %z = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%x, %y : tensor<5x64xf16>, tensor<5x64xf16>) outs(%e : tensor<5x64xf16>) {
  ^bb0(%a: f16, %b: f16, %o: f16):
    %v = arith.addf %a, %b : f16
    linalg.yield %v : f16
  } -> tensor<5x64xf16>
  return %z : tensor<5x64xf16>
}
