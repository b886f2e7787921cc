//! Runs the files of a folder that have `RUN:` lines: tests of any program, as LLVM's lit runs them.

use clap::Parser;
use rc_test::lit::{Script, Shell, script};
use rc_test::update;
use similar::TextDiff;
use std::collections::BTreeSet;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Runs the files that have RUN: lines, several at once
///
/// Commands are run by bash in the current folder; `FileCheck` and what else stands beside this program is found first. Exit code 1: a test
/// fails.
#[derive(Parser)]
#[command(name = "rc-test", version)]
struct Options {
    /// Folders and files
    #[arg(required = true)]
    paths: Vec<PathBuf>,
    /// Endings of the names of tests
    #[arg(long, value_name = "ENDING", default_values_t = [".ir".to_string(), ".mlir".to_string()])]
    suffix: Vec<String>,
    /// Run tests alone whose path has this in it
    #[arg(long, value_name = "TEXT", default_value = "")]
    filter: String,
    /// A folder of programs that commands find
    #[arg(long, value_name = "DIR")]
    path: Vec<PathBuf>,
    /// A feature that REQUIRES:, UNSUPPORTED: and XFAIL: may name
    #[arg(long, value_name = "NAME")]
    feature: Vec<String>,
    /// Rewrite expectations below the line that says they are rewritten
    #[arg(long)]
    update: bool,
    /// Tests at once; the processor's threads by default
    #[arg(short, long, value_name = "N")]
    jobs: Option<NonZeroUsize>,
}

#[derive(PartialEq, Eq)]
enum Outcome {
    Passed,
    /// And was to.
    Failed,
    Skipped(String),
    Wrong(String),
}

fn main() -> ExitCode {
    let options = Options::parse();
    match run(&options) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Whether all tests pass.
fn run(options: &Options) -> Result<bool, String> {
    let files = files(options)?;
    let programs = programs(options)?;
    let jobs = options.jobs.or(std::thread::available_parallelism().ok()).map_or(1, NonZeroUsize::get);
    let next = AtomicUsize::new(0);
    let outcomes: Mutex<Vec<Option<Outcome>>> = Mutex::new(files.iter().map(|_| None).collect());
    std::thread::scope(|scope| {
        for _ in 0..jobs.min(files.len()) {
            scope.spawn(|| {
                while let Some(file) = files.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let outcome = test(file, options, &programs).unwrap_or_else(Outcome::Wrong);
                    let at = files.iter().position(|f| f == file).unwrap_or(0);
                    outcomes.lock().unwrap_or_else(|poisoned| poisoned.into_inner())[at] = Some(outcome);
                }
            });
        }
    });
    let outcomes = outcomes.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
    Ok(report(&files, &outcomes))
}

/// Prints what went wrong, in the order of the files, and a count.
fn report(files: &[PathBuf], outcomes: &[Option<Outcome>]) -> bool {
    let mut counts = [0; 4];
    for (file, outcome) in files.iter().zip(outcomes) {
        let (kind, line) = match outcome {
            Some(Outcome::Passed) => (0, None),
            Some(Outcome::Failed) => (1, None),
            Some(Outcome::Skipped(why)) => (2, Some(format!("skipped: {}: {why}", file.display()))),
            Some(Outcome::Wrong(why)) => (3, Some(format!("FAILED: {}\n{}", file.display(), why.trim_end()))),
            None => (3, Some(format!("FAILED: {}: it was not run", file.display()))),
        };
        counts[kind] += 1;
        if let Some(line) = line {
            println!("{line}");
        }
    }
    let [passed, expected, skipped, wrong] = counts;
    println!("{passed} passed, {expected} failed as they were to, {skipped} skipped, {wrong} failed");
    wrong == 0
}

/// The files to run, sorted. Errors: a path that is not there; none at all.
fn files(options: &Options) -> Result<Vec<PathBuf>, String> {
    let mut found = BTreeSet::new();
    for path in &options.paths {
        if path.is_file() {
            found.insert(path.clone());
        } else {
            collect(path, &options.suffix, &mut found)?;
        }
    }
    let has_runs = |file: &PathBuf| std::fs::read_to_string(file).is_ok_and(|text| text.contains("RUN:"));
    let wanted = |file: &PathBuf| file.display().to_string().contains(&options.filter) && has_runs(file);
    let files: Vec<PathBuf> = found.into_iter().filter(wanted).collect();
    if files.is_empty() { Err("no file has RUN: lines".into()) } else { Ok(files) }
}

/// Files below a folder; what lies in folders called Inputs is no test.
fn collect(folder: &Path, suffixes: &[String], found: &mut BTreeSet<PathBuf>) -> Result<(), String> {
    let entries = std::fs::read_dir(folder).map_err(|e| format!("cannot read '{}': {e}", folder.display()))?;
    for path in entries.flatten().map(|entry| entry.path()) {
        if path.is_dir() {
            if path.file_name().is_none_or(|name| name != "Inputs") {
                collect(&path, suffixes, found)?;
            }
        } else if suffixes.iter().any(|s| path.to_string_lossy().ends_with(s)) {
            found.insert(path);
        }
    }
    Ok(())
}

/// The folders of programs, as PATH has them.
fn programs(options: &Options) -> Result<PathBuf, String> {
    let own = std::env::current_exe().ok().and_then(|exe| exe.parent().map(Path::to_path_buf));
    let folders = options.path.iter().map(|path| path.canonicalize().map_err(|e| format!("'{}': {e}", path.display())));
    let folders: Vec<PathBuf> = folders.collect::<Result<_, _>>()?;
    std::env::join_paths(folders.into_iter().chain(own)).map(PathBuf::from).map_err(|e| e.to_string())
}

fn test(file: &Path, options: &Options, programs: &Path) -> Result<Outcome, String> {
    let text = std::fs::read_to_string(file).map_err(|e| e.to_string())?;
    let script = script(&text)?;
    let has = |name: &str| Ok(options.feature.iter().any(|f| f == name));
    if let Some(why) = script.skipped(&has)? {
        return Ok(Outcome::Skipped(why));
    }
    let folder = tempfile::tempdir().map_err(|e| format!("cannot make a temporary folder: {e}"))?;
    let temp = folder.path().join("t");
    let shell = Shell { programs, root: Path::new(".") };
    let updated = |script: &Script| update::updated(&text, script, &shell, file, &temp);
    if options.update
        && let Some(new) = updated(&script)?.filter(|new| *new != text)
    {
        std::fs::write(file, new).map_err(|e| format!("cannot write '{}': {e}", file.display()))?;
    }
    Ok(match (shell.run_script(&script, file, &temp), script.fails(&has)?) {
        (Ok(()), false) => Outcome::Passed,
        (Ok(()), true) => Outcome::Wrong("it passes, and XFAIL: says that it fails".into()),
        (Err(_), true) => Outcome::Failed,
        // Of whole outputs the difference says more than the first line that is not met.
        (Err(why), false) => Outcome::Wrong(match updated(&script) {
            Ok(Some(new)) if new != text && !options.update => format!("{why}\n{}", difference(&text, &new)),
            _ => why,
        }),
    })
}

fn difference(old: &str, new: &str) -> String {
    TextDiff::from_lines(old, new).unified_diff().context_radius(2).header("expected", "is").to_string()
}
