//! Inputs that must be refused with a typed error, and nothing written.

use crate::case::{Case, CaseError};
use hisa_ref::Strictness;

/// An input no indexer may compute with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejected {
    /// The case. Its windows or parameters may be malformed.
    pub case: Case,
    /// Numbers n of the public reports BR-n.
    pub reports: &'static [u16],
    /// What is wrong with it.
    pub comment: &'static str,
}

impl Rejected {
    /// What the reference refuses, in strict mode; `None` if nothing.
    #[must_use]
    pub fn refusal(&self) -> Option<CaseError> {
        match self.case.inputs() {
            Err(error) => Some(error),
            Ok(inputs) => Some(inputs.indexer_input_with(Strictness::Strict).err()?.into()),
        }
    }
}

/// All of them.
#[must_use]
pub fn rejected() -> Vec<Rejected> {
    let rows = TABLE.iter().filter_map(|&(reports, comment, address)| {
        Some(Rejected {
            case: address.parse().ok()?,
            reports,
            comment,
        })
    });
    rows.collect()
}

type Row = (&'static [u16], &'static str, &'static str);

const TABLE: &[Row] = &[
    (
        &[53],
        "offsets decrease",
        "hisa:M=16,N=16,H=1,D=8,B=4,m=2,K=4/cu=0.12.8.16",
    ),
    (
        &[53],
        "offsets start with 1",
        "hisa:M=4,N=4,H=1,D=8,B=4,m=2,K=4/cu=1.4",
    ),
    (
        &[53],
        "offsets start below 0",
        "hisa:M=4,N=4,H=1,D=8,B=4,m=2,K=4/cu=-1.4",
    ),
    (
        &[53],
        "no offset at all",
        "hisa:M=0,N=0,H=1,D=8,B=4,m=2,K=4/cu=",
    ),
    (
        &[53],
        "offsets end before N",
        "hisa:M=5,N=5,H=1,D=8,B=4,m=2,K=4/cu=0.2.4",
    ),
    (
        &[53],
        "offsets end after N",
        "hisa:M=5,N=5,H=1,D=8,B=4,m=2,K=4/cu=0.2.6",
    ),
    (
        &[53],
        "one list of offsets, M not N",
        "hisa:M=5,N=6,H=1,D=8,B=4,m=2,K=4/cu=0.5",
    ),
    (
        &[53],
        "an offset past int32",
        "hisa:M=5,N=5,H=1,D=8,B=4,m=2,K=4/cuq=0.5,cuk=0.2147483648",
    ),
    (
        &[61],
        "fewer windows than rows",
        "hisa:M=3,N=5,H=1,D=8,B=4,m=2,K=4/win=0:2x2",
    ),
    (
        &[61],
        "more windows than rows",
        "hisa:M=3,N=5,H=1,D=8,B=4,m=2,K=4/win=0:2x4",
    ),
    (
        &[61],
        "offset lists of different lengths",
        "hisa:M=4,N=5,H=1,D=8,B=4,m=2,K=4/cuq=0.2.4,cuk=0.5",
    ),
    (
        &[64],
        "a window ends past the keys",
        "hisa:M=1,N=6,H=1,D=8,B=4,m=2,K=4/win=0:8",
    ),
    (
        &[64],
        "a window starts before them",
        "hisa:M=1,N=6,H=1,D=8,B=4,m=2,K=4/win=-1:3",
    ),
    (
        &[72],
        "a window ends at INT32_MAX",
        "hisa:M=1,N=6,H=1,D=8,B=128,m=2,K=4/win=0:2147483647",
    ),
    (&[54], "K = 0", "hisa:M=1,N=6,H=1,D=8,B=4,m=2,K=0/win=0:3"),
    (&[54], "m = 0", "hisa:M=1,N=6,H=1,D=8,B=4,m=0,K=4/win=0:3"),
    (&[], "B = 0", "hisa:M=1,N=6,H=1,D=8,B=0,m=2,K=4/win=0:3"),
    (
        &[],
        "m*B = 2^31",
        "hisa:M=1,N=6,H=1,D=8,B=65536,m=32768,K=4/win=0:3",
    ),
    (
        &[],
        "K = 2^31",
        "hisa:M=1,N=6,H=1,D=8,B=4,m=2,K=2147483648/win=0:3",
    ),
    (
        &[],
        "kv_stride = 0",
        "hisa:M=4,N=4,H=1,D=8,B=4,m=2,K=4/cuq=0.4,cuk=0.4,stride=0",
    ),
    (
        &[],
        "one first position for two sequences",
        "hisa:M=4,N=4,H=1,D=8,B=4,m=2,K=4/cuq=0.2.4,stride=1,pos=3",
    ),
    (
        &[],
        "rank 2 of 2",
        "hisa:M=4,N=8,H=1,D=8,B=4,m=2,K=4/cu=0.8,cp=2of2",
    ),
    (
        &[],
        "6 rows in four chunks",
        "hisa:M=3,N=6,H=1,D=8,B=4,m=2,K=4/cu=0.6,cp=0of2",
    ),
    (
        &[],
        "a NaN code in q",
        "hisa:M=2,N=6,H=2,D=8,B=4,m=2,K=4/win=0:6x2/q.1.1.7=7f",
    ),
    (
        &[],
        "a negative NaN code in k",
        "hisa:M=2,N=6,H=2,D=8,B=4,m=2,K=4/win=0:6x2/k.5.7=ff",
    ),
    (
        &[88],
        "a negative scale",
        "hisa:M=2,N=6,H=2,D=8,B=4,m=2,K=4/win=0:6x2/s.5=bf800000",
    ),
    (
        &[88],
        "a NaN scale",
        "hisa:M=2,N=6,H=2,D=8,B=4,m=2,K=4/win=0:6x2/s.0=7fc00000",
    ),
    (
        &[88],
        "an infinite scale",
        "hisa:M=2,N=6,H=2,D=8,B=4,m=2,K=4/win=0:6x2/s.3=7f800000",
    ),
    (
        &[18],
        "a NaN weight",
        "hisa:M=2,N=6,H=2,D=8,B=4,m=2,K=4/win=0:6x2/w.1.1=7fc00000",
    ),
    (
        &[],
        "an infinite weight",
        "hisa:M=2,N=6,H=2,D=8,B=4,m=2,K=4/win=0:6x2/w.0.0=ff800000",
    ),
    (
        &[],
        "NaN outside every window is refused as well",
        "hisa:M=1,N=6,H=2,D=8,B=4,m=2,K=4/win=0:2/k.5.0=7f",
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_parses_and_is_refused() {
        let all = rejected();
        assert_eq!(all.len(), TABLE.len());
        for entry in all {
            let refusal = entry.refusal();
            assert!(
                matches!(refusal, Some(CaseError::Refused(_))),
                "{}",
                entry.comment
            );
        }
    }
}
