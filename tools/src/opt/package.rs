//! `--emit=package`: a module compiled for several processors, in one file.

use clap::ArgMatches;
use rc::{Machine, Packing, Target};
use rc_ir::{Diagnostic, Loc, Module};
use rc_runtime::safetensors::SafetensorsFile;
use std::path::{Path, PathBuf};

/// Compiles a module for each `--arch` and writes it, with `--weights`, to `path`.
///
/// # Errors
/// A processor that there is not; a path that is no file's; those of [`Packing::write`].
pub fn package(module: &Module, matches: &ArgMatches, path: &Path) -> Result<(), Vec<Diagnostic>> {
    let fail = |why: String| vec![*Diagnostic::error(Loc::UNKNOWN, why)];
    if path == Path::new("-") {
        return Err(fail("a package goes to a file: write -o model.rcp".into()));
    }
    let open = |path: &str| SafetensorsFile::open(path).map_err(|e| fail(e.to_string()));
    let mut packing = Packing { targets: targets(module, matches).map_err(fail)?, ..Packing::default() };
    for file in matches.get_many::<String>("weights").into_iter().flatten() {
        let file = open(file)?;
        for name in file.names() {
            let tensor = file.tensor(name).map_err(|e| fail(e.to_string()))?;
            packing.weights.push((name.to_string(), tensor));
        }
    }
    let beside: Option<PathBuf> = matches.get_one::<String>("weights-beside").map(PathBuf::from);
    if let Some(file) = &beside {
        let names = open(&file.to_string_lossy())?.names().map(str::to_string).collect();
        packing.beside = Some((file, names));
    }
    packing.write(module, path)
}

/// The processors of `--arch`; else the module's; else that of `--target`, this machine's CPU.
fn targets(module: &Module, matches: &ArgMatches) -> Result<Vec<Target>, String> {
    let machine = matches.get_one::<String>("target").map(String::as_str);
    let Some(archs) = matches.get_one::<String>("arch") else {
        let own = Target::of_module(module.attrs).map_err(|d| d.message)?;
        let usual = || match machine {
            Some("cuda") => Target::find("cuda", None),
            _ => Ok(Target::host()),
        };
        return Ok(vec![own.filter(|own| machine.is_none_or(|m| m == own.word())).map_or_else(usual, Ok)?]);
    };
    let find = |arch: &str| {
        let is = if arch.starts_with("sm_") { Machine::Cuda } else { Machine::Cpu };
        Target::find(is.word(), Some(arch))
    };
    archs.split(',').map(|arch| find(arch.trim())).collect()
}
