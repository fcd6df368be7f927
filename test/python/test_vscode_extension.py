# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The VS Code extension: its manifest, and its client with mocks of the editor and the client library."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from spyre_mlir.version import VERSION

pytestmark = pytest.mark.documents

FOLDER = Path(__file__).parents[2] / "editors" / "vscode"

#: A call of the command of a lens and of another one, between activation and its end.
SCRIPT = """
const Module = require("module"), load = Module._load, calls = [];
const vscode = {
  workspace: {
    getConfiguration: (section) => ({ get: (key) => `${section}.${key}` }),
    openTextDocument: async (document) => document,
  },
  window: { showTextDocument: async (document, column) => calls.push(["show", document, column]) },
  ViewColumn: { Beside: -2 },
};
class LanguageClient {
  constructor(id, name, server, options) { calls.push(["new", server, options.documentSelector]); LanguageClient.options = options; }
  async start() { calls.push(["start"]); }
  async stop() { calls.push(["stop"]); }
}
const modules = { vscode, "vscode-languageclient/node": { LanguageClient } };
Module._load = (name, ...rest) => modules[name] ?? load(name, ...rest);
const extension = require(process.argv[1]);
(async () => {
  await extension.activate({ subscriptions: [] });
  const { executeCommand } = LanguageClient.options.middleware;
  const call = (name, values) => executeCommand(name, values, async (...passed) => (calls.push(["call", ...passed]), "IR"));
  await call("spyre.showLevel", ["uri", "placed", 0]);
  await call("another.command", []);
  await extension.deactivate();
  console.log(JSON.stringify(calls));
})();
"""  # noqa: E501


def test_the_manifest_names_files_that_there_are_and_a_setting_that_is_read():
    manifest = json.loads((FOLDER / "package.json").read_text(encoding="utf-8"))
    (language,) = manifest["contributes"]["languages"]
    json.loads((FOLDER / language["configuration"]).read_text(encoding="utf-8"))
    assert (FOLDER / manifest["main"]).is_file()
    assert manifest["version"] == VERSION
    assert manifest["activationEvents"] == [f"onLanguage:{language['id']}"]
    assert list(manifest["contributes"]["configuration"]["properties"]) == ["spyre.server"]


def test_the_greater_sign_of_an_arrow_is_no_bracket():
    configuration = json.loads((FOLDER / "language-configuration.json").read_text(encoding="utf-8"))
    assert [pair[0] for pair in configuration["brackets"]] == ["{", "[", "("]


@pytest.mark.skipif(shutil.which("node") is None, reason="without node")
def test_the_ir_of_a_lens_is_shown_beside_the_program():
    command = ["node", "-e", SCRIPT, str(FOLDER / "extension.js")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [
        ["new", {"command": "spyre.server"}, [{"language": "mlir"}]],
        ["start"],
        ["call", "spyre.showLevel", ["uri", "placed", 0]],
        ["show", {"language": "mlir", "content": "IR"}, -2],
        ["call", "another.command", []],
        ["stop"],
    ]
