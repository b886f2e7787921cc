//! One cache, many processes: this binary again, as a child that compiles.

use crate::cache::{LIMIT, compile, module, only_entry, warnings};
use rc::Target;
use rc::cache::{Cache, Key};
use rc_ir::{Blob, Module, Name};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const FOLDER: &str = "RC_TEST_CACHE_FOLDER";
const LARGE: &str = "RC_TEST_CACHE_LARGE";

/// Not a test of its own: what a child does.
#[test]
fn child() {
    let Some(folder) = std::env::var_os(FOLDER) else { return };
    let cache = Cache::at(folder, LIMIT);
    if std::env::var_os(LARGE).is_some() {
        let (key, module) = large();
        cache.put(&key, &module, &[]).unwrap();
        return;
    }
    warnings(&compile(&cache, 2.0)).iter().for_each(|why| println!("warning: {why}"));
}

fn start(folder: &Path, large: bool) -> Child {
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", "processes::child", "--nocapture"]).env(FOLDER, folder);
    child.stdout(Stdio::piped()).stderr(Stdio::piped());
    if large {
        child.env(LARGE, "1");
    }
    child.spawn().unwrap()
}

/// A compiled module that takes a while to be written.
fn large() -> (Key, Module) {
    let source = module(2.0);
    let mut compiled = rc::cache::compile_anew(&source, &Target::host()).module;
    compiled.resources.insert(Name::new("large"), Blob::new(vec![7; 256 << 20]));
    (Key::new(&source, &Target::host()), compiled)
}

#[test]
fn sixteen_at_once_on_an_empty_cache() {
    let folder = tempfile::tempdir().unwrap();
    let children: Vec<Child> = (0..16).map(|_| start(folder.path(), false)).collect();
    let mut warned = 0;
    for child in children {
        let done = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&done.stdout);
        assert!(done.status.success(), "{said}{}", String::from_utf8_lossy(&done.stderr));
        warned += said.matches("warning: ").count();
    }
    assert!(warned <= 1, "{warned} warnings");
    let cache = Cache::at(folder.path(), LIMIT);
    only_entry(&cache);
    assert!(compile(&cache, 2.0).cached);
}

#[test]
fn a_process_that_is_killed_while_it_writes_leaves_nothing_that_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let modules = folder.path().join("modules");
    let mut halves = 0;
    for round in 0..3 {
        let mut child = start(folder.path(), true);
        let begun = Instant::now();
        // As soon as a file is there, and a bit later.
        while std::fs::read_dir(&modules).map_or(0, Iterator::count) <= halves && child.try_wait().unwrap().is_none() {
            assert!(begun.elapsed() < Duration::from_secs(300));
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_millis(5 * round));
        child.kill().unwrap();
        child.wait().unwrap();
        halves = std::fs::read_dir(&modules).unwrap().count();
    }
    let files = || std::fs::read_dir(&modules).unwrap().map(|file| file.unwrap().path());
    let is_part = |path: &std::path::PathBuf| path.extension().is_some_and(|e| e == "part");
    assert!(files().any(|path| is_part(&path)), "no process was killed while it wrote");
    let cache = Cache::at(folder.path(), LIMIT);
    let compiled = compile(&cache, 2.0);
    assert!(warnings(&compiled).is_empty() && compile(&cache, 2.0).cached, "{:?}", warnings(&compiled));
}
