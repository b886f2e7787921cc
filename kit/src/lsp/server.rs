//! What is asked, what is told.

use super::document::Document;
use super::names::{Kind, Place};
use super::transport::Incoming;
use super::{complete, format, hover, lowered};
use lsp_server::{ErrorCode, Message, Notification, Request, RequestId, Response};
use lsp_types::notification::{self as told, Notification as _};
use lsp_types::request::{self as asked, Request as _};
use lsp_types::*;
use rc_ir::Severity;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::collections::{HashMap, HashSet, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, Sender};

pub struct Server {
    sender: Sender<Message>,
    documents: HashMap<String, Document>,
    /// Files whose diagnostics are to be told.
    changed: HashSet<String>,
    shut_down: bool,
}

/// Why a request has no answer.
struct Failure(ErrorCode, String);

impl From<String> for Failure {
    fn from(message: String) -> Failure {
        Failure(ErrorCode::RequestFailed, message)
    }
}

type Answer = Result<Value, Failure>;

impl Server {
    pub fn new(sender: Sender<Message>) -> Server {
        Server { sender, documents: HashMap::new(), changed: HashSet::new(), shut_down: false }
    }

    /// Serves until `exit`, or until nothing comes any more. Whether `shutdown` came before.
    pub fn run(mut self, receiver: &Receiver<Incoming>) -> bool {
        let mut waiting: VecDeque<Message> = VecDeque::new();
        loop {
            if waiting.is_empty() {
                match receiver.recv() {
                    Ok(incoming) => self.take(incoming, &mut waiting),
                    Err(_) => return self.shut_down,
                }
            }
            // All that has come: so that what is cancelled is not worked on, and diagnostics are those of the latest text.
            receiver.try_iter().for_each(|incoming| self.take(incoming, &mut waiting));
            match waiting.pop_front() {
                Some(Message::Notification(note)) if note.method == told::Exit::METHOD => return self.shut_down,
                Some(message) => self.handle(message),
                None => {}
            }
            if waiting.is_empty() {
                self.publish();
            }
        }
    }

    fn take(&mut self, incoming: Incoming, waiting: &mut VecDeque<Message>) {
        match incoming {
            Incoming::Malformed(why) => self.log(format!("a message is malformed: {why}")),
            Incoming::Message(Message::Notification(note)) if note.method == told::Cancel::METHOD => {
                self.cancel(&note, waiting);
            }
            Incoming::Message(message) => waiting.push_back(message),
        }
    }

    /// Answers a waiting request by saying that it was cancelled. One that is answered already is none.
    fn cancel(&self, note: &Notification, waiting: &mut VecDeque<Message>) {
        let id: Option<RequestId> = note.params.get("id").and_then(|id| serde_json::from_value(id.clone()).ok());
        let at = waiting.iter().position(|m| matches!(m, Message::Request(r) if Some(&r.id) == id.as_ref()));
        if let Some(Message::Request(request)) = at.and_then(|at| waiting.remove(at)) {
            self.answer(request.id, Err(Failure(ErrorCode::RequestCanceled, "cancelled".into())));
        }
    }

    fn handle(&mut self, message: Message) {
        match message {
            Message::Request(request) => {
                let id = request.id.clone();
                // A mistake in the server costs an answer, not the process.
                let answer = catch_unwind(AssertUnwindSafe(|| self.request(request)));
                let failed = || Failure(ErrorCode::InternalError, "the server failed on an internal check".into());
                self.answer(id, answer.unwrap_or_else(|_| Err(failed())));
            }
            Message::Notification(note) => {
                let method = note.method.clone();
                if !matches!(catch_unwind(AssertUnwindSafe(|| self.notification(note))), Ok(Some(()))) {
                    self.log(format!("'{method}' was not understood"));
                }
            }
            Message::Response(_) => {}
        }
    }

    fn answer(&self, id: RequestId, answer: Answer) {
        let response = match answer {
            Ok(value) => Response::new_ok(id, value),
            Err(Failure(code, message)) => Response::new_err(id, code as i32, message),
        };
        let _ = self.sender.send(Message::Response(response));
    }

    fn tell<N: told::Notification>(&self, params: N::Params) {
        let _ = self.sender.send(Message::Notification(Notification::new(N::METHOD.into(), params)));
    }

