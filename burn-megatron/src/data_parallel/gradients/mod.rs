//! Gradients once they are complete: finalisation, sums, norms and clipping.

pub(super) mod average;
pub(super) mod clip_params;
pub(super) mod clipping;
pub(super) mod finalisation;
pub(super) mod partial;
pub(super) mod reduced;
pub(super) mod weighted;
