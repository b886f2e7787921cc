//! `rc-plan`: packs the buffers of a CSV file into one arena, and draws it.

mod csv;
mod svg;

use crate::files::{self, print_line};
use crate::opt::show;
use rc_passes::plan_buffers::pack::{LONG_EFFORT, Packing, lower_bound, pack};
use std::path::PathBuf;
use std::process::ExitCode;

/// Plans one arena for buffers with known lives.
///
/// FILE has the header `id,lower,upper,size` and a line for each buffer: it is alive in lower..upper, of size bytes. No two that are
/// alive together overlap; the highest byte is as low as the effort allows.
#[derive(clap::Parser, Clone, Debug)]
#[command(name = "rc-plan", version)]
pub struct Options {
    /// The buffers; - is standard input
    pub input: PathBuf,
    /// Write the buffers with a column `offset`
    #[arg(short, long, value_name = "FILE.csv")]
    pub output: Option<PathBuf>,
    /// Draw the arena: time to the right, addresses upwards
    #[arg(long, value_name = "FILE.svg")]
    pub svg: Option<PathBuf>,
    /// How many buffers are looked at beyond the first greedy plans; the plan is the same on every machine
    #[arg(long, default_value_t = LONG_EFFORT)]
    pub effort: u64,
    /// Fail where the arena is larger than this
    #[arg(long, value_name = "BYTES")]
    pub limit: Option<i64>,
}

/// Runs the tool: exit code 1 with a diagnostic for bad input and for a limit that is not kept.
pub fn run(options: &Options) -> ExitCode {
    match plan(options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            files::note_line(format_args!("error: {why}"));
            ExitCode::FAILURE
        }
    }
}

fn plan(options: &Options) -> Result<(), String> {
    let name = options.input.display().to_string();
    let bytes = files::read(&options.input)?;
    let text = String::from_utf8(bytes).map_err(|_| format!("'{name}' is not UTF-8 text"))?;
    let buffers = csv::parse(&name, &text).map_err(|diagnostic| {
        show(&diagnostic);
        format!("'{name}' is not planned")
    })?;
    let bound = lower_bound(&buffers.items);
    let packing = pack(&buffers.items, options.effort);
    report(buffers.items.len(), bound, &packing)?;
    if let Some(limit) = options.limit.filter(|&limit| packing.height > limit) {
        let hint = if bound > limit { format!("; no plan needs less than {bound}") } else { String::new() };
        return Err(format!("the limit of {limit} bytes is not kept: {} were reached{hint}", packing.height));
    }
    if let Some(path) = &options.output {
        files::write(path, |out| csv::write(out, &buffers, &packing))?;
    }
    if let Some(path) = &options.svg {
        files::write(path, |out| svg::draw(out, &buffers, &packing, bound))?;
    }
    Ok(())
}

fn report(count: usize, bound: i64, packing: &Packing) -> Result<(), String> {
    let height = packing.height;
    let ratio = height as f64 / bound.max(1) as f64;
    let part =
        if height == bound { "the lower bound".into() } else { format!("{ratio:.4} of the lower bound {bound}") };
    print_line(format_args!("{count} buffers in {height} bytes, {part}"))
}
