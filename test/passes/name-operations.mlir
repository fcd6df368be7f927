// RUN: spyre-opt %s --name-operations --split-input-file | filecheck %s
// RUN: spyre-opt %s --name-operations --split-input-file --choose-layouts --name-operations="inserted" | filecheck %s --check-prefix=INSERTED

// Each opcode counts for itself, in program order; a name that is there stays, and numbers go on behind it.
// CHECK-LABEL: func.func @main(
// CHECK: sdsc.name = "exp.0", sdsc.op = #sdsc.op<"exp"
// CHECK: sdsc.name = "add.4", sdsc.op = #sdsc.op<"add"
// CHECK: sdsc.name = "exp.1", sdsc.op = #sdsc.op<"exp"
// CHECK: sdsc.name = "add.5", sdsc.op = #sdsc.op<"add"

// What is inserted is called by what it copies, and changes no other name.
// INSERTED: sdsc.name = "exp.0"
// INSERTED: "stick.restickify"(%arg1) {{.*}}sdsc.name = "y/restickify.0"
// INSERTED: sdsc.name = "add.4"
// INSERTED: sdsc.name = "add.5"
#id = affine_map<(d0, d1) -> (d0, d1)>
#columns = affine_map<(d0, d1) -> (d0 floordiv 64, d1, d0 mod 64)>
!m = tensor<128x128xf16>
!c = tensor<128x128xf16, #stick.layout<#columns>>
func.func @main(%x: !m {sdsc.host = #sdsc.host<"x", "input", "f16">}, %y: !c {sdsc.host = #sdsc.host<"y", "input", "f16">}) -> !m {
  %e = tensor.empty() : !m
  %0 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%x : !m) outs(%e : !m) attrs = {sdsc.op = #sdsc.op<"exp", {}>} {
  ^bb0(%a: f16, %o: f16):
    linalg.yield %o : f16
  } -> !m
  %1 = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]} ins(%0, %y : !m, !c) outs(%e : !m) attrs = {sdsc.op = #sdsc.op<"add", {}>, sdsc.name = "add.4"} {
  ^bb0(%a: f16, %b: f16, %o: f16):
    linalg.yield %o : f16
  } -> !m
  %2 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%1 : !m) outs(%e : !m) attrs = {sdsc.op = #sdsc.op<"exp", {}>} {
  ^bb0(%a: f16, %o: f16):
    linalg.yield %o : f16
  } -> !m
  %3 = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]} ins(%2, %x : !m, !m) outs(%e : !m) attrs = {sdsc.op = #sdsc.op<"add", {}>} {
  ^bb0(%a: f16, %b: f16, %o: f16):
    linalg.yield %o : f16
  } -> !m
  return %3 : !m
}
// -----
// What was made of one operation: the first keeps the name.
// CHECK-LABEL: func.func @parts(
// CHECK: sdsc.name = "exp.0"
// CHECK: sdsc.name = "exp.0/part.0"
// CHECK: sdsc.name = "exp.0/part.1"
#id = affine_map<(d0) -> (d0)>
!v = tensor<128xf16>
func.func @parts(%x: !v {sdsc.host = #sdsc.host<"x", "input", "f16">}) -> !v {
  %e = tensor.empty() : !v
  %0 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%x : !v) outs(%e : !v) attrs = {sdsc.op = #sdsc.op<"exp", {}>, sdsc.name = "exp.0"} {
  ^bb0(%a: f16, %o: f16):
    linalg.yield %o : f16
  } -> !v
  %1 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%0 : !v) outs(%e : !v) attrs = {sdsc.op = #sdsc.op<"exp", {}>, sdsc.name = "exp.0"} {
  ^bb0(%a: f16, %o: f16):
    linalg.yield %o : f16
  } -> !v
  %2 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%1 : !v) outs(%e : !v) attrs = {sdsc.op = #sdsc.op<"exp", {}>, sdsc.name = "exp.0"} {
  ^bb0(%a: f16, %o: f16):
    linalg.yield %o : f16
  } -> !v
  return %2 : !v
}