    fn log(&self, message: String) {
        self.tell::<told::LogMessage>(LogMessageParams { typ: MessageType::WARNING, message });
    }

    // ---- what is told ----

    /// `None`: the parameters are wrong.
    fn notification(&mut self, note: Notification) -> Option<()> {
        match note.method.as_str() {
            told::DidOpenTextDocument::METHOD => {
                let TextDocumentItem { uri, version, text, .. } =
                    parse::<DidOpenTextDocumentParams>(note.params)?.text_document;
                self.changed.insert(uri.as_str().to_string());
                self.documents.insert(uri.as_str().to_string(), Document::new(uri, version, text));
            }
            told::DidChangeTextDocument::METHOD => {
                let params = parse::<DidChangeTextDocumentParams>(note.params)?;
                let uri = params.text_document.uri.as_str();
                let document = self.documents.get_mut(uri)?;
                document.version = params.text_document.version;
                params.content_changes.into_iter().for_each(|change| document.change(change));
                self.changed.insert(uri.to_string());
            }
            told::DidCloseTextDocument::METHOD => {
                let uri = parse::<DidCloseTextDocumentParams>(note.params)?.text_document.uri;
                self.documents.remove(uri.as_str())?;
                self.changed.remove(uri.as_str());
                self.tell::<told::PublishDiagnostics>(PublishDiagnosticsParams {
                    uri,
                    diagnostics: vec![],
                    version: None,
                });
            }
            // Others say nothing that matters here.
            _ => {}
        }
        Some(())
    }

    fn publish(&mut self) {
        for uri in std::mem::take(&mut self.changed) {
            let Some(document) = self.documents.get_mut(&uri) else { continue };
            // The parser and the verifier are not to panic; if one does, the file has no diagnostics this time.
            let found = catch_unwind(AssertUnwindSafe(|| diagnostics(document)));
            let params = PublishDiagnosticsParams {
                uri: document.uri.clone(),
                version: Some(document.version),
                diagnostics: found.unwrap_or_default(),
            };
            self.tell::<told::PublishDiagnostics>(params);
        }
    }

    // ---- what is asked ----

    fn request(&mut self, request: Request) -> Answer {
        let params = request.params;
        match request.method.as_str() {
            asked::Initialize::METHOD => Ok(capabilities()),
            asked::Shutdown::METHOD => {
                self.shut_down = true;
                Ok(Value::Null)
            }
            asked::HoverRequest::METHOD => self.hover(&params),
            asked::GotoDefinition::METHOD => self.definition(&params),
            asked::References::METHOD => self.references(&params),
            asked::DocumentHighlightRequest::METHOD => self.highlights(&params),
            asked::PrepareRenameRequest::METHOD => self.prepare_rename(&params),
            asked::Rename::METHOD => self.rename(&params),
            asked::Completion::METHOD => {
                let (document, offset) = self.place(&params)?;
                Ok(json!(complete::complete(document, offset)))
            }
            asked::Formatting::METHOD => Ok(json!(format::format(self.document(&params)?))),
            asked::DocumentSymbolRequest::METHOD => Ok(json!(symbols(self.document(&params)?))),
            asked::CodeLensRequest::METHOD => Ok(json!(lenses(self.document(&params)?))),
            "rc/lowered" => self.lowered(&params),
            other => Err(Failure(ErrorCode::MethodNotFound, format!("'{other}' is not supported"))),
        }
    }

    /// The document that parameters name.
    fn document(&mut self, params: &Value) -> Result<&mut Document, Failure> {
        let uri = params.pointer("/textDocument/uri").and_then(Value::as_str);
        let uri = uri.ok_or_else(|| Failure(ErrorCode::InvalidParams, "no document is named".into()))?;
        let unknown = || Failure(ErrorCode::InvalidParams, format!("'{uri}' is not open"));
        self.documents.get_mut(uri).ok_or_else(unknown)
    }

    /// The document and the offset that parameters name.
    fn place(&mut self, params: &Value) -> Result<(&mut Document, usize), Failure> {
        let position: Option<Position> = params.get("position").and_then(|p| parse(p.clone()));
        let position =
            position.ok_or_else(|| Failure(ErrorCode::InvalidParams, "there is no right position".into()))?;
        let document = self.document(params)?;
        let offset = document.offset(position);
        Ok((document, offset))
    }

