//! Lesson 7: a burn model that is not changed, in every layout: its parameters are placed by a plan of names.
//!
//! ```text
//! cargo run --release --example 07_any_model
//! cargo run --release --example 07_any_model -- --data 2                              # data-parallel
//! cargo run --release --example 07_any_model -- --data 2 --fully-sharded              # ZeRO's stage 3
//! cargo run --release --example 07_any_model -- --tensor 2                            # tensor-parallel
//! cargo run --release --example 07_any_model -- --tensor 2 --sequence-parallel
//! cargo run --release --example 07_any_model -- --data 2 --tensor 2 --fully-sharded --sequence-parallel
//! cargo run --release --example 07_any_model -- --tensor 2 --dtype f64 --compare      # against one rank, by `check`
//! ```
//!
//! All of them end at one loss: with `--dtype f64` in every digit that is printed, in f32 within 2e-6. The model is
//! that of lesson 6, as it was before it was made parallel there; burn's dropout, its clipping and its optimizer are as
//! in the serial program. What is new against that is marked with a number: ten lines.

use std::process::ExitCode;

use burn::grad_clipping::GradientClippingConfig;
use burn::nn::loss::CrossEntropyLossConfig;
use burn::nn::transformer::{TransformerEncoder, TransformerEncoderConfig, TransformerEncoderInput};
use burn::nn::{Embedding, EmbeddingConfig, Linear, LinearConfig};
use burn::optim::AdamWConfig;
use burn::prelude::*;
use burn::tensor::{FloatDType, IntDType};
use burn_flex::{Flex, FlexDevice};
use burn_megatron::prelude::*;
use burn_megatron::sharded::{self, AxisRole, CompareConfig, Layout, Mesh, Plan};
use burn_megatron::sharded::{backward, compare, distribute, parallelize, training};
use clap::Parser;

const SEED: u64 = 7;
const STEPS: usize = 40;
const BATCH: usize = 32;
const SEQ: usize = 12;
const VOCAB: usize = 50;
const D_MODEL: usize = 32;
const LAYERS: usize = 2;
const CLASSES: usize = 4;
const LEARNING_RATE: f64 = 5e-4;
const MAX_NORM: f32 = 0.1;

/// A classifier of short texts, plain burn.
#[derive(Module, Debug)]
struct Classifier {
    embedding: Embedding,
    encoder: TransformerEncoder,
    output: Linear,
}

impl Classifier {
    fn new(device: &Device) -> Self {
        let encoder = TransformerEncoderConfig::new(D_MODEL, 2 * D_MODEL, 4, LAYERS).with_dropout(0.1);
        Self {
            embedding: EmbeddingConfig::new(VOCAB, D_MODEL).init(device),
            encoder: encoder.init(device),
            output: LinearConfig::new(D_MODEL, CLASSES).init(device),
        }
    }

    fn forward(&self, tokens: Tensor<2, Int>) -> Tensor<2> {
        let input = TransformerEncoderInput::new(self.embedding.forward(tokens));
        self.output
            .forward(self.encoder.forward(input).mean_dim(1).squeeze_dim::<2>(1))
    }
}

/// Trains a burn classifier in any layout of ranks.
#[derive(Parser)]
struct Arguments {
    /// Ranks that each have their own samples
    #[arg(long, default_value_t = 1)]
    data: usize,
    /// Ranks that share each layer
    #[arg(long, default_value_t = 1)]
    tensor: usize,
    /// Cut every parameter over the data-parallel ranks
    #[arg(long)]
    fully_sharded: bool,
    /// Cut the tokens between the tensor-parallel layers
    #[arg(long)]
    sequence_parallel: bool,
    /// Type of parameters and activations: f32 or f64
    #[arg(long, default_value = "f32", value_parser = ["f32", "f64"])]
    dtype: String,
    /// Do not train: compare some steps with those of one rank, and name the first tensor that differs, if one does
    #[arg(long)]
    compare: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    // (2) This program starts itself once per rank.
    burn_megatron::run(arguments.data * arguments.tensor, |world| train(world, &arguments))
}

