// RUN: rm -rf %t && spyre-compile %s -o %t --check --layout x dim-order=1,0 --layout 1 stick-dims= | filecheck %s
// RUN: %python -c "import json; print(*([a['name'], a['device_size']] for a in json.load(open('%t/manifest.json'))['arguments']))" | filecheck %s --check-prefix=SIZES
// RUN: rm -rf %t && spyre-compile %s -o %t --check --layout x stick-dims=0 --stick-outermost | filecheck %s

// Arguments take the layouts of the flags, by name and by position, and the numbers stay what they are.
// CHECK: PASS  result0
// SIZES: ['x', [1, 130, 64]] ['arg1', [130, 1, 33, 64]] ['result0'
func.func @main(%x: tensor<33x130xf16> {spyre.name = "x"}, %y: tensor<33x130xf16>) -> tensor<33x130xf16> {
  %e = tensor.empty() : tensor<33x130xf16>
  %z = linalg.add ins(%x, %y : tensor<33x130xf16>, tensor<33x130xf16>) outs(%e : tensor<33x130xf16>) -> tensor<33x130xf16>
  return %z : tensor<33x130xf16>
}
