//! Writing: complete or not at all, and the same bytes every time.

use super::error::{DumpError, HeaderError};
use super::header::Header;
use super::tensor::{Data, Tensor};
use super::{FILE_BYTES_MAX, HEADER_BYTES_MAX, METADATA_KEY};
use serde::ser::{Serialize, SerializeMap, Serializer};
use std::collections::BTreeMap;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

/// The tensors of a file by name.
type Tensors<'a> = BTreeMap<String, Tensor<'a>>;
/// The strings of a header by key.
type Metadata = BTreeMap<String, String>;

/// Writes a safetensors file that is either complete or absent.
///
/// The bytes go to a temporary file in the same folder, reach the disk, and then take the name in
/// one step. Where anything fails, the temporary file is removed and a file that had the name
/// keeps its bytes. A symbolic link is followed, not replaced. Wider elements come first, names
/// sorted within a width, so that every tensor is aligned to its element; equal arguments give
/// equal bytes.
///
/// # Errors
/// [`DumpError::NotAFile`] where the path names a folder, a device or nothing,
/// [`DumpError::Io`] where the operating system refuses, [`DumpError::Header`] for a name or size
/// that [`super::TensorFile`] would not read back.
pub fn write_atomic(
    path: &Path,
    tensors: &Tensors<'_>,
    metadata: &Metadata,
) -> Result<(), DumpError> {
    let header = header_for(path, tensors, metadata)?;
    replace(path, |out| write_parts(out, &header, tensors))
}

/// Writes the bytes of [`write_atomic`] to a new file, with nothing done for the case that the
/// machine stops: for files that one process hands to another.
///
/// # Errors
/// As [`write_atomic`]; a file that is there already is refused.
pub fn write_plain(
    path: &Path,
    tensors: &Tensors<'_>,
    metadata: &Metadata,
) -> Result<(), DumpError> {
    let header = header_for(path, tensors, metadata)?;
    let failed = DumpError::io(path, "write");
    let file = std::fs::File::create_new(path).map_err(&failed)?;
    let mut out = BufWriter::with_capacity(64 << 10, file);
    let written = write_parts(&mut out, &header, tensors).and_then(|()| out.flush());
    written.map_err(failed)
}

fn header_for(
    path: &Path,
    tensors: &Tensors<'_>,
    metadata: &Metadata,
) -> Result<Vec<u8>, DumpError> {
    encode_header(tensors, metadata).map_err(|problem| DumpError::Header {
        file: path.to_owned(),
        problem,
    })
}

/// The bytes that [`write_atomic`] writes.
///
/// # Errors
/// [`HeaderError`] for a name or size that [`super::TensorFile`] would not read back.
pub fn to_bytes(tensors: &Tensors<'_>, metadata: &Metadata) -> Result<Vec<u8>, HeaderError> {
    let mut out = encode_header(tensors, metadata)?;
    for (_, tensor) in in_file_order(tensors) {
        // A vector takes every write.
        let _ = write_data(&mut out, tensor.data());
    }
    Ok(out)
}

/// FNV-1a (64 bits) of the bytes that [`write_atomic`] writes, as [`file_digest`] computes it.
///
/// # Errors
/// As [`to_bytes`].
pub fn digest(tensors: &Tensors<'_>, metadata: &Metadata) -> Result<u64, HeaderError> {
    let header = encode_header(tensors, metadata)?;
    let mut hash = Fnv::default();
    // A hash takes every write.
    let _ = write_parts(&mut hash, &header, tensors);
    Ok(hash.0)
}

/// FNV-1a (64 bits) of a file's bytes.
///
/// # Errors
/// [`DumpError::Io`].
pub fn file_digest(path: &Path) -> Result<u64, DumpError> {
    let mut hash = Fnv::default();
    let copied = std::fs::File::open(path).and_then(|mut file| io::copy(&mut file, &mut hash));
    copied.map_err(DumpError::io(path, "read"))?;
    Ok(hash.0)
}

struct Fnv(u64);

impl Default for Fnv {
    fn default() -> Self {
        Self(0xCBF2_9CE4_8422_2325)
    }
}

