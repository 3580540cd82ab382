//! Problems by value: written once, read back bit for bit, and users' own files.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use hisa_conformance::case::{Case, WindowSource};
use hisa_conformance::dump::{DumpError, Tensor, TensorFile, write_atomic};
use hisa_conformance::generate::by_name;
use hisa_conformance::problem::Problem;
use hisa_conformance::save::{Origin, read, save};
use hisa_conformance::subject::Subject;
use hisa_ref::{HisaParams, Rank, Strictness};
use ndarray::Array;
use std::collections::BTreeMap;
use std::path::Path;

fn problem(address: &str) -> Problem {
    Problem::new(&address.parse::<Case>().unwrap()).unwrap()
}

fn bits<D: ndarray::Dimension>(values: &Array<f32, D>) -> (Vec<usize>, Vec<u32>) {
    let shape = values.shape().to_vec();
    (shape, values.iter().map(|value| value.to_bits()).collect())
}

fn assert_same(a: &Problem, b: &Problem) {
    let (x, y) = (&a.inputs.tensors, &b.inputs.tensors);
    assert_eq!((&x.q, &x.k), (&y.q, &y.k));
    assert_eq!(bits(&x.k_scale), bits(&y.k_scale));
    assert_eq!(bits(&x.weights), bits(&y.weights));
    assert_eq!(a.x.as_ref().map(bits), b.x.as_ref().map(bits));
    assert_eq!(a.inputs.windows, b.inputs.windows);
    assert_eq!(a.inputs.params, b.inputs.params);
    assert_eq!(a.inputs.strictness, b.inputs.strictness);
    assert_eq!((&a.spec, &a.pieces), (&b.spec, &b.pieces));
    assert_eq!(a.quantize, b.quantize);
}

#[test]
fn every_bit_comes_back() {
    let folder = tempfile::tempdir().unwrap();
    for (seed, address) in [
        "hisa:M=3,N=9,H=2,D=8,B=4,m=2,K=5,rank=f32/win=0:9.pad.3:3/v=specialw\
         /s.0=7fa00001,s.1=80000000,w.0.0=ffc12345,w.1.1=00000001,x.0.0=7f800001,k.0.0=ff",
        "hisa:M=6,N=6,H=1,D=8,B=2,m=2,K=4/cu=0.0.2.6/v=real",
        "hisa:M=5,N=7,H=1,D=7,B=3,m=1,K=4/cuq=0.12.16,cuk=0.3.7,stride=3,pos=9.80,cp=1of2,pad=1\
         /v=all",
        "hisa:M=0,N=0,H=1,D=1,B=1,m=1,K=1/win=/v=real",
    ]
    .into_iter()
    .enumerate()
    {
        let mut case: Case = address.parse().unwrap();
        if case.windows().is_err() {
            case.m = 9; // eight of sixteen rows and one of padding
        }
        case.seed = seed as u64;
        let problem = Problem::new(&case).unwrap();
        let origin = Origin {
            check: Some("hisa.rows".to_owned()),
            address: Some(case.to_string()),
        };
        let path = save(&problem, &origin, folder.path()).unwrap();
        let (back, found) = read(&path).unwrap();
        assert_same(&problem, &back);
        assert_eq!(origin, found);
        let subject: Subject = path.to_str().unwrap().parse().unwrap();
        assert_same(&problem, &subject.problem().unwrap());
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 4);
}

#[test]
fn generated_cases_come_back() {
    let folder = tempfile::tempdir().unwrap();
    for generated in by_name("ragged", 11, 60).unwrap().iter() {
        let problem = Problem::new(&generated.case).unwrap();
        let path = save(&problem, &Origin::default(), folder.path()).unwrap();
        assert_same(&problem, &Problem::read(&path).unwrap());
    }
}

