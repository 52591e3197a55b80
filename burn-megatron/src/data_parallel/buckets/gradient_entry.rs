//! [`GradientEntry`]: where the gradient of one parameter is, and what is known of the parameter.

use burn::module::ParamId;

use super::bucket::BucketSlot;
use crate::parameters::{Distribution, Placement};

/// Where the gradient of one parameter is stored, and what is known of the parameter.
#[derive(Clone, Debug)]
pub struct GradientEntry {
    /// Its number among the trained parameters of the module.
    pub number: usize,
    /// burn's identifier of the parameter, on this rank.
    pub id: ParamId,
    /// Its global name.
    pub name: String,
    /// Its shape on this rank.
    pub shape: Vec<usize>,
    /// Which part of the logical parameter this is.
    pub placement: Placement,
    /// Who else holds it.
    pub distribution: Distribution,
    /// Whether the first and the last pipeline stage each have a copy.
    pub is_tied: bool,
    pub(in crate::data_parallel) slot: BucketSlot,
}

impl GradientEntry {
    /// The number of dimensions of the logical parameter as its layer sees it: weight decay looks at it.
    pub fn dimensions(&self) -> usize {
        self.shape.len()
    }

    /// The number of the bucket that its gradient is in.
    pub fn bucket(&self) -> usize {
        self.slot.bucket
    }
}
