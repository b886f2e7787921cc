//! `rc-fuzz`: random modules through every phase. Prints what failed, reduced, and writes it to a folder.

use clap::Parser;
use rc_test::fuzz::{HERE, Outcome, Seeds, TARGETS, Target, build, check, native, reduced};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

/// Lowers random modules for several machines, and executes them after every phase
#[derive(Parser)]
#[command(name = "rc-fuzz")]
struct Options {
    /// Decides the modules; another one each time by default
    #[arg(long)]
    seed: Option<u64>,
    /// The first case
    #[arg(long, default_value_t = 0)]
    first: u64,
    /// How many modules
    #[arg(long, default_value_t = 100)]
    cases: u64,
    /// Writes what failed, reduced, as files of this folder
    #[arg(long, value_name = "FOLDER")]
    keep: Option<PathBuf>,
    /// Prints the modules and runs nothing
    #[arg(long)]
    print: bool,
    /// Runs each module as machine code of this CPU, too: by this program
    #[arg(long, value_name = "RC-RUN")]
    run: Option<PathBuf>,
    /// Prints each case's number and time
    #[arg(long)]
    verbose: bool,
}

fn main() -> ExitCode {
    let options = Options::parse();
    let now = || std::time::UNIX_EPOCH.elapsed().map_or(0, |t| t.as_secs());
    let seed = options.seed.unwrap_or_else(now);
    std::panic::set_hook(Box::new(|_| ()));
    let mut refused: BTreeMap<String, usize> = BTreeMap::new();
    let mut failed = 0;
    let start = Instant::now();
    for case in options.first..options.first + options.cases {
        let seeds = Seeds::of(seed, case);
        if options.print {
            println!("// case {case}\n{}", build(&seeds).text);
            continue;
        }
        let begun = Instant::now();
        for target in TARGETS.into_iter().chain(options.run.is_some().then_some(HERE)) {
            match tried(&options, &seeds, target) {
                Outcome::Same => {}
                Outcome::Refused(why) => *refused.entry(why).or_default() += 1,
                Outcome::Failed(_) => {
                    failed += 1;
                    report(&options, seed, case, &seeds, target);
                    break;
                }
            }
        }
        if options.verbose {
            eprintln!("case {case}: {:.2} s", begun.elapsed().as_secs_f64());
        }
    }
    for (why, count) in &refused {
        println!("{count:6} times {why}");
    }
    println!("seed {seed}: {failed} of {} modules failed, {:.0} s", options.cases, start.elapsed().as_secs_f64());
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Lowers the module step by step for a target, or runs it here.
fn tried(options: &Options, seeds: &Seeds, target: Target) -> Outcome {
    match options.run.as_ref().filter(|_| target == HERE) {
        Some(program) => native::run(&build(seeds), program),
        None => check(&build(seeds), target),
    }
}

fn report(options: &Options, seed: u64, case: u64, seeds: &Seeds, target: Target) {
    let after = |seeds: &Seeds| match tried(options, seeds, target) {
        Outcome::Failed(finding) => Some(finding.after),
        _ => None,
    };
    let first = after(seeds);
    let seeds = reduced(seeds, &mut |seeds| after(seeds) == first);
    let module = build(&seeds);
    let Outcome::Failed(finding) = tried(options, &seeds, target) else { return };
    let symbols = module.symbols;
    let text = format!(
        "// Seed {seed}, case {case}, for {} {}, s = {}, t = {}; after {}:\n// {}\n{}",
        target.machine,
        target.arch,
        symbols.s,
        symbols.t,
        finding.after,
        finding.what.trim().replace('\n', "\n// "),
        module.text
    );
    println!("{text}");
    if let Some(folder) = &options.keep {
        let path = folder.join(format!("{seed}-{case}.ir"));
        let written = std::fs::create_dir_all(folder).and_then(|()| std::fs::write(&path, &text));
        if let Err(error) = written {
            eprintln!("error: cannot write {}: {error}", path.display());
        }
    }
}
