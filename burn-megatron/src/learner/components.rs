//! [`Components`]: burn-train's name for what a learner is made of.

use burn::train::LearningComponentsMarker;

/// The components of a learner for a model `M`, a scheduler `LR` and an optimizer `O`.
pub(super) type Components<B, LR, M, O> = LearningComponentsMarker<B, LR, M, O>;
