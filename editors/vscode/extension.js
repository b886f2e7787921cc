// Starts rc-lsp, and shows lowered forms beside the source.

const vscode = require("vscode");
const { LanguageClient } = require("vscode-languageclient/node");

const SCHEME = "rc-lowered";
let client;

async function activate(context) {
  const command = vscode.workspace.getConfiguration("rc").get("server.path");
  client = new LanguageClient("rc", "rc", { command, args: ["--stdio"] }, { documentSelector: [{ language: "rc-ir" }] });
  const texts = new Map();
  const provider = { provideTextDocumentContent: (uri) => texts.get(uri.toString()) ?? "" };
  context.subscriptions.push(
    vscode.workspace.registerTextDocumentContentProvider(SCHEME, provider),
    vscode.commands.registerCommand("rc.showLowered", (uri, symbol, phase) => showLowered(texts, uri, symbol, phase)),
  );
  await client.start();
}

/** Opens the lowered form of a symbol; without arguments, asks which. */
async function showLowered(texts, uri, symbol, phase) {
  uri ??= vscode.window.activeTextEditor?.document.uri.toString();
  symbol ??= await vscode.window.showInputBox({ prompt: "The symbol, without @", value: "main" });
  const phases = ["core", "fusions", "loops", "schedules", "tiles", "threads"];
  phase ??= await vscode.window.showQuickPick(phases, { placeHolder: "The phase" });
  if (!uri || !symbol || !phase) return;
  try {
    const text = await client.sendRequest("rc/lowered", { textDocument: { uri }, symbol, phase });
    const shown = vscode.Uri.from({ scheme: SCHEME, path: `/${symbol}.${phase}.${texts.size}.ir` });
    texts.set(shown.toString(), text);
    const document = await vscode.workspace.openTextDocument(shown);
    await vscode.languages.setTextDocumentLanguage(document, "rc-ir");
    await vscode.window.showTextDocument(document, vscode.ViewColumn.Beside);
  } catch (error) {
    vscode.window.showErrorMessage(error.message);
  }
}

function deactivate() {
  return client?.stop();
}

module.exports = { activate, deactivate };
