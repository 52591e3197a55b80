//! The models, which know nothing of ranks, and the plans that make them tensor-parallel.

use burn::module::{Module, ModuleMapper, Param};
use burn::nn::transformer::{TransformerEncoder, TransformerEncoderConfig, TransformerEncoderInput};
use burn::nn::{BatchNorm, BatchNormConfig, Gelu, Linear, LinearConfig};
use burn::tensor::{DType, Device, Tensor, TensorData};
use burn_megatron::random::RandomStream;
use burn_megatron::sharded::Plan;

/// A model under test: a batch of sequences to one of the same shape.
pub trait Subject: Module {
    /// Batch, sequence and width.
    const SHAPE: [usize; 3];

    fn make(device: &Device) -> Self;
    fn forward(&self, input: Tensor<3>) -> Tensor<3>;
    /// Cuts its matrices over tensor-parallel ranks.
    fn tensor_plan() -> Plan;
}

/// Two linear layers of odd widths on one of two ranks.
#[derive(Module, Debug)]
pub struct Pair {
    inner: Linear,
    activation: Gelu,
    outer: Linear,
}

impl Subject for Pair {
    const SHAPE: [usize; 3] = [3, 5, 7];

    fn make(device: &Device) -> Self {
        Self {
            inner: LinearConfig::new(7, 18).init(device),
            activation: Gelu::new(),
            outer: LinearConfig::new(18, 7).init(device),
        }
    }

    fn forward(&self, input: Tensor<3>) -> Tensor<3> {
        let hidden = self.activation.forward(self.inner.forward(input));
        self.outer.forward(hidden)
    }

    fn tensor_plan() -> Plan {
        Plan::new().column("inner").row("outer")
    }
}

/// Two linear layers after a batch norm over the channels: its statistics are those of all samples.
#[derive(Module, Debug)]
pub struct Normed {
    norm: BatchNorm,
    pair: Pair,
}

impl Subject for Normed {
    const SHAPE: [usize; 3] = [8, 5, 7];

    fn make(device: &Device) -> Self {
        Self {
            norm: BatchNormConfig::new(5).init(device),
            pair: Pair::make(device),
        }
    }

    fn forward(&self, input: Tensor<3>) -> Tensor<3> {
        self.pair.forward(self.norm.forward(input))
    }

    fn tensor_plan() -> Plan {
        Plan::new().column("pair.inner").row("pair.outer")
    }
}

/// burn's encoder of two layers: six heads of three, an inner width of ten.
impl Subject for TransformerEncoder {
    const SHAPE: [usize; 3] = [4, 6, 18];

    fn make(device: &Device) -> Self {
        TransformerEncoderConfig::new(18, 10, 6, 2)
            .with_dropout(0.0)
            .init(device)
    }

    fn forward(&self, input: Tensor<3>) -> Tensor<3> {
        TransformerEncoder::forward(self, TransformerEncoderInput::new(input))
    }

    fn tensor_plan() -> Plan {
        Plan::new().attention("layers.*.mha").feed_forward("layers.*.pwff")
    }
}

/// Returns the model in an element type, with random parameters, biases and norms among them: zeros hide errors.
pub fn filled<M: Module>(model: M, dtype: DType) -> M {
    struct Fill {
        count: usize,
        dtype: DType,
    }
    impl ModuleMapper for Fill {
        fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
            let dtype = self.dtype;
            if !param.val().is_require_grad() {
                return param.map(|tensor| tensor.cast(dtype));
            }
            self.count += 1;
            let name = format!("parameter {}", self.count);
            param.map(|tensor| {
                let mut values = vec![0.0; tensor.shape().num_elements()];
                RandomStream::new(5, &name).fill_normal(0, 0.3, &mut values);
                let is_vector = D == 1;
                values
                    .iter_mut()
                    .for_each(|value| *value += if is_vector { 0.5 } else { 0.0 });
                of_values(values, tensor.dims(), dtype, &tensor.device()).require_grad()
            })
        }
    }
    model.map(&mut Fill { count: 0, dtype })
}

/// A tensor of these values in an element type.
pub fn of_values<const D: usize>(values: Vec<f64>, shape: [usize; D], dtype: DType, device: &Device) -> Tensor<D> {
    Tensor::from_data(TensorData::new(values, shape).convert_dtype(dtype), (device, dtype))
}
