// The page about a bundle: all panels, with the decisions where the folder has them; --report adds times of passes.
// RUN: rm -rf %t && spyre-compile %s --sencores=2 -o %t/kept --report %t.html
// RUN: spyre-report %t/kept -o %t/page.html && filecheck %s --check-prefixes=PAGE,DIR < %t/page.html
// RUN: spyre-report %t/kept -o - > %t/stdout.html && cmp %t/page.html %t/stdout.html
// RUN: mkdir -p %t/here && cd %t/here && spyre-report ../kept | filecheck %s --check-prefix=NAME --match-full-lines
// RUN: cmp %t/page.html %t/here/kept.html
// RUN: filecheck %s --check-prefixes=PAGE,PASSES < %t.html
// RUN: spyre-validate %t/kept
// NAME: kept.html
// RUN: rm %t/kept/remarks.jsonl && spyre-report %t/kept -o - | filecheck %s --check-prefix=SILENT

// DIR: <title>Report of kept</title>
// PAGE: <section id="summary" aria-labelledby="summary-heading">
// PAGE: <dt>operations</dt><dd>3</dd><dd>1 tanh, 1 exp, 1 abs</dd>
// PAGE: 8,192 bytes read, 8,192 written
// PAGE: <section id="graph" aria-labelledby="graph-heading">
// PAGE: id="module-graph"
// PAGE: <section id="division" aria-labelledby="division-heading">
// PAGE: <section id="lx" aria-labelledby="lx-heading">
// PAGE: <div class="chart" id="lx-chart">
// PAGE: <table id="placed-table"
// PAGE: <td>buffer0</td><td>
// PAGE: <section id="timeline" aria-labelledby="timeline-heading">
// PAGE: <div class="chart" id="timeline-chart">
// PAGE: <section id="roofline" aria-labelledby="roofline-heading">
// PAGE: <table id="operations-table"
// PAGE: <tr id="op-1"><td><a href="#op-1">1</a></td><td>exp</td>
// PAGE: <table id="remarks-table"
// PAGE: <td>scratchpad-planning</td>
// DIR-NOT: <section id="passes" aria-labelledby="passes-heading">
// PASSES: <section id="passes" aria-labelledby="passes-heading">
// PASSES: >scratchpad-planning</text>
// PAGE: <script type="application/json" id="data">
// PAGE-SAME: linalg.exp ins(

// SILENT: the folder has no remarks.jsonl
func.func @main(%x: tensor<64x64xf16>) -> tensor<64x64xf16> {
  %e = tensor.empty() : tensor<64x64xf16>
  %0 = linalg.tanh ins(%x : tensor<64x64xf16>) outs(%e : tensor<64x64xf16>) -> tensor<64x64xf16>
  %1 = linalg.exp ins(%0 : tensor<64x64xf16>) outs(%e : tensor<64x64xf16>) -> tensor<64x64xf16>
  %2 = linalg.abs ins(%1 : tensor<64x64xf16>) outs(%e : tensor<64x64xf16>) -> tensor<64x64xf16>
  return %2 : tensor<64x64xf16>
}
