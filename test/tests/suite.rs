//! Every `.ir` file below `test/` that has `RUN:` lines is a test, named by its path.

use libtest_mimic::{Arguments, Completion, Failed, Trial};
use rc_test::lit::{self, Script, Shell};
use rc_test::{tools, update};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let mut files = Vec::new();
    collect(&tools::root().join("test"), &mut files);
    files.sort();
    let programs = match arguments.list {
        true => None,
        false => match Programs::set_up() {
            Ok(programs) => Some(Arc::new(programs)),
            Err(error) => {
                eprintln!("error: {error}");
                return ExitCode::FAILURE;
            }
        },
    };
    let trials = files.into_iter().filter_map(|file| trial(file, programs.clone())).collect();
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// All `.ir` files below a folder.
fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            collect(&path, files);
        } else if path.extension().is_some_and(|e| e == "ir") {
            files.push(path);
        }
    }
}

/// A test, for a file that has commands.
fn trial(path: PathBuf, programs: Option<Arc<Programs>>) -> Option<Trial> {
    let file = path.strip_prefix(tools::root()).ok()?.to_path_buf();
    let name = file.strip_prefix("test").ok()?.display().to_string();
    // Inputs of other tests may be no text; those have no commands.
    let text = std::fs::read_to_string(&path).ok()?;
    let script = match lit::script(&text) {
        Ok(script) if script.runs.is_empty() => return None,
        script => script,
    };
    let run = move || {
        let (script, programs) = (script?, programs.expect("only listing needs no programs"));
        if let Some(why) = script.skipped(&has_feature)? {
            return Ok(Completion::ignored_with(why));
        }
        match (run(&file, &text, &script, &programs), script.fails(&has_feature)?) {
            (Ok(()), true) => Err("passes, and XFAIL: says that it fails".into()),
            (result, false) => result.map(|()| Completion::Completed),
            (Err(_), true) => Ok(Completion::Completed),
        }
    };
    Some(Trial::ignorable_test(name, run))
}

/// Whether this machine has a feature. Errors: there is no such feature.
fn has_feature(name: &str) -> Result<bool, String> {
    tools::has_feature(name).ok_or_else(|| format!("a condition names '{name}', which is not known"))
}

fn run(file: &Path, text: &str, script: &Script, programs: &Programs) -> Result<(), Failed> {
    let folder = tempfile::tempdir().map_err(|e| format!("cannot make a temporary folder: {e}"))?;
    let temp = folder.path().join("t");
    let shell = Shell { programs: programs.folder.path(), root: &tools::root() };
    if std::env::var_os("RC_UPDATE").is_some()
        && let Some(new) = update::updated(text, script, &shell, file, &temp)?
        && new != text
    {
        let path = tools::root().join(file);
        std::fs::write(&path, new).map_err(|e| format!("cannot write '{}': {e}", path.display()))?;
    }
    Ok(shell.run_script(script, file, &temp)?)
}

/// A folder with the programs that `RUN:` lines name.
struct Programs {
    folder: tempfile::TempDir,
}

impl Programs {
    fn set_up() -> Result<Programs, String> {
        let judge = Path::new(env!("CARGO_BIN_EXE_FileCheck"));
        let back = Path::new(env!("CARGO_BIN_EXE_rc-opt-and-back"));
        let built = tools::rc_folder(judge)?;
        let folder = tempfile::tempdir().map_err(|e| format!("cannot make a temporary folder: {e}"))?;
        let mlir_opt = tools::llvm("mlir-opt");
        if mlir_opt.is_none() {
            eprintln!("note: mlir-opt is not in {}; generic dumps are not given to it", tools::llvm_folder().display());
        }
        let links = [
            ("FileCheck", Some(judge.to_path_buf())),
            ("rc-opt", Some(back.to_path_buf())),
            ("rc-run", Some(built.join("rc-run"))),
            ("rc-plan", Some(built.join("rc-plan"))),
            ("rc-cache", Some(built.join("rc-cache"))),
            ("rc-tune", Some(built.join("rc-tune"))),
            ("mlir-opt", mlir_opt.clone()),
            ("ptxas", tools::ptxas()),
        ];
        for (name, target) in links {
            let Some(target) = target else { continue };
            symlink(&target, folder.path().join(name)).map_err(|e| format!("cannot link '{name}': {e}"))?;
        }
        // SAFETY: no other thread runs yet.
        unsafe {
            std::env::set_var("RC_REAL_OPT", built.join("rc-opt"));
            // The user's cache is not the tests'.
            std::env::set_var("RC_CACHE_DIR", folder.path().join("cache"));
            std::env::remove_var("RC_CACHE");
            if let Some(mlir_opt) = mlir_opt {
                std::env::set_var("RC_MLIR_OPT", mlir_opt);
            }
        }
        Ok(Programs { folder })
    }
}
