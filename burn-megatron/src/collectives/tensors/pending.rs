//! [`PendingTensor`]: the handle of a tensor on its way to this rank.

use std::time::Instant;

use burn::backend::Dispatch;
use burn::tensor::Tensor;
use burn_backend::tensor::FloatTensor;
use burn_backend::{Backend, Shape, TensorData};
#[cfg(feature = "cuda")]
use burn_cubecl::{CubeBackend, tensor::CubeTensor};
#[cfg(feature = "cuda")]
use burn_fusion::get_client;

#[cfg(feature = "cuda")]
use crate::collectives::nccl::Started;
use crate::collectives::{CollectiveElement, CollectiveError, Pending};

/// A tensor that is being received, reduced or gathered.
#[must_use = "the tensor comes from `wait`"]
pub struct PendingTensor<B: Backend = Dispatch>(Box<dyn Incoming<B> + Send>);

/// A tensor on its way, whatever its elements.
trait Incoming<B: Backend> {
    fn finished_at(&self) -> Option<Instant>;
    fn wait(self: Box<Self>) -> Result<FloatTensor<B>, CollectiveError>;
}

impl<B: Backend> PendingTensor<B> {
    /// Returns the handle of elements that will be a tensor of a shape.
    pub(super) fn new<T: CollectiveElement + burn_backend::Element>(
        pending: Pending<Vec<T>>,
        shape: Shape,
        device: B::Device,
    ) -> Self {
        Self(Box::new(Elements { pending, shape, device }))
    }

    /// Returns the handle of a tensor that is there, or of what came instead.
    pub(super) fn ready(result: Result<FloatTensor<B>, CollectiveError>) -> Self {
        Self(Box::new(Ready(result)))
    }

    /// Returns the handle of what `wrap` makes of the tensor.
    pub(crate) fn map<W: Backend>(
        self,
        wrap: impl FnOnce(FloatTensor<B>) -> FloatTensor<W> + Send + 'static,
    ) -> PendingTensor<W> {
        PendingTensor(Box::new(Wrapped { inner: self, wrap }))
    }

    /// Returns the moment at which the tensor was there, if it is and this is known.
    pub fn finished_at(&self) -> Option<Instant> {
        self.0.finished_at()
    }

    /// Waits for the tensor. Bounded, because the call is.
    ///
    /// # Errors
    /// The error of the call.
    pub fn wait(self) -> Result<FloatTensor<B>, CollectiveError> {
        self.0.wait()
    }
}

#[cfg(feature = "cuda")]
impl PendingTensor<CubeBackend> {
    /// Returns the handle of a tensor that the device is making, or of what came instead.
    pub(super) fn started(result: Result<(CubeTensor, Started), CollectiveError>) -> Self {
        match result {
            Ok((tensor, started)) => Self::on_device(tensor, Pending::ready(Ok(started))),
            Err(error) => Self::ready(Err(error)),
        }
    }

    /// Returns the handle of a tensor that the device is receiving.
    pub(super) fn on_device(tensor: CubeTensor, pending: Pending<Started>) -> Self {
        Self(Box::new(OnDevice { tensor, pending }))
    }
}

impl PendingTensor {
    /// Waits for the tensor, which is of no graph. Bounded, because the call is.
    ///
    /// # Errors
    /// The error of the call.
    pub fn tensor<const D: usize>(self) -> Result<Tensor<D>, CollectiveError> {
        self.wait().map(Tensor::from_dispatch)
    }
}

/// A tensor that is available to work launched after [`Started::before_use`].
#[cfg(feature = "cuda")]
struct OnDevice {
    tensor: CubeTensor,
    pending: Pending<Started>,
}

#[cfg(feature = "cuda")]
impl Incoming<CubeBackend> for OnDevice {
    fn finished_at(&self) -> Option<Instant> {
        // Only the GPU knows.
        None
    }

    fn wait(self: Box<Self>) -> Result<CubeTensor, CollectiveError> {
        let started = self.pending.wait()?;
        // What burn's fusion has queued does not need the tensor, and runs while it is on its way.
        get_client::<CubeBackend>(&self.tensor.device).sync(|| ());
        started.before_use();
        Ok(self.tensor)
    }
}

struct Ready<T>(Result<T, CollectiveError>);

impl<B: Backend> Incoming<B> for Ready<FloatTensor<B>> {
    fn finished_at(&self) -> Option<Instant> {
        None
    }

    fn wait(self: Box<Self>) -> Result<FloatTensor<B>, CollectiveError> {
        self.0
    }
}

struct Elements<T, D> {
    pending: Pending<Vec<T>>,
    shape: Shape,
    device: D,
}

impl<T: CollectiveElement + burn_backend::Element, B: Backend> Incoming<B> for Elements<T, B::Device> {
    fn finished_at(&self) -> Option<Instant> {
        self.pending.finished_at()
    }

    fn wait(self: Box<Self>) -> Result<FloatTensor<B>, CollectiveError> {
        let elements = self.pending.wait()?;
        Ok(B::float_from_data(TensorData::new(elements, self.shape), &self.device))
    }
}

struct Wrapped<B: Backend, F> {
    inner: PendingTensor<B>,
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
