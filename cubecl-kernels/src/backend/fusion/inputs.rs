//! Tensors of the stream, and where an operation that runs finds those that it was given.

use burn_fusion::{FusionBackend, FusionRuntime, FusionTensor};
use burn_ir::{HandleContainer, TensorIr};

pub(super) type Handles<B> = HandleContainer<<<B as FusionBackend>::FusionRuntime as FusionRuntime>::FusionHandle>;
pub(super) type Lazy<B> = FusionTensor<<B as FusionBackend>::FusionRuntime>;

/// The inputs of an operation that runs, in order.
pub(super) struct Inputs<'a, B: FusionBackend> {
    handles: &'a mut Handles<B>,
    descriptions: std::slice::Iter<'a, TensorIr>,
}

impl<'a, B: FusionBackend> Inputs<'a, B> {
    pub(super) fn new(handles: &'a mut Handles<B>, descriptions: &'a [TensorIr]) -> Self {
        Self {
            handles,
            descriptions: descriptions.iter(),
        }
    }

    /// The next input's description, and where its tensor is.
    pub(super) fn next(&mut self) -> (&mut Handles<B>, &'a TensorIr) {
        let description = self.descriptions.next();
        (
            self.handles,
            description.expect("an operation takes the inputs that it was given"),
        )
    }
}
