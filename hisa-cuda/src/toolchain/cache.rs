//! Cubins on disk, so that a kernel is compiled once per machine.
//!
//! A file is an entry, and holds a magic, the key, the length and the SHA-256 of the cubin, and
//! the cubin. What does not check out is as good as absent. Several processes may write one entry
//! at once: each writes a file of its own and renames it.

use super::source::{Source, options};
use crate::toolchain::{Arch, Nvrtc};
use sha2::{Digest, Sha256};
use std::io::Write;
use std::path::{Path, PathBuf};

/// First bytes of an entry; the digit is the version of the format.
const MAGIC: &[u8; 8] = b"hisacub1";
/// Magic, key, length, hash.
const HEADER: usize = 8 + 32 + 8 + 32;

/// Everything that the bits of a cubin depend on, as a hash: text of the unit and its headers,
/// options, architecture, release and size of NVRTC, version of this crate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Key([u8; 32]);

impl Key {
    /// The key of what `nvrtc` makes of a source.
    #[must_use]
    pub fn new(source: &Source, arch: Arch, nvrtc: &Nvrtc) -> Self {
        let (major, minor) = nvrtc.version();
        Self::of(
            source,
            &options(arch),
            &format!("{major}.{minor} {}", nvrtc.bytes()),
        )
    }

    fn of(source: &Source, options: &[String], compiler: &str) -> Self {
        let mut hash = Sha256::new();
        let mut add = |text: &str| {
            // Lengths keep what ends one text from passing for the start of the next.
            hash.update((text.len() as u64).to_le_bytes());
            hash.update(text);
        };
        add(env!("CARGO_PKG_VERSION"));
        add(compiler);
        add(&source.file);
        add(&source.text);
        add(&source.headers.len().to_string());
        for (name, text) in &source.headers {
            add(name);
            add(text);
        }
        for option in options {
            add(option);
        }
        Self(hash.finalize().into())
    }

    fn file(self) -> String {
        let digits: String = self.0.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("{digits}.cubin")
    }
}

/// A folder of entries, or none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cache {
    folder: Option<PathBuf>,
}

impl Cache {
    /// The folder `HISA_CACHE`, or else `hisa` in `XDG_CACHE_HOME`, or else `.cache/hisa` in
    /// `HOME`. None where `HISA_CACHE` is set and empty, or no variable is set.
    #[must_use]
    pub fn from_environment() -> Self {
        let variable = |name| std::env::var_os(name).map(PathBuf::from);
        Self::from_variables(
            variable("HISA_CACHE"),
            variable("XDG_CACHE_HOME"),
            variable("HOME"),
        )
    }

    fn from_variables(
        own: Option<PathBuf>,
        caches: Option<PathBuf>,
        home: Option<PathBuf>,
    ) -> Self {
        let in_caches = || {
            // The convention has relative paths ignored.
            let caches = caches.filter(|folder| folder.is_absolute());
            let home = home.filter(|folder| folder.is_absolute());
            let caches = caches.or_else(|| home.map(|folder| folder.join(".cache")));
            caches.map(|folder| folder.join("hisa"))
        };
        let folder = own.or_else(in_caches);
        Self {
            folder: folder.filter(|folder| !folder.as_os_str().is_empty()),
        }
    }

    /// The cache in this folder, which is made when the first entry is.
    #[must_use]
    pub const fn in_folder(folder: PathBuf) -> Self {
        Self {
            folder: Some(folder),
        }
    }

    /// No cache: everything is compiled anew.
    #[must_use]
    pub const fn off() -> Self {
        Self { folder: None }
    }

    /// The folder.
    #[must_use]
    pub fn folder(&self) -> Option<&Path> {
        self.folder.as_deref()
    }

