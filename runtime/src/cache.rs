//! Where what was compiled is kept on disk.

use std::path::PathBuf;

/// The folder of the cache: what `RC_CACHE_DIR` names, else `rc` in the user's folder of caches, `~/.cache`. `None` where `RC_CACHE=off`, or
/// there is no such folder.
pub fn folder() -> Option<PathBuf> {
    let named = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    if std::env::var("RC_CACHE").is_ok_and(|word| switch(&word) == Some(false)) {
        return None;
    }
    let user =
        || named("XDG_CACHE_HOME").filter(|path| path.is_absolute()).or_else(|| Some(named("HOME")?.join(".cache")));
    named("RC_CACHE_DIR").or_else(|| Some(user()?.join("rc")))
}

/// What a word switches: on, off, or nothing, where it is another.
pub fn switch(word: &str) -> Option<bool> {
    match word {
        "on" | "1" | "yes" | "true" => Some(true),
        "off" | "0" | "no" | "false" => Some(false),
        _ => None,
    }
}
