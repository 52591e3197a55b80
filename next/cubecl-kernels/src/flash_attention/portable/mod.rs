//! Attention without matrix units: on any of CubeCL's runtimes, whatever its planes, in 32 KiB of shared memory.
//!
//! A cube has [`UNITS`] units in a square. The tiles of queries, keys and values are in shared memory in f32; each unit
//! keeps its part of the results in registers. Launched by [`launch`](super::launch).

pub(super) mod backward;
pub(super) mod bias;
pub(super) mod forward;
pub(super) mod tile;

/// Units of a cube: a square of [`SIDE`].
pub(super) const UNITS: usize = SIDE * SIDE;
/// The square's side.
pub(super) const SIDE: usize = 8;