impl Write for Fnv {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        for &byte in bytes {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x100_0000_01B3);
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn write_parts(out: &mut dyn Write, header: &[u8], tensors: &Tensors<'_>) -> io::Result<()> {
    out.write_all(header)?;
    for (_, tensor) in in_file_order(tensors) {
        write_data(out, tensor.data())?;
    }
    Ok(())
}

fn in_file_order<'t, 'a>(tensors: &'t Tensors<'a>) -> Vec<(&'t str, &'t Tensor<'a>)> {
    let mut order: Vec<_> = tensors
        .iter()
        .map(|(name, tensor)| (name.as_str(), tensor))
        .collect();
    // Stable: names stay sorted within a width.
    order.sort_by_key(|(_, tensor)| std::cmp::Reverse(tensor.data().dtype().bitsize()));
    order
}

/// Length and text of the header, padded with spaces to a multiple of 8 bytes.
fn encode_header(tensors: &Tensors<'_>, metadata: &Metadata) -> Result<Vec<u8>, HeaderError> {
    if tensors.contains_key(METADATA_KEY) {
        return Err(HeaderError::ReservedName { name: METADATA_KEY });
    }
    let entries = Entries {
        metadata,
        tensors: in_file_order(tensors),
    };
    let mut text = serde_json::to_vec(&entries).map_err(|error| HeaderError::NotJson {
        reason: error.to_string(),
    })?;
    text.resize(text.len().next_multiple_of(8), b' ');
    let bytes = text.len() as u64;
    if bytes > HEADER_BYTES_MAX {
        return Err(HeaderError::TooLarge {
            bytes,
            limit: HEADER_BYTES_MAX,
        });
    }
    let data_bytes: u64 = tensors.values().map(data_bytes).sum();
    if data_bytes > FILE_BYTES_MAX - HEADER_BYTES_MAX - 8 {
        let bytes = data_bytes + bytes + 8;
        return Err(HeaderError::FileTooLarge {
            bytes,
            limit: FILE_BYTES_MAX,
        });
    }
    // What cannot be read back is not written.
    Header::parse(&text, data_bytes)?;
    let mut header = bytes.to_le_bytes().to_vec();
    header.append(&mut text);
    Ok(header)
}

fn data_bytes(tensor: &Tensor<'_>) -> u64 {
    tensor.data().len() as u64 * (tensor.data().dtype().bitsize() / 8) as u64
}

/// The JSON object of the header, in file order.
struct Entries<'t, 'a> {
    metadata: &'t Metadata,
    tensors: Vec<(&'t str, &'t Tensor<'a>)>,
}

#[derive(serde::Serialize)]
struct Entry<'t> {
    dtype: safetensors::Dtype,
    shape: &'t [usize],
    data_offsets: (u64, u64),
}

impl Serialize for Entries<'_, '_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        if !self.metadata.is_empty() {
            map.serialize_entry(METADATA_KEY, self.metadata)?;
        }
        let mut begin = 0;
        for (name, tensor) in &self.tensors {
            let end = begin + data_bytes(tensor);
            let (dtype, shape) = (tensor.data().dtype(), tensor.shape());
            map.serialize_entry(
                name,
                &Entry {
                    dtype,
                    shape,
                    data_offsets: (begin, end),
                },
            )?;
            begin = end;
        }
        map.end()
    }
}

fn write_data<W: Write + ?Sized>(out: &mut W, data: &Data<'_>) -> io::Result<()> {
    match data {
        Data::U8(values) => out.write_all(values),
        Data::F8E4M3(values) => elements(out, values, |code| [code.to_bits()]),
        Data::F32(values) => elements(out, values, |value| value.to_le_bytes()),
        Data::I32(values) => elements(out, values, |value| value.to_le_bytes()),
        Data::I64(values) => elements(out, values, |value| value.to_le_bytes()),
        Data::Bf16(values) | Data::U16(values) => {
            elements(out, values, |value| value.to_le_bytes())
        }
    }
}

fn elements<T: Copy, const W: usize>(
    out: &mut (impl Write + ?Sized),
    values: &[T],
    convert: impl Fn(T) -> [u8; W],
) -> io::Result<()> {
    let mut bytes = Vec::new();
    for chunk in values.chunks(8192) {
        bytes.clear();
        bytes.extend(chunk.iter().flat_map(|&value| convert(value)));
        out.write_all(&bytes)?;
    }
    Ok(())
}

