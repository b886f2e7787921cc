//! The context: a process-wide, append-only store of types, attributes, names and dimension
//! expressions. Handles are 4-byte ids, equal exactly when the data are equal. Reads take no lock;
//! an id never changes or dies. Ids depend on the order of interning, so they never reach output.

use hashbrown::HashTable;
use parking_lot::RwLock;
use rustc_hash::FxBuildHasher;
use std::hash::{BuildHasher, Hash};
use std::sync::LazyLock;

const SHARDS: usize = 16;

/// An append-only set of `T` with dense ids.
pub struct Interner<T: 'static> {
    items: boxcar::Vec<T>,
    shards: [RwLock<Table>; SHARDS],
}

/// An id with the hash of its datum, so that a table grows without a look at the data.
#[derive(Clone, Copy)]
struct Entry {
    hash: u32,
    id: u32,
}

type Table = HashTable<Entry>;

/// A table's hash, which uses the low and the top bits.
fn spread(hash: u32) -> u64 {
    u64::from(hash).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

fn hash_of(datum: &(impl Hash + ?Sized)) -> u32 {
    let hash = FxBuildHasher.hash_one(datum);
    (hash ^ (hash >> 32)) as u32
}

impl<T: Eq + Hash> Interner<T> {
    pub fn new() -> Self {
        Interner { items: boxcar::Vec::new(), shards: std::array::from_fn(|_| RwLock::new(HashTable::new())) }
    }

    /// The datum of an id that this interner gave.
    #[inline]
    pub fn get(&self, id: u32) -> &T {
        &self.items[id as usize]
    }

    /// The id of `key`, made from `key` by `make` where it is new. `make` must give an equal datum.
    pub fn intern_with<Q>(&self, key: &Q, make: impl FnOnce() -> T) -> u32
    where
        Q: Hash + ?Sized,
        T: std::borrow::Borrow<Q>,
        Q: Eq,
    {
        let hash = hash_of(key);
        let find = |table: &Table| self.find(table, hash, |known| known.borrow() == key);
        if let Some(id) = find(&self.shard(hash).read()) {
            return id;
        }
        let mut table = self.shard(hash).write();
        find(&table).unwrap_or_else(|| self.insert(&mut table, hash, make()))
    }

    /// The id of `datum`.
    pub fn intern(&self, datum: T) -> u32 {
        let hash = hash_of(&datum);
        let find = |table: &Table| self.find(table, hash, |known| *known == datum);
        if let Some(id) = find(&self.shard(hash).read()) {
            return id;
        }
        let mut table = self.shard(hash).write();
        match find(&table) {
            Some(id) => id,
            None => self.insert(&mut table, hash, datum),
        }
    }

    fn shard(&self, hash: u32) -> &RwLock<Table> {
        // The table takes the low and the top bits.
        &self.shards[(spread(hash) >> 40) as usize % SHARDS]
    }
    fn find(&self, table: &Table, hash: u32, same: impl Fn(&T) -> bool) -> Option<u32> {
        table.find(spread(hash), |entry| entry.hash == hash && same(self.get(entry.id))).map(|entry| entry.id)
    }
    fn insert(&self, table: &mut Table, hash: u32, datum: T) -> u32 {
        let id = u32::try_from(self.items.push(datum)).expect("fewer than 2^32 distinct interned data");
        table.insert_unique(spread(hash), Entry { hash, id }, |entry| spread(entry.hash));
        id
    }
}

impl<T: Eq + Hash> Default for Interner<T> {
    fn default() -> Self {
        Self::new()
    }
}

static NAMES: LazyLock<Interner<Box<str>>> = LazyLock::new(|| {
    let names = Interner::new();
    names.intern("".into()); // id 0: the empty name
    names
});

/// An interned string: a symbol's, an attribute's, a value's or a dialect's name. Copy, 4 bytes.
/// `Ord` is that of the text, so sorting by name is deterministic.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Name(u32);

impl Name {
    /// The empty name, which stands for "has none".
    pub const EMPTY: Name = Name(0);

    pub fn new(text: &str) -> Name {
        Name(NAMES.intern_with(text, || text.into()))
    }

    #[inline]
    pub fn as_str(self) -> &'static str {
        NAMES.get(self.0)
    }

    #[inline]
    pub fn is_empty(self) -> bool {
        self == Name::EMPTY || self.as_str().is_empty()
    }
}

impl Default for Name {
    fn default() -> Self {
        Name::EMPTY
    }
}
impl From<&str> for Name {
    fn from(text: &str) -> Self {
        Name::new(text)
    }
}
impl PartialEq<str> for Name {
    fn eq(&self, other: &str) -> bool {
        self.as_str() == other
    }
}
impl PartialEq<&str> for Name {
    fn eq(&self, other: &&str) -> bool {
        self.as_str() == *other
    }
}
impl PartialOrd for Name {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Name {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        if self.0 == other.0 { std::cmp::Ordering::Equal } else { self.as_str().cmp(other.as_str()) }
    }
}
impl std::fmt::Display for Name {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}
impl std::fmt::Debug for Name {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}", self.as_str())
    }
}

/// Declares a 4-byte handle to interned data: `interned!(Type, TypeData)`.
macro_rules! interned {
    ($(#[$doc:meta])* $handle:ident, $data:ty, $store:ident) => {
        static $store: std::sync::LazyLock<$crate::intern::Interner<$data>> =
            std::sync::LazyLock::new($crate::intern::Interner::new);

        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash)]
        pub struct $handle(u32);

        impl $handle {
            /// The handle of `data`; equal data give equal handles.
            pub fn new(data: $data) -> Self {
                $handle($store.intern(data))
            }
            /// What the handle stands for. Takes no lock.
            #[inline]
            pub fn data(self) -> &'static $data {
                let store: &'static $crate::intern::Interner<$data> = &$store;
                store.get(self.0)
            }
            /// A dense id for side tables. It depends on the order of interning: never print it or sort by it.
            #[inline]
            pub fn id(self) -> u32 {
                self.0
            }
        }
    };
}
pub(crate) use interned;
