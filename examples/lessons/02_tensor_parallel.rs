//! Lesson 2: share the layers of an existing burn model out over tensor-parallel ranks.
//!
//! ```text
//! cargo run --release --example 02_tensor_parallel                      # one rank
//! cargo run --release --example 02_tensor_parallel -- --world-size 2    # each rank holds half of every matrix
//! ```
//!
//! The model computes what it did: the program compares the loss and a gradient with the model it started from.

use std::process::ExitCode;

use burn::nn::{Gelu, Linear, LinearConfig};
use burn::prelude::*;
use burn::tensor::Distribution;
use burn_megatron::prelude::*;
use clap::Parser;

const D_MODEL: usize = 24;
const D_HIDDEN: usize = 96;

/// A feed-forward layer, plain burn: the existing model.
#[derive(Module, Debug)]
struct FeedForward {
    expand: Linear,
    activation: Gelu,
    contract: Linear,
}

impl FeedForward {
    fn new(device: &Device) -> Self {
        Self {
            expand: LinearConfig::new(D_MODEL, D_HIDDEN).init(device),
            activation: Gelu::new(),
            contract: LinearConfig::new(D_HIDDEN, D_MODEL).init(device),
        }
    }

    fn forward(&self, input: Tensor<2>) -> Tensor<2> {
        let hidden = self.activation.forward(self.expand.forward(input));
        self.contract.forward(hidden)
    }
}

/// The same, each rank holding its own hidden features: columns of the first matrix, rows of the second.
#[derive(Module, Debug)]
struct ParallelFeedForward {
    expand: ColumnParallelLinear,
    activation: Gelu,
    contract: RowParallelLinear,
}

impl ParallelFeedForward {
    /// Takes this rank's part of an existing layer.
    fn from_serial(serial: FeedForward, context: &ParallelContext) -> Result<Self, ConversionError> {
        Ok(Self {
            expand: ColumnParallelLinear::from_linear(serial.expand, &context.scope("expand"))?,
            activation: serial.activation,
            contract: RowParallelLinear::from_linear(serial.contract, &context.scope("contract"))?,
        })
    }

    /// One all-reduce, inside `contract`; the backward pass has one too, inside `expand`.
    fn forward(&self, input: Tensor<2>) -> Tensor<2> {
        let hidden = self.activation.forward(self.expand.forward(input));
        self.contract.forward(hidden)
    }
}

/// Shards a small burn model over tensor-parallel ranks and compares it with what it was.
#[derive(Parser)]
struct Arguments {
    /// Ranks that share each layer
    #[arg(long, default_value_t = 1)]
    world_size: usize,
}

fn main() -> anyhow::Result<ExitCode> {
    let world_size = Arguments::parse().world_size;
    let config = ParallelConfig::new().with_tensor_parallel_size(world_size);
    config.check_tensor_divides("the hidden size", D_HIDDEN)?;
    Ok(burn_megatron::run(world_size, |world| compare(world, &config)))
}

fn compare(world: &World, config: &ParallelConfig) -> anyhow::Result<()> {
    let device = Device::flex().autodiff();
    let context = config.init(world)?;
    // Every rank makes the same whole model and the same input.
    device.seed(1);
    let serial = burn_megatron::initialize(FeedForward::new(&device)); // draws the values, which are lazy
    let parallel = ParallelFeedForward::from_serial(serial.clone(), &context)?;
    let input = Tensor::<2>::random([5, D_MODEL], Distribution::Normal(0.0, 1.0), &device);
    let [input_1, input_2] = [0, 1].map(|_| input.clone().detach().require_grad());

    let expected = serial.forward(input_1.clone()).powi_scalar(2).mean();
    let actual = parallel.forward(input_2.clone()).powi_scalar(2).mean();
    let difference = |a: Tensor<2>, b: Tensor<2>| (a - b).abs().max().into_scalar::<f32>();
    let losses = [
        expected.clone().into_scalar::<f32>(),
        actual.clone().into_scalar::<f32>(),
    ];
    let missing = || anyhow::anyhow!("the input has no gradient");
    let gradient = input_1.grad(&expected.backward()).ok_or_else(missing)?;
    let sharded_gradient = input_2.grad(&actual.backward()).ok_or_else(missing)?;

    println!(
        "rank {}: holds {:?} and {:?} | loss {:.7}, serial {:.7} | largest difference of the input's gradient {:.1e}",
        world.rank(),
        parallel.expand.weight.dims(),
        parallel.contract.weight.dims(),
        losses[1],
        losses[0],
        difference(gradient, sharded_gradient),
    );
    Ok(())
}
