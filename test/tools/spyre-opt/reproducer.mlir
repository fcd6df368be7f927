// RUN: rm -f %t.mlir && not spyre-opt %s --load %S/Inputs/test_passes.py --cse --test-visit="fail-on=main" \
// RUN:   --mlir-pass-pipeline-crash-reproducer=%t.mlir 2>&1 | filecheck %s --check-prefix=NOTE
// RUN: filecheck %s < %t.mlir
// RUN: not spyre-opt %t.mlir --load %S/Inputs/test_passes.py --run-reproducer 2>&1 | filecheck %s --check-prefix=AGAIN
// RUN: not spyre-opt %t.mlir --run-reproducer 2>&1 | filecheck %s --check-prefix=PYTHON
// RUN: not spyre-opt %t.mlir --run-reproducer --load-embedded 2>&1 | filecheck %s --check-prefix=AGAIN
// RUN: not spyre-opt %s --load %S/Inputs/test_passes.py --cse --test-visit="fail-on=main" -o /dev/null \
// RUN:   --mlir-pass-pipeline-crash-reproducer=%t.mlir --mlir-pass-pipeline-local-reproducer
// RUN: filecheck %s --check-prefix=LOCAL < %t.mlir
// RUN: spyre-opt %s --cse --mlir-pass-pipeline-crash-reproducer=%t.mlir -o /dev/null && not ls %t.mlir
// RUN: spyre-opt %s --canonicalize="max-iterations=3" --verify-each=false --mlir-generate-reproducer=%t.mlir -o /dev/null
// RUN: filecheck %s --check-prefix=GENERATED < %t.mlir
// RUN: cat %t.mlir | spyre-opt --run-reproducer --dump-pass-pipeline 2>&1 | filecheck %s --check-prefix=REPRODUCED
// RUN: not spyre-opt %s --run-reproducer 2>&1 | filecheck %s --check-prefix=NONE
// RUN: not spyre-opt %t.mlir --run-reproducer --cse 2>&1 | filecheck %s --check-prefix=TWO
// RUN: echo text > %t.other && not spyre-opt %s --cse --mlir-pass-pipeline-crash-reproducer=%t.other 2>&1 \
// RUN:   | filecheck %s --check-prefix=OTHER
// RUN: not spyre-opt %s --mlir-pass-pipeline-local-reproducer 2>&1 | filecheck %s --check-prefix=ALONE

// A run that fails leaves the input with its pipeline; large constants stay in the one section of resources.
// NOTE: reproducer.mlir:[[#]]:1: error: This function is not wanted.
// NOTE: note: A reproducer is in '{{.*}}'; 'spyre-opt --run-reproducer {{.*}}' runs it.
// CHECK: arith.constant 1
// CHECK: arith.constant 1
// CHECK: {-#
// CHECK: blob:
// CHECK: external_resources: {
// CHECK-NEXT: mlir_reproducer: {
// CHECK-NEXT: pipeline: "builtin.module(cse,test-visit{fail-on=main})",
// CHECK-NEXT: disable_threading: true,
// CHECK-NEXT: verify_each: true
// CHECK: spyre_files: {
// CHECK-NEXT: json: "{{.*}}test_passes.py\": {{.*}}class TestVisit
// PYTHON: error: The reproducer contains the Python file '{{.*}}test_passes.py'; --load-embedded runs it
// AGAIN-NOT: warning
// AGAIN: reproducer.mlir:[[#]]:1: error: This function is not wanted.

// The local one is the IR in front of the pass that fails, with that pass alone.
// LOCAL: arith.constant 1
// LOCAL-NOT: arith.constant 1
// LOCAL: pipeline: "builtin.module(test-visit{fail-on=main})"

// Without a failure there is a file only if it is asked for.
// GENERATED: pipeline: "builtin.module(canonicalize{max-iterations=3})"
// GENERATED: verify_each: false
// REPRODUCED: builtin.module(canonicalize{max-iterations=3})
// REPRODUCED-NOT: warning
// NONE: reproducer.mlir:1:1: error: The text has no resource 'mlir_reproducer'
// TWO: error: --run-reproducer runs the pipeline of one module, so it takes no pass
// OTHER: error: The file '{{.*}}.other' is not a reproducer; name a file that may be overwritten.
// ALONE: error: --mlir-pass-pipeline-local-reproducer requires --mlir-pass-pipeline-crash-reproducer.
func.func @main() -> (index, index, tensor<1xi32>) {
  %0 = arith.constant 1 : index
  %1 = arith.constant 1 : index
  %2 = arith.constant dense_resource<blob> : tensor<1xi32>
  return %0, %1, %2 : index, index, tensor<1xi32>
}
{-#
  dialect_resources: { builtin: { blob: "0x0400000001000000" } }
#-}
