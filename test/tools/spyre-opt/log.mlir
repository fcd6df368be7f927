// What the compiler tells while it works: --log, or SPYRE_LOG in the environment.

// RUN: spyre-opt %s --load %S/Inputs/test_passes.py --cse --test-visit="cost=2" --log remark -o /dev/null 2>&1 \
// RUN:   | filecheck %s --check-prefix=REMARK --match-full-lines
// A decision is a line with its place in the source.
// REMARK: {{.*}}log.mlir:38:1: remark: [test-visit] visited: saw @main (2 -> 2.0)
// REMARK-NOT: debug:

// RUN: env SPYRE_LOG=debug,cse %python -m spyre_mlir.tools.spyre_opt %s --cse --canonicalize -o /dev/null 2>&1 \
// RUN:   | filecheck %s --check-prefix=DEBUG
// A topic leaves out all others.
// DEBUG: debug: [cse] {{[0-9.]+}} s
// DEBUG-NOT: canonicalize

// RUN: spyre-opt %s --cse --log cse,cees -o /dev/null 2>&1 | filecheck %s --check-prefix=SILENT
// SILENT: note: The log has no messages of the topic 'cees'.

// RUN: spyre-opt %s --spyre-pipeline --to-level=divided --log progress -o /dev/null 2>&1 \
// RUN:   | filecheck %s --check-prefix=PROGRESS --match-full-lines
// PROGRESS: device-ops
// PROGRESS-NEXT: [1/{{[0-9]+}}] device-ops > attach-hints
// PROGRESS: {{\[[0-9]+}}/[[COUNT:[0-9]+]]] laid-out > choose-layouts
// PROGRESS: {{\[}}[[COUNT]]/[[COUNT]]] divided > verify-divided

// RUN: spyre-opt %s --spyre-pipeline --to-level=divided --log info -o /dev/null 2>&1 \
// RUN:   | filecheck %s --check-prefix=INFO
// INFO: info: [device-ops] {{[0-9.]+}} s
// INFO-NEXT: info: [tiled] {{[0-9.]+}} s

// RUN: spyre-opt %s --spyre-pipeline --to-level=tiled --mlir-timing -o /dev/null 2>&1 \
// RUN:   | filecheck %s --check-prefix=TIMING --match-full-lines
// Passes are below their stage; of the first two lines one is a part of the other.
// TIMING: {{ +[0-9.]+ \( *[0-9.]+%\)  device-ops}}
// TIMING-NEXT: {{ +[0-9.]+ \( *[0-9.]+%\)    attach-hints}}
// TIMING: {{ +[0-9.]+ \( *[0-9.]+%\)  tiled}}
// TIMING: {{ +[0-9.]+ \( *[0-9.]+%\)  Rest}}
// TIMING-NEXT: {{ +[0-9.]+ \(100.0%\)  Total}}
func.func @main() {
  return
}
