// The picture of a tensor of a module with layouts, by its name on the host or in the IR; of a type, by name or by order.
// RUN: spyre-opt %S/../spyre-compile/Inputs/add.mlir --spyre-pipeline --to-level=laid-out -o %t.mlir
// RUN: spyre-report --layout %t.mlir --tensor arg0 | filecheck %s --check-prefix=HOST
// RUN: spyre-report --layout - --tensor 1 < %t.mlir | filecheck %s --check-prefix=VALUE
// RUN: spyre-report --layout %t.mlir --tensor %1 --function main -o %t.svg && filecheck %s --check-prefix=VALUE < %t.svg
// RUN: spyre-report --layout 3x65xf16 -o %t.type.svg && filecheck %s --check-prefix=TYPE < %t.type.svg
// RUN: spyre-report --layout 3x65xf16 --stick-dims 0 | filecheck %s --check-prefix=STICK
// RUN: spyre-report --layout 3x65xf16 --dim-order 1,0 | filecheck %s --check-prefix=STICK
// RUN: spyre-report --layout 3x65xf16 --stick-dims none | filecheck %s --check-prefix=SPARSE
// RUN: spyre-report --layout 5x6x65xf16 --stick-outermost --show 1,2 | filecheck %s --check-prefix=OUTERMOST
// RUN: spyre-report --layout f32 | filecheck %s --check-prefix=SCALAR

// HOST: <title id="title">arg0: tensor&lt;3x65xf16&gt;, stick d1 x 64</title>
// VALUE: <title id="title">{{%?}}1: tensor&lt;3x65xf16&gt;, stick d1 x 64</title>
// TYPE: <title id="title">tensor&lt;3x65xf16&gt;, stick d1 x 64</title>
// STICK: <title id="title">tensor&lt;3x65xf16&gt;, stick d0 x 64</title>
// SPARSE: <title id="title">tensor&lt;3x65xf16&gt;, stick-sparse</title>
// OUTERMOST: d1 (6) down, d2 (65) across, d0 = 0
// OUTERMOST-SAME: device size: (2, 6, 5, 64)
// SCALAR: <title id="title">tensor&lt;f32&gt;, stick-sparse</title>
