//! What a package's header and manifest hold.

use rc_machine::Needs;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ops::Range;

/// Stays no text when it goes through something that takes it for such.
pub(super) const MAGIC: &[u8; 8] = b"\x89rcp\r\n\x1a\n";

/// Changes with the format, with what machine code expects of the runtime, and with the meaning of the `host` dialect.
pub(super) const FORMAT: u32 = 1;

/// rc's version.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Blobs begin at multiples of this many bytes.
pub(super) const ALIGNMENT: usize = 64;

/// The header's bytes: the magic number, the format, the manifest's bytes, the file's bytes, the manifest's hash, zeros.
pub(super) const HEADER: usize = 64;

/// The part of the file that is hashed with the manifest: the header without its hash.
pub(super) const HASH: Range<usize> = 24..56;

#[derive(Serialize, Deserialize, Default, Debug)]
#[serde(deny_unknown_fields)]
pub(super) struct Manifest {
    /// The version of rc that made it.
    pub rc: String,
    pub modules: Vec<PackedModule>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub weights: Vec<Weight>,
    /// Weights in a `.safetensors` file in the same folder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub beside: Option<Beside>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub notes: BTreeMap<String, String>,
    pub blobs: Vec<Stored>,
}

#[derive(Serialize, Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub(super) struct PackedModule {
    pub needs: Needs,
    /// The blob of its text.
    pub text: usize,
    pub resources: Vec<Resource>,
}

#[derive(Serialize, Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub(super) struct Resource {
    pub name: String,
    pub align: u32,
    pub blob: usize,
}

/// A weight: an argument's value, by the argument's name.
#[derive(Serialize, Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub(super) struct Weight {
    pub name: String,
    pub dtype: String,
    pub shape: Vec<usize>,
    pub blob: usize,
}

#[derive(Serialize, Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub(super) struct Beside {
    pub file: String,
    pub blake3: String,
}

/// Where a blob lies.
#[derive(Serialize, Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub(super) struct Stored {
    pub at: usize,
    pub bytes: usize,
    pub blake3: String,
}

impl Stored {
    pub fn range(&self) -> Range<usize> {
        self.at..self.at + self.bytes
    }
}

/// The hash of a header and its manifest.
pub(super) fn hash_of(header: &[u8], manifest: &[u8]) -> blake3::Hash {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&header[..HASH.start]).update(&header[HASH.end..HEADER]).update(manifest);
    hasher.finalize()
}

/// The hash of a blob or a file, by as many threads as help.
pub(super) fn hash(bytes: &[u8]) -> blake3::Hash {
    let mut hasher = blake3::Hasher::new();
    match bytes.len() {
        0..=0x2_0000 => hasher.update(bytes),
        _ => hasher.update_rayon(bytes),
    };
    hasher.finalize()
}
