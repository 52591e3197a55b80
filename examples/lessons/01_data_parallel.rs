//! Lesson 1: train a burn model that knows nothing of burn-megatron on several ranks.
//!
//! ```text
//! cargo run --release --example 01_data_parallel                      # one rank
//! cargo run --release --example 01_data_parallel -- --world-size 2    # two: the same losses
//! ```
//!
//! What is new against a single-process burn program is marked with a number: five places.

use std::process::ExitCode;

use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::nn::loss::CrossEntropyLossConfig;
use burn::nn::{Linear, LinearConfig, Relu};
use burn::optim::AdamWConfig;
use burn::prelude::*;
use burn_megatron::prelude::*;
use clap::Parser;
use examples::spots::{IMAGE_SIZE, Images};

const STEPS: usize = 60;
const GLOBAL_BATCH: usize = 64;
const LEARNING_RATE: f64 = 3e-3;

/// A small convolutional classifier, plain burn.
#[derive(Module, Debug)]
struct Classifier {
    conv: Conv2d,
    activation: Relu,
    output: Linear,
}

impl Classifier {
    fn new(device: &Device) -> Self {
        Self {
            conv: Conv2dConfig::new([1, 8], [3, 3]).init(device),
            activation: Relu::new(),
            output: LinearConfig::new(8 * (IMAGE_SIZE - 2) * (IMAGE_SIZE - 2), 4).init(device),
        }
    }

    fn loss(&self, Images { pixels, labels }: Images) -> Tensor<1> {
        let features = self.activation.forward(self.conv.forward(pixels)).flatten(1, 3);
        CrossEntropyLossConfig::new()
            .init(&labels.device())
            .forward(self.output.forward(features), labels)
    }
}

/// Trains a small burn model on one rank or on several.
#[derive(Parser)]
struct Arguments {
    /// Ranks that share each batch
    #[arg(long, default_value_t = 1)]
    world_size: usize,
}

fn main() -> anyhow::Result<ExitCode> {
    let world_size = Arguments::parse().world_size;
    anyhow::ensure!(
        world_size > 0 && GLOBAL_BATCH.is_multiple_of(world_size),
        "--world-size must divide the {GLOBAL_BATCH} images of a batch, got {world_size}"
    );
    // (1) This process becomes a rank, or starts one process per rank and waits for them.
    Ok(burn_megatron::run(world_size, train))
}

fn train(world: &World) -> anyhow::Result<()> {
    let device = Device::flex().autodiff();
    // (2) The ranks of this job: all of them data-parallel.
    let context = ParallelConfig::new().init(world)?;
    let ranks = context.data_group();

    device.seed(1);
    let model = Classifier::new(&device);
    // (3) Every rank takes the weights of the first.
    let mut model = DistributedDataParallel::new(model, &context, DataParallelConfig::new())?;
    let mut optimizer = AdamWConfig::new().init();

    for step in 1..=STEPS {
        // Each rank sees its own part of the global batch.
        let share = GLOBAL_BATCH / ranks.size();
        let first = step * GLOBAL_BATCH + ranks.rank() * share;
        let images = Images::numbered(first, share, &device);
        // (4) Forward and backward; gradients are averaged over the ranks during the backward pass.
        let loss = model.backward(StepPart::Last, |model| model.loss(images))?;
        let gradients = model.gradients()?;
        model.step_whole_parameters(LEARNING_RATE, &mut optimizer, gradients)?;

        // (5) A figure over all ranks is a collective.
        let mut mean = [loss.into_scalar::<f32>()];
        ranks.all_reduce(&mut mean, ReduceOp::Mean)?;
        if world.rank() == 0 && step.is_multiple_of(10) {
            println!("step {step:3} | loss {:.4}", mean[0]);
        }
    }
    model.check_replicas()?;
    if world.rank() == 0 {
        println!("all {} ranks hold the same parameters", ranks.size());
    }
    Ok(())
}
