//! Where what was compiled is kept on disk.

use std::path::PathBuf;

/// The folder of the cache: what `RC_CACHE_DIR` names, else `rc` in the user's folder of caches, `~/.cache`. `None` where `RC_CACHE=off`, or
/// there is no such folder.
pub fn folder() -> Option<PathBuf> {
    let named = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    if std::env::var("RC_CACHE").is_ok_and(|value| ["off", "0", "no"].contains(&value.as_str())) {
        return None;
    }
    let user =
        || named("XDG_CACHE_HOME").filter(|path| path.is_absolute()).or_else(|| Some(named("HOME")?.join(".cache")));
    named("RC_CACHE_DIR").or_else(|| Some(user()?.join("rc")))
}
