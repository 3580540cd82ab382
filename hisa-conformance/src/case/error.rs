//! What can be wrong with an address, or with the case it stands for.

use super::patch::Patch;
use crate::generate::values::BLOCKS_DIM_MIN;
use thiserror::Error;

/// An address that is not one, with the place where it stops being one.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("address, byte {at}: {problem}")]
pub struct AddressError {
    /// Byte offset into the address.
    pub at: usize,
    /// What is wrong there.
    pub problem: AddressProblem,
}

/// The ways in which an address can be wrong.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum AddressProblem {
    /// It does not start with the scheme.
    #[error("an address starts with \"hisa:\"")]
    Scheme,
    /// It is longer than any address this program prints.
    #[error("{bytes} bytes are more than the {limit} an address may have")]
    TooLong {
        /// Its length.
        bytes: usize,
        /// The largest length.
        limit: usize,
    },
    /// A field is not `key=value`.
    #[error("{field:?} is not of the form key=value")]
    Field {
        /// The field.
        field: String,
    },
    /// A key means nothing.
    #[error("unknown key {key:?}")]
    UnknownKey {
        /// The key.
        key: String,
    },
    /// A key occurs twice.
    #[error("{key} is given twice")]
    RepeatedKey {
        /// The key.
        key: String,
    },
    /// A key is needed and absent.
    #[error("{key} is missing")]
    MissingKey {
        /// The key, or the alternatives.
        key: &'static str,
    },
    /// Two keys exclude each other, or one needs another.
    #[error("{key} cannot stand {relation}")]
    Conflict {
        /// The key that should not be there.
        key: &'static str,
        /// "with" or "without" which other key.
        relation: &'static str,
    },
    /// A value is not what its key takes.
    #[error("{key}: expected {expected}, got {got:?}")]
    Value {
        /// The key.
        key: String,
        /// What it takes.
        expected: &'static str,
        /// What was found.
        got: String,
    },
    /// A list is longer than a cap.
    #[error("{key}: more than {limit} entries")]
    TooMany {
        /// The key.
        key: String,
        /// The cap.
        limit: usize,
    },
    /// The address is well formed and asks for something impossible.
    #[error(transparent)]
    Case(#[from] CaseError),
}

/// A case that cannot be carried out.
#[derive(Debug, Clone, PartialEq, Error)]
#[non_exhaustive]
pub enum CaseError {
    /// The reference refuses its parameters, windows or values.
    #[error(transparent)]
    Refused(#[from] hisa_ref::Error),
    /// A size is above its cap.
    #[error("{name} is {value}, above the cap of {limit} for a case")]
    TooLarge {
        /// The size, in letters.
        name: &'static str,
        /// Its value.
        value: u128,
        /// The cap.
        limit: usize,
    },
    /// A tensor cannot be allocated here, although it is within the caps.
    #[error("{what} needs {elements} elements, more than this machine has room for")]
    Allocation {
        /// The tensor.
        what: &'static str,
        /// Its number of elements.
        elements: usize,
    },
    /// A patch points outside its tensor.
    #[error("{patch} points outside its tensor")]
    Patch {
        /// The patch.
        patch: Patch,
    },
    /// Programmed blocks need room for their digits.
    #[error("programmed blocks need D >= {BLOCKS_DIM_MIN}, D is {d}")]
    BlocksDim {
        /// Dimensions of the case.
        d: usize,
    },
    /// A programmed block score cannot be reached.
    #[error("block scores {low:08x} to {high:08x}: only 0 and 2^-28 to 2^124 can be programmed")]
    BlockScore {
        /// Bits of the smallest value of the segment.
        low: u64,
        /// Bits of its largest value.
        high: u64,
    },
}

// hisa_ref::Error compares floats, and so has no Eq; no NaN is kept in an address error.
impl Eq for CaseError {}
