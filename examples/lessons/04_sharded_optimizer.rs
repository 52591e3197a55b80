//! Lesson 4: share out the optimizer's state of a burn model, save the run, and continue with another number of ranks.
//!
//! ```text
//! cargo run --release --example 04_sharded_optimizer -- --save run                    # one rank, 40 steps
//! cargo run --release --example 04_sharded_optimizer -- --load run --world-size 2     # two continue to step 60
//! cargo run --release --example 04_sharded_optimizer -- --world-size 2   # 60 steps at once: the same losses
//! cargo run --release --example checkpoint -- inspect run
//! ```
//!
//! The model and its data are those of lesson 1. What is new against it is marked with a number: four places.

use std::path::PathBuf;
use std::process::ExitCode;

use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::nn::loss::CrossEntropyLossConfig;
use burn::nn::{Linear, LinearConfig, Relu};
use burn::optim::AdamWConfig;
use burn::prelude::*;
use burn_megatron::checkpoint::json;
use burn_megatron::prelude::*;
use clap::Parser;
use examples::spots::{IMAGE_SIZE, Images};

const STEPS: usize = 60;
/// A run that saves ends here, and another continues.
const SAVED_STEP: usize = 40;
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

/// Trains a small burn model on one rank or on several, with each rank holding its share of the optimizer's state.
#[derive(Parser)]
struct Arguments {
    /// Ranks that share each batch, and the optimizer's state
    #[arg(long, default_value_t = 1)]
    world_size: usize,
    /// Save to this folder: at step 40, and stop there, or else at the last one
    #[arg(long)]
    save: Option<PathBuf>,
    /// Continue from the latest checkpoint of this folder
    #[arg(long)]
    load: Option<PathBuf>,
}

fn main() -> anyhow::Result<ExitCode> {
    let arguments = Arguments::parse();
    let world_size = arguments.world_size;
    anyhow::ensure!(
        world_size > 0 && GLOBAL_BATCH.is_multiple_of(world_size),
        "--world-size must divide the {GLOBAL_BATCH} images of a batch, got {world_size}"
    );
    Ok(burn_megatron::run(world_size, |world| train(world, &arguments)))
}

fn train(world: &World, arguments: &Arguments) -> anyhow::Result<()> {
    let device = Device::flex().autodiff();
    let context = ParallelConfig::new().init(world)?;
    let ranks = context.data_group();

    device.seed(1);
    let model = Classifier::new(&device);
    // (1) Each rank gets the sums of its share of the gradients only.
    let config = DataParallelConfig::new().with_sharding(ShardingStrategy::Optim);
    let mut model = DistributedDataParallel::new(model, &context, config)?;
    // (2) The same AdamW as in lesson 1, over this rank's share.
    let adamw = ElementWiseOptimizer::from(AdamWConfig::new().build());
    let mut optimizer = ShardedOptimizer::new(&model, adamw)?;

    // (3) Parameters and the optimizer's state, as any number of ranks has saved them.
    let mut done = 0;
    if let Some(folder) = &arguments.load {
        let checkpoint = Checkpoint::find(folder)?;
        restore(&checkpoint, &mut model, &mut optimizer, &context, true)?;
        done = checkpoint.iteration() as usize;
    }
    let stops = arguments.save.is_some() && done < SAVED_STEP;
    let last = if stops { SAVED_STEP } else { STEPS };
    for step in done + 1..=last {
        let share = GLOBAL_BATCH / ranks.size();
        let first = step * GLOBAL_BATCH + ranks.rank() * share;
        let images = Images::numbered(first, share, &device);
        let loss = model.backward(StepPart::Last, |model| model.loss(images))?;
        let gradients = model.gradients()?;
        optimizer.step(LEARNING_RATE, &mut model, gradients)?;

        let mut mean = [loss.into_scalar::<f32>()];
        ranks.all_reduce(&mut mean, ReduceOp::Mean)?;
        if world.rank() == 0 && step.is_multiple_of(10) {
            println!("step {step:3} | loss {:.4}", mean[0]);
        }
    }
    // (4) All ranks write at once; the folder of a step is whole, or is not there.
    if let Some(folder) = &arguments.save {
        let mut writer = CheckpointWriter::new(context.world_group().clone(), folder, CheckpointConfig::new())?;
        let state = json!({ "lesson": 4 });
        writer.save(last as u64, snapshot(&model, &optimizer, &context)?, state)?;
        if world.rank() == 0 {
            println!("saved step {last} to {}", folder.display());
        }
    }
    model.check_replicas()?;
    Ok(())
}
