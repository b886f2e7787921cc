//! Parses a file and prints it: `reprint [--generic] [--parse-only] file`, with times on stderr.

use rc_ir::print::{PrintOptions, write_module};
use std::io::Write;
use std::time::Instant;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let has = |flag: &str| args.iter().any(|a| a == flag);
    let path = args.iter().find(|a| !a.starts_with("--")).expect("a file");
    let start = Instant::now();
    let bytes = std::fs::read(path).expect("a readable file");
    let read = start.elapsed();
    let (module, diagnostics) =
        rc_parser::parse_bytes(path, bytes, &rc_parser::ParseOptions { allow_unregistered: true });
    let parsed = start.elapsed() - read;
    for d in &diagnostics {
        eprint!("{}", d.render());
    }
    let Some(module) = module else { std::process::exit(1) };
    if !has("--parse-only") {
        let options = if has("--generic") { PrintOptions::GENERIC } else { PrintOptions::PRETTY };
        let mut out = std::io::stdout().lock();
        write_module(&module, &options, &mut out).and_then(|()| out.flush()).expect("a writable output");
    }
    eprintln!("read {read:?}, parse {parsed:?}, print {:?}", start.elapsed() - read - parsed);
}
