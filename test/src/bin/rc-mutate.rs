//! `rc-mutate`: broken texts, pipelines, rewrite rules and messages to the language server. Nothing may panic, hang or take much memory.

use clap::{Parser, ValueEnum};
use rc_ir::loc::Source;
use rc_ir::pass::{PassManager, registered};
use rc_ir::print::{PrintOptions, print_module};
use rc_ir::rewrite::{RewriteConfig, apply_patterns};
use rc_parser::ParseOptions;
use rc_passes::rules::{BUILT_IN, read};
use rc_test::mutate::{Random, mutated, pipeline};
use std::io::{BufRead, BufReader, Read, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum What {
    /// Texts are parsed, verified, printed and parsed again
    Text,
    /// Texts that are right run through pipelines
    Pipelines,
    /// Rules are read, and applied to texts that are right
    Rules,
    /// A language server gets files, changes and questions
    Messages,
}

/// Gives rc broken input, made of the repository's files
#[derive(Parser)]
#[command(name = "rc-mutate")]
struct Options {
    what: What,
    /// Decides the input; another one each time by default
    #[arg(long)]
    seed: Option<u64>,
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Folders of the files to start from
    #[arg(long, default_values = ["test", "examples"])]
    from: Vec<PathBuf>,
    /// The language server
    #[arg(long, default_value = "target/release/rc-lsp")]
    lsp: PathBuf,
    /// A folder for the input that shows a mistake
    #[arg(long, default_value = "target/mutate")]
    keep: PathBuf,
}

/// More than an input of some kilobytes may take.
const SLOW: Duration = Duration::from_secs(20);

fn main() -> ExitCode {
    let options = Options::parse();
    rc_dialects::register();
    rc_passes::register();
    let seed = options.seed.unwrap_or_else(|| std::time::UNIX_EPOCH.elapsed().map_or(1, |t| t.as_secs()));
    let files = files(&options.from);
    if files.is_empty() {
        eprintln!("error: there are no .ir files in {:?}", options.from);
        return ExitCode::FAILURE;
    }
    let mut random = Random::new(seed);
    let (until, mut cases, mut wrong) = (Instant::now() + Duration::from_secs(options.seconds), 0, 0);
    if options.what != What::Messages {
        std::panic::set_hook(Box::new(|_| ()));
    }
    let rules = rules_and_forms();
    let mut server = None;
    while Instant::now() < until {
        let input = mutated(random.pick::<String>(&files), random.pick::<String>(&files), &mut random);
        let start = busy();
        let (input, found) = match options.what {
            What::Text => (vec![input.clone()], text(&input)),
            What::Pipelines => pipelines(random.pick::<String>(&files), &input, &mut random),
            What::Rules => {
                let changed = mutated(random.pick::<String>(&rules), random.pick::<String>(&rules), &mut random);
                apply_rules(&changed, random.pick::<String>(&files))
            }
            What::Messages => messages(&mut server, &options.lsp, &input, &mut random),
        };
        let found = found.or_else(|| {
            let took = busy().saturating_sub(start);
            (took > SLOW).then(|| format!("takes {took:?}"))
        });
        cases += 1;
        if let Some(why) = found {
            wrong += 1;
            println!("case {cases} of seed {seed}: {}", why.lines().take(3).collect::<Vec<_>>().join(" | "));
            keep(&options.keep, &format!("{:?}-{seed}-{cases}", options.what).to_lowercase(), &input);
        }
    }
    println!("{cases} cases of seed {seed}, {wrong} wrong");
    if wrong == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// What the process has computed for, whatever else the machine does.
fn busy() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let behind_name = stat.rsplit(')').next().unwrap_or_default();
    // User and system time, in hundredths of a second.
    let ticks = behind_name.split_whitespace().skip(11).take(2).filter_map(|n| n.parse::<u64>().ok());
    Duration::from_millis(ticks.sum::<u64>() * 10)
}

fn files(folders: &[PathBuf]) -> Vec<String> {
    let mut found = Vec::new();
    let mut work = folders.to_vec();
    while let Some(folder) = work.pop() {
        let mut entries: Vec<PathBuf> =
            std::fs::read_dir(folder).into_iter().flatten().flatten().map(|e| e.path()).collect();
        entries.sort();
        for path in entries {
            match path.extension() {
                _ if path.is_dir() => work.push(path),
                Some(ir) if ir == "ir" => found.extend(std::fs::read_to_string(path)),
                _ => {}
            }
        }
    }
    // Pieces, as of --split-input-file: what is small is changed in more places.
    found.retain(|text| text.len() < 20_000);
    found.iter().flat_map(|text| text.split("// -----")).map(str::to_string).filter(|t| !t.trim().is_empty()).collect()
}

fn keep(folder: &Path, name: &str, input: &[Vec<u8>]) {
    let text = input.join(&b"\n// ==== \n"[..]);
    let written =
        std::fs::create_dir_all(folder).and_then(|()| std::fs::write(folder.join(format!("{name}.ir")), text));
    if let Err(error) = written {
        eprintln!("cannot write to '{}': {error}", folder.display());
    }
}

fn panic_text(panic: Box<dyn std::any::Any + Send>) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    let text = text.or_else(|| panic.downcast_ref::<&str>().map(|s| s.to_string()));
    format!("panics: {}", text.unwrap_or_default())
}

