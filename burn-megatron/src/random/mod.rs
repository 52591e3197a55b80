//! Random numbers by coordinates: what a number is depends on where it is used, never on which rank draws it.
//!
//! Initialisation ([`RandomStream`]) is keyed by the seed and the parameter's global name and counted by the element's
//! index in the logical parameter. Dropout ([`Dropout`]) is keyed by the seed and the site and counted by iteration,
//! sample, position, head and channel. So every layout of ranks starts from the same bits and drops the same elements.

mod columns;
mod coordinates;
mod dropout;
mod mix;
mod step;
mod stream;

pub use cubecl_kernels::random::{RowDropout, RowPlace, philox};

pub use columns::ColumnShard;
pub use coordinates::{StepCoordinates, TokenMap, TokenPlace};
pub(crate) use dropout::without_dropout;
pub use dropout::{Dropout, DropoutConfig, DropoutSite};
pub(crate) use mix::mix;
pub(crate) use step::{CurrentStep, ModuleStep, SaidOfStep};
pub use stream::RandomStream;
