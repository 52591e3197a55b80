//! Lesson 6: train a classifier around burn's own `TransformerEncoder` in every layout, with dropout and clipping.
//!
//! ```text
//! cargo run --release --example 06_transformer_encoder
//! cargo run --release --example 06_transformer_encoder -- --world-size 2                               # data-parallel
//! cargo run --release --example 06_transformer_encoder -- --world-size 2 --use-distributed-optimizer
//! cargo run --release --example 06_transformer_encoder -- --tensor-model-parallel-size 2
//! cargo run --release --example 06_transformer_encoder -- --tensor-model-parallel-size 2 --sequence-parallel
//! cargo run --release --example 06_transformer_encoder -- --pipeline-model-parallel-size 2
//! ```
//!
//! All of them end at one loss: with `--dtype f64` in every digit that is printed, in f32 within 2e-6. One rank runs
//! the same program, with the converted encoder: its dropout draws what falls from a sample's number and a token's
//! position, in place of a generator that every rank would advance differently. What is new against lesson 3 is marked
//! with a number: four places.

use std::process::ExitCode;

use burn::grad_clipping::GradientClippingConfig;
use burn::nn::loss::CrossEntropyLossConfig;
use burn::nn::transformer::{TransformerEncoder, TransformerEncoderConfig};
use burn::nn::{Embedding, EmbeddingConfig, Linear, LinearConfig};
use burn::optim::AdamWConfig;
use burn::prelude::*;
use burn::tensor::{FloatDType, IntDType};
use burn_megatron::prelude::*;
use burn_megatron::random::{StepCoordinates, TokenMap};
use clap::Parser;

const SEED: u64 = 7;
const STEPS: usize = 40;
const GLOBAL_BATCH: usize = 32;
const MICRO_BATCH: usize = 4;
const SEQ: usize = 12;
const VOCAB: usize = 50;
const D_MODEL: usize = 32;
const LAYERS: usize = 2;
const CLASSES: usize = 4;
const LEARNING_RATE: f64 = 5e-4;
const MAX_NORM: f32 = 0.1;

/// A classifier of short texts, plain burn: the existing model.
#[derive(Module, Debug)]
struct Classifier {
    embedding: Embedding,
    encoder: TransformerEncoder,
    output: Linear,
}

impl Classifier {
    fn new(device: &Device) -> Self {
        Self {
            embedding: EmbeddingConfig::new(VOCAB, D_MODEL).init(device),
            encoder: encoder_config().init(device),
            output: LinearConfig::new(D_MODEL, CLASSES).init(device),
        }
    }
}

fn encoder_config() -> TransformerEncoderConfig {
    TransformerEncoderConfig::new(D_MODEL, 2 * D_MODEL, 4, LAYERS).with_dropout(0.1)
}

/// A rank's part of it: some of the layers, and of each of them its shard.
#[derive(Module, Debug)]
struct Stage {
    embedding: Option<Embedding>,
    encoder: ParallelTransformerEncoder,
    output: Option<Linear>,
}

impl Stage {
    /// Takes this rank's part of a model that every rank has made in whole.
    fn of(model: Classifier, context: &ParallelContext) -> anyhow::Result<Self> {
        // (1) burn draws a parameter's values at its first use: all are drawn here, in one order on every rank.
        let Classifier {
            embedding,
            encoder,
            output,
        } = burn_megatron::initialize(model);
        // (2) Each tensor-parallel rank takes its attention heads and its features of the feed-forward layers.
        let scope = context.scope("encoder");
        let mut encoder = ParallelTransformerEncoder::from_encoder(encoder, &encoder_config(), &scope)?;
        let (stage, num_stages) = (context.pipeline_group().rank(), context.pipeline_group().size());
        let layers = LAYERS / num_stages;
        encoder.layers = encoder.layers.into_iter().skip(stage * layers).take(layers).collect();
        let stage = Self {
            embedding: (stage == 0).then_some(embedding),
            encoder,
            output: (stage + 1 == num_stages).then_some(output),
        };
        // (3) What is not sharded is the same on every tensor-parallel rank.
        context.root().declare_rest_replicated(&stage)?;
        Ok(stage)
    }
}

impl PipelineStage<3> for Stage {
    type MicroBatch = Texts;

    fn input_shape(&self, _: &Texts) -> [usize; 3] {
        [MICRO_BATCH, SEQ, D_MODEL]
    }

    fn forward(&self, input: Option<Tensor<3>>, texts: &Texts) -> StageOutput<3> {
        let embed = |embedding: &Embedding| embedding.forward(texts.tokens.clone());
        let input = input.or_else(|| self.embedding.as_ref().map(embed));
        let input = input.expect("the first stage has the embedding, the others get an activation");
        // (4) Where the tokens are in the run: dropout asks for that.
        let input = TransformerEncoderInput::new(input).coordinates(texts.coordinates.clone());
        let hidden = self.encoder.forward(input);
        match &self.output {
            None => StageOutput::Activation(hidden),
            Some(output) => {
                let logits = output.forward(hidden.mean_dim(1).squeeze_dim::<2>(1));
                let loss = CrossEntropyLossConfig::new().init(&texts.labels.device());
                StageOutput::Losses(loss.forward(logits, texts.labels.clone()))
            }
        }
    }
}

/// Trains a burn classifier in any layout of ranks.
#[derive(Parser)]
struct Arguments {
    /// Ranks in all [default: those that one copy of the model needs]
    #[arg(long)]
    world_size: Option<usize>,
    /// Ranks that share each layer
    #[arg(long, default_value_t = 1)]
    tensor_model_parallel_size: usize,
    /// Shard the tokens between the tensor-parallel layers
    #[arg(long)]
    sequence_parallel: bool,
    /// Ranks that share the layers
    #[arg(long, default_value_t = 1)]
    pipeline_model_parallel_size: usize,
    /// Shard the optimizer's state over the data-parallel ranks
    #[arg(long)]
    use_distributed_optimizer: bool,
    /// Type of parameters and activations: f32 or f64
    #[arg(long, default_value = "f32", value_parser = ["f32", "f64"])]
    dtype: String,
}

