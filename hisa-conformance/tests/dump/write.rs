//! Writing: whole files or none, and the same bytes every time.

use super::{i32s, open, tensor, valid};
use hisa_conformance::dump::{
    Data, DumpError, HEADER_BYTES_MAX, HeaderError, METADATA_KEY, Tensor, TensorError, TensorFile,
    to_bytes, write_atomic,
};
use std::collections::BTreeMap;
use std::path::Path;

#[test]
fn writing_refuses_what_could_not_be_read_back() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("y.safetensors");
    std::fs::write(&path, b"old").unwrap();
    let deep = tensor(&[1; 9], Data::U8(vec![0].into()));
    for (name, tensor, words) in [
        (
            METADATA_KEY.to_owned(),
            i32s(&[]),
            "\"__metadata__\" is reserved",
        ),
        (
            "n".repeat(300),
            i32s(&[]),
            "300 bytes, above the limit of 256",
        ),
        (
            "deep".to_owned(),
            deep,
            "9 dimensions, above the limit of 8",
        ),
    ] {
        let tensors = BTreeMap::from([(name, tensor)]);
        let error = write_atomic(&path, &tensors, &BTreeMap::new()).unwrap_err();
        assert!(error.to_string().contains(words), "{error}");
        assert_eq!(std::fs::read(&path).unwrap(), b"old");
    }
    let long = BTreeMap::from([("k".to_owned(), "v".repeat(HEADER_BYTES_MAX as usize))]);
    let error = write_atomic(&path, &BTreeMap::new(), &long).unwrap_err();
    let too_large = |e: &DumpError| {
        matches!(
            e,
            DumpError::Header {
                problem: HeaderError::TooLarge { .. },
                ..
            }
        )
    };
    assert!(too_large(&error), "{error}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    let problem = TensorError::Elements {
        shape: vec![2, 3],
        elements: 1,
    };
    assert_eq!(Tensor::new(&[2, 3], Data::U8(vec![0].into())), Err(problem));
    let overflow = Tensor::new(&[usize::MAX, 2], Data::U8(vec![].into()));
    assert!(overflow.is_err());
}

#[test]
fn writing_replaces_whole_files_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let write = |path: &Path| write_atomic(path, &valid(), &BTreeMap::new());
    let path = folder.path().join("x.safetensors");
    std::fs::write(&path, vec![0; 1 << 20]).unwrap();
    write(&path).unwrap();
    assert!(TensorFile::open(&path).unwrap().contains("q"));
    assert!(matches!(
        write(folder.path()),
        Err(DumpError::NotAFile { .. })
    ));
    let nowhere = folder.path().join("none").join("x.safetensors");
    assert!(matches!(
        write(&nowhere),
        Err(DumpError::Io {
            action: "write",
            ..
        })
    ));
    let under_a_file = path.join("x.safetensors");
    assert!(matches!(write(&under_a_file), Err(DumpError::Io { .. })));
    #[cfg(unix)]
    {
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        write(&link).unwrap();
        assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink());
        std::fs::remove_file(&link).unwrap();
        assert!(matches!(
            write(Path::new("/dev/null")),
            Err(DumpError::NotAFile { .. })
        ));
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn equal_arguments_give_equal_bytes() {
    let keys = ["z", "a", "block_size", "m", "rank", "q"];
    let metadata: BTreeMap<_, _> = keys.map(|key| (key.into(), "1".into())).into();
    let bytes = to_bytes(&valid(), &metadata).unwrap();
    assert!((0..20).all(|_| to_bytes(&valid(), &metadata).unwrap() == bytes));
    assert_eq!(
        (bytes.len() - 24 - 12 - 12 - 24 - 16) % 8,
        0,
        "the data starts at a multiple of 8"
    );
    let file = open(&bytes).unwrap();
    assert_eq!(*file.metadata(), metadata);
    for name in file.names() {
        let info = file.info(name).unwrap();
        let width = info.dtype().bitsize() as u64 / 8;
        assert_eq!(info.begin() % width, 0, "{name} is aligned");
    }
}
