//! Packages of a program that only copies: what it is written as is read back, and nothing else is taken for it.

use super::manifest::{ALIGNMENT, HASH, HEADER, Manifest, hash_of};
use super::*;
use crate::{DType, Error, LoadOptions, Model, Place, Tensor};
use rc_ir::{Blob, Module};
use rc_machine::Target;
use std::path::{Path, PathBuf};

const TEXT: &str = r#"
host.func @main(%x: memref<n x 2 x f32>, %w: memref<3xf32>, %y: memref<n x 2 x f32>, %v: memref<3xf32>, %c: memref<2xi32>, %arena: memref<?xi8>)
    attributes {inputs = 2, arena = [0], names = ["x", "the w"], rc.symbols = #rc.symbols<n = [1, 64, 1]>} {
  host.copy %x, %y
  host.copy %w, %v
  %k = host.constant {value = dense_resource<k> : tensor<2xi32>} : memref<2xi32>
  host.copy %k, %c
  host.return
}
"#;

fn module(target: &Target) -> Module {
    rc_dialects::register();
    let (module, errors) = rc_parser::parse_module("test", TEXT);
    let mut module = module.unwrap_or_else(|| panic!("{errors:?}"));
    module.resources.insert(rc_ir::Name::new("k"), Blob::new([7i32, -8].map(i32::to_le_bytes).concat()));
    target.set_on(&mut module);
    module
}

/// Any CPU of this kind.
fn plain() -> Target {
    Target::find("cpu", Some("x86-64")).unwrap()
}

fn floats(shape: &[usize], values: &[f32]) -> Tensor {
    Tensor::from_slice(shape, values).unwrap()
}

fn packed(folder: &Path) -> PathBuf {
    let (path, w) = (folder.join("model.rcp"), floats(&[3], &[1.0, 2.0, 3.0]));
    let notes = [("made by".to_string(), "a test".to_string())].into();
    let modules = [module(&plain())];
    write(&path, &Contents { modules: modules.iter().collect(), weights: vec![("the w", &w)], notes, beside: None })
        .unwrap();
    path
}

fn check(model: &Model) {
    let x = floats(&[2, 2], &[4.0, 5.0, 6.0, 7.0]);
    let results = model.run(std::slice::from_ref(&x)).unwrap();
    assert_eq!(results[0].as_slice::<f32>().unwrap(), x.as_slice::<f32>().unwrap());
    assert_eq!(results[1].as_slice::<f32>().unwrap(), [1.0, 2.0, 3.0]);
    assert_eq!(results[2].as_slice::<i32>().unwrap(), [7, -8]);
}

#[test]
fn what_is_written_is_read_and_runs() {
    let folder = tempfile::tempdir().unwrap();
    let path = packed(folder.path());
    let package = Package::open(&path).unwrap();
    assert_eq!(package.notes()["made by"], "a test");
    assert_eq!(package.needs().next().unwrap().arch, "x86-64");
    let model = Model::load(&path).unwrap();
    let texts: Vec<String> = model.signature().inputs.iter().map(|input| input.to_string()).collect();
    assert_eq!(texts, ["x: tensor<n x 2 x f32>"]);
    check(&model);
    // Results in the caller's memory.
    let (mut y, mut v, mut c) = ([0u8; 8], [0u8; 12], [0u8; 8]);
    let x = floats(&[1, 2], &[8.0, 9.0]);
    model.run_into(std::slice::from_ref(&x), &mut [&mut y, &mut v, &mut c]).unwrap();
    assert_eq!((&y[..], c), (x.bytes(), [7, 0, 0, 0, 0xf8, 0xff, 0xff, 0xff]));
    let error = model.run_into(std::slice::from_ref(&x), &mut [&mut y[..4], &mut v, &mut c]).unwrap_err().to_string();
    assert!(error.contains("result 0") && error.contains("takes 8 bytes, and memory of 4"), "{error}");
    for (args, says) in
        [(vec![], "takes 1 arguments, 0 were given"), (vec![floats(&[2, 3], &[0.0; 6])], "argument 0 (x)")]
    {
        let error = model.run(&args).unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
    }
    let unknown = LoadOptions { entry: Some("other".into()), place: None };
    assert!(Model::load_with(&path, &unknown).err().unwrap().to_string().contains("@other"));
}

