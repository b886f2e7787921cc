//! A store behind the folder, which several machines share: another directory, or a server.
//!
//! What it holds is copied to the folder before it is used, and only if its hash and its key are right: without a secret that tells that it is what
//! somebody wrote there, with one that it was somebody who knows the secret. A store that hangs, fails or lies is a miss, which is said once.

mod directory;
mod http;

use super::environment::{self, named};
use directory::Directory;
use http::Http;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::Duration;

/// How long an answer may take, where `RC_CACHE_SHARED_TIMEOUT` says nothing.
const PATIENCE: Duration = Duration::from_secs(10);
/// No entry is larger: what a store sends beyond is not read.
const LARGEST: u64 = 1 << 30;
/// The bytes of the hash at an entry's end.
const HASH: usize = blake3::OUT_LEN;

/// How a store is found and used.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Settings {
    /// A directory, or the address of a server: `http://cache:8080/rc`.
    pub place: String,
    /// Whether what is compiled here is written to it.
    pub writes: bool,
    /// Known to all who may write what is used here.
    pub secret: Option<String>,
    pub patience: Duration,
}

impl Settings {
    /// Of a store that is read.
    pub fn at(place: impl Into<String>) -> Settings {
        Settings { place: place.into(), writes: false, secret: None, patience: PATIENCE }
    }

    /// What `RC_CACHE_SHARED` and its like say; `None` where there is no such store.
    fn of_environment() -> Option<Settings> {
        Some(Settings {
            place: named("RC_CACHE_SHARED")?,
            writes: environment::writes(),
            secret: named("RC_CACHE_SHARED_SECRET"),
            patience: environment::patience().unwrap_or(PATIENCE),
        })
    }
}

/// A store that several machines share.
#[derive(Clone, Debug)]
pub struct Shared(Arc<State>);

#[derive(Debug)]
struct State {
    settings: Settings,
    /// What entries are hashed with.
    key: [u8; blake3::KEY_LEN],
    /// Whether it has failed to give or to take an entry, and is not asked any more. One that fails to give is given none.
    gives_nothing: AtomicBool,
    takes_nothing: AtomicBool,
    warned: AtomicBool,
}

impl Shared {
    /// The store that the environment says, the same for the whole process.
    pub fn open() -> Option<Shared> {
        static KNOWN: Mutex<Vec<Shared>> = Mutex::new(Vec::new());
        let settings = Settings::of_environment()?;
        let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(shared) = known.iter().find(|shared| shared.0.settings == settings) {
            return Some(shared.clone());
        }
        known.push(Shared::new(settings));
        known.last().cloned()
    }

    pub fn new(settings: Settings) -> Shared {
        let key =
            blake3::derive_key("rc: an entry of a shared cache", settings.secret.as_deref().unwrap_or("").as_bytes());
        let no = || AtomicBool::new(false);
        Shared(Arc::new(State { settings, key, gives_nothing: no(), takes_nothing: no(), warned: no() }))
    }

    /// The bytes of an entry; `None` where the store has none.
    ///
    /// # Errors
    /// What is wrong, in words, the first time.
    pub(super) fn get(&self, name: &str) -> Result<Option<Vec<u8>>, String> {
        if self.0.gives_nothing.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let (settings, named) = (self.0.settings.clone(), name.to_string());
        let found = match within(settings.patience, move || store(&settings)?.get(&named)) {
            Ok(found) => found,
            Err(why) => {
                // One that hangs is not waited for a second time to take an entry.
                self.0.gives_nothing.store(true, Ordering::Relaxed);
                self.0.takes_nothing.store(true, Ordering::Relaxed);
                return self.warn(format!("is not asked any more: {why}"));
            }
        };
        let Some(mut bytes) = found else { return Ok(None) };
        let content = bytes.len().saturating_sub(HASH);
        let hash: Option<[u8; HASH]> = bytes[content..].try_into().ok();
        if hash.is_none_or(|hash| self.hash(&bytes[..content]) != blake3::Hash::from_bytes(hash)) {
            return self.lied(name, "it has another hash than it says");
        }
        bytes.truncate(content);
        Ok(Some(bytes))
    }

    /// That an entry is not what it should be.
    ///
    /// # Errors
    /// The first time.
    pub(super) fn lied<T>(&self, name: &str, why: &str) -> Result<Option<T>, String> {
        self.warn(format!("has an entry that is not used: {name}: {why}"))
    }

    /// Writes an entry, where that is allowed.
    ///
    /// # Errors
    /// What is wrong, in words, the first time.
    pub(super) fn put(&self, name: &str, content: &[u8]) -> Result<(), String> {
        if !self.0.settings.writes || self.0.takes_nothing.load(Ordering::Relaxed) {
            return Ok(());
        }
        let mut bytes = content.to_vec();
        bytes.extend_from_slice(self.hash(content).as_bytes());
        let (settings, named) = (self.0.settings.clone(), name.to_string());
        let done = within(settings.patience, move || store(&settings)?.put(&named, &bytes));
        done.or_else(|why| {
            self.0.takes_nothing.store(true, Ordering::Relaxed);
            self.warn::<()>(format!("is not written to any more: {why}")).map(drop)
        })
    }

    fn hash(&self, content: &[u8]) -> blake3::Hash {
        blake3::Hasher::new_keyed(&self.0.key).update_rayon(content).finalize()
    }

    fn warn<T>(&self, what: String) -> Result<Option<T>, String> {
        match self.0.warned.swap(true, Ordering::Relaxed) {
            true => Ok(None),
            false => Err(format!("the shared cache {} {what}", self.0.settings.place)),
        }
    }
}

/// What `work` gives, if it is done in time. What is not goes on by itself, and nobody waits for it.
fn within<T: Send + 'static>(
    patience: Duration,
    work: impl FnOnce() -> Result<T, String> + Send + 'static,
) -> Result<T, String> {
    let (sender, receiver) = mpsc::sync_channel(1);
    let started = std::thread::Builder::new().name("rc-shared-cache".into()).spawn(move || sender.send(work()));
    started.map_err(|e| e.to_string())?;
    receiver.recv_timeout(patience).unwrap_or_else(|_| Err(format!("no answer in {patience:?}")))
}

/// Where entries are kept, by their names.
trait Store {
    /// The bytes of an entry, not more than [`LARGEST`]; `None` where there is none.
    fn get(&self, name: &str) -> Result<Option<Vec<u8>>, String>;

    /// Keeps an entry, whole or not at all.
    fn put(&self, name: &str, bytes: &[u8]) -> Result<(), String>;
}

/// The store at a place.
fn store(settings: &Settings) -> Result<Box<dyn Store>, String> {
    match settings.place.split_once("://") {
        None => Ok(Box::new(Directory(settings.place.clone().into()))),
        Some(("http", _)) => Ok(Box::new(Http::new(&settings.place, settings.patience))),
        Some((scheme, _)) => {
            Err(format!("not supported: {scheme}:// stores; a store is a directory, or a server at http://"))
        }
    }
}
