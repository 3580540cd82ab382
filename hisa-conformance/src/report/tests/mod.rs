//! Reports as people and programs will see them, and proof that nothing is lost on the way.

mod data;
mod page;
mod pictures;
mod samples;
mod terminal;
