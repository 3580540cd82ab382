//! The cases in flight, on disk before they run.
//!
//! A run has a folder with one file per worker: `worker-I.json`, replaced before every batch. If
//! the machine goes down, the files say what ran. The folder is removed when no worker was lost.

use super::RunError;
use crate::worker::Batch;
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The folders of the runs of this process: what an interrupted process has to remove.
static FOLDERS: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

fn folders() -> MutexGuard<'static, Vec<PathBuf>> {
    FOLDERS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Removes the files of every run of this process. For the handler of a signal that is about to
/// end it.
pub fn remove_unfinished() {
    for folder in folders().drain(..) {
        remove_files(&folder);
    }
}

/// Removes the files of a run, and the folder if nothing else is in it.
fn remove_files(folder: &Path) {
    let entries = std::fs::read_dir(folder);
    for entry in entries.into_iter().flatten().filter_map(Result::ok) {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if name.starts_with(PREFIX) && name.ends_with(SUFFIX) {
            let _ = std::fs::remove_file(entry.path());
        }
    }
    let _ = std::fs::remove_dir(folder);
}

const PREFIX: &str = "worker-";
const SUFFIX: &str = ".json";

/// The folder of a run.
#[derive(Debug)]
pub(super) struct RunFolder {
    path: PathBuf,
}

impl RunFolder {
    /// A new folder among the temporary files, or `state`, which is made where it is absent.
    pub(super) fn new(state: Option<&Path>) -> Result<Self, RunError> {
        let made = match state {
            Some(path) => std::fs::create_dir_all(path).map(|()| path.to_owned()),
            None => tempfile::Builder::new()
                .prefix("hisa-run-")
                .tempdir()
                .map(tempfile::TempDir::keep),
        };
        let path = made.map_err(|source| RunError::State {
            path: state.map_or_else(std::env::temp_dir, Path::to_owned),
            source,
        })?;
        folders().push(path.clone());
        Ok(Self { path })
    }

    /// The file of worker `index`.
    pub(super) fn journal(&self, index: usize) -> Journal {
        Journal {
            folder: self.path.clone(),
            name: format!("{PREFIX}{index}{SUFFIX}"),
        }
    }

    /// Leaves the files where they are.
    pub(super) fn keep(self) -> PathBuf {
        folders().retain(|path| *path != self.path);
        let path = self.path.clone();
        std::mem::forget(self);
        path
    }
}

impl Drop for RunFolder {
    fn drop(&mut self) {
        folders().retain(|path| *path != self.path);
        remove_files(&self.path);
    }
}

/// The file of one worker.
#[derive(Debug)]
pub(super) struct Journal {
    folder: PathBuf,
    name: String,
}

#[derive(Serialize)]
struct Entry<'a> {
    #[serde(flatten)]
    batch: &'a Batch,
    cases: BTreeMap<u64, String>,
}

impl Journal {
    /// Replaces the file by these cases, in one step and down to the disk.
    pub(super) fn write(
        &self,
        batch: &Batch,
        cases: impl Iterator<Item = (u64, String)>,
    ) -> Result<(), RunError> {
        let cases = cases.collect();
        let path = self.folder.join(&self.name);
        self.replace(&path, &Entry { batch, cases })
            .map_err(|source| RunError::State { path, source })
    }

    fn replace(&self, path: &Path, entry: &Entry<'_>) -> io::Result<()> {
        let mut file = tempfile::Builder::new()
            .prefix(PREFIX)
            .suffix(SUFFIX)
            .tempfile_in(&self.folder)?;
        serde_json::to_writer(&mut file, entry)?;
        file.write_all(b"\n")?;
        file.as_file().sync_data()?;
        file.persist(path).map_err(|error| error.error)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::effort::Effort;
    use crate::runner::Plan;

    #[test]
    fn the_file_names_every_case_and_goes_with_the_run() {
        let parent = tempfile::tempdir().unwrap();
        let state = parent.path().join("state");
        let folder = RunFolder::new(Some(&state)).unwrap();
        let batch = Plan::new("reference", Effort::Quick)
            .batches()
            .next()
            .unwrap();
        let cases = batch
            .indices()
            .map(|index| (index, format!("hisa:{index}")));
        let journal = folder.journal(3);
        journal.write(&batch, cases.clone()).unwrap();
        journal.write(&batch, cases).unwrap();
        let text = std::fs::read_to_string(state.join("worker-3.json")).unwrap();
        assert!(text.contains("\"generator\":\"edge\""), "{text}");
        assert!(text.contains("\"1\":\"hisa:1\""), "{text}");
        assert_eq!(std::fs::read_dir(&state).unwrap().count(), 1);
        std::fs::write(state.join("notes.txt"), "mine").unwrap();
        drop(folder);
        let left: Vec<_> = std::fs::read_dir(&state).unwrap().collect();
        assert_eq!(left.len(), 1, "only the file of somebody else stays");
    }
}
