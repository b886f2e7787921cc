//! Every page of the book, and the README: a test each, named by the page. `RC_UPDATE=1` writes outputs that changed; read the diff.

use libtest_mimic::{Arguments, Failed, Trial};
use rc_test::lit::Shell;
use rc_test::{book, tools};
use std::collections::HashMap;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::{Arc, OnceLock};

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let mut pages = vec![tools::root().join("README.md")];
    let entries = std::fs::read_dir(tools::root().join("docs")).into_iter().flatten().flatten();
    pages.extend(entries.map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|e| e == "md")));
    pages.sort();
    let programs: Arc<OnceLock<Result<Programs, String>>> = Arc::default();
    let trial = |path: PathBuf| {
        let programs = programs.clone();
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        Trial::test(name, move || match programs.get_or_init(Programs::set_up) {
            Ok(programs) => page(&path, programs),
            Err(why) => Err(why.into()),
        })
    };
    libtest_mimic::run(&arguments, pages.into_iter().map(trial).collect()).exit_code()
}

fn page(path: &Path, programs: &Programs) -> Result<(), Failed> {
    let text = std::fs::read_to_string(path)?;
    // The repository, as commands see it, and room for what they write.
    let folder = tempfile::tempdir()?;
    for entry in std::fs::read_dir(tools::root())?.flatten().filter(|e| e.file_name() != "target") {
        symlink(entry.path(), folder.path().join(entry.file_name()))?;
    }
    let shell = Shell { programs: programs.folder.path(), root: folder.path() };
    let new = book::check(&text, &shell, &tools::root(), std::env::var_os("RC_UPDATE").is_some())?;
    if let Some(new) = new {
        std::fs::write(path, new)?;
    }
    let wrong = [programs.commands(&text)?, paths(&text, path)].concat();
    if wrong.is_empty() { Ok(()) } else { Err(wrong.join("\n").into()) }
}

/// Files of the repository that a page names, and pages that it links to, which are not there.
fn paths(text: &str, page: &Path) -> Vec<String> {
    let root = tools::root();
    let is_path = |span: &str| {
        let first = span.split('/').next().unwrap_or_default();
        let plain = span.chars().all(|c| c.is_ascii_alphanumeric() || "/_.-".contains(c));
        plain && span.contains('/') && !first.is_empty() && first != "target" && root.join(first).is_dir()
    };
    let missing = book::spans(text).into_iter().filter(|(_, span)| is_path(span) && !root.join(span).exists());
    let links = text.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(link, _)| link);
    let local =
        links.map(|link| link.split('#').next().unwrap_or_default()).filter(|l| !l.is_empty() && !l.contains(':'));
    let dead = local.filter(|link| !page.parent().is_some_and(|folder| folder.join(link).exists()));
    let missing = missing.map(|(line, span)| format!("line {line}: there is no {span}"));
    missing.chain(dead.map(|link| format!("there is no page {link}"))).collect()
}

/// A folder with rc's programs, and what they say of their options.
struct Programs {
    folder: tempfile::TempDir,
    help: HashMap<&'static str, String>,
}

const PROGRAMS: [&str; 9] =
    ["rc-opt", "rc-run", "rc-plan", "rc-cache", "rc-tune", "rc-reduce", "rc-lsp", "rc-test", "poly-opt"];

impl Programs {
    fn set_up() -> Result<Programs, String> {
        let own = Path::new(env!("CARGO_BIN_EXE_FileCheck"));
        let built = match std::env::var_os("RC_BIN") {
            Some(folder) => PathBuf::from(folder),
            None => tools::build(own, &PROGRAMS)?,
        };
        let folder = tempfile::tempdir().map_err(|e| format!("cannot make a temporary folder: {e}"))?;
        for name in PROGRAMS {
            symlink(built.join(name), folder.path().join(name)).map_err(|e| format!("cannot link '{name}': {e}"))?;
        }
        symlink(own, folder.path().join("FileCheck")).map_err(|e| format!("cannot link 'FileCheck': {e}"))?;
        // SAFETY: tests that read the environment wait for this.
        unsafe {
            // The user's cache is not the tests'.
            std::env::set_var("RC_CACHE_DIR", folder.path().join("cache"));
            std::env::remove_var("RC_CACHE");
        }
        let mut help = HashMap::new();
        for name in PROGRAMS {
            let say = |argument: &str| {
                Command::new(built.join(name)).arg(argument).output().map(|o| o.stdout).unwrap_or_default()
            };
            let mut text = String::from_utf8_lossy(&say("--help")).into_owned();
            if name.ends_with("-opt") {
                let passes = String::from_utf8_lossy(&say("--list-passes")).into_owned();
                let names = passes.lines().filter_map(|line| line.split_whitespace().next());
                names.for_each(|pass| text += &format!("\n--{pass} "));
            }
            help.insert(name, text);
        }
        Ok(Programs { folder, help })
    }

    /// Commands in the text that name an option, a target of the Makefile or a test that is not there.
    fn commands(&self, text: &str) -> Result<Vec<String>, Failed> {
        let makefile = std::fs::read_to_string(tools::root().join("Makefile"))?;
        let mut wrong = Vec::new();
        for (line, span) in book::spans(text) {
            let words: Vec<&str> = span.split_whitespace().collect();
            let Some((&program, arguments)) = words.split_first() else { continue };
            if let Some(help) = self.help.get(program) {
                let flags = arguments.iter().filter(|a| a.starts_with("--")).map(|a| a.split('=').next().unwrap_or(a));
                let known = |flag: &&str| {
                    ["--help", "--version"].contains(flag) || help.split([' ', '\n', '[', '=', ',']).any(|w| w == *flag)
                };
                wrong.extend(flags.filter(|f| !known(f)).map(|f| format!("line {line}: {program} has no {f}")));
            }
            if let ("make", Some(target)) = (program, arguments.first())
                && !makefile.lines().any(|l| l.strip_prefix(*target).is_some_and(|rest| rest.starts_with(':')))
            {
                wrong.push(format!("line {line}: the Makefile has no {target}"));
            }
        }
        Ok(wrong)
    }
}