    /// The cubin of this key, where its entry is whole.
    #[must_use]
    pub fn get(&self, key: Key) -> Option<Vec<u8>> {
        let mut entry = std::fs::read(self.folder()?.join(key.file())).ok()?;
        let (header, payload) = entry.split_at_checked(HEADER)?;
        if header != header_of(key, payload) {
            return None;
        }
        entry.drain(..HEADER);
        Some(entry)
    }

    /// Writes an entry, in place of one that has the key. Says whether it could: a cache that
    /// cannot be written is slow and not wrong.
    pub fn put(&self, key: Key, cubin: &[u8]) -> bool {
        let Some(folder) = self.folder() else {
            return false;
        };
        let written = || -> std::io::Result<()> {
            std::fs::create_dir_all(folder)?;
            let mut file = tempfile::Builder::new()
                .prefix(".hisa-")
                .suffix(".tmp")
                .tempfile_in(folder)?;
            file.write_all(&header_of(key, cubin))?;
            file.write_all(cubin)?;
            file.persist(folder.join(key.file()))?;
            Ok(())
        };
        written().is_ok()
    }

    /// The cubin of this key: from its entry, or else made and entered.
    ///
    /// # Errors
    /// What `make` returns.
    pub fn get_or<E>(
        &self,
        key: Key,
        make: impl FnOnce() -> Result<Vec<u8>, E>,
    ) -> Result<Vec<u8>, E> {
        if let Some(cubin) = self.get(key) {
            return Ok(cubin);
        }
        let cubin = make()?;
        self.put(key, &cubin);
        Ok(cubin)
    }
}

fn header_of(key: Key, payload: &[u8]) -> Vec<u8> {
    let mut header = MAGIC.to_vec();
    header.extend(key.0);
    header.extend((payload.len() as u64).to_le_bytes());
    header.extend(Sha256::digest(payload));
    header
}

#[cfg(test)]
mod tests {
    use super::*;

    const CUBIN: &[u8] = b"\x7fELF and some machine code";

    fn source() -> Source {
        Source {
            file: "a.cu".to_owned(),
            text: "text".to_owned(),
            headers: vec![("b.cuh".to_owned(), "header".to_owned())],
        }
    }

    fn key() -> Key {
        Key::of(&source(), &options(Arch::CI[0]), "13.0 1000")
    }

    fn made(cache: &Cache, cubin: &[u8]) -> (Vec<u8>, bool) {
        let mut compiled = false;
        let made = cache.get_or(key(), || {
            compiled = true;
            Ok::<_, ()>(cubin.to_vec())
        });
        (made.unwrap(), compiled)
    }

