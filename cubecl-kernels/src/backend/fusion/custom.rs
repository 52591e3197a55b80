//! Custom operations of a stream: how one is registered, and how it finds its inputs when it runs.

use burn::tensor::ops::FloatTensor;
use burn::tensor::{Bool, DType, Int, Shape, Tensor};
use burn_fusion::stream::{Operation, OperationStreams};
use burn_fusion::{Fusion, FusionBackend, FusionRuntime, FusionTensor};
use burn_ir::{CustomOpIr, HandleContainer, OperationIr, TensorIr};

use crate::tape::{float, primitive};

type Handles<B> = HandleContainer<<<B as FusionBackend>::FusionRuntime as FusionRuntime>::FusionHandle>;
type Lazy<B> = FusionTensor<<B as FusionBackend>::FusionRuntime>;
type Run<B> = dyn Fn(&mut Inputs<'_, B>) -> Vec<FloatTensor<B>> + Send + Sync;

/// An operation that is to be registered: its inputs in order, and its outputs.
pub(super) struct Custom<B: FusionBackend> {
    name: &'static str,
    pub(super) inputs: Vec<Lazy<B>>,
    outputs: Vec<(Vec<usize>, DType)>,
}

impl<B: FusionBackend> Custom<B> {
    pub(super) fn new(name: &'static str) -> Self {
        Self {
            name,
            inputs: Vec::new(),
            outputs: Vec::new(),
        }
    }

    pub(super) fn with<const D: usize>(mut self, input: &Tensor<Fusion<B>, D>) -> Self {
        self.inputs.push(primitive(input.clone()));
        self
    }

    /// As [`with`](Self::with), for an input that is given up, so that the operation may write over it.
    pub(super) fn with_owned<const D: usize>(mut self, input: Tensor<Fusion<B>, D>) -> Self {
        self.inputs.push(primitive(input));
        self
    }

    pub(super) fn with_int<const D: usize>(mut self, input: &Tensor<Fusion<B>, D, Int>) -> Self {
        self.inputs.push(input.clone().into_primitive());
        self
    }

    pub(super) fn with_some<const D: usize>(self, input: Option<&Tensor<Fusion<B>, D>>) -> Self {
        match input {
            Some(input) => self.with(input),
            None => self,
        }
    }

    pub(super) fn output(mut self, shape: impl Into<Vec<usize>>, dtype: DType) -> Self {
        self.outputs.push((shape.into(), dtype));
        self
    }

    /// Registers the operation, which returns one tensor for each named output, of its shape and type.
    pub(super) fn register(
        self,
        run: impl Fn(&mut Inputs<'_, B>) -> Vec<FloatTensor<B>> + Send + Sync + 'static,
    ) -> Outputs<B> {
        let client = self.inputs.first().expect("an operation has an input").client.clone();
        let streams = OperationStreams::with_inputs(&self.inputs);
        let outputs = self.outputs.into_iter();
        let outputs: Vec<TensorIr> = outputs
            .map(|(shape, dtype)| TensorIr::uninit(client.create_empty_handle(), Shape::from(shape), dtype))
            .collect();
        let inputs: Vec<TensorIr> = self.inputs.into_iter().map(FusionTensor::into_ir).collect();
        let description = CustomOpIr::new(self.name, &inputs, &outputs);
        let operation = Registered::<B> {
            description: description.clone(),
            run: Box::new(run),
        };
        let outputs = client.register(streams, OperationIr::Custom(description), operation);
        Outputs(outputs.into_iter())
    }
}

/// The outputs of a registered operation, in order.
pub(super) struct Outputs<B: FusionBackend>(std::vec::IntoIter<Lazy<B>>);

impl<B: FusionBackend> Outputs<B> {
    pub(super) fn next<const D: usize>(&mut self) -> Tensor<Fusion<B>, D> {
        float(self.0.next().expect("no more outputs than were named"))
    }
}

/// The inputs of an operation that runs, in order.
pub(super) struct Inputs<'a, B: FusionBackend> {
    handles: &'a mut Handles<B>,
    descriptions: std::slice::Iter<'a, TensorIr>,
}

impl<'a, B: FusionBackend> Inputs<'a, B> {
    pub(super) fn next<const D: usize>(&mut self) -> Tensor<B, D> {
        let description = self.description();
        float(self.handles.get_float_tensor::<B>(description))
    }

    pub(super) fn next_if<const D: usize>(&mut self, is_there: bool) -> Option<Tensor<B, D>> {
        is_there.then(|| self.next())
    }

    pub(super) fn next_int<const D: usize>(&mut self) -> Tensor<B, D, Int> {
        let description = self.description();
        Tensor::from_primitive(self.handles.get_int_tensor::<B>(description))
    }

    pub(super) fn next_bool<const D: usize>(&mut self) -> Tensor<B, D, Bool> {
        let description = self.description();
        Tensor::from_primitive(self.handles.get_bool_tensor::<B>(description))
    }

    fn description(&mut self) -> &'a TensorIr {
        self.descriptions
            .next()
            .expect("an operation takes the inputs that it named")
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