impl Arguments {
    fn parallel(&self) -> ParallelConfig {
        ParallelConfig::new()
            .with_tensor_parallel_size(self.tensor_model_parallel_size)
            .with_pipeline_parallel_size(self.pipeline_model_parallel_size)
            .with_sequence_parallel(self.sequence_parallel)
    }
}

fn main() -> anyhow::Result<ExitCode> {
    let arguments = Arguments::parse();
    let (tensor, pipeline) = (
        arguments.tensor_model_parallel_size,
        arguments.pipeline_model_parallel_size,
    );
    let world_size = arguments.world_size.unwrap_or(tensor * pipeline);
    let grid = arguments.parallel().grid(world_size)?;
    let data = grid.data_parallel_size();
    anyhow::ensure!(
        LAYERS.is_multiple_of(pipeline),
        "--pipeline-model-parallel-size must divide the {LAYERS} layers of the model, got {pipeline}"
    );
    anyhow::ensure!(
        GLOBAL_BATCH.is_multiple_of(data * MICRO_BATCH),
        "the {GLOBAL_BATCH} texts of a batch cannot be shared out to {data} data-parallel ranks in micro-batches of \
         {MICRO_BATCH}"
    );
    Ok(burn_megatron::run(world_size, |world| train(world, &arguments)))
}

fn train(world: &World, arguments: &Arguments) -> anyhow::Result<()> {
    let mut device = Device::flex().autodiff();
    let float = if arguments.dtype == "f64" {
        FloatDType::F64
    } else {
        FloatDType::F32
    };
    device.configure((float, IntDType::I32))?;
    let context = ParallelContextConfig::new(arguments.parallel())
        .with_seed(SEED)
        .init(world)?;
    let (stages, replicas) = (context.pipeline_group(), context.data_group());

    device.seed(SEED);
    let stage = Stage::of(Classifier::new(&device), &context)?;
    let config = DataParallelConfig::new().with_sharding(if arguments.use_distributed_optimizer {
        ShardingStrategy::Optim
    } else {
        ShardingStrategy::NoShard
    });
    let mut model = DistributedDataParallel::new(vec![stage], &context, config)?;
    // Clips each parameter by the norm of all its shards, as burn does on one rank.
    let clipping = GradientClippingConfig::Norm(MAX_NORM).init();
    let adamw = ElementWiseOptimizer::from(AdamWConfig::new().build()).with_grad_clipping(clipping);
    let mut optimizer = ShardedOptimizer::new(&model, adamw)?;

    let num_micro_batches = GLOBAL_BATCH / MICRO_BATCH / replicas.size();
    let schedule = ScheduleConfig::new(stages.size(), num_micro_batches).init()?;
    let pipeline = PipelineExecutor::new(schedule, &context)?;

    for step in 1..=STEPS {
        let first = step * GLOBAL_BATCH + replicas.rank() * num_micro_batches * MICRO_BATCH;
        let texts: Vec<_> = (0..num_micro_batches)
            .map(|number| Texts::numbered(step, first + number * MICRO_BATCH, &device))
            .collect();
        let losses = pipeline.train(&mut model, &texts, |_, loss| loss / num_micro_batches as f32)?;
        let gradients = model.gradients()?;
        optimizer.step(LEARNING_RATE, &mut model, gradients)?;

        let values = losses
            .iter()
            .flat_map(|loss| loss.to_data().iter::<f64>().collect::<Vec<_>>());
        let mut loss = [values.sum::<f64>()];
        stages.all_reduce(&mut loss, ReduceOp::Sum)?;
        replicas.all_reduce(&mut loss, ReduceOp::Mean)?;
        if world.rank() == 0 && step.is_multiple_of(10) {
            println!("step {step:2} | loss {:.7}", loss[0]);
        }
    }
    model.check_replicas()?;
    Ok(())
}

/// Sequences of tokens, half of them from the quarter of the vocabulary that is the label.
#[derive(Clone, Debug)]
struct Texts {
    tokens: Tensor<2, Int>,
    labels: Tensor<1, Int>,
    coordinates: StepCoordinates,
}

impl Texts {
    /// A micro-batch of a step, by the number of its first text.
    fn numbered(step: usize, first: usize, device: &Device) -> Self {
        let samples = first..first + MICRO_BATCH;
        let (mut tokens, mut labels) = (Vec::new(), Vec::new());
        for sample in samples.clone() {
            let label = sample % CLASSES;
            let drawn = |place: usize| (sample * SEQ + place).wrapping_mul(2654435761) >> 7;
            let token = |place: usize| match place % 2 {
                0 => (label * VOCAB / CLASSES + drawn(place) % (VOCAB / CLASSES)) as i32,
                _ => (drawn(place) % VOCAB) as i32,
            };
            tokens.extend((0..SEQ).map(token));
            labels.push(label as i32);
        }
        let samples: Vec<u64> = samples.map(|sample| sample as u64).collect();
        Self {
            tokens: Tensor::from_data(TensorData::new(tokens, [MICRO_BATCH, SEQ]), device),
            labels: Tensor::from_data(TensorData::new(labels, [MICRO_BATCH]), device),
            coordinates: StepCoordinates {
                seed: SEED,
                iteration: step as u64,
                tokens: TokenMap::of_samples(&samples, SEQ),
            },
        }
    }
}