    /// The document, and the number of the name at the position.
    fn name(&mut self, params: &Value) -> Result<(&mut Document, Option<usize>), Failure> {
        let (document, offset) = self.place(params)?;
        let name = document.names().at(offset);
        Ok((document, name))
    }

    fn hover(&mut self, params: &Value) -> Answer {
        let (document, offset) = self.place(params)?;
        let Some((value, range)) = hover::hover(document, offset) else { return Ok(Value::Null) };
        let contents = HoverContents::Markup(MarkupContent { kind: MarkupKind::Markdown, value });
        Ok(json!(Hover { contents, range: Some(document.range(range)) }))
    }

    fn definition(&mut self, params: &Value) -> Answer {
        let (document, name) = self.name(params)?;
        let definition = name.and_then(|n| document.names().places[n].definition);
        Ok(definition.map_or(Value::Null, |d| json!(location(document, d))))
    }

    fn references(&mut self, params: &Value) -> Answer {
        let with_definition = params.pointer("/context/includeDeclaration").and_then(Value::as_bool).unwrap_or(true);
        let (document, name) = self.name(params)?;
        let Some(name) = name else { return Ok(json!([])) };
        let mut all = document.names().same(name);
        all.retain(|&i| with_definition || document.names().places[i].definition != Some(i));
        Ok(json!(all.into_iter().map(|i| location(document, i)).collect::<Vec<_>>()))
    }

    fn highlights(&mut self, params: &Value) -> Answer {
        let (document, name) = self.name(params)?;
        let all = name.map_or(Vec::new(), |n| document.names().same(n));
        let ranges = all.into_iter().map(|i| location(document, i).range);
        Ok(json!(ranges.map(|range| DocumentHighlight { range, kind: None }).collect::<Vec<_>>()))
    }

    fn prepare_rename(&mut self, params: &Value) -> Answer {
        let (document, name) = self.name(params)?;
        let name = name.filter(|&n| document.names().places[n].definition.is_some());
        Ok(name.map_or(Value::Null, |n| json!(location(document, n).range)))
    }

    fn rename(&mut self, params: &Value) -> Answer {
        let new = params.get("newName").and_then(Value::as_str).unwrap_or_default().to_string();
        let (document, name) = self.name(params)?;
        let name = name.ok_or_else(|| Failure::from("there is no name here".to_string()))?;
        let place = document.names().places[name].clone();
        if place.definition.is_none() {
            return Err(Failure::from("what is not defined in this file cannot be renamed".to_string()));
        }
        let new = checked_name(&new, &place)?;
        let same = document.names().same(name);
        if is_taken(document, &same, &new) {
            return Err(Failure::from(format!("'{new}' is there already")));
        }
        let edit = |i| TextEdit { range: location(document, i).range, new_text: new.clone() };
        let edits: Vec<TextEdit> = same.into_iter().map(edit).collect();
        Ok(json!({ "changes": { document.uri.as_str(): edits } }))
    }

    fn lowered(&mut self, params: &Value) -> Answer {
        let text = |key: &str| params.get(key).and_then(Value::as_str).map(str::to_string);
        let symbol = text("symbol").ok_or_else(|| Failure(ErrorCode::InvalidParams, "no symbol is named".into()))?;
        let phase = text("phase").unwrap_or_else(|| "loops".into());
        let document = self.document(params)?;
        Ok(json!(lowered::lowered(document.uri.as_str(), &document.text, &symbol, &phase)?))
    }
}

fn parse<T: DeserializeOwned>(value: Value) -> Option<T> {
    serde_json::from_value(value).ok()
}

fn capabilities() -> Value {
    let capabilities = ServerCapabilities {
        text_document_sync: Some(TextDocumentSyncCapability::Kind(TextDocumentSyncKind::INCREMENTAL)),
        hover_provider: Some(HoverProviderCapability::Simple(true)),
        definition_provider: Some(OneOf::Left(true)),
        references_provider: Some(OneOf::Left(true)),
        document_highlight_provider: Some(OneOf::Left(true)),
        document_symbol_provider: Some(OneOf::Left(true)),
        document_formatting_provider: Some(OneOf::Left(true)),
        rename_provider: Some(OneOf::Right(RenameOptions {
            prepare_provider: Some(true),
            work_done_progress_options: WorkDoneProgressOptions::default(),
        })),
        completion_provider: Some(CompletionOptions {
            trigger_characters: Some(["%", "@", "#", "!", "^", ".", "{"].map(String::from).to_vec()),
            ..CompletionOptions::default()
        }),
        code_lens_provider: Some(CodeLensOptions { resolve_provider: Some(false) }),
        ..ServerCapabilities::default()
    };
    json!({
        "capabilities": capabilities,
        "serverInfo": { "name": "rc-lsp", "version": env!("CARGO_PKG_VERSION") },
    })
}

