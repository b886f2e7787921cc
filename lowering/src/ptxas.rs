//! Checks PTX with NVIDIA's assembler, for tests. The compiler itself never calls it: the driver assembles PTX in
//! process.

use std::{
    env, fmt, fs,
    path::{Path, PathBuf},
    process::Command,
    sync::atomic::{AtomicU64, Ordering},
};

/// What `ptxas` says of PTX that it accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The most registers that a thread of any kernel uses.
    pub registers: u32,
    /// Bytes of registers spilled to memory, loads and stores, over all kernels.
    pub spilled_bytes: u32,
    /// Everything that `ptxas -v` wrote.
    pub log: String,
}

/// Why PTX was not accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// There is no `ptxas` to ask.
    Missing,
    /// `ptxas` could not be run.
    Run(String),
    /// `ptxas` refused the PTX; its messages.
    Rejected(String),
    /// A kernel spills registers; all messages.
    Spills(String),
    /// `wgmma` is serialized (C7510 to C7515), or made to wait where the PTX does not (C7517); all messages.
    Serialized(String),
}

impl fmt::Display for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing => formatter.write_str("no ptxas: run `make setup`, or set RC_PTXAS to one"),
            Self::Run(message) => write!(formatter, "ptxas could not be run: {message}"),
            Self::Rejected(log) => write!(formatter, "ptxas refuses the PTX:\n{log}"),
            Self::Spills(log) => write!(formatter, "a kernel spills registers:\n{log}"),
            Self::Serialized(log) => write!(formatter, "ptxas serializes wgmma:\n{log}"),
        }
    }
}

impl std::error::Error for Error {}

/// Assembles `ptx` for `arch` (such as `sm_90a`) and requires that no kernel spills and no `wgmma` waits longer than the PTX says.
///
/// # Errors
///
/// See [`Error`].
pub fn check(ptx: &str, arch: &str) -> Result<Report, Error> {
    let report = assemble(ptx, arch)?;
    if (7510..=7519).any(|code| report.log.contains(&format!("C{code}"))) {
        return Err(Error::Serialized(report.log));
    }
    if report.spilled_bytes > 0 {
        return Err(Error::Spills(report.log));
    }
    Ok(report)
}

/// Assembles `ptx` for `arch`.
///
/// # Errors
///
/// See [`Error`].
pub fn assemble(ptx: &str, arch: &str) -> Result<Report, Error> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let ptxas = find().ok_or(Error::Missing)?;
    let name = format!("rc-{}-{}.ptx", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
    let file = env::temp_dir().join(name);
    fs::write(&file, ptx).map_err(|error| Error::Run(format!("{}: {error}", file.display())))?;
    let output = Command::new(&ptxas).arg("-v").arg("-arch").arg(arch).arg("-o").arg("/dev/null").arg(&file).output();
    let _ = fs::remove_file(&file);
    let output = output.map_err(|error| Error::Run(format!("{}: {error}", ptxas.display())))?;
    let log = [output.stdout, output.stderr].concat();
    let log = String::from_utf8_lossy(&log).into_owned();
    if !output.status.success() {
        return Err(Error::Rejected(log));
    }
    let registers = numbers_before(&log, " registers").max().unwrap_or(0);
    let spills = numbers_before(&log, " bytes spill stores").chain(numbers_before(&log, " bytes spill loads"));
    Ok(Report { registers, spilled_bytes: spills.sum(), log })
}

/// The `ptxas` of `RC_PTXAS`, else of the `.venv-ptxas` that `make setup` makes in a folder above the current one, else
/// of `PATH`.
pub fn find() -> Option<PathBuf> {
    if let Some(path) = env::var_os("RC_PTXAS") {
        return Some(path.into());
    }
    let here = env::current_dir().ok()?;
    let in_venv = here.ancestors().find_map(|folder| in_virtual_environment(&folder.join(".venv-ptxas")));
    in_venv.or_else(|| {
        env::split_paths(&env::var_os("PATH")?).map(|folder| folder.join("ptxas")).find(|path| path.is_file())
    })
}

/// `lib/python3.*/site-packages/nvidia/*/bin/ptxas` in a virtual environment.
fn in_virtual_environment(root: &Path) -> Option<PathBuf> {
    let folders = |path: PathBuf| fs::read_dir(path).into_iter().flatten().flatten().map(|entry| entry.path());
    folders(root.join("lib"))
        .flat_map(|python| folders(python.join("site-packages/nvidia")))
        .map(|package| package.join("bin/ptxas"))
        .find(|path| path.is_file())
}

/// The numbers that stand right before `unit`.
fn numbers_before<'a>(log: &'a str, unit: &'a str) -> impl Iterator<Item = u32> + 'a {
    log.match_indices(unit).filter_map(|(end, _)| {
        let before = &log[..end];
        let start = before.rfind(|character: char| !character.is_ascii_digit()).map_or(0, |index| index + 1);
        before[start..].parse().ok()
    })
}
