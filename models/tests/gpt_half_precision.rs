//! Compares a whole GPT in f16 and bf16 with the same GPT in f32: losses and every gradient, with dropout.

use burn::module::{Module, ModuleMapper, ModuleVisitor, Param};
use burn::tensor::{DType, Device, FloatDType, Gradients, Int, Tensor, TensorData};
use burn_megatron::context::ParallelContext;
use burn_megatron::parameters::list_parameters;
use burn_megatron::random::{StepCoordinates, TokenMap};
use cubecl_kernels::{Kernels, set_kernels};
use models::gpt::{Gpt, GptConfig};

const BATCH: usize = 3;
const SEQ: usize = 13;
const VOCAB: usize = 37;

/// Keeps small gradients above what f16 can hold. A power of two: it rounds nothing.
const LOSS_SCALE: f64 = 4096.0;

/// The largest relative error of rounding once.
fn rounding(dtype: DType) -> f64 {
    match dtype {
        DType::F16 => 2f64.powi(-11),
        DType::BF16 => 2f64.powi(-8),
        other => panic!("{other:?} has not 16 bits"),
    }
}

/// Moves every parameter off its start, rounds it to one type and holds it in another.
struct Prepare {
    through: DType,
    dtype: DType,
    seed: usize,
}

impl ModuleMapper for Prepare {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let (id, value, mapper) = param.consume();
        self.seed += 1;
        // Biases start as zeros, which would hide what is added to them.
        let value = value.inner();
        let count = value.shape().num_elements();
        let moved: Vec<f64> = (0..count)
            .map(|index| 0.05 * ((index * 7919 + self.seed * 104_729) as f64 * 0.618).sin())
            .collect();
        let moved = Tensor::from_data(TensorData::new(moved, value.dims()), (&value.device(), value.dtype()));
        let value = (value + moved)
            .cast(FloatDType::from(self.through))
            .cast(FloatDType::from(self.dtype));
        Param::from_mapped_value(id, value.autodiff().require_grad(), mapper)
    }
}

struct GradientReader {
    gradients: Gradients,
    read: Vec<TensorData>,
}

impl ModuleVisitor for GradientReader {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let gradient = param.val().grad(&self.gradients).expect("every parameter is used");
        self.read.push(gradient.into_data());
    }
}

/// The token losses, and each parameter's path and gradient.
struct Outcome {
    losses: TensorData,
    gradients: Vec<(String, TensorData)>,
}

fn run(config: &GptConfig, kernels: Kernels, through: DType, dtype: DType) -> Outcome {
    set_kernels(kernels);
    let model: Gpt = config
        .init(&Device::flex().autodiff(), &ParallelContext::single(7))
        .expect("the sizes fit");
    let model = model.map(&mut Prepare {
        through,
        dtype,
        seed: 0,
    });
    let tokens = |seed: usize| {
        let tokens: Vec<i64> = (0..BATCH * SEQ)
            .map(|index| ((index * index + seed) % VOCAB) as i64)
            .collect();
        Tensor::<2, Int>::from_data(TensorData::new(tokens, [BATCH, SEQ]), &Device::flex().autodiff())
    };
    let step = StepCoordinates {
        seed: 1,
        iteration: 2,
        tokens: TokenMap::of_samples(&[3, 4, 9], SEQ),
    };
    let losses = model.token_losses(tokens(0), tokens(5), &step);
    let data = losses.to_data();
    let mut reader = GradientReader {
        gradients: losses.mean().mul_scalar(LOSS_SCALE).backward(),
        read: Vec::new(),
    };
    model.visit(&mut reader);
    let paths = list_parameters(&model).into_iter().map(|entry| entry.path);
    Outcome {
        losses: data,
        gradients: paths.zip(reader.read).collect(),
    }
}

/// The norm of the difference over the norm of what is expected.
fn relative(actual: &TensorData, expected: &TensorData) -> f64 {
    let norm = |values: &mut dyn Iterator<Item = f64>| values.map(|v| v * v).sum::<f64>().sqrt();
    let difference = norm(&mut actual.iter().zip(expected.iter()).map(|(a, b): (f64, f64)| a - b));
    difference / norm(&mut expected.iter())
}

fn config() -> GptConfig {
    GptConfig::new(2, 20, 4, SEQ, VOCAB)
        .with_attention_dropout(0.2)
        .with_hidden_dropout(0.1)
}

#[test]
fn losses_and_gradients_of_sixteen_bits_are_near_f32() {
    for (config, kernels) in [
        (config(), Kernels::Fused),
        (config().with_tied_embeddings(false), Kernels::Fused),
        (config(), Kernels::Plain),
    ] {
        for dtype in [DType::F16, DType::BF16] {
            let (half, single) = (
                run(&config, kernels, dtype, dtype),
                run(&config, kernels, dtype, DType::F32),
            );
            assert_eq!(half.losses.dtype(), DType::F32);
            // A loss is the difference of two sums of logits, whose own errors are of their size, and they are smaller.
            let loss = relative(&half.losses, &single.losses) / rounding(dtype);
            assert!(loss <= 1.0, "{dtype:?}: losses differ by {loss:.1} roundings");
            assert_eq!(half.gradients.len(), single.gradients.len());
            for ((path, half), (_, single)) in half.gradients.iter().zip(&single.gradients) {
                assert_eq!(half.dtype(), dtype, "{path}");
                // Some thirty roundings of random signs on the way through two layers and back, and where a gradient is
                // a sum over tokens that is smaller than its terms, as a bias's is, they weigh more: up to 11 were
                // seen.
                let difference = relative(half, single) / rounding(dtype);
                assert!(
                    difference <= 16.0,
                    "{dtype:?}: {path} differs by {difference:.1} roundings"
                );
            }
        }
    }
}
