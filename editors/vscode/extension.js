// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The client of spyre-lsp: it starts the server, and shows the IR that a code lens asks for beside the program.
const vscode = require("vscode");
const { LanguageClient } = require("vscode-languageclient/node");

let client;

async function activate(context) {
  const command = vscode.workspace.getConfiguration("spyre").get("server");
  const middleware = {
    // The server answers the command of a lens with text, which is an unsaved document of its own here.
    async executeCommand(name, values, next) {
      const content = await next(name, values);
      if (name === "spyre.showLevel" && typeof content === "string") {
        const document = await vscode.workspace.openTextDocument({ language: "mlir", content });
        await vscode.window.showTextDocument(document, vscode.ViewColumn.Beside);
      }
      return content;
    },
  };
  client = new LanguageClient("spyre", "spyre-mlir", { command }, { documentSelector: [{ language: "mlir" }], middleware });
  await client.start();
}

module.exports = { activate, deactivate: () => client?.stop() };
