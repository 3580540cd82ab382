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
