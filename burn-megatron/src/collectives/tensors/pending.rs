//! [`PendingReceive`]: the handle of a tensor on its way to this rank. Made by
//! [`CollectiveBackend`](super::CollectiveBackend), held by the pipeline.

use std::time::Instant;

use burn::tensor::{Shape, TensorData, backend::Backend, ops::FloatTensor};

use crate::collectives::{CollectiveElement, CollectiveError, Pending};

/// A tensor that is being received.
#[must_use = "the tensor comes from `wait`"]
pub struct PendingReceive<B: Backend>(Box<dyn Incoming<B>>);

/// A tensor on its way, whatever its elements.
trait Incoming<B: Backend> {
    fn finished_at(&self) -> Option<Instant>;
    fn wait(self: Box<Self>) -> Result<FloatTensor<B>, CollectiveError>;
}

impl<B: Backend> PendingReceive<B> {
    /// Returns the handle of elements that will be a tensor of a shape.
    pub(super) fn new<T: CollectiveElement + burn::tensor::Element>(
        pending: Pending<Vec<T>>,
        shape: Shape,
        device: B::Device,
    ) -> Self {
        Self(Box::new(Elements { pending, shape, device }))
    }

    /// Returns the handle of what `wrap` makes of the tensor.
    pub(super) fn map<W: Backend>(
        self,
        wrap: impl FnOnce(FloatTensor<B>) -> FloatTensor<W> + 'static,
    ) -> PendingReceive<W> {
        PendingReceive(Box::new(Wrapped { inner: self, wrap }))
    }

    /// Returns the moment at which the tensor was there, if it is.
    pub fn finished_at(&self) -> Option<Instant> {
        self.0.finished_at()
    }

    /// Waits for the tensor. Bounded, because the transfer is.
    ///
    /// # Errors
    /// The error of the transfer.
    pub fn wait(self) -> Result<FloatTensor<B>, CollectiveError> {
        self.0.wait()
    }
}

struct Elements<T, D> {
    pending: Pending<Vec<T>>,
    shape: Shape,
    device: D,
}

impl<T: CollectiveElement + burn::tensor::Element, B: Backend> Incoming<B> for Elements<T, B::Device> {
    fn finished_at(&self) -> Option<Instant> {
        self.pending.finished_at()
    }

    fn wait(self: Box<Self>) -> Result<FloatTensor<B>, CollectiveError> {
        let elements = self.pending.wait()?;
        Ok(B::float_from_data(TensorData::new(elements, self.shape), &self.device))
    }
}

struct Wrapped<B: Backend, F> {
    inner: PendingReceive<B>,
    wrap: F,
}

impl<B: Backend, W: Backend, F: FnOnce(FloatTensor<B>) -> FloatTensor<W>> Incoming<W> for Wrapped<B, F> {
    fn finished_at(&self) -> Option<Instant> {
        self.inner.finished_at()
    }

    fn wait(self: Box<Self>) -> Result<FloatTensor<W>, CollectiveError> {
        self.inner.wait().map(self.wrap)
    }
}
