// RUN: spyre-opt %s --load %S/Inputs/test_passes.py --test-visit="fail-on=bad" --split-input-file --verify-diagnostics

// A remark of a pass may be expected.
// expected-remark@+1 {{visited: saw @good}}
func.func @good() { return }
// -----
// An error of a pass, placed from above; the comment between does not count as a line for @below.
// expected-error@below {{not wanted}}
// expected-remark@below {{saw @bad}}
func.func @bad() { return }
// -----
// An error of the parser, as a regular expression.
func.func @unknown() {
  foo  // expected-error-re {{custom op '{{[a-z]+}}' is unknown}}
}
// -----
// An error of a verifier, with its note.
func.func @twice() { return }  // expected-note {{see existing symbol}}
func.func @twice() { return }
// expected-error@above {{redefinition of symbol}}
