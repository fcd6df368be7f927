// RUN: spyre-opt %s | spyre-opt | filecheck %s

// The three ops and the type of run-time parameters survive printing.
// CHECK-LABEL: func.func @sdsc_bundle(%{{.*}}: !sdscbundle.input_arg<index, 64 : i64, 4096 : i64>) {
// CHECK-NEXT: %[[V:.*]] = "sdscbundle.input_arg_extract"(%{{.*}}) {what = "max_value"} : (!sdscbundle.input_arg<index, 64 : i64, 4096 : i64>) -> index
// CHECK-NEXT: %[[P:.*]] = "sdscbundle.device_mem_allocate"() {bytes = 65536 : i64} : () -> index
// CHECK-NEXT: "sdscbundle.sdsc_execute"(%[[V]], %[[P]]) {sdsc_filename = "sdsc_0.json", symbol_ids = [-1, -2]} : (index, index) -> ()
func.func @sdsc_bundle(%a: !sdscbundle.input_arg<index, 64 : i64, 4096 : i64>) {
  %v = "sdscbundle.input_arg_extract"(%a) {what = "max_value"} : (!sdscbundle.input_arg<index, 64 : i64, 4096 : i64>) -> index
  %p = "sdscbundle.device_mem_allocate"() {bytes = 65536 : i64} : () -> index
  "sdscbundle.sdsc_execute"(%v, %p) {sdsc_filename = "sdsc_0.json", symbol_ids = [-1, -2]} : (index, index) -> ()
  return
}