#[test]
fn no_byte_can_change_and_none_be_missing() {
    let folder = tempfile::tempdir().unwrap();
    let path = packed(folder.path());
    let good = std::fs::read(&path).unwrap();
    let other = folder.path().join("other.rcp");
    for i in 0..good.len() {
        let mut bytes = good.clone();
        bytes[i] ^= 1 << (i % 8);
        std::fs::write(&other, &bytes).unwrap();
        let checked = Package::open(&other).and_then(|package| package.check_weights());
        let error = checked.expect_err(&format!("byte {i}")).to_string();
        assert!(error.contains("other.rcp: expected"), "{error}");
    }
    for length in (0..good.len()).step_by(7).chain([good.len() - 1]) {
        std::fs::write(&other, &good[..length]).unwrap();
        assert!(Package::open(&other).is_err(), "{length} bytes");
    }
    std::fs::write(&other, [&good[..], b"x"].concat()).unwrap();
    assert!(Package::open(&other).is_err());
    assert!(matches!(Package::open(folder.path().join("absent")), Err(Error::Io { .. })));
    assert!(Package::open(folder.path()).unwrap_err().to_string().contains("expected a file"));
    check(&Model::load(&path).unwrap());
}

#[test]
fn equal_blobs_are_stored_once() {
    let folder = tempfile::tempdir().unwrap();
    let (one, two) = (folder.path().join("one"), folder.path().join("two"));
    let modules = [module(&plain()), module(&Target::find("cpu", Some("x86-64-v2")).unwrap())];
    let big = Tensor::zeros(DType::F32, &[100_000]).unwrap();
    let pack = |path: &Path, count: usize| {
        let modules: Vec<&Module> = modules[..count].iter().collect();
        let weights = vec![("x", &big), ("the w", &big)];
        write(path, &Contents { modules, weights, ..Contents::default() }).unwrap();
        path.metadata().unwrap().len()
    };
    let (first, second) = (pack(&one, 1), pack(&two, 2));
    assert!((400_000..420_000).contains(&first) && second - first < 4_000, "{first} {second}");
    // Of those that fit, the one that needs more.
    let package = Package::open(&two).unwrap();
    assert_eq!(package.needs().map(|needs| needs.arch.as_str()).collect::<Vec<_>>(), ["x86-64", "x86-64-v2"]);
}

#[test]
fn only_code_that_fits_is_loaded() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.rcp");
    let foreign = if Target::host().arch == "haswell" { "broadwell" } else { "haswell" };
    let modules = [module(&Target::find("cpu", Some(foreign)).unwrap()), module(&Target::cuda("sm_90a").unwrap())];
    let w = floats(&[3], &[1.0, 2.0, 3.0]);
    let all = Contents { modules: modules.iter().collect(), weights: vec![("the w", &w)], ..Contents::default() };
    write(&path, &all).unwrap();
    let error = Model::load(&path).err().unwrap();
    assert!(matches!(error, Error::Misfit { .. }), "{error}");
    assert!(error.to_string().contains(foreign) && error.to_string().contains("sm_90a"), "{error}");
    let fitting = module(&plain());
    let mut all = Contents { modules: modules.iter().collect(), weights: vec![("the w", &w)], ..Contents::default() };
    all.modules.push(&fitting);
    write(&path, &all).unwrap();
    check(&Model::load(&path).unwrap());
    let gpu = LoadOptions { place: Some(Place::Cuda(97)), entry: None };
    assert!(Model::load_with(&path, &gpu).is_err());
}

#[test]
fn what_cannot_be_packed_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.rcp");
    let error = |contents: &Contents| write(&path, contents).unwrap_err().to_string();
    assert!(error(&Contents::default()).contains("at least one module"));
    let (module, w) = (module(&plain()), floats(&[3], &[0.0; 3]));
    let unknown = Contents { modules: vec![&module], weights: vec![("z", &w)], ..Contents::default() };
    assert!(error(&unknown).contains("the weight 'z' is no argument"));
    let (bare, _) = rc_parser::parse_module("test", TEXT);
    assert!(error(&Contents { modules: vec![&bare.unwrap()], ..Contents::default() }).contains("rc.target"));
    let (early, _) = rc_parser::parse_module("test", "func.func @f() {\n  func.return\n}");
    assert!(error(&Contents { modules: vec![&early.unwrap()], ..Contents::default() }).contains("--lower-cpu"));
    let elsewhere = Contents { modules: vec![&module], beside: Some(Path::new("/dev/null")), ..Contents::default() };
    assert!(error(&elsewhere).contains("lie in its folder"));
    assert!(!path.exists());
}