    #[test]
    fn an_entry_is_made_once() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::in_folder(folder.path().join("new/folder"));
        assert_eq!(made(&cache, CUBIN), (CUBIN.to_vec(), true));
        assert_eq!(made(&cache, b"other"), (CUBIN.to_vec(), false));
        let files = std::fs::read_dir(cache.folder().unwrap()).unwrap();
        assert_eq!(files.count(), 1, "temporary files are left");
    }

    #[test]
    fn every_damage_to_an_entry_is_seen_and_mended() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::in_folder(folder.path().to_owned());
        cache.put(key(), CUBIN);
        let file = folder.path().join(key().file());
        let whole = std::fs::read(&file).unwrap();
        assert_eq!(whole.len(), HEADER + CUBIN.len());
        let flipped = (0..whole.len()).map(|at| {
            let mut entry = whole.clone();
            entry[at] ^= 1;
            entry
        });
        let cut = (0..whole.len()).map(|len| whole[..len].to_vec());
        let longer = [whole.clone(), vec![0]].concat();
        for damaged in flipped.chain(cut).chain([longer]) {
            std::fs::write(&file, &damaged).unwrap();
            assert_eq!(cache.get(key()), None, "{damaged:?}");
            assert_eq!(made(&cache, CUBIN), (CUBIN.to_vec(), true));
            assert_eq!(std::fs::read(&file).unwrap(), whole);
        }
    }

    #[test]
    fn an_entry_of_another_key_does_not_pass() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::in_folder(folder.path().to_owned());
        let other = Key::of(&source(), &options(Arch::CI[1]), "13.0 1000");
        cache.put(other, CUBIN);
        let at = |key: Key| folder.path().join(key.file());
        std::fs::rename(at(other), at(key())).unwrap();
        assert_eq!(cache.get(key()), None);
    }

    #[test]
    fn a_folder_that_cannot_be_made_is_no_error() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        std::fs::write(&file, b"").unwrap();
        for cache in [Cache::in_folder(file.join("cache")), Cache::off()] {
            assert!(!cache.put(key(), CUBIN));
            assert_eq!(made(&cache, CUBIN), (CUBIN.to_vec(), true));
            assert_eq!(made(&cache, CUBIN), (CUBIN.to_vec(), true));
        }
        // A folder where the entry should be.
        let cache = Cache::in_folder(folder.path().to_owned());
        std::fs::create_dir_all(folder.path().join(key().file()).join("in")).unwrap();
        assert_eq!(made(&cache, CUBIN), (CUBIN.to_vec(), true));
    }

    #[test]
    fn a_failure_is_returned_and_not_kept() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::in_folder(folder.path().to_owned());
        assert_eq!(cache.get_or(key(), || Err("wrong")), Err("wrong"));
        assert_eq!(made(&cache, CUBIN), (CUBIN.to_vec(), true));
    }

    #[test]
    fn writers_at_once_leave_one_whole_entry() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::in_folder(folder.path().to_owned());
        let cubin = vec![7; 100_000];
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..20 {
                        assert!(cache.put(key(), &cubin));
                        assert_eq!(cache.get(key()).as_ref(), Some(&cubin));
                    }
                });
            }
        });
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_key_depends_on_everything() {
        let change = |change: fn(&mut Source)| {
            let mut source = source();
            change(&mut source);
            Key::of(&source, &options(Arch::CI[0]), "13.0 1000")
        };
        let mut keys = vec![
            key(),
            change(|source| source.file.push('x')),
            change(|source| source.text.push('x')),
            change(|source| source.headers[0].0.push('x')),
            change(|source| source.headers[0].1.push('x')),
            change(|source| source.headers.clear()),
            // The same letters, cut elsewhere.
            change(|source| {
                source.file = "a.cute".to_owned();
                source.text = "xt".to_owned();
            }),
            Key::of(&source(), &options(Arch::CI[1]), "13.0 1000"),
            Key::of(&source(), &options(Arch::CI[0])[1..], "13.0 1000"),
            Key::of(&source(), &options(Arch::CI[0]), "13.1 1000"),
            Key::of(&source(), &options(Arch::CI[0]), "13.0 1001"),
        ];
        assert_eq!(change(|_| ()), key());
        keys.sort_by_key(|key| key.0);
        let all = keys.len();
        keys.dedup();
        assert_eq!(keys.len(), all);
    }

    #[test]
    fn the_folder_is_where_variables_say() {
        let folder = |own: Option<&str>, caches: Option<&str>, home: Option<&str>| {
            let cache = Cache::from_variables(
                own.map(PathBuf::from),
                caches.map(PathBuf::from),
                home.map(PathBuf::from),
            );
            cache.folder().map(|path| path.to_str().unwrap().to_owned())
        };
        let is = |path: &str| Some(path.to_owned());
        assert_eq!(
            folder(Some("/own"), Some("/xdg"), Some("/home")),
            is("/own")
        );
        assert_eq!(folder(Some(""), Some("/xdg"), Some("/home")), None);
        assert_eq!(folder(None, Some("/xdg"), Some("/home")), is("/xdg/hisa"));
        assert_eq!(
            folder(None, Some("xdg"), Some("/home")),
            is("/home/.cache/hisa")
        );
        assert_eq!(folder(None, None, Some("/home")), is("/home/.cache/hisa"));
        assert_eq!(folder(None, None, None), None);
    }
}