#[test]
fn the_name_is_the_content_and_nothing_is_overwritten() {
    let folder = tempfile::tempdir().unwrap();
    let small = problem("hisa:M=1,N=2,H=1,D=8,B=2,m=1,K=1/win=0:2/v=ties");
    let origin = Origin {
        check: Some("token_topk.selection".to_owned()),
        address: None,
    };
    let path = save(&small, &origin, folder.path()).unwrap();
    let name = path.file_name().unwrap().to_str().unwrap();
    let digits = name.strip_prefix("token_topk.selection-").unwrap();
    let digits = digits.strip_suffix(".safetensors").unwrap();
    assert!(digits.len() == 12 && digits.bytes().all(|digit| digit.is_ascii_hexdigit()));

    let written = std::fs::metadata(&path).unwrap().modified().unwrap();
    assert_eq!(save(&small, &origin, folder.path()).unwrap(), path);
    assert_eq!(
        std::fs::metadata(&path).unwrap().modified().unwrap(),
        written
    );

    let mut other = small.clone();
    other.inputs.params = HisaParams::new(2, 1, 2).unwrap();
    assert_ne!(save(&other, &origin, folder.path()).unwrap(), path);
    other.inputs.tensors.k_scale[0] = -0.0;
    assert_ne!(save(&other, &origin, folder.path()).unwrap(), path);

    std::fs::write(&path, b"mine").unwrap();
    let refused = save(&small, &origin, folder.path());
    assert!(matches!(refused, Err(DumpError::Occupied { .. })));
    assert_eq!(std::fs::read(&path).unwrap(), b"mine");
}

/// A copy of a saved file with other metadata and further tensors; `None` removes a tensor.
fn edited(
    problem: &Problem,
    folder: &Path,
    metadata: &[(&str, &str)],
    tensors: Vec<(&str, Option<Tensor<'_>>)>,
) -> std::path::PathBuf {
    let path = save(problem, &Origin::default(), folder).unwrap();
    let mut file = TensorFile::open(&path).unwrap();
    let names: Vec<String> = file.names().map(str::to_owned).collect();
    let mut all = BTreeMap::new();
    for name in names {
        let tensor = file
            .tensor(&name, hisa_conformance::dump::Data::DTYPES)
            .unwrap();
        all.insert(name, tensor);
    }
    for (name, tensor) in tensors {
        all.remove(name);
        all.extend(tensor.map(|tensor| (name.to_owned(), tensor)));
    }
    let entries = metadata.iter();
    let metadata = entries.map(|&(key, value)| (key.to_owned(), value.to_owned()));
    let path = folder.join("edited.safetensors");
    write_atomic(&path, &all, &metadata.collect()).unwrap();
    path
}

#[test]
fn a_users_own_file_works_with_the_defaults() {
    let folder = tempfile::tempdir().unwrap();
    let own = problem("hisa:M=6,N=6,H=1,D=8,B=2,m=2,K=4/cu=0.2.6/v=real");
    let offsets = ndarray::arr1(&[0, 2, 6]);
    let cu = Some(Tensor::i32(&offsets));
    let changes = vec![("ks", None), ("ke", None), ("x", None), ("cu_seqlens", cu)];
    let (read, origin) = read(&edited(&own, folder.path(), &[], changes)).unwrap();
    assert_eq!(origin, Origin::default());
    assert_eq!(read.inputs.params, HisaParams::DEEPSEEK_V32);
    assert_eq!(read.inputs.params.rank(), Rank::Bf16);
    assert_eq!(read.inputs.strictness, Strictness::Strict);
    assert_eq!(read.inputs.windows, own.inputs.windows);
    assert_eq!(
        read.spec.unwrap().source,
        WindowSource::Causal(vec![0, 2, 6])
    );
    assert_eq!((read.x, read.pieces), (None, vec![3, 6, 1, 6]));

    let read = Problem::read(&edited(&own, folder.path(), &[("K", "7")], vec![])).unwrap();
    assert_eq!(read.spec, None);
    assert_eq!(
        bits(read.x.as_ref().unwrap()),
        bits(own.x.as_ref().unwrap())
    );
}

#[test]
fn metadata_that_contradicts_the_tensors_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let own = problem("hisa:M=6,N=6,H=1,D=8,B=2,m=2,K=4/cu=0.2.6/v=real");
    for (key, value) in [
        ("spec", "cu=0.3.6"),
        ("spec", "cu=0.2.6/v=real"),
        ("spec", "cu=0.2.6/k.0.0=00"),
        ("spec", "q"),
        ("pieces", "7.6"),
        ("pieces", "3"),
        ("pieces", ""),
        ("scale_format", "F32"),
        ("overflow", "no"),
    ] {
        let path = edited(&own, folder.path(), &[(key, value)], vec![]);
        let error = Problem::read(&path).unwrap_err();
        let DumpError::Param { name, .. } = error else {
            panic!("{key} {value}: {error}");
        };
        assert_eq!(name, key);
    }
    let path = edited(
        &own,
        folder.path(),
        &[("spec", "cu=0.2.6"), ("pieces", "0.6")],
        vec![],
    );
    let read = Problem::read(&path).unwrap();
    assert_eq!((read.spec, read.pieces), (own.spec, vec![0, 6]));
}
