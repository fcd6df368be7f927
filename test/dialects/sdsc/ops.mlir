// RUN: spyre-opt %s | spyre-opt | filecheck %s

// A clone and every attribute of the dialect survive printing.
// CHECK-LABEL: func.func @ops(%{{.*}}: tensor<64x64xf16> {sdsc.host = #sdsc.host<"x", "input", "bf16">})
// CHECK-NEXT: "sdsc.clone"(%{{[^)]*}}) {
// CHECK-SAME: sdsc.division = #sdsc.division<[1, 16], #{{[a-z0-9]+}}>
// CHECK-SAME: sdsc.op = #sdsc.op<"clip", {clipMax = 6.000000e+00 : f64, clipMin = 0.000000e+00 : f64}>
// CHECK-SAME: sdsc.placement = #sdsc.hbm<"pool", 4096 : i64>
// CHECK-SAME: (tensor<64x64xf16>) -> tensor<64x64xf16>
// CHECK-NEXT: "sdsc.clone"(%{{.*}}) {sdsc.placement = #sdsc.lx<128 : i64>}
func.func @ops(%x: tensor<64x64xf16> {sdsc.host = #sdsc.host<"x", "input", "bf16">}) {
  %0 = "sdsc.clone"(%x) {sdsc.op = #sdsc.op<"clip", {clipMax = 6.0 : f64, clipMin = 0.0 : f64}>,
                         sdsc.division = #sdsc.division<[1, 16], affine_map<(d0) -> (0, d0)>>,
                         sdsc.placement = #sdsc.hbm<"pool", 4096 : i64>} : (tensor<64x64xf16>) -> tensor<64x64xf16>
  %1 = "sdsc.clone"(%0) {sdsc.placement = #sdsc.lx<128 : i64>} : (tensor<64x64xf16>) -> tensor<64x64xf16>
  return
}

// Indices of the host.
// CHECK-LABEL: func.func @indices
// CHECK: "sdsc.read_index"(%{{.*}}) {element = 1 : i64, sdsc.index_bounds = {{.*}}} : (tensor<2xi64>) -> index
// CHECK: "sdsc.index_argument"() {array = "pos", element = 0 : i64, sdsc.index_bounds = {{.*}}} : () -> index
func.func @indices(%p: tensor<2xi64>) {
  %0 = "sdsc.read_index"(%p) {element = 1 : i64, sdsc.index_bounds = {lower = -8 : i64, upper = 8 : i64, operation = "index_put"}} : (tensor<2xi64>) -> index
  %1 = "sdsc.index_argument"() {array = "pos", element = 0 : i64, sdsc.index_bounds = {lower = 0 : i64, upper = 8 : i64, operation = "index_copy"}} : () -> index
  return
}
