//! Handles of tensors on their way between two ranks. Made by [`CollectiveBackend`](super::CollectiveBackend), held by
//! the pipeline.

use std::time::Instant;

use burn::tensor::{Shape, TensorData, backend::Backend, ops::FloatTensor};

use crate::collectives::{CollectiveElement, CollectiveError, Pending};

/// A tensor that is being sent.
#[must_use = "a transfer that fails says so in `wait`"]
pub struct PendingSend(Pending<()>);

/// A tensor that is being received.
#[must_use = "the tensor comes from `wait`"]
pub struct PendingReceive<B: Backend>(Box<dyn Transfer<FloatTensor<B>>>);

/// A transfer, whatever its elements, that ends in an `O`.
trait Transfer<O> {
    fn finished_at(&self) -> Option<Instant>;
    fn wait(self: Box<Self>) -> Result<O, CollectiveError>;
}

impl PendingSend {
    /// Returns the handle of a transfer.
    pub(super) fn new(pending: Pending<()>) -> Self {
        Self(pending)
    }

    /// Returns the moment at which the tensor had been handed over, if it has.
    pub fn finished_at(&self) -> Option<Instant> {
        self.0.finished_at()
    }

    /// Waits until the tensor has been handed over. Bounded, because the transfer is.
    ///
    /// # Errors
    /// The error of the transfer.
    pub fn wait(self) -> Result<(), CollectiveError> {
        self.0.wait()
    }
}

impl<B: Backend> PendingReceive<B> {
    /// Returns the handle of elements that will be a tensor of a shape.
    pub(super) fn new<T: CollectiveElement + burn::tensor::Element>(
        pending: Pending<Vec<T>>,
        shape: Shape,
        device: B::Device,
    ) -> Self {
        Self(Box::new(Elements::<T, B> { pending, shape, device }))
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

impl<B: Backend> PendingReceive<B> {
    /// Returns the handle of what `wrap` makes of the tensor.
    pub(super) fn map<W: Backend>(
        self,
        wrap: impl FnOnce(FloatTensor<B>) -> FloatTensor<W> + 'static,
    ) -> PendingReceive<W> {
        PendingReceive(Box::new(Wrapped { inner: self, wrap }))
    }
}

struct Wrapped<B: Backend, F> {
    inner: PendingReceive<B>,
    wrap: F,
}

impl<B: Backend, O, F: FnOnce(FloatTensor<B>) -> O> Transfer<O> for Wrapped<B, F> {
    fn finished_at(&self) -> Option<Instant> {
        self.inner.finished_at()
    }

    fn wait(self: Box<Self>) -> Result<O, CollectiveError> {
        self.inner.wait().map(self.wrap)
    }
}

struct Elements<T, B: Backend> {
    pending: Pending<Vec<T>>,
    shape: Shape,
    device: B::Device,
}

impl<T: CollectiveElement + burn::tensor::Element, B: Backend> Transfer<FloatTensor<B>> for Elements<T, B> {
    fn finished_at(&self) -> Option<Instant> {
        self.pending.finished_at()
    }

    fn wait(self: Box<Self>) -> Result<FloatTensor<B>, CollectiveError> {
        let elements = self.pending.wait()?;
        Ok(B::float_from_data(TensorData::new(elements, self.shape), &self.device))
    }
}
