//! Custom operations of a stream: how one is registered, and how it runs.

use burn::tensor::Shape;
use burn::tensor::ops::FloatTensor;
use burn_fusion::stream::{Operation, OperationStreams};
use burn_fusion::{FusionBackend, FusionRuntime, FusionTensor};
use burn_ir::{CustomOpIr, HandleContainer, OperationIr, TensorIr};

use super::arguments::Argument;
use super::results::Results;

pub(super) type Handles<B> = HandleContainer<<<B as FusionBackend>::FusionRuntime as FusionRuntime>::FusionHandle>;
pub(super) type Lazy<B> = FusionTensor<<B as FusionBackend>::FusionRuntime>;
type Run<B> = dyn Fn(&mut Inputs<'_, B>) -> Vec<FloatTensor<B>> + Send + Sync;

/// Registers an operation of the stream, which runs on the inner backend's form of its arguments. Returns what it
/// will have computed.
pub(super) fn register<B: FusionBackend, A: Argument<B>, R: Results<B>>(
    name: &'static str,
    arguments: A,
    results: R,
    run: impl Fn(A::Inner) -> R::Inner + Send + Sync + 'static,
) -> R::Lazy {
    let mut inputs = Vec::new();
    let take = arguments.give(&mut inputs);
    let mut outputs = Vec::new();
    results.name(&mut outputs);
    let client = inputs.first().expect("an operation has an input").client.clone();
    let streams = OperationStreams::with_inputs(&inputs);
    let outputs = outputs.into_iter();
    let outputs: Vec<TensorIr> = outputs
        .map(|(shape, dtype)| TensorIr::uninit(client.create_empty_handle(), Shape::from(shape), dtype))
        .collect();
    let inputs: Vec<TensorIr> = inputs.into_iter().map(FusionTensor::into_ir).collect();
    let description = CustomOpIr::new(name, &inputs, &outputs);
    let operation = Registered::<B> {
        description: description.clone(),
        run: Box::new(move |inputs| {
            let mut outputs = Vec::new();
            R::give(run(take(inputs)), &mut outputs);
            outputs
        }),
    };
    let outputs = client.register(streams, OperationIr::Custom(description), operation);
    results.take(&mut outputs.into_iter())
}

/// The inputs of an operation that runs, in order.
pub(super) struct Inputs<'a, B: FusionBackend> {
    handles: &'a mut Handles<B>,
    descriptions: std::slice::Iter<'a, TensorIr>,
}

impl<'a, B: FusionBackend> Inputs<'a, B> {
    /// The next input's description, and where its tensor is.
    pub(super) fn next(&mut self) -> (&mut Handles<B>, &'a TensorIr) {
        let description = self.descriptions.next();
        (
            self.handles,
            description.expect("an operation takes the inputs that it was given"),
        )
    }
}

struct Registered<B: FusionBackend> {
    description: CustomOpIr,
    run: Box<Run<B>>,
}

impl<B: FusionBackend> std::fmt::Debug for Registered<B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Registered").field(&self.description).finish()
    }
}

impl<B: FusionBackend> Operation<B::FusionRuntime> for Registered<B> {
    fn execute(&self, handles: &mut Handles<B>) {
        let outputs = (self.run)(&mut Inputs {
            handles,
            descriptions: self.description.inputs.iter(),
        });
        for (description, output) in self.description.outputs.iter().zip(outputs) {
            handles.register_float_tensor::<B>(&description.id, output);
        }
    }
}
