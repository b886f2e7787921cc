//! The variables that say where compiled modules are kept, and what in them says nothing.

use rc_runtime::cache::switch;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// A variable, where it is set to something.
pub(super) fn named(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// `RC_CACHE_SIZE`.
pub(super) fn size() -> Option<u64> {
    bytes(&named("RC_CACHE_SIZE")?)
}

/// `RC_CACHE_SHARED_WRITE`.
pub(super) fn writes() -> bool {
    named("RC_CACHE_SHARED_WRITE").and_then(|word| switch(&word)).unwrap_or(false)
}

/// `RC_CACHE_SHARED_TIMEOUT`.
pub(super) fn patience() -> Option<Duration> {
    seconds(&named("RC_CACHE_SHARED_TIMEOUT")?)
}

/// Settings that are not understood, in words: another one, or the default, holds in the place of each.
pub fn mistaken() -> Vec<String> {
    let is_switch = |text: &str| switch(text).is_some();
    let known: [(&str, &dyn Fn(&str) -> bool, &str); 4] = [
        ("RC_CACHE", &is_switch, "on or off"),
        ("RC_CACHE_SIZE", &|text| bytes(text).is_some(), "bytes: 500M, 4G"),
        ("RC_CACHE_SHARED_WRITE", &is_switch, "on or off"),
        ("RC_CACHE_SHARED_TIMEOUT", &|text| seconds(text).is_some(), "seconds, more than 0"),
    ];
    let wrong = known.iter().filter_map(|(name, is, takes)| {
        let text = named(name).filter(|text| !is(text))?;
        Some(format!("the variable {name} is '{text}', which is not used: it takes {takes}"))
    });
    wrong.collect()
}

/// As [`mistaken`], once for the process.
pub(super) fn mistaken_first() -> Vec<String> {
    static SAID: AtomicBool = AtomicBool::new(false);
    if SAID.swap(true, Ordering::Relaxed) { Vec::new() } else { mistaken() }
}

fn seconds(text: &str) -> Option<Duration> {
    let limit = Duration::try_from_secs_f64(text.trim().parse().ok()?).ok()?;
    (!limit.is_zero()).then_some(limit)
}

/// `500M`, `4G`, `1000`.
fn bytes(text: &str) -> Option<u64> {
    let (digits, unit) = match text.trim().strip_suffix(['K', 'M', 'G', 'T']) {
        Some(digits) => (digits, text.trim().chars().last()?),
        None => (text.trim(), ' '),
    };
    let shift = [' ', 'K', 'M', 'G', 'T'].iter().position(|&u| u == unit)? * 10;
    digits.trim().parse::<u64>().ok()?.checked_mul(1 << shift)
}