/// Gives `path` the content that `fill` writes, or leaves everything as it was.
pub(crate) fn replace(
    path: &Path,
    fill: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> Result<(), DumpError> {
    let target = target_of(path)?;
    let folder = match target.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    };
    let failed = DumpError::io(path, "write");
    let mut temporary = temporary_in(folder, &target).map_err(&failed)?;
    let _pending = Pending::new(temporary.path());
    let mut out = BufWriter::new(temporary.as_file_mut());
    fill(&mut out).and_then(|()| out.flush()).map_err(&failed)?;
    drop(out);
    temporary.as_file().sync_all().map_err(&failed)?;
    temporary
        .persist(&target)
        .map_err(|refused| failed(refused.error))?;
    // The content is safe either way; this makes the name outlast a power cut, where folders can
    // be opened at all.
    let _ = std::fs::File::open(folder).and_then(|folder| folder.sync_all());
    Ok(())
}

/// The file to replace: what a link leads to, and never a folder or a device.
fn target_of(path: &Path) -> Result<PathBuf, DumpError> {
    let not_a_file = || DumpError::NotAFile {
        file: path.to_owned(),
    };
    let ends_in_separator = path.as_os_str().as_encoded_bytes().ends_with(b"/");
    if path.file_name().is_none() || ends_in_separator {
        return Err(not_a_file());
    }
    match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(path.to_owned()),
        Err(error) => Err(DumpError::io(path, "write")(error)),
        Ok(_) => {
            let target = std::fs::canonicalize(path).map_err(DumpError::io(path, "write"))?;
            let found = std::fs::metadata(&target).map_err(DumpError::io(path, "write"))?;
            if !found.is_file() {
                return Err(not_a_file());
            }
            // A rename would replace a file that its owner has closed to writing.
            std::fs::OpenOptions::new()
                .write(true)
                .open(&target)
                .map_err(DumpError::io(path, "write"))?;
            Ok(target)
        }
    }
}

/// A temporary file with the permissions of the file it will replace, or else of any new file.
fn temporary_in(folder: &Path, target: &Path) -> io::Result<tempfile::NamedTempFile> {
    let mut builder = tempfile::Builder::new();
    builder.prefix(".hisa-").suffix(".tmp");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        builder.permissions(std::fs::Permissions::from_mode(0o666));
    }
    let temporary = builder.tempfile_in(folder)?;
    if let Ok(found) = std::fs::metadata(target) {
        temporary.as_file().set_permissions(found.permissions())?;
    }
    Ok(temporary)
}

/// Temporary files being written now: what an interrupted process has to remove.
static PENDING: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// Keeps a file in [`PENDING`] as long as it lives.
struct Pending(PathBuf);

impl Pending {
    fn new(path: &Path) -> Self {
        pending().push(path.to_owned());
        Self(path.to_owned())
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        pending().retain(|path| *path != self.0);
    }
}

fn pending() -> std::sync::MutexGuard<'static, Vec<PathBuf>> {
    PENDING
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Removes every file that [`write_atomic`] has begun and not finished. For the handler of a
/// signal that is about to end the process.
pub fn remove_unfinished() {
    for path in pending().drain(..) {
        let _ = std::fs::remove_file(path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names_in(folder: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(folder).unwrap();
        entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect()
    }

    #[test]
    fn a_failure_midway_leaves_the_old_file_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("y.safetensors");
        std::fs::write(&path, b"old").unwrap();
        let error = replace(&path, |out| {
            out.write_all(&[7; 100_000])?;
            Err(io::Error::other("disk full"))
        })
        .unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("{}: cannot write: disk full", path.display())
        );
        assert_eq!(std::fs::read(&path).unwrap(), b"old");
        assert_eq!(names_in(folder.path()), ["y.safetensors"]);
    }

    #[test]
    fn a_failure_midway_leaves_no_file_where_there_was_none() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("y.safetensors");
        assert!(replace(&path, |_| Err(io::Error::other("disk full"))).is_err());
        assert!(names_in(folder.path()).is_empty());
    }

    #[test]
    fn paths_that_name_no_file_are_refused() {
        for path in ["/", "..", "", "folder/"] {
            let refused = target_of(Path::new(path));
            assert!(
                matches!(refused, Err(DumpError::NotAFile { .. })),
                "{path}: {refused:?}"
            );
        }
    }
}