fn diagnostics(document: &mut Document) -> Vec<Diagnostic> {
    let problems = document.analysis().problems.clone();
    let related = |(range, message): (std::ops::Range<usize>, String)| DiagnosticRelatedInformation {
        location: Location::new(document.uri.clone(), document.range(range)),
        message,
    };
    let told = problems.into_iter().map(|problem| Diagnostic {
        range: document.range(problem.range),
        severity: Some(match problem.severity {
            Severity::Error => DiagnosticSeverity::ERROR,
            Severity::Warning => DiagnosticSeverity::WARNING,
            Severity::Remark => DiagnosticSeverity::INFORMATION,
        }),
        source: Some("rc".into()),
        message: problem.message,
        related_information: Some(problem.notes.into_iter().map(related).collect()),
        ..Diagnostic::default()
    });
    told.collect()
}

fn location(document: &mut Document, place: usize) -> Location {
    let name = document.names().places[place].name.clone();
    Location::new(document.uri.clone(), document.range(name))
}

/// A new name without its sigil. Errors: it is none.
fn checked_name(new: &str, place: &Place) -> Result<String, Failure> {
    let sigil = match place.kind {
        Kind::Value => '%',
        Kind::Symbol => '@',
        Kind::Block => '^',
        Kind::Alias => '#',
    };
    let bare = new.strip_prefix(sigil).unwrap_or(new);
    let first = |c: char| c.is_ascii_alphabetic() || "_$".contains(c);
    let good = bare.starts_with(first) && bare.chars().all(|c| c.is_ascii_alphanumeric() || "_$".contains(c));
    let number = place.kind == Kind::Value && !bare.is_empty() && bare.chars().all(|c| c.is_ascii_digit());
    if good || number { Ok(bare.to_string()) } else { Err(Failure::from(format!("'{new}' is no name"))) }
}

/// Whether a name that can be seen where the renamed one is used is called so already.
fn is_taken(document: &mut Document, same: &[usize], new: &str) -> bool {
    let text = document.text.clone();
    let names = document.names();
    let kind = names.places[same[0]].kind;
    same.iter().any(|&i| {
        let visible = names.visible(names.places[i].name.end + 1, kind);
        visible.into_iter().any(|d| !same.contains(&d) && text[names.places[d].name.clone()] == *new)
    })
}

/// Top-level symbols, for an outline.
#[allow(deprecated)]
fn symbols(document: &mut Document) -> Vec<SymbolInformation> {
    let text = document.text.clone();
    let defined = |p: &Place, i: usize| p.kind == Kind::Symbol && p.definition == Some(i);
    let places = &document.names().places;
    let all: Vec<usize> = (0..places.len()).filter(|&i| defined(&places[i], i)).collect();
    let symbol = |i: usize| SymbolInformation {
        name: text[document.names().places[i].name.clone()].to_string(),
        kind: SymbolKind::FUNCTION,
        tags: None,
        deprecated: None,
        location: location(document, i),
        container_name: None,
    };
    all.into_iter().map(symbol).collect()
}

/// Above each symbol: its lowered forms.
fn lenses(document: &mut Document) -> Vec<CodeLens> {
    let uri = document.uri.as_str().to_string();
    let all = symbols(document);
    let lens = |symbol: &SymbolInformation, phase: &str| CodeLens {
        range: symbol.location.range,
        command: Some(Command {
            title: phase.to_string(),
            command: "rc.showLowered".into(),
            arguments: Some(vec![json!(uri), json!(symbol.name), json!(phase)]),
        }),
        data: None,
    };
    all.iter().flat_map(|symbol| lowered::PHASES.iter().map(move |phase| lens(symbol, phase.0))).collect()
}