#[test]
fn weights_beside_are_those_that_it_was_made_with() {
    let folder = tempfile::tempdir().unwrap();
    let (path, weights) = (folder.path().join("model.rcp"), folder.path().join("w.safetensors"));
    crate::safetensors::write(&weights, &[("the w", &floats(&[3], &[1.0, 2.0, 3.0]))]).unwrap();
    let module = module(&plain());
    write(&path, &Contents { modules: vec![&module], beside: Some(&weights), ..Contents::default() }).unwrap();
    check(&Model::load(&path).unwrap());
    crate::safetensors::write(&weights, &[("the w", &floats(&[3], &[1.0, 2.0, 4.0]))]).unwrap();
    let error = Model::load(&path).unwrap().run(&[floats(&[1, 2], &[0.0; 2])]).unwrap_err().to_string();
    assert!(error.contains("the weights that"), "{error}");
    std::fs::remove_file(&weights).unwrap();
    assert!(Model::load(&path).err().unwrap().to_string().contains("w.safetensors"));
}

/// A package whose manifest was changed by somebody who knows how to hash.
fn forged(path: &Path, change: impl FnOnce(&mut Manifest)) {
    let bytes = std::fs::read(path).unwrap();
    let length = u32::from_le_bytes(bytes[12..16].try_into().unwrap()) as usize;
    let mut manifest: Manifest = serde_json::from_slice(&bytes[HEADER..HEADER + length]).unwrap();
    change(&mut manifest);
    let json = serde_json::to_vec(&manifest).unwrap();
    let blobs = &bytes[(HEADER + length).next_multiple_of(ALIGNMENT)..];
    let start = (HEADER + json.len()).next_multiple_of(ALIGNMENT);
    let mut new = bytes[..HEADER].to_vec();
    new[12..16].copy_from_slice(&(json.len() as u32).to_le_bytes());
    new[16..24].copy_from_slice(&((start + blobs.len()) as u64).to_le_bytes());
    let hash = hash_of(&new, &json);
    new[HASH].copy_from_slice(hash.as_bytes());
    new.extend(&json);
    new.resize(start, 0);
    new.extend(blobs);
    std::fs::write(path, new).unwrap();
}

#[test]
fn forged_manifests_are_errors() {
    let folder = tempfile::tempdir().unwrap();
    type Change = fn(&mut Manifest);
    let cases: [(Change, &str); 12] = [
        (|m| m.rc = "9.9.9".into(), "rc 9.9.9 made"),
        (|m| m.modules.clear(), "expected a module, found none"),
        (|m| m.modules[0].text = 99, "the blob 99"),
        (|m| m.modules[0].resources[0].blob = 99, "the blob 99"),
        (|m| m.modules[0].resources[0].align = 3, "powers of two"),
        (|m| m.modules[0].text = m.weights[0].blob, "expected a"),
        (|m| m.blobs[0].at = 64, "another place"),
        (|m| m.blobs[1].bytes = usize::MAX, "another place"),
        (|m| m.blobs[0].blake3 = "00".into(), "another hash"),
        (|m| m.weights[0].dtype = "f31".into(), "dtype"),
        (|m| m.weights[0].shape = vec![usize::MAX, 2], "dtype and shape"),
        (|m| m.weights[0].shape = vec![2], "bytes of the weight"),
    ];
    for (i, (change, says)) in cases.into_iter().enumerate() {
        let path = packed(folder.path());
        forged(&path, change);
        let error = Model::load(&path).err().unwrap_or_else(|| panic!("case {i}")).to_string();
        assert!(error.contains(says), "case {i}: {error}");
    }
    for name in ["../w.safetensors", "/w.safetensors", "..", "a/b", ""] {
        let path = packed(folder.path());
        forged(&path, |m| m.beside = Some(super::manifest::Beside { file: name.into(), blake3: String::new() }));
        let error = Package::open(&path).unwrap_err().to_string();
        assert!(error.contains("the name of a file in the same folder"), "{name}: {error}");
    }
    let path = packed(folder.path());
    forged(&path, |m| m.notes = [("n".to_string(), "changed".to_string())].into());
    check(&Model::load(&path).unwrap());
}
