// RUN: spyre-opt %s --verify-diagnostics --split-input-file

// Operands and symbols come in pairs.
func.func @count(%x: index) {
  // expected-error@below {{sdsc_execute has 2 operands but 1 symbol ids}}
  "sdscbundle.sdsc_execute"(%x, %x) {sdsc_filename = "a.json", symbol_ids = [-1]} : (index, index) -> ()
  return
}
// -----
// A symbol is bound once.
func.func @twice(%x: index) {
  // expected-error@below {{symbol ids of sdsc_execute are negative and each is bound once}}
  "sdscbundle.sdsc_execute"(%x, %x) {sdsc_filename = "a.json", symbol_ids = [-1, -1]} : (index, index) -> ()
  return
}
// -----
// A symbol is a negative number.
func.func @positive(%x: index) {
  // expected-error@below {{symbol ids of sdsc_execute are negative and each is bound once}}
  "sdscbundle.sdsc_execute"(%x, %x) {sdsc_filename = "a.json", symbol_ids = [-1, 2]} : (index, index) -> ()
  return
}
// -----
// An allocation has a size.
func.func @empty() {
  // expected-error@below {{device_mem_allocate reserves a positive number of bytes}}
  %p = "sdscbundle.device_mem_allocate"() {bytes = 0 : i64} : () -> index
  return
}
// -----
// A run-time parameter has three things to read.
func.func @what(%a: !sdscbundle.input_arg<index, 0 : i64, 0 : i64>) {
  // expected-error@below {{input_arg_extract reads 'value', 'granularity' or 'max_value'}}
  %v = "sdscbundle.input_arg_extract"(%a) {what = "colour"} : (!sdscbundle.input_arg<index, 0 : i64, 0 : i64>) -> index
  return
}
// -----
// What an op of the bundle needs is there, and of its type.
func.func @absent(%a: !sdscbundle.input_arg<index, 0 : i64, 0 : i64>, %x: index) {
  // expected-error@below {{device_mem_allocate reserves a positive number of bytes}}
  %p = "sdscbundle.device_mem_allocate"() : () -> index
  return
}
// -----
func.func @text() {
  // expected-error@below {{device_mem_allocate reserves a positive number of bytes}}
  %p = "sdscbundle.device_mem_allocate"() {bytes = "8"} : () -> index
  return
}
// -----
func.func @nothing(%a: !sdscbundle.input_arg<index, 0 : i64, 0 : i64>) {
  // expected-error@below {{input_arg_extract reads 'value', 'granularity' or 'max_value'}}
  %v = "sdscbundle.input_arg_extract"(%a) : (!sdscbundle.input_arg<index, 0 : i64, 0 : i64>) -> index
  return
}
// -----
func.func @names(%x: index) {
  // expected-error@below {{sdsc_execute names its design in sdsc_filename and its symbol_ids}}
  "sdscbundle.sdsc_execute"(%x) {sdsc_filename = "a.json", symbol_ids = ["-1"]} : (index) -> ()
  return
}
// -----
func.func @number(%x: index) {
  // expected-error@below {{sdsc_execute names its design in sdsc_filename and its symbol_ids}}
  "sdscbundle.sdsc_execute"(%x) {sdsc_filename = 3 : i64, symbol_ids = -1 : i64} : (index) -> ()
  return
}
