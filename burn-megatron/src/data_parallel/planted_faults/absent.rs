//! No faults: each function leaves what it is given.

use std::sync::Arc;

use burn::tensor::{Tensor, backend::Backend};

use crate::autodiff::GradientSink;
use crate::context::ParallelContext;
use crate::data_parallel::buckets::gradient_entry::GradientEntry;
use crate::data_parallel::gradients::finalisation::Finalisation;
#[cfg(feature = "trainer")]
use crate::random::StepCoordinates;

#[inline(always)]
pub(crate) fn parameter<B: Backend, const D: usize>(
    tensor: Tensor<B, D>,
    _entries: &[GradientEntry],
    _number: usize,
) -> Tensor<B, D> {
    tensor
}

#[inline(always)]
pub(crate) fn sink<B: Backend>(
    sink: Arc<dyn GradientSink<B>>,
    _entries: &[GradientEntry],
    _context: &ParallelContext,
) -> Arc<dyn GradientSink<B>> {
    sink
}

#[inline(always)]
pub(crate) fn finalisation(finalisation: Finalisation) -> Finalisation {
    finalisation
}

#[cfg(feature = "trainer")]
#[inline(always)]
pub(crate) fn change_samples(_step: &mut StepCoordinates, _context: &ParallelContext) {}
