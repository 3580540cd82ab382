//! Where cases come from.

pub mod programmed;
pub mod stream;
pub mod values;
