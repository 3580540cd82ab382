//! What a run looks like to people.

pub mod text;
