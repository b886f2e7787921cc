//! Packages that somebody changed who knows how to hash: the manifest, and the text of a module. Each is loaded or is an error, in a moment, and is not run.

use rc::{Packing, Target};
use rc_runtime::{Model, Tensor};
use std::ops::Range;
use std::path::Path;
use std::time::{Duration, Instant};

const CASES: u64 = 3000;

/// What a token becomes.
const NASTY: [&str; 30] = [
    "",
    "0",
    "-1",
    "1e999",
    "9223372036854775807",
    "18446744073709551615",
    "-9223372036854775808",
    "99999999999999999999999999",
    "4294967296",
    "1048577",
    "null",
    "true",
    "[]",
    "{}",
    "\"\"",
    "\"../../etc/passwd\"",
    "\"/dev/zero\"",
    "\"\\u0000\"",
    "\"n\"",
    "\"",
    "\u{fffd}",
    ">",
    "(",
    "%y",
    "@main",
    "n floordiv 0",
    "n * n * n * n * n * n * n * n",
    "memref<9223372036854775807 x 9223372036854775807 x f64>",
    "dense_resource<k>",
    "attributes",
];

/// Numbers that look random.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as usize) % n.max(1)
    }
}

/// Words, strings and single signs.
fn tokens(text: &[u8]) -> Vec<Range<usize>> {
    let (mut tokens, mut at) = (Vec::new(), 0);
    let word = |byte: &u8| byte.is_ascii_alphanumeric() || b"_.-".contains(byte);
    while at < text.len() {
        let rest = &text[at..];
        let length = match rest[0] {
            b'"' => rest[1..].iter().position(|&byte| byte == b'"').map_or(rest.len(), |end| end + 2),
            first if word(&first) => rest.iter().take_while(|byte| word(byte)).count(),
            _ => 1,
        };
        if !rest[0].is_ascii_whitespace() {
            tokens.push(at..at + length);
        }
        at += length;
    }
    tokens
}

/// A text with something changed.
fn changed(text: &[u8], dice: &mut Dice) -> Vec<u8> {
    let tokens = tokens(text);
    let some = |dice: &mut Dice| tokens[dice.below(tokens.len())].clone();
    let (place, other) = (some(dice), some(dice));
    let becomes: Vec<u8> = match dice.below(12) {
        0 => Vec::new(),
        1 => text[place.clone()].repeat(2),
        2 => ["(", "[", "{\"a\":", "<"][dice.below(4)].repeat([20, 3000, 200_000][dice.below(3)]).into_bytes(),
        3 => return text[..place.start].to_vec(),
        4 => {
            let mut text = text.to_vec();
            text[place.start] ^= 1 << dice.below(8);
            return text;
        }
        5 | 6 => text[other].to_vec(),
        7 => return [&text[..place.end], &text[place.start.min(other.start)..]].concat(),
        _ => NASTY[dice.below(NASTY.len())].into(),
    };
    [&text[..place.start], &becomes, &text[place.end..]].concat()
}

/// A package, taken apart as the format says.
struct Parts {
    header: Vec<u8>,
    manifest: Vec<u8>,
    blobs: Vec<u8>,
}

impl Parts {
    fn of(bytes: &[u8]) -> Parts {
        let length = u32::from_le_bytes(bytes[12..16].try_into().unwrap()) as usize;
        let start = (64 + length).next_multiple_of(64);
        Parts {
            header: bytes[..64].to_vec(),
            manifest: bytes[64..64 + length].to_vec(),
            blobs: bytes[start..].to_vec(),
        }
    }

    /// The same with sizes and a hash that are right.
    fn forged(&self, manifest: &[u8], blobs: &[u8]) -> Vec<u8> {
        let start = (64 + manifest.len()).next_multiple_of(64);
        let mut bytes = self.header.clone();
        bytes[12..16].copy_from_slice(&(manifest.len() as u32).to_le_bytes());
        bytes[16..24].copy_from_slice(&((start + blobs.len()) as u64).to_le_bytes());
        let mut hash = blake3::Hasher::new();
        hash.update(&bytes[..24]).update(&bytes[56..]).update(manifest);
        bytes[24..56].copy_from_slice(hash.finalize().as_bytes());
        bytes.extend(manifest);
        bytes.resize(start, 0);
        bytes.extend(blobs);
        bytes
    }

