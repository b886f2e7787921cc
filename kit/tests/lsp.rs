//! `rc-lsp`, asked by a scripted editor.

use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

const URI: &str = "file:///t.ir";
const TEXT: &str = r#"// A comment that stays.
func.func private @step(%x: tensor<4xf32>) -> tensor<4xf32> {
  %y = core.exp %x : tensor<4xf32>
  func.return %y
}
func.func @main(%x: tensor<4xf32>, %n: tensor<4x3xf32>) -> tensor<4xf32> {
  %sum = core.reduce %n {dims = [1], kind = add} : tensor<4xf32>
  %z = core.add %x, %sum : tensor<4xf32>
  %w = func.call %z {callee = @step} : tensor<4xf32>
  func.return %w
}
"#;

struct Client {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    next: i64,
    /// What came while something else was waited for.
    told: Vec<Value>,
}

impl Client {
    fn start() -> Client {
        let mut command = Command::new(env!("CARGO_BIN_EXE_rc-lsp"));
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let (input, output) = (child.stdin.take(), BufReader::new(child.stdout.take().unwrap()));
        let mut client = Client { child, input, output, next: 0, told: Vec::new() };
        let answer = client.ask("initialize", json!({"capabilities": {}}));
        assert!(answer["result"]["capabilities"]["hoverProvider"].as_bool().unwrap());
        client.tell("initialized", json!({}));
        client
    }
    fn open(text: &str) -> Client {
        let mut client = Client::start();
        let document = json!({"uri": URI, "languageId": "rc", "version": 1, "text": text});
        client.tell("textDocument/didOpen", json!({"textDocument": document}));
        client
    }
    fn raw(&mut self, bytes: &[u8]) {
        let input = self.input.as_mut().unwrap();
        input.write_all(bytes).unwrap();
        input.flush().unwrap();
    }
    fn send(&mut self, message: Value) {
        let body = message.to_string();
        self.raw(format!("Content-Length: {}\r\n\r\n{body}", body.len()).as_bytes());
    }
    fn tell(&mut self, method: &str, params: Value) {
        self.send(json!({"jsonrpc": "2.0", "method": method, "params": params}));
    }
    fn receive(&mut self) -> Value {
        let mut length = 0;
        loop {
            let mut line = String::new();
            assert!(self.output.read_line(&mut line).unwrap() > 0, "the server hung up");
            match line.trim().strip_prefix("Content-Length: ") {
                Some(n) => length = n.parse().unwrap(),
                None if line.trim().is_empty() => break,
                None => {}
            }
        }
        let mut body = vec![0; length];
        self.output.read_exact(&mut body).unwrap();
        serde_json::from_slice(&body).unwrap()
    }
    /// Sends a request; its number.
    fn request(&mut self, method: &str, params: Value) -> i64 {
        self.next += 1;
        self.send(json!({"jsonrpc": "2.0", "id": self.next, "method": method, "params": params}));
        self.next
    }
    fn answer(&mut self, id: i64) -> Value {
        if let Some(at) = self.told.iter().position(|m| m["id"] == json!(id)) {
            return self.told.remove(at);
        }
        loop {
            let message = self.receive();
            if message["id"] == json!(id) {
                return message;
            }
            self.told.push(message);
        }
    }
    fn ask(&mut self, method: &str, params: Value) -> Value {
        let id = self.request(method, params);
        self.answer(id)
    }
    /// Asks about the place of `word` (its occurrence number `nth`) in a text.
    fn at(&mut self, method: &str, text: &str, word: &str, nth: usize, more: Value) -> Value {
        let offset = text.match_indices(word).nth(nth).unwrap().0 + 1;
        let line = text[..offset].matches('\n').count();
        let column = offset - text[..offset].rfind('\n').map_or(0, |i| i + 1);
        let mut params = json!({"textDocument": {"uri": URI}, "position": {"line": line, "character": column}});
        params.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        self.ask(method, params)["result"].clone()
    }
    fn diagnostics(&mut self) -> Vec<Value> {
        loop {
            let message = if self.told.is_empty() { self.receive() } else { self.told.remove(0) };
            if message["method"] == "textDocument/publishDiagnostics" {
                return message["params"]["diagnostics"].as_array().unwrap().clone();
            }
        }
    }
    fn change(&mut self, version: i32, change: Value) {
        let document = json!({"uri": URI, "version": version});
        self.tell("textDocument/didChange", json!({"textDocument": document, "contentChanges": [change]}));
    }
    fn end(mut self) {
        self.ask("shutdown", Value::Null);
        self.tell("exit", Value::Null);
        self.input = None;
        assert!(self.child.wait().unwrap().success());
    }
}

