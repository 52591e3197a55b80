//! Custom operations of a stream: how one is registered, and how it runs.

use burn::tensor::Shape;
use burn::tensor::ops::FloatTensor;
use burn_fusion::stream::{Operation, OperationStreams};
use burn_fusion::{FusionBackend, FusionTensor};
use burn_ir::{CustomOpIr, OperationIr, TensorIr};

use super::arguments::Argument;
use super::inputs::{Handles, Inputs};
use super::results::Results;

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
        let outputs = (self.run)(&mut Inputs::new(handles, &self.description.inputs));
        for (description, output) in self.description.outputs.iter().zip(outputs) {
            handles.register_float_tensor::<B>(&description.id, output);
        }
    }
}
