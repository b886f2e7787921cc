//! `rc-kernel-bench FILE…`: kernels in text, lowered, run, checked against float64, timed.
//!
//! ```text
//! rc-kernel-bench test/kernels/matmul-hopper.ir --size 4096,4096,4096 --size 2048,11008,4096
//! ```
//!
//! The file's name up to its first dash says what the kernel computes: see [`rc_bench::case`].

use clap::Parser;
use rc_bench::{cpu, cuda, load};
use rc_lowering::pass::{cpu_target, cuda_target};
use std::path::PathBuf;
use std::process::ExitCode;

/// Lowers kernels, runs them on this machine, checks them against float64 and times them.
#[derive(Parser)]
struct Arguments {
    /// Files with one kernel.func each, in the thread phase.
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// The problem's size, such as m,n,k; may be given several times. A few by default.
    #[arg(long)]
    size: Vec<String>,
    /// The processor: a CUDA architecture (sm_90a by default), or LLVM's name of a CPU (this one by default).
    #[arg(long)]
    arch: Option<String>,
    /// Writes PTX or assembly to this file and runs nothing.
    #[arg(long)]
    emit: Option<PathBuf>,
    /// Timed launches.
    #[arg(long, default_value_t = 30)]
    launches: usize,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let mut failed = false;
    for file in &arguments.files {
        if let Err(message) = bench(file, &arguments) {
            eprintln!("{}: {message}", file.display());
            failed = true;
        }
    }
    if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

fn bench(file: &std::path::Path, arguments: &Arguments) -> Result<(), String> {
    let kernel = load::read(file)?;
    let target = match kernel.is_cuda() {
        true => cuda_target(arguments.arch.as_deref().unwrap_or("sm_90a")),
        false => cpu_target(arguments.arch.as_deref().unwrap_or("host")),
    };
    let target = target.map_err(|error| error.render())?;
    if let Some(output) = &arguments.emit {
        return std::fs::write(output, kernel.assembly(&target)?).map_err(|error| error.to_string());
    }
    let sizes: Vec<Vec<u64>> = match arguments.size.as_slice() {
        [] => kernel.case.default_sizes(),
        given => given.iter().map(|text| parse_size(text)).collect::<Result<_, _>>()?,
    };
    let compiled = kernel.compile(&target)?;
    for size in sizes {
        let problem = kernel.case.problem(&size)?;
        let line = match kernel.is_cuda() {
            true => cuda::run(&compiled, &problem, arguments.launches)?,
            false => cpu::run(&compiled, &problem, arguments.launches)?,
        };
        println!("{:24} {line}", file.file_stem().unwrap_or_default().to_string_lossy());
    }
    Ok(())
}

fn parse_size(text: &str) -> Result<Vec<u64>, String> {
    text.split(',').map(|n| n.trim().parse().map_err(|_| format!("--size {text}: numbers with commas"))).collect()
}
