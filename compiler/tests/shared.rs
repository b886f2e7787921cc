//! A store behind the cache: read through, written where that is allowed, and a miss with one warning whatever is wrong with it.

use crate::cache::{LIMIT, compile, only_entry, warnings};
use rc::cache::{Cache, Settings, Shared};
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

/// A new folder with a store behind it.
pub fn behind(folder: &Path, settings: &Settings) -> Cache {
    let _ = fs::remove_dir_all(folder);
    Cache::at(folder, LIMIT).behind(Shared::new(settings.clone()))
}

fn writer(place: &Path) -> Settings {
    Settings { writes: true, ..Settings::at(place.display().to_string()) }
}

/// That a compile is right and is a miss, with a warning that says this, and that there is no second warning.
pub fn check_miss(cache: &Cache, says: &str) {
    let compiled = compile(cache, 2.0);
    assert!(!compiled.cached && warnings(&compiled).len() == 1, "{:?}", warnings(&compiled));
    assert!(warnings(&compiled)[0].contains(says), "{:?}", warnings(&compiled));
    assert!(compile(cache, 2.0).cached);
    let other = compile(cache, 3.0);
    assert!(warnings(&other).is_empty(), "{:?}", warnings(&other));
    assert!(cache.entries().iter().all(|entry| entry.path.extension().is_some_and(|e| e == "rcp")));
}

#[test]
fn what_one_machine_compiled_another_finds() {
    let folder = tempfile::tempdir().unwrap();
    let (store, [a, b, c]) = (folder.path().join("store"), ["a", "b", "c"].map(|name| folder.path().join(name)));
    fs::create_dir(&store).unwrap();
    // One that may not write leaves nothing.
    let first = compile(&behind(&a, &Settings::at(store.display().to_string())), 2.0);
    assert!(!first.cached && warnings(&first).is_empty() && fs::read_dir(&store).unwrap().count() == 0);
    let first = compile(&behind(&a, &writer(&store)), 2.0);
    assert!(!first.cached && warnings(&first).is_empty());
    let reader = behind(&b, &Settings::at(store.display().to_string()));
    let second = compile(&reader, 2.0);
    assert!(second.cached && warnings(&second).is_empty());
    assert_eq!(first.module.to_string(), second.module.to_string());
    assert!(!compile(&reader, 3.0).cached);
    // From then on it is the folder's own.
    let cache = behind(&c, &writer(&store));
    assert!(compile(&cache, 2.0).cached);
    fs::remove_dir_all(&store).unwrap();
    assert!(compile(&Cache::at(&c, LIMIT), 2.0).cached);
    only_entry(&cache);
}

#[test]
fn entries_that_are_not_what_they_should_be_are_misses() {
    let folder = tempfile::tempdir().unwrap();
    let (store, mine) = (folder.path().join("store"), folder.path().join("mine"));
    fs::create_dir(&store).unwrap();
    compile(&behind(&mine, &writer(&store)), 2.0);
    let path = fs::read_dir(&store).unwrap().next().unwrap().unwrap().path();
    let good = fs::read(&path).unwrap();
    let reader = Settings::at(store.display().to_string());
    let cut = [0, 1, 31, 32, 100, good.len() - 1].map(|length| good[..length].to_vec());
    let changed = (0..12).map(|i| i * (good.len() - 1) / 11).map(|at| {
        let mut bytes = good.clone();
        bytes[at] ^= 1;
        bytes
    });
    for bytes in cut.into_iter().chain(changed) {
        fs::write(&path, bytes).unwrap();
        check_miss(&behind(&mine, &reader), "another hash");
    }
    fs::write(&path, &good).unwrap();
    // Written by somebody without the secret.
    let secret = Settings { secret: Some("ours".into()), ..writer(&store) };
    check_miss(&behind(&mine, &secret), "another hash");
    let reader = Settings { writes: false, ..secret.clone() };
    assert!(compile(&behind(&mine, &reader), 2.0).cached);
    // A sound entry under another's name.
    let other = fs::read_dir(&store).unwrap().map(|e| e.unwrap().path()).find(|other| *other != path).unwrap();
    fs::copy(other, &path).unwrap();
    check_miss(&behind(&mine, &reader), "another module's");
}

#[test]
fn stores_that_hang_or_are_not_there_are_misses() {
    let folder = tempfile::tempdir().unwrap();
    let (store, mine) = (folder.path().join("store"), folder.path().join("mine"));
    check_miss(&behind(&mine, &writer(&store)), "is not asked any more");
    fs::create_dir(&store).unwrap();
    compile(&behind(&mine, &writer(&store)), 2.0);
    // Nobody ever writes to this pipe.
    let path = fs::read_dir(&store).unwrap().next().unwrap().unwrap().path();
    fs::remove_file(&path).unwrap();
    let made = std::process::Command::new("mkfifo").arg(&path).status().unwrap();
    assert!(made.success());
    let patience = Duration::from_millis(200);
    let cache = behind(&mine, &Settings { patience, ..Settings::at(store.display().to_string()) });
    let start = Instant::now();
    check_miss(&cache, "no answer in 200ms");
    assert!(start.elapsed() < Duration::from_secs(60));
}

#[test]
fn a_place_that_is_no_store_is_a_warning() {
    let folder = tempfile::tempdir().unwrap();
    let settings = Settings::at("s3://bucket/");
    check_miss(&behind(&folder.path().join("mine"), &settings), "not supported: s3:// stores");
}