fn train(world: &World, arguments: &Arguments) -> anyhow::Result<()> {
    // (1) A device around burn's own.
    let mut device = sharded::device::<Flex>(FlexDevice);
    let float = if arguments.dtype == "f64" {
        FloatDType::F64
    } else {
        FloatDType::F32
    };
    device.configure((float, IntDType::I32))?;
    let device = device.autodiff();
    // (3, 4, 5) Who is where.
    let parallel = ParallelConfig::new().with_tensor_parallel_size(arguments.tensor);
    let context = parallel
        .with_sequence_parallel(arguments.sequence_parallel)
        .init(world)?;
    let mesh = Mesh::of(&context)?;
    if arguments.compare {
        return check(world, &mesh, &device, arguments);
    }

    device.seed(SEED);
    // (6) The model, with its parameters where the plan wants them.
    let mut model = parallelize(Classifier::new(&device), &plan(arguments), &mesh)?;
    let clipping = GradientClippingConfig::Norm(MAX_NORM);
    let mut optimizer = AdamWConfig::new().with_grad_clipping(Some(clipping)).init();
    for step in 1..=STEPS {
        let (tokens, labels) = texts(step, &device);
        // (7, 8) Each data-parallel rank has its own samples.
        let tokens = distribute(tokens, &mesh, AxisRole::Data, 0);
        let labels = distribute(labels, &mesh, AxisRole::Data, 0);
        let logits = model.forward(tokens);
        let loss = CrossEntropyLossConfig::new().init(&device).forward(logits, labels);
        // (9) In place of `loss.backward()`.
        let (loss, gradients) = backward(loss, &model)?;
        model = optimizer.step(LEARNING_RATE, model, gradients);
        // (10) One of them prints: the loss that `backward` returns is on every rank.
        if world.rank() == 0 && step.is_multiple_of(10) {
            println!("step {step:2} | loss {:.7}", loss.into_scalar::<f64>());
        }
    }
    Ok(())
}

/// Which parameters are cut, by their names in the model.
fn plan(arguments: &Arguments) -> Plan {
    let plan = Plan::new().transformer_encoder("encoder");
    if arguments.fully_sharded {
        plan.fully_shard(AxisRole::Data)
    } else {
        plan
    }
}

/// Compares losses, every gradient and the parameters of three steps with those of the same program on one rank.
fn check(world: &World, mesh: &Mesh, device: &Device, arguments: &Arguments) -> anyhow::Result<()> {
    let program = training(&[1, 2, 3], Classifier::new, |model: &Classifier, &step: &usize, run| {
        let (tokens, labels) = texts(step, run.device());
        let logits = model.forward(run.distribute(tokens, AxisRole::Data, 0));
        let labels = run.distribute(labels, AxisRole::Data, 0);
        CrossEntropyLossConfig::new().init(run.device()).forward(logits, labels)
    });
    let layouts = [Layout::new("this layout", mesh, plan(arguments))];
    for comparison in compare(&CompareConfig::new(), &layouts, device, program)? {
        let comparison = comparison.into_result()?;
        if world.rank() == 0 {
            println!("{comparison}");
        }
    }
    Ok(())
}

/// A step's sequences of tokens, half of them from the quarter of the vocabulary that is the label.
fn texts(step: usize, device: &Device) -> (Tensor<2, Int>, Tensor<1, Int>) {
    let (mut tokens, mut labels) = (Vec::new(), Vec::new());
    for sample in step * BATCH..(step + 1) * BATCH {
        let label = sample % CLASSES;
        let drawn = |place: usize| (sample * SEQ + place).wrapping_mul(2654435761) >> 7;
        let token = |place: usize| match place % 2 {
            0 => (label * VOCAB / CLASSES + drawn(place) % (VOCAB / CLASSES)) as i32,
            _ => (drawn(place) % VOCAB) as i32,
        };
        tokens.extend((0..SEQ).map(token));
        labels.push(label as i32);
    }
    let tokens = Tensor::from_data(TensorData::new(tokens, [BATCH, SEQ]), device);
    (tokens, Tensor::from_data(TensorData::new(labels, [BATCH]), device))
}
