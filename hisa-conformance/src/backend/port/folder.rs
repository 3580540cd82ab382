//! The folders of exchange files: one per run, one in it per port.

use super::tree;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Where folders of exchange files are made; among the temporary files where it is not set.
pub const FOLDER_VARIABLE: &str = "HISA_PORT_DIR";

/// The folders of this process: what an interrupted process has to remove.
static FOLDERS: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

fn folders() -> MutexGuard<'static, Vec<PathBuf>> {
    FOLDERS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A folder that goes when this value does, or when the process is interrupted.
#[derive(Debug)]
pub struct ExchangeFolder {
    path: PathBuf,
}

impl ExchangeFolder {
    /// A new one.
    ///
    /// # Errors
    /// As the operating system, with the folder in which it should have been made.
    pub fn new() -> Result<Self, (PathBuf, io::Error)> {
        let variable = std::env::var_os(FOLDER_VARIABLE).filter(|value| !value.is_empty());
        let parent = variable.map_or_else(std::env::temp_dir, PathBuf::from);
        let made = std::path::absolute(&parent).and_then(|parent| {
            let mut builder = tempfile::Builder::new();
            let made = builder.prefix("hisa-port-").tempdir_in(parent);
            made.map(tempfile::TempDir::keep)
        });
        let path = made.map_err(|error| (parent, error))?;
        folders().push(path.clone());
        Ok(Self { path })
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for ExchangeFolder {
    fn drop(&mut self) {
        folders().retain(|path| *path != self.path);
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

/// The place of one port: a folder in that of the run, or one of its own.
#[derive(Debug)]
pub(super) enum Place {
    InRun(PathBuf),
    Own(ExchangeFolder),
}

impl Place {
    pub(super) fn new(run: Option<&Path>) -> Result<Self, (PathBuf, io::Error)> {
        let Some(run) = run else {
            return Ok(Self::Own(ExchangeFolder::new()?));
        };
        is_orphan(); // remembers the parent
        // The worker's mark, so that who started the worker knows what to remove.
        let name = std::env::var(tree::WORKER).unwrap_or_else(|_| tree::mark());
        let path = run.join(name);
        match std::fs::create_dir(&path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err((path, error)),
            _ => Ok(Self::InRun(path)),
        }
    }

    pub(super) fn path(&self) -> &Path {
        match self {
            Self::InRun(path) => path,
            Self::Own(folder) => folder.path(),
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Self::InRun(path) = self {
            let _ = std::fs::remove_dir_all(&*path);
            // Nobody else is left to remove the folder of the run.
            if let Some(run) = path.parent().filter(|_| is_orphan()) {
                let _ = std::fs::remove_dir(run); // refused where another port is still there
            }
        }
    }
}

/// Whether the process that started this one is gone.
fn is_orphan() -> bool {
    #[cfg(unix)]
    {
        static PARENT: std::sync::OnceLock<Option<i32>> = std::sync::OnceLock::new();
        let parent = || rustix::process::getppid().map(|pid| pid.as_raw_nonzero().get());
        *PARENT.get_or_init(parent) != parent()
    }
    #[cfg(not(unix))]
    false
}

/// Removes the folders of this process. For the handler of a signal that is about to end it.
pub(super) fn remove_all() {
    let folders = std::mem::take(&mut *folders());
    for folder in &folders {
        let _ = std::fs::remove_dir_all(folder);
    }
}

/// Whether this process has made a folder that is still there.
pub(super) fn any() -> bool {
    !folders().is_empty()
}
