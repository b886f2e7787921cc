//! `rc-growth [--modules N] [--target cpu|cuda]`: compiles that many different small modules in one process, and says how much it grows.
//!
//! On a CPU each is loaded, too. Growth counts from the first tenth on, when what is made once is there.

use clap::Parser;
use rc::{Executable, Target, compile};

#[derive(Parser)]
struct Options {
    #[arg(long, default_value_t = 500)]
    modules: usize,
    #[arg(long, default_value = "cpu")]
    target: String,
    #[arg(long, default_value = "")]
    arch: String,
}

fn main() -> Result<(), String> {
    let options = Options::parse();
    rc::register();
    let arch = Some(options.arch.as_str()).filter(|a| !a.is_empty());
    let target = Target::find(&options.target, arch)?;
    let warm = options.modules / 10;
    let mut first = 0;
    for i in 0..options.modules {
        if i == warm {
            first = resident()?;
        }
        let (module, diagnostics) = rc_parser::parse_module("growth.ir", text(i));
        let mut module = module.ok_or_else(|| diagnostics.iter().map(|d| d.render()).collect::<String>())?;
        let report = compile(&mut module, &target);
        if let Some(error) = report.errors.first() {
            return Err(error.render());
        }
        if target.is_cpu() {
            Executable::load(&module, None, target.machine).map_err(|d| d.render())?;
        }
        if (i + 1) % (options.modules / 10).max(1) == 0 {
            println!("{:6} modules: {:.1} MiB", i + 1, resident()? as f64 / (1 << 20) as f64);
        }
    }
    let grown = resident()?.saturating_sub(first);
    println!("{:.1} KiB for each module", grown as f64 / 1024.0 / (options.modules - warm).max(1) as f64);
    Ok(())
}

/// Products with an epilogue, norms and elementwise chains, each of sizes and constants of its own.
fn text(i: usize) -> String {
    let (m, n, k) = (8 + i % 61, 16 + i % 127, 8 + i % 53);
    let given = format!("%x: tensor<{m}x{k}xf32>, %y: tensor<{k}x{n}xf32>");
    let out = format!("tensor<{m}x{n}xf32>");
    format!(
        "func.func @main{i}({given}) -> {out} {{
  %c{i} = core.constant {{value = dense<{i}.5> : {out}}} : {out}
  %z{i} = core.dot %x, %y {{lhs_contract = [1], rhs_contract = [0]}} : {out}
  %s = core.add %z{i}, %c{i} : {out}
  %t = core.reduce %s {{dims = [1], kind = max}} : tensor<{m}xf32>
  %b = core.broadcast %t {{dims = [0]}} : {out}
  %d = core.sub %s, %b : {out}
  %e = core.exp %d : {out}
  func.return %e
}}
"
    )
}

/// Bytes of the process in memory.
fn resident() -> Result<u64, String> {
    let status =
        std::fs::read_to_string("/proc/self/status").map_err(|e| format!("cannot read /proc/self/status: {e}"))?;
    let line = status.lines().find_map(|l| l.strip_prefix("VmRSS:")).ok_or("no VmRSS in /proc/self/status")?;
    let kib: u64 = line.trim().trim_end_matches("kB").trim().parse().map_err(|e| format!("VmRSS: {e}"))?;
    Ok(kib << 10)
}
