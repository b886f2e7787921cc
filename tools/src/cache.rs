//! `rc-cache`: what the cache of compiled modules holds.

use crate::files::{self, note_line, print_line};
use rc::cache::{Cache, Key, mistaken};
use rc::{Target, is_compiled};
use rc_ir::{Diagnostic, Loc};
use rc_parser::ParseOptions;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::SystemTime;

/// Looks into the cache of compiled modules: RC_CACHE_DIR, by default ~/.cache/rc
#[derive(clap::Parser, Clone, Debug)]
#[command(name = "rc-cache", version)]
pub struct Options {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand, Clone, Debug)]
enum Command {
    /// List the entries, the one used last first
    List,
    /// Remove all entries
    Clear,
    /// Say whether a module is there, compiled; else in what the nearest entry differs
    Why {
        /// The module
        input: PathBuf,
        /// The processor: host, or LLVM's name of a CPU; sm_90a, sm_80, …
        #[arg(long, default_value = "host")]
        arch: String,
    },
}

/// Does what the options say.
pub fn run(options: &Options) -> ExitCode {
    mistaken().iter().for_each(|why| note_line(format_args!("warning: {why}")));
    let Some(cache) = Cache::open() else {
        note_line("the cache is off (RC_CACHE=off), or there is no folder for it (RC_CACHE_DIR, HOME)");
        return ExitCode::FAILURE;
    };
    let done = match &options.command {
        Command::List => list(&cache),
        Command::Clear => clear(&cache),
        Command::Why { input, arch } => why(&cache, input, arch),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            note_line(format_args!("error: {message}"));
            ExitCode::FAILURE
        }
    }
}

fn list(cache: &Cache) -> Result<(), String> {
    let entries = cache.entries();
    for entry in &entries {
        let age = SystemTime::now().duration_since(entry.used).unwrap_or_default().as_secs();
        let name = entry.path.strip_prefix(cache.folder()).unwrap_or(&entry.path);
        print_line(format_args!("{:10} bytes, used {age} s ago  {}", entry.bytes, name.display()))?;
    }
    let total: u64 = entries.iter().map(|entry| entry.bytes).sum();
    let count = if entries.len() == 1 { "1 entry".into() } else { format!("{} entries", entries.len()) };
    print_line(format_args!("{count} of {total} bytes in {}", cache.folder().display()))
}

fn clear(cache: &Cache) -> Result<(), String> {
    match cache.clear() {
        0 => Ok(()),
        left => Err(format!("{left} entries in {} could not be removed", cache.folder().display())),
    }
}

fn why(cache: &Cache, input: &Path, arch: &str) -> Result<(), String> {
    let bytes = files::read(input)?;
    let (module, errors) = rc_parser::parse_bytes(&input.display().to_string(), bytes, &ParseOptions::default());
    let module = module.ok_or_else(|| errors.iter().map(Diagnostic::render).collect::<String>())?;
    if is_compiled(&module) {
        return Err(Diagnostic::error(Loc::UNKNOWN, "the module is compiled already").message.clone());
    }
    let target = Target::find(if arch.starts_with("sm_") { "cuda" } else { "cpu" }, Some(arch))?;
    let key = Key::new(&module, &target);
    match cache.nearest(&key) {
        None => print_line(format_args!("{}: not in the cache, which has no entries", key.id())),
        Some((entry, differences)) if differences.is_empty() => {
            print_line(format_args!("{}: in the cache, {} bytes", key.id(), entry.bytes))
        }
        Some((entry, differences)) => {
            let name = entry.path.file_stem().unwrap_or_default().to_string_lossy();
            print_line(format_args!("{}: not in the cache; from the nearest entry {name} differs:", key.id()))?;
            differences.iter().try_for_each(|what| print_line(format_args!("  {what}")))
        }
    }
}