const ANY: ParseOptions = ParseOptions { allow_unregistered: true };

/// What is wrong with how a text is read.
fn text(bytes: &[u8]) -> Option<String> {
    let check = || -> Option<String> {
        let (module, diagnostics) = rc_parser::parse_bytes("mutated.ir", bytes.to_vec(), &ANY);
        diagnostics.iter().for_each(|d| drop(d.render()));
        let module = module?;
        rc_dialects::verify(&module).iter().for_each(|d| drop(d.render()));
        for form in [PrintOptions::PRETTY, PrintOptions::GENERIC] {
            let text = print_module(&module, &form);
            let (again, diagnostics) = rc_parser::parse_module_with("again.ir", text.clone(), &ANY);
            let Some(again) = again else {
                let errors: String = diagnostics.iter().map(|d| d.render()).collect();
                return Some(format!("what is printed does not parse: {errors}"));
            };
            if print_module(&again, &form) != text {
                return Some("prints differently when read again".into());
            }
        }
        None
    };
    catch_unwind(AssertUnwindSafe(check)).unwrap_or_else(|panic| Some(panic_text(panic)))
}

/// What is wrong with how a pipeline runs on a text.
fn pipelines(file: &str, mutated: &[u8], random: &mut Random) -> (Vec<Vec<u8>>, Option<String>) {
    let passes: Vec<&str> = registered().iter().map(|pass| pass.name).collect();
    let options: Vec<String> =
        registered().iter().flat_map(|pass| pass.options).map(|option| option.name.to_string()).collect();
    let line = pipeline(&passes, &options, random);
    let bytes = if random.below(2) == 0 { mutated } else { file.as_bytes() };
    let run = || -> Option<String> {
        let passes = match rc_parser::pipeline::parse_pipeline("--pass-pipeline", &line) {
            Ok(passes) => passes,
            Err(errors) => {
                errors.iter().for_each(|d| drop(d.render()));
                return None;
            }
        };
        let (module, _) = rc_parser::parse_bytes("mutated.ir", bytes.to_vec(), &ParseOptions::default());
        let mut module = module.filter(|module| rc_dialects::verify(module).is_empty())?;
        let report = PassManager::new(passes).run(&mut module);
        let bug = |text: &str| text.contains("this is a bug in");
        let errors: Vec<String> = report.errors.iter().map(|d| d.render()).collect();
        errors.into_iter().find(|text| bug(text))
    };
    let found = catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| Some(panic_text(panic)));
    (vec![format!("// RUN: rc-opt --pass-pipeline='{line}' %s").into_bytes(), bytes.to_vec()], found)
}

/// rc's own rules one by one, each behind the forms of its file.
fn rules_and_forms() -> Vec<String> {
    let mut found = Vec::new();
    for (_, text) in BUILT_IN {
        let pieces: Vec<&str> = text.split("\n\n").collect();
        let forms: String =
            pieces.iter().filter(|piece| piece.contains("form ")).map(|piece| format!("{piece}\n")).collect();
        let rules = pieces.iter().filter(|piece| piece.contains("rule "));
        found
            .extend(rules.map(|rule| if rule.contains("let %") { format!("{forms}{rule}") } else { rule.to_string() }));
    }
    found
}

/// What is wrong with how rules are read, and applied to a text.
fn apply_rules(bytes: &[u8], file: &str) -> (Vec<Vec<u8>>, Option<String>) {
    let text = String::from_utf8_lossy(bytes).into_owned();
    let run = || -> Option<String> {
        let rules = match read(&Source::register("mutated.rules", text.clone())) {
            Ok(rules) => rules,
            Err(errors) => {
                errors.iter().for_each(|d| drop(d.render()));
                return None;
            }
        };
        let (module, _) = rc_parser::parse_bytes("file.ir", file.as_bytes().to_vec(), &ParseOptions::default());
        let mut module = module.filter(|module| rc_dialects::verify(module).is_empty())?;
        let config = RewriteConfig { fold: false, erase_dead: true, max_rewrites: Some(1000) };
        for body in &mut module.bodies {
            if let Err(error) = apply_patterns(body, &rules.patterns(), &config) {
                error.render();
                return None;
            }
        }
        let broken = rc_dialects::verify(&module);
        broken.first().map(|error| format!("rules leave what does not verify: {}", error.message))
    };
    let found = catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| Some(panic_text(panic)));
    (vec![text.into_bytes(), file.as_bytes().to_vec()], found)
}

/// A language server and how many questions it was asked.
struct Server {
    child: Child,
    answers: std::sync::mpsc::Receiver<()>,
    version: i64,
}