#[test]
fn diagnostics_follow_the_text_as_it_is_written() {
    let mut c = Client::open(TEXT);
    assert!(c.diagnostics().is_empty());
    // A half-written line: the mistake is said, and the other function is still known.
    c.change(2, json!({"range": {"start": {"line": 7, "character": 0}, "end": {"line": 7, "character": 40}}, "text": "  %z = core.add %x, "}));
    let found = c.diagnostics();
    assert!(!found.is_empty() && found[0]["severity"] == 1, "{found:?}");
    assert_eq!(found[0]["range"]["start"]["line"], 7, "{found:?}");
    let hover = c.at("textDocument/hover", TEXT, "%y", 0, json!({}));
    assert!(hover["contents"]["value"].as_str().unwrap().contains("%y: tensor<4xf32>"), "{hover}");
    // A type that does not fit: help is part of what is said.
    c.change(3, json!({"text": TEXT.replace("core.add %x, %sum", "core.add %x, %n")}));
    let found = c.diagnostics();
    assert!(found[0]["message"].as_str().unwrap().contains("core.add"), "{found:?}");
    c.change(4, json!({"text": TEXT.replace("%z {callee", "%zz {callee")}));
    let found = c.diagnostics();
    assert!(found[0]["message"].as_str().unwrap().contains("did you mean '%z'?"), "{found:?}");
    c.change(5, json!({"text": TEXT}));
    assert!(c.diagnostics().is_empty());
    c.end();
}

#[test]
fn hover_shows_types_signatures_and_pages() {
    let mut c = Client::open(TEXT);
    let mut said = |word: &str, nth| {
        let hover = c.at("textDocument/hover", TEXT, word, nth, json!({}));
        hover["contents"]["value"].as_str().unwrap_or_default().to_string()
    };
    assert!(said("%sum", 1).contains("%sum: tensor<4xf32>"));
    assert!(said("%n", 1).contains("%n: tensor<4x3xf32>"));
    assert!(said("@step", 1).contains("func.func private @step(%x: tensor<4xf32>) -> tensor<4xf32>"));
    assert!(said("core.reduce", 0).contains("## `core.reduce`"));
    assert!(said("dims", 0).contains("`dims` of `core.reduce`"));
    assert_eq!(said("comment", 0), "");
    c.end();
}

#[test]
fn definitions_references_and_renaming() {
    let mut c = Client::open(TEXT);
    let line = |v: &Value| v["range"]["start"]["line"].as_i64().unwrap();
    let definition = c.at("textDocument/definition", TEXT, "%z", 1, json!({}));
    assert_eq!(line(&definition), 7);
    assert_eq!(line(&c.at("textDocument/definition", TEXT, "@step", 1, json!({}))), 1);
    let references = c.at("textDocument/references", TEXT, "%x", 2, json!({"context": {"includeDeclaration": true}}));
    assert_eq!(references.as_array().unwrap().iter().map(line).collect::<Vec<_>>(), [5, 7]);
    let edits = c.at("textDocument/rename", TEXT, "@step", 0, json!({"newName": "@stride"}));
    let edits = edits["changes"][URI].as_array().unwrap().clone();
    assert_eq!(edits.iter().map(|e| e["newText"].as_str().unwrap()).collect::<Vec<_>>(), ["stride", "stride"]);
    // A name that is taken, and one that is none.
    for (new, why) in [("sum", "is there already"), ("a b", "is no name"), ("", "is no name")] {
        let offset = TEXT.find("%z").unwrap();
        let position = json!({"line": 7, "character": offset - TEXT[..offset].rfind('\n').unwrap()});
        let params = json!({"textDocument": {"uri": URI}, "position": position, "newName": new});
        let answer = c.ask("textDocument/rename", params);
        assert!(answer["error"]["message"].as_str().unwrap().contains(why), "{answer}");
    }
    c.end();
}

