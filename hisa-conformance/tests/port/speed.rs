//! What the protocol costs beside the port's own work.

use super::Stand;
use hisa_conformance::backend::port::{Port, Setup};
use hisa_conformance::backend::reference::Reference;
use hisa_conformance::backend::{Backend, Call, Fill, Job, Outputs};
use hisa_conformance::case::Case;
use hisa_conformance::dump::{Data, Tensor, to_bytes};
use hisa_conformance::op::Op;
use hisa_conformance::problem::Problem;
use hisa_conformance::truth::Truth;
use hisa_ref::Stage;
use std::collections::BTreeMap;
use std::process::Command;
use std::time::{Duration, Instant};

const OP: Op = Op::Stage(Stage::IndexMap);

/// Median times of a case by itself and in a list of 16.
#[test]
#[ignore = "measures; run it on an idle machine with --ignored --nocapture"]
fn a_case_costs_less_than_a_millisecond() {
    let stand = Stand::new();
    let problem = Problem::new(&Case::with_cu(&[0, 2, 9, 24])).unwrap();
    let shape = problem.output_shape(OP, "indices").unwrap();
    let ids = Data::I32(vec![-1; shape.iter().product()].into());
    let tensors = BTreeMap::from([("indices".to_owned(), Tensor::new(&shape, ids).unwrap())]);
    let file = stand.path("answer.safetensors");
    std::fs::write(&file, to_bytes(&tensors, &BTreeMap::new()).unwrap()).unwrap();
    let program = stand.path("template");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/port/template.c");
    let built = Command::new("cc")
        .args(["-O1", "-o"])
        .arg(&program)
        .arg(source)
        .status();
    assert!(built.unwrap().success());
    let truth = Truth::of_ops(&problem, &mut Reference::new(), &[OP]);
    for (batch, rounds) in [(1, 2000), (16, 200)] {
        let command = format!(
            "exec {} {} index_map {batch}",
            program.display(),
            file.display()
        );
        let mut port = Port::start(&command, &Setup::default()).unwrap();
        let mut times: Vec<Duration> = (0..rounds)
            .map(|_| {
                let mut calls: Vec<Call<'_>> = (0..batch)
                    .map(|_| Call {
                        job: Job::new(OP, &problem, truth.chain()).unwrap(),
                        out: Outputs::new(OP, &problem, Fill::Zeros),
                    })
                    .collect();
                let begun = Instant::now();
                let results = port.run_all(&mut calls);
                let time = begun.elapsed() / batch as u32;
                assert!(results.iter().all(Result::is_ok), "{results:?}");
                time
            })
            .collect();
        times.sort();
        let (median, late) = (times[rounds / 2], times[rounds * 95 / 100]);
        let said = format!("lists of {batch}: median {median:?}, 95 % {late:?} a case");
        assert!(median < Duration::from_millis(1), "{said}");
        let _ = std::io::Write::write_fmt(&mut std::io::stderr(), format_args!("{said}\n"));
    }
}
