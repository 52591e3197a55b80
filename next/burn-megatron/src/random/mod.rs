//! Random numbers by coordinates: what a number is depends on where it is used, never on which rank draws it.

pub mod philox;
mod stream;

pub use stream::RandomStream;