#[test]
fn completion_knows_the_place() {
    let text = TEXT.replace("  func.return %w\n", "  %q = core.reduce %n {kind = }\n  core.\n  core.add %\n");
    let mut c = Client::open(&text);
    let mut labels = |before: &str| -> Vec<String> {
        let offset = text.find(before).unwrap() + before.len();
        let line = text[..offset].matches('\n').count();
        let column = offset - text[..offset].rfind('\n').unwrap() - 1;
        let params = json!({"textDocument": {"uri": URI}, "position": {"line": line, "character": column}});
        let items = c.ask("textDocument/completion", params)["result"].clone();
        items.as_array().unwrap().iter().map(|i| i["label"].as_str().unwrap().to_string()).collect()
    };
    let values = labels("core.add %\n".trim_end());
    assert!(values.contains(&"sum".to_string()) && !values.contains(&"y".to_string()), "{values:?}");
    assert!(labels("  core.").contains(&"core.tanh".to_string()));
    assert!(labels("%q = core.reduce %n {kind =").contains(&"argmax".to_string()));
    assert!(labels("%q = core.reduce %n {").contains(&"dims".to_string()));
    assert!(labels("callee = @").contains(&"main".to_string()));
    c.end();
}

#[test]
fn formatting_indents_and_keeps_comments() {
    let text = TEXT.replace("  %y = core.exp", "      %y = core.exp").replace("  func.return %w", "func.return %w   ");
    let mut c = Client::open(&text);
    let edits =
        c.ask("textDocument/formatting", json!({"textDocument": {"uri": URI}, "options": {}}))["result"].clone();
    let mut lines: Vec<String> = text.split('\n').map(String::from).collect();
    for edit in edits.as_array().unwrap() {
        lines[edit["range"]["start"]["line"].as_u64().unwrap() as usize] = edit["newText"].as_str().unwrap().into();
    }
    assert_eq!(lines.join("\n"), TEXT);
    c.end();
}

#[test]
fn the_lowered_form_of_a_symbol() {
    let mut c = Client::open(TEXT);
    let lowered = |c: &mut Client, symbol: &str, phase: &str| {
        c.ask("rc/lowered", json!({"textDocument": {"uri": URI}, "symbol": symbol, "phase": phase}))
    };
    let text = lowered(&mut c, "main", "loops");
    assert!(text["result"].as_str().unwrap().contains("loop.nest"), "{text}");
    assert!(lowered(&mut c, "step", "tiles")["result"].as_str().unwrap().contains("kernel.store"));
    assert!(lowered(&mut c, "none", "loops")["error"]["message"].as_str().unwrap().contains("no symbol '@none'"));
    assert!(lowered(&mut c, "main", "fues")["error"]["message"].as_str().unwrap().contains("did you mean 'fuse'?"));
    let lenses = c.ask("textDocument/codeLens", json!({"textDocument": {"uri": URI}}))["result"].clone();
    assert_eq!(lenses.as_array().unwrap().len(), 12);
    let symbols = c.ask("textDocument/documentSymbol", json!({"textDocument": {"uri": URI}}))["result"].clone();
    assert_eq!(symbols.as_array().unwrap().len(), 2);
    c.end();
}