    /// The text of the module, which is the blob that begins with a word of it.
    fn text(&self) -> Range<usize> {
        let is_text =
            |start: &usize| self.blobs[*start..].starts_with(b"module") || self.blobs[*start..].starts_with(b"host");
        let start = (0..self.blobs.len()).step_by(64).find(is_text).expect("a text");
        let end = self.blobs[start..].iter().position(|&byte| byte == 0).map_or(self.blobs.len(), |n| start + n);
        start..end
    }

    /// With another text, of the same length.
    fn with_text(&self, text: Vec<u8>) -> Vec<u8> {
        let place = self.text();
        let (before, mut text) = (&self.blobs[place.clone()], text);
        text.resize(before.len(), b'\n');
        let mut blobs = self.blobs.clone();
        blobs[place.clone()].copy_from_slice(&text);
        let hex = |bytes: &[u8]| blake3::hash(bytes).to_hex().to_string();
        let manifest = String::from_utf8(self.manifest.clone()).unwrap();
        assert!(manifest.contains(&hex(before)));
        self.forged(manifest.replace(&hex(before), &hex(&text)).as_bytes(), &blobs)
    }
}

/// Two layers, with a symbolic size, weights, constants and what follows from them alone.
fn packed(path: &Path) -> Parts {
    rc::register();
    let text = "func.func @main(%x: tensor<n x 12 x f32>, %w: tensor<12x16xf32>) -> (tensor<n x 16 x f32>, tensor<n x 12 x f32>)
    attributes {rc.symbols = #rc.symbols<n = [1, 64, 1]>} {
  %y = core.dot %x, %w {lhs_contract = [1], rhs_contract = [0]} : tensor<n x 16 x f32>
  %z = tensor.softmax %y {dim = 1} : tensor<n x 16 x f32>
  %c = core.add %x, %x : tensor<n x 12 x f32>
  func.return %z, %c
}";
    let (module, errors) = rc_parser::parse_module("test", text);
    let module = module.unwrap_or_else(|| panic!("{errors:?}"));
    let weights = vec![("w".to_string(), Tensor::zeros(rc_runtime::DType::F32, &[12, 16]).unwrap())];
    let packing = Packing { targets: vec![Target::host()], weights, ..Packing::default() };
    packing.write(&module, path).unwrap();
    Parts::of(&std::fs::read(path).unwrap())
}

/// Loads a package without running it; whether it is sound.
fn is_loaded(path: &Path, bytes: &[u8]) -> bool {
    std::fs::write(path, bytes).unwrap();
    let start = Instant::now();
    let model = Model::load(path);
    let loaded = model.is_ok();
    match model {
        Err(error) => assert!(error.to_string().contains("forged.rcp"), "{error}"),
        Ok(model) => {
            let kinds: Vec<_> =
                model.signature().inputs.iter().map(|input| (input.dtype, vec![3; input.shape.len()])).collect();
            let kinds: Vec<_> = kinds.iter().map(|(dtype, shape)| (*dtype, shape.as_slice())).collect();
            _ = model.result_shapes(&kinds);
        }
    }
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
    loaded
}

#[test]
fn forged_packages_are_loaded_or_errors() {
    let folder = tempfile::tempdir().unwrap();
    let parts = packed(&folder.path().join("model.rcp"));
    let path = folder.path().join("forged.rcp");
    let text = parts.blobs[parts.text()].to_vec();
    assert!(is_loaded(&path, &parts.forged(&parts.manifest, &parts.blobs)));
    assert!(is_loaded(&path, &parts.with_text(text.clone())));
    for case in 0..CASES {
        let mut dice = Dice(case);
        let (manifest, text) = (changed(&parts.manifest, &mut dice), changed(&text, &mut dice));
        is_loaded(&path, &parts.forged(&manifest, &parts.blobs));
        is_loaded(&path, &parts.with_text(text));
    }
}
