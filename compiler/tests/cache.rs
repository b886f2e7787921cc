//! The cache: what comes out of it is what was compiled, and whatever is wrong with it is a miss.

use rc::cache::{Cache, Key};
use rc::{Begun, Compiled, Executable, Machine, Target, compile_anew};
use rc_ir::{Blob, Module, Severity};
use rc_runtime::Tensor;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

pub const LIMIT: u64 = 1 << 30;

pub fn module(factor: f32) -> Module {
    rc::register();
    let text = format!(
        "func.func @main(%x: tensor<3xf32>) -> tensor<3xf32> {{
  %f = core.constant {{value = dense<{factor:.1}> : tensor<3xf32>}} : tensor<3xf32>
  %y = core.mul %x, %f : tensor<3xf32>
  func.return %y
}}"
    );
    rc_parser::parse_module("test", text).0.expect("a module")
}

pub fn compile(cache: &Cache, factor: f32) -> Compiled {
    let compiled = cache.compile(&module(factor), &Target::host());
    let executable = Executable::load(&compiled.module, None, Machine::Cpu).expect("a program");
    let x = Tensor::from_slice(&[3], &[1.0f32, 2.0, -3.0]).unwrap();
    let expected = [factor, 2.0 * factor, -3.0 * factor];
    assert_eq!(executable.run(&[x]).unwrap()[0].as_slice::<f32>().unwrap(), expected);
    compiled
}

pub fn warnings(compiled: &Compiled) -> Vec<&str> {
    let all = compiled.report.diagnostics.iter().filter(|d| d.severity == Severity::Warning);
    all.map(|d| d.message.as_str()).collect()
}

pub fn only_entry(cache: &Cache) -> PathBuf {
    let entries = cache.entries();
    assert_eq!(entries.len(), 1, "{entries:?}");
    entries[0].path.clone()
}

#[test]
fn what_was_compiled_is_found_again() {
    let folder = tempfile::tempdir().unwrap();
    let cache = Cache::at(folder.path().join("not/yet/there"), LIMIT);
    let first = compile(&cache, 2.0);
    assert!(!first.cached && warnings(&first).is_empty());
    let second = compile(&cache, 2.0);
    assert!(second.cached && warnings(&second).is_empty());
    assert_eq!(first.module.to_string(), second.module.to_string());
    only_entry(&cache);
    assert!(!compile(&cache, 3.0).cached);
    assert_eq!(cache.clear(), 0);
    assert!(!compile(&cache, 2.0).cached);
}

#[test]
fn two_steps_give_what_one_gives() {
    let (source, target) = (module(2.0), Target::host());
    let begun = Begun::in_cache(None, &source, &target);
    assert!(begun.report().succeeded());
    let (twice, whole) = (begun.clone().finish(), compile_anew(&source, &target));
    assert_eq!(twice.module.to_string(), whole.module.to_string());
    let names = |compiled: &Compiled| compiled.report.statistics.iter().map(|s| s.name).collect::<Vec<_>>();
    assert_eq!(names(&twice), names(&whole));
    assert_eq!(begun.finish().module.to_string(), whole.module.to_string());
    let text = "func.func @main(%x: tensor<3xf32>) -> tensor<3xf32> {
  %y = core.unknown %x : tensor<3xf32>
  func.return %y
}";
    let (bad, _) = rc_parser::parse_module("test", text);
    assert!(
        bad.is_none_or(|bad| !Begun::in_cache(None, &bad, &target).report().succeeded()),
        "the first step says what is wrong"
    );
}