impl Server {
    fn start(program: &Path) -> Result<Server, String> {
        let mut command = Command::new(program);
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
        let mut child = child.map_err(|e| format!("cannot run '{}': {e}", program.display()))?;
        let (sender, answers) = std::sync::mpsc::channel();
        let out = child.stdout.take().ok_or("the server has no output")?;
        std::thread::spawn(move || {
            let mut out = BufReader::new(out);
            let mut line = String::new();
            let mut length = 0;
            while out.read_line(&mut line).is_ok_and(|n| n > 0) {
                if let Some(n) = line.trim().strip_prefix("Content-Length: ") {
                    length = n.parse().unwrap_or(0);
                } else if line.trim().is_empty() {
                    let mut body = vec![0; length];
                    if out.read_exact(&mut body).is_err() {
                        return;
                    }
                    if String::from_utf8_lossy(&body).contains("\"id\":\"last\"") && sender.send(()).is_err() {
                        return;
                    }
                }
                line.clear();
            }
        });
        let mut server = Server { child, answers, version: 0 };
        server.tell(r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"capabilities":{}}}"#);
        Ok(server)
    }
    fn tell(&mut self, body: &str) {
        let message = format!("Content-Length: {}\r\n\r\n{body}", body.len());
        self.raw(message.as_bytes());
    }
    /// A server that hung up is found when it does not answer.
    fn raw(&mut self, bytes: &[u8]) {
        if let Some(input) = &mut self.child.stdin {
            let _ = input.write_all(bytes).and_then(|()| input.flush());
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

const METHODS: [&str; 13] = [
    "textDocument/hover",
    "textDocument/definition",
    "textDocument/references",
    "textDocument/documentHighlight",
    "textDocument/prepareRename",
    "textDocument/rename",
    "textDocument/completion",
    "textDocument/formatting",
    "textDocument/documentSymbol",
    "textDocument/codeLens",
    "rc/lowered",
    "textDocument/didChange",
    "no/such",
];

/// What is wrong with how the server takes a file, changes and questions.
fn messages(
    server: &mut Option<Server>,
    program: &Path,
    file: &[u8],
    random: &mut Random,
) -> (Vec<Vec<u8>>, Option<String>) {
    let mut sent: Vec<String> = Vec::new();
    let running = match server.take().map_or_else(|| Server::start(program), Ok) {
        Ok(running) => server.insert(running),
        Err(why) => return (Vec::new(), Some(why)),
    };
    running.version += 1;
    let text = quoted(&String::from_utf8_lossy(file));
    let (version, document) = (running.version, r#"{"uri":"file:///t.ir","languageId":"rc","version":"#);
    sent.push(format!(
        r#"{{"jsonrpc":"2.0","method":"textDocument/didOpen","params":{{"textDocument":{document}{version},"text":{text}}}}}}}"#
    ));
    for id in 0..6 {
        let place =
            |random: &mut Random| format!(r#"{{"line":{},"character":{}}}"#, random.below(40), random.below(100));
        let (at, end, method) = (place(random), place(random), *random.pick(&METHODS));
        let word = quoted(random.pick::<&str>(&["x", "", "%", "@main", "a b", "main", "\u{1d11e}"]));
        let body = format!(
            r#"{{"jsonrpc":"2.0","id":"{id}","method":"{method}","params":{{"textDocument":{{"uri":"file:///t.ir","version":{version}}},"position":{at},"newName":{word},"symbol":{word},"contentChanges":[{{"range":{{"start":{at},"end":{end}}},"text":{word}}}]}}}}"#
        );
        let broken =
            || String::from_utf8_lossy(&mutated(&body, &body, &mut Random::new(version as u64 * 7 + id))).into_owned();
        sent.push(if random.below(8) == 0 { broken() } else { body.clone() });
        if random.below(5) == 0 {
            sent.push(format!(r#"{{"jsonrpc":"2.0","method":"$/cancelRequest","params":{{"id":"{id}"}}}}"#));
        }
    }
    sent.push(r#"{"jsonrpc":"2.0","id":"last","method":"textDocument/documentSymbol","params":{"textDocument":{"uri":"file:///t.ir"}}}"#.into());
    sent.iter().for_each(|message| running.tell(message));
    let answered = running.answers.recv_timeout(SLOW).is_ok();
    let memory = std::fs::read_to_string(format!("/proc/{}/statm", running.child.id())).unwrap_or_default();
    let pages: u64 = memory.split(' ').nth(1).and_then(|n| n.parse().ok()).unwrap_or(0);
    let found = match answered {
        false => Some("the server does not answer".to_string()),
        true if pages > 1 << 18 => Some(format!("the server has {} MiB", pages >> 8)),
        true => None,
    };
    if found.is_some() {
        *server = None;
    }
    (sent.into_iter().map(String::into_bytes).collect(), found)
}

/// A string in JSON.
fn quoted(text: &str) -> String {
    let mut out = String::from('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if c < ' ' => out += &format!("\\u{:04x}", c as u32),
            c => out.push(c),
        }
    }
    out + "\""
}