#[test]
fn bad_messages_and_wrong_places_leave_the_server_alive() {
    let mut c = Client::open(TEXT);
    c.raw(b"Content-Length: 9\r\n\r\n{not json");
    c.raw(b"nonsense\r\n");
    c.send(json!({"jsonrpc": "2.0", "id": 1000, "method": "textDocument/hover", "params": {"a": [1, 2]}}));
    assert!(c.answer(1000)["error"].is_object());
    c.tell("textDocument/didChange", json!({"textDocument": 7}));
    c.tell("textDocument/didClose", json!({"textDocument": {"uri": "file:///other.ir"}}));
    c.change(-5, json!({"range": {"start": {"line": 900, "character": 5}, "end": {"line": 3, "character": 1}}, "text": "🦀 }}}"}));
    for position in [json!({"line": 4294967295u32, "character": 4294967295u32}), json!({"line": 0, "character": 77})] {
        for method in ["hover", "definition", "references", "completion", "prepareRename", "documentHighlight"] {
            let params = json!({"textDocument": {"uri": URI}, "position": position});
            let answer = c.ask(&format!("textDocument/{method}"), params);
            assert!(answer["error"].is_null(), "{method}: {answer}");
        }
    }
    let unknown = c.ask("textDocument/unheardOf", json!({}));
    assert_eq!(unknown["error"]["code"], -32601);
    let closed = c.ask("textDocument/formatting", json!({"textDocument": {"uri": "file:///none.ir"}}));
    assert!(closed["error"]["message"].as_str().unwrap().contains("is not open"));
    c.end();
}

#[test]
fn a_cancelled_request_is_answered_as_such() {
    let mut text = TEXT.to_string();
    for i in 0..3000 {
        text += &TEXT.replace("@step", &format!("@s{i}")).replace("@main", &format!("@m{i}"));
    }
    let mut c = Client::open(&text);
    c.diagnostics();
    c.change(2, json!({"text": text.clone() + "\n"}));
    let busy = c.request("textDocument/documentSymbol", json!({"textDocument": {"uri": URI}}));
    let late = c.request("textDocument/documentSymbol", json!({"textDocument": {"uri": URI}}));
    c.tell("$/cancelRequest", json!({"id": late}));
    // What is never heard of may be cancelled, too.
    c.tell("$/cancelRequest", json!({"id": "none"}));
    let (first, second) = (c.answer(busy), c.answer(late));
    assert!(first["result"].is_array() && second["error"]["code"] == -32800 || second["result"].is_array());
    c.end();
}

/// Every prefix of a file, typed one after the other.
#[test]
fn half_files_at_every_character() {
    let mut c = Client::open("");
    for end in 0..TEXT.len() {
        c.change(end as i32 + 2, json!({"text": &TEXT[..end]}));
        if end % 7 == 0 {
            let params = json!({"textDocument": {"uri": URI}, "position": {"line": 5, "character": 9}});
            assert!(c.ask("textDocument/completion", params)["result"].is_array());
        }
    }
    c.end();
}

/// 20,000 lines: the time from a key to its diagnostics. The bound of 100 ms is for a release build.
#[test]
fn diagnostics_of_a_large_file_are_quick() {
    let mut text = String::new();
    for f in 0..1000 {
        text += &format!("func.func @f{f}(%x: tensor<64x48xf32>) -> tensor<64x48xf32> {{\n");
        for i in 0..17 {
            let from = if i == 0 { "x".to_string() } else { format!("v{}", i - 1) };
            text += &format!("  %v{i} = core.{} %{from} : tensor<64x48xf32>\n", ["exp", "neg", "tanh"][i % 3]);
        }
        text += "  func.return %v16\n}\n";
    }
    assert_eq!(text.lines().count(), 20_000);
    let mut c = Client::open(&text);
    assert!(c.diagnostics().is_empty());
    let mut times = Vec::new();
    for i in 0..9 {
        let line = 10_001 + i;
        let at = json!({"line": line, "character": 2});
        let start = Instant::now();
        c.change(i + 2, json!({"range": {"start": at, "end": at}, "text": if i % 2 == 0 { "x" } else { " " }}));
        c.diagnostics();
        times.push(start.elapsed());
    }
    times.sort();
    eprintln!("from a key to diagnostics of 20,000 lines: median {:?}, worst {:?}", times[4], times[8]);
    let bound = Duration::from_millis(if cfg!(debug_assertions) { 2000 } else { 100 });
    assert!(times[4] <= bound, "{times:?}");
    c.end();
}
