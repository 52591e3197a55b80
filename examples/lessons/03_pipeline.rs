//! Lesson 3: cut a burn model that knows nothing of burn-megatron into the stages of a pipeline.
//!
//! ```text
//! cargo run --release --example 03_pipeline                      # one rank holds the whole model
//! cargo run --release --example 03_pipeline -- --world-size 2    # each rank holds half of it: the same losses
//! cargo run --release --example 03_pipeline -- --world-size 4    # a quarter
//! ```
//!
//! A rank passes activations on to the next one and gets their gradients back. The samples of a step come in
//! micro-batches, so that all ranks have something to do. What is new against lesson 1 is marked with a number: five
//! places.

use std::process::ExitCode;

use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::nn::loss::CrossEntropyLossConfig;
use burn::nn::{Linear, LinearConfig, PaddingConfig2d, Relu};
use burn::optim::AdamWConfig;
use burn::prelude::*;
use burn_megatron::prelude::*;
use clap::Parser;
use examples::spots::{IMAGE_SIZE, Images};

const CHANNELS: usize = 8;
const LAYERS: usize = 4;
const STEPS: usize = 60;
const MICRO_BATCHES: usize = 8;
const MICRO_BATCH_SIZE: usize = 8;
const LEARNING_RATE: f64 = 3e-3;

/// A convolutional classifier, plain burn: the existing model.
#[derive(Module, Debug)]
struct Classifier {
    convs: Vec<Conv2d>,
    activation: Relu,
    output: Linear,
}

impl Classifier {
    fn new(device: &Device) -> Self {
        let conv = |layer| {
            Conv2dConfig::new([if layer == 0 { 1 } else { CHANNELS }, CHANNELS], [3, 3])
                .with_padding(PaddingConfig2d::Same)
                .init(device)
        };
        Self {
            convs: (0..LAYERS).map(conv).collect(),
            activation: Relu::new(),
            output: LinearConfig::new(CHANNELS * IMAGE_SIZE * IMAGE_SIZE, 4).init(device),
        }
    }
}

/// A rank's part of it: (1) some of the layers, and the last rank the output.
#[derive(Module, Debug)]
struct Stage {
    convs: Vec<Conv2d>,
    activation: Relu,
    output: Option<Linear>,
}

impl Stage {
    fn of(model: Classifier, stage: usize, num_stages: usize) -> Self {
        let layers = LAYERS / num_stages;
        Self {
            convs: model.convs.into_iter().skip(stage * layers).take(layers).collect(),
            activation: model.activation,
            output: (stage + 1 == num_stages).then_some(model.output),
        }
    }
}

/// (2) How a stage is run: from the activation of the stage before, or from the images, to an activation or the loss.
impl PipelineStage<4> for Stage {
    type MicroBatch = Images;

    fn input_shape(&self, batch: &Images) -> [usize; 4] {
        [batch.labels.dims()[0], CHANNELS, IMAGE_SIZE, IMAGE_SIZE]
    }

    fn forward(&self, input: Option<Tensor<4>>, batch: &Images) -> StageOutput<4> {
        let input = input.unwrap_or_else(|| batch.pixels.clone());
        let features = self
            .convs
            .iter()
            .fold(input, |features, conv| self.activation.forward(conv.forward(features)));
        match &self.output {
            None => StageOutput::Activation(features),
            Some(output) => {
                let loss = CrossEntropyLossConfig::new().init(&batch.labels.device());
                StageOutput::Losses(loss.forward(output.forward(features.flatten(1, 3)), batch.labels.clone()))
            }
        }
    }
}

/// Trains a small burn model in one piece or in several.
#[derive(Parser)]
struct Arguments {
    /// Ranks that share the layers
    #[arg(long, default_value_t = 1)]
    world_size: usize,
}

fn main() -> anyhow::Result<ExitCode> {
    let world_size = Arguments::parse().world_size;
    anyhow::ensure!(
        world_size > 0 && LAYERS.is_multiple_of(world_size),
        "--world-size must divide the {LAYERS} layers of the model, got {world_size}"
    );
    Ok(burn_megatron::run(world_size, train))
}

fn train(world: &World) -> anyhow::Result<()> {
    let device = Device::flex().autodiff();
    // (3) The ranks of this job: all of them stages of one pipeline.
    let config = ParallelConfig::new().with_pipeline_parallel_size(world.world_size());
    let context = config.init(world)?;
    let stages = context.pipeline_group();

    // Every rank makes the whole model and keeps its part of it.
    device.seed(1);
    // The values are lazy: a rank must draw those of the others, too.
    let model = burn_megatron::initialize(Classifier::new(&device));
    let stage = Stage::of(model, stages.rank(), stages.size());
    let mut model = DistributedDataParallel::new(vec![stage], &context, DataParallelConfig::new())?;
    let mut optimizer = AdamWConfig::new().init();

    // (4) In which order this rank runs micro-batches forward and backward.
    let schedule = ScheduleConfig::new(stages.size(), MICRO_BATCHES).init()?;
    let pipeline = PipelineExecutor::new(schedule, &context)?;

    for step in 1..=STEPS {
        let first = step * MICRO_BATCHES;
        let batches: Vec<_> = (first..first + MICRO_BATCHES)
            .map(|number| Images::numbered(number * MICRO_BATCH_SIZE, MICRO_BATCH_SIZE, &device))
            .collect();
        // (5) All micro-batches, forward and backward. The losses are known to the last stage only.
        let losses = pipeline.train(&mut model, &batches, |_, loss| loss / MICRO_BATCHES as f32)?;
        let gradients = model.gradients()?;
        model.step_whole_parameters(LEARNING_RATE, &mut optimizer, gradients)?;

        let mut loss = [losses.into_iter().map(|loss| loss.into_scalar::<f32>()).sum::<f32>()];
        stages.all_reduce(&mut loss, ReduceOp::Sum)?;
        if world.rank() == 0 && step.is_multiple_of(10) {
            println!("step {step:3} | loss {:.4}", loss[0]);
        }
    }
    println!("rank {} holds {} parameters", world.rank(), model.module().num_params());
    Ok(())
}