#[test]
fn damaged_entries_are_misses_with_one_warning() {
    let folder = tempfile::tempdir().unwrap();
    let cache = Cache::at(folder.path(), LIMIT);
    compile(&cache, 2.0);
    let path = only_entry(&cache);
    let good = fs::read(&path).unwrap();
    let cut = [0, 1, 63, 200, good.len() - 1].map(|length| good[..length].to_vec());
    let changed = [0, 9, 30, 100, good.len() / 2].map(|at| {
        let mut bytes = good.clone();
        bytes[at] ^= 4;
        bytes
    });
    for bytes in cut.into_iter().chain(changed) {
        fs::write(&path, bytes).unwrap();
        let compiled = compile(&cache, 2.0);
        assert!(!compiled.cached && warnings(&compiled).len() == 1, "{:?}", warnings(&compiled));
        assert!(warnings(&compiled)[0].contains("the cache's entry is not used"));
        assert!(compile(&cache, 2.0).cached);
    }
    // A pipe that nobody writes to.
    fs::remove_file(&path).unwrap();
    assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
    let compiled = compile(&cache, 2.0);
    assert!(!compiled.cached && warnings(&compiled)[0].contains("expected a file, found something else"));
    assert!(compile(&cache, 2.0).cached);
    // A sound package under another's name.
    compile(&cache, 3.0);
    let other = cache.entries().into_iter().find(|entry| entry.path != path).unwrap().path;
    fs::copy(&other, &path).unwrap();
    let compiled = compile(&cache, 2.0);
    assert!(!compiled.cached && warnings(&compiled)[0].contains("another module's"));
    only_part_of(&cache, 2);
}

/// That nothing but entries is left.
fn only_part_of(cache: &Cache, count: usize) {
    let files = fs::read_dir(cache.folder().join("modules")).unwrap().count();
    assert_eq!((files, cache.entries().len()), (count, count));
}

#[test]
fn a_folder_that_cannot_be_used_is_a_warning() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    let compiled = compile(&Cache::at(file.join("below"), LIMIT), 2.0);
    assert!(warnings(&compiled)[0].contains("is not kept in the cache"), "{:?}", warnings(&compiled));
    // What others may write to is not run.
    let cache = Cache::at(folder.path().join("open"), LIMIT);
    compile(&cache, 2.0);
    let everybody = fs::Permissions::from_mode(0o777);
    fs::set_permissions(cache.folder().join("modules"), everybody).unwrap();
    let compiled = compile(&cache, 2.0);
    assert!(!compiled.cached && warnings(&compiled).len() == 1);
    assert!(warnings(&compiled)[0].contains("other users may write"));
}

#[test]
fn what_is_used_least_goes_first() {
    let folder = tempfile::tempdir().unwrap();
    compile(&Cache::at(folder.path(), LIMIT), 2.0);
    let size = Cache::at(folder.path(), LIMIT).entries()[0].bytes;
    let cache = Cache::at(folder.path(), 5 * size / 2);
    let unfinished = folder.path().join("modules/left.rcp.1-0.part");
    fs::write(&unfinished, "half").unwrap();
    let set = |path: &PathBuf, ago: u64| {
        let time = SystemTime::now() - Duration::from_secs(ago);
        fs::File::options().append(true).open(path).unwrap().set_modified(time).unwrap();
    };
    set(&unfinished, 7200);
    set(&cache.entries().iter().find(|e| e.bytes == size).unwrap().path, 300);
    compile(&cache, 3.0);
    assert!(!unfinished.exists());
    set(&cache.entries()[0].path, 200);
    // The older of the two is used now.
    assert!(compile(&cache, 2.0).cached);
    compile(&cache, 4.0);
    assert_eq!(cache.entries().len(), 2);
    assert!(compile(&cache, 2.0).cached);
    assert!(!compile(&cache, 3.0).cached);
}

#[test]
fn keys_say_in_what_they_differ() {
    let (host, v3) = (Target::host(), Target::find("cpu", Some("x86-64-v2")).unwrap());
    let key = Key::new(&module(2.0), &host);
    assert_eq!((key.id(), key.differences(&key).len()), (Key::new(&module(2.0), &host).id(), 0));
    assert_eq!(key.differences(&Key::new(&module(3.0), &host)), ["the module's text"]);
    assert_eq!(key.differences(&Key::new(&module(2.0), &v3)), ["the processor, or what is known of it"]);
    let with = |bytes: &[u8]| {
        let mut module = module(2.0);
        module.resources.insert(rc_ir::Name::new("r"), Blob::new(bytes.to_vec()));
        Key::new(&module, &host)
    };
    assert_eq!(with(b"a").differences(&with(b"b")), ["the bytes of its constants"]);
    let folder = tempfile::tempdir().unwrap();
    let cache = Cache::at(folder.path(), LIMIT);
    assert!(cache.nearest(&key).is_none());
    compile(&cache, 3.0);
    let (entry, differences) = cache.nearest(&key).unwrap();
    assert_eq!((entry.path, differences), (only_entry(&cache), vec!["the module's text"]));
}
