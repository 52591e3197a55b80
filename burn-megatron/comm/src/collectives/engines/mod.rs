//! The trait of engines, which move the bytes, and reduction in rank order; engines of one rank and of a fake world.

pub(super) mod aligned;
pub(super) mod engine;
pub(super) mod fake;
pub(super) mod reduce;
pub(super) mod single;
