//! A classifier with burn's `TransformerEncoder`, converted and trained in every layout, against burn's own on one
//! rank; with dropout on, against the converted one on one rank.

use anyhow::{Context as _, ensure};
use burn::module::Module;
use burn::nn::loss::CrossEntropyLossConfig;
use burn::nn::transformer::{self, TransformerEncoder, TransformerEncoderConfig};
use burn::nn::{Embedding, EmbeddingConfig, Linear, LinearConfig};
use burn::optim::{AdamWConfig, GradientsParams};
use burn::tensor::{Bool, DType, Int, Tensor, TensorData};
use burn_megatron::collectives::ReduceOp;
use burn_megatron::context::ParallelContext;
use burn_megatron::data_parallel::{DataParallelConfig, DistributedDataParallel, ElementWiseOptimizer};
use burn_megatron::initialize;
use burn_megatron::launch::World;
use burn_megatron::parity::Tolerance;
use burn_megatron::pipeline_parallel::schedule::{ScheduleConfig, ScheduleKind};
use burn_megatron::pipeline_parallel::{PipelineExecutor, PipelineStage, StageOutput};
use burn_megatron::tensor_parallel::{ConversionError, ParallelTransformerEncoder, TransformerEncoderInput};
use libtest_mimic::Trial;

use super::comparison::{DP2, Layout, ONE, PP2, SEED, Scene, TP2, TP2SP, TP4, TP4SP, layout};
use tests::harness::{Case, Job};

const VOCABULARY: usize = 11;
const SEQ: usize = 6;
const D_MODEL: usize = 12;
const CLASSES: usize = 3;
/// Each step's, over all ranks.
const SAMPLES: usize = 8;
const MICRO_BATCHES: usize = 2;
const STEPS: usize = 5;
const LEARNING_RATE: f64 = 1e-2;

const TP2DP2SP: Layout = layout("tp2dp2sp", 2, true, 2);
const TP2PP2SP: Layout = layout("tp2pp2sp", 2, true, 1).stages(2, 1);

pub fn trials() -> Vec<Trial> {
    let plain = [ONE, TP2, TP4, TP2SP, TP4SP, TP2DP2SP].map(|layout| (layout, "f64", 0.0));
    let single = [TP2, TP2SP].map(|layout| (layout, "f32", 0.0));
    let dropping = [TP2, TP4SP, DP2, PP2, TP2DP2SP, TP2PP2SP].map(|layout| (layout, "f64", 0.3));
    let all = plain
        .into_iter()
        .chain(single)
        .chain(dropping)
        .chain([(TP2SP, "f32", 0.3)]);
    let mixed = [TP2, TP2PP2SP].map(|layout| {
        let case = layout.describe(
            Case::new("parity", "converted")
                .with("dropout", 0.0)
                .with("mixed", true),
            "f64",
        );
        let name = format!(
            "other_samples_on_a_tensor_rank_of_a_pipeline_are_refused_{}",
            layout.name
        );
        Job::new(case, layout.world_size()).succeeds(name)
    });
    let trained = all.map(|(layout, dtype, dropout)| {
        let case = Case::new("parity", "converted")
            .with("dropout", dropout)
            .with("mixed", false);
        let case = layout.describe(case, dtype);
        let name = if dropout > 0.0 {
            format!("a_dropping_encoder_has_one_loss_on_{}_{dtype}", layout.name)
        } else {
            format!("a_converted_encoder_trains_as_burns_on_{}_{dtype}", layout.name)
        };
        Job::new(case, layout.world_size()).succeeds(name)
    });
    trained.chain(mixed).collect()
}

pub fn run(case: &Case, world: &World) -> anyhow::Result<()> {
    let scene = Scene::new(case, world)?;
    let dropout = case.setting("dropout")?;
    let config = TransformerEncoderConfig::new(D_MODEL, 20, 4, 2)
        .with_dropout(dropout)
        .with_norm_first(true)
        .with_layer_norm_eps(1e-4);
    if case.setting("mixed")? {
        let rank = scene.context.tensor_group().rank();
        let error = train(&scene.context, &config, rank).err().context("it trained")?;
        let message = format!("{error:#}");
        // Later stages see what the first has gathered.
        let is_first = scene.context.coordinates().pipeline == 0;
        ensure!(
            !is_first || message.contains("was given another input than rank"),
            "{message:?}"
        );
        return Ok(());
    }
    let expected = if dropout > 0.0 {
        train(&ParallelContext::single(SEED), &config, 0)?
    } else {
        train_burn(&config)
    };
    let actual = train(&scene.context, &config, 0)?;
    let tolerance = match scene.dtype {
        DType::F64 => 1e-10,
        other => Tolerance::of(other).loss,
    };
    println!("losses {actual:?}");
    for (step, (actual, expected)) in actual.iter().zip(&expected).enumerate() {
        ensure!(
            (actual - expected).abs() <= tolerance * expected.abs(),
            "rank {}, step {step}: loss {actual}, expected {expected}",
            world.rank()
        );
    }
    let moved = (expected[STEPS - 1] - expected[0]).abs();
    ensure!(moved > 1e-3, "the steps change nothing: {expected:?}");
    Ok(())
}

/// Plain burn.
#[derive(Module, Debug)]
struct Classifier {
    embedding: Embedding,
    encoder: TransformerEncoder,
    head: Linear,
}

impl Classifier {
    fn new(config: &TransformerEncoderConfig) -> Self {
        let device = tests::device();
        device.seed(5);
        Self {
            embedding: EmbeddingConfig::new(VOCABULARY, D_MODEL).init(&device),
            encoder: config.init(&device),
            head: LinearConfig::new(D_MODEL, CLASSES).init(&device),
        }
    }

    fn forward(&self, batch: &Batch) -> Tensor<2> {
        let input = transformer::TransformerEncoderInput::new(self.embedding.forward(batch.tokens.clone()));
        let hidden = self.encoder.forward(input.mask_pad(batch.padding()));
        self.head.forward(hidden.mean_dim(1).squeeze_dim(1))
    }
}

/// The same, parallel; a pipeline stage holds a part of it.
#[derive(Module, Debug)]
struct Stage {
    embedding: Option<Embedding>,
    encoder: ParallelTransformerEncoder,
    head: Option<Linear>,
    #[module(skip)]
    context: ParallelContext,
}

impl Stage {
    fn new(config: &TransformerEncoderConfig, context: &ParallelContext) -> Result<Self, ConversionError> {
        let serial = initialize(Classifier::new(config));
        let mut encoder = ParallelTransformerEncoder::from_encoder(serial.encoder, config, &context.scope("encoder"))?;
        let (stage, stages) = (context.coordinates().pipeline, context.grid().pipeline_parallel_size());
        let layers = encoder.layers.len() / stages;
        encoder.layers = encoder.layers.into_iter().skip(stage * layers).take(layers).collect();
        let model = Self {
            embedding: (stage == 0).then_some(serial.embedding),
            encoder,
            head: (stage + 1 == stages).then_some(serial.head),
            context: context.clone(),
        };
        context.root().declare_rest_replicated(&model)?;
        Ok(model)
    }
}

impl PipelineStage<3> for Stage {
    type MicroBatch = Batch;

    fn input_shape(&self, batch: &Batch) -> [usize; 3] {
        [batch.samples.len(), SEQ, D_MODEL]
    }

    fn forward(&self, input: Option<Tensor<3>>, batch: &Batch) -> StageOutput<3> {
        self.context.set_step(batch.iteration, batch.samples.iter().copied());
        let hidden = match &self.embedding {
            Some(embedding) => embedding.forward(batch.tokens.clone()),
            None => input.expect("a later stage has an input"),
        };
        let hidden = self
            .encoder
            .forward(TransformerEncoderInput::new(hidden).mask_pad(batch.padding()));
        match &self.head {
            None => StageOutput::Activation(hidden),
            Some(head) => StageOutput::Losses(batch.loss(head.forward(hidden.mean_dim(1).squeeze_dim(1)))),
        }
    }
}

/// Samples by number: the class is the most frequent of the first tokens, and the last tokens of odd samples are
/// padding.
#[derive(Clone, Debug)]
struct Batch {
    iteration: u64,
    samples: Vec<u64>,
    tokens: Tensor<2, Int>,
    labels: Tensor<1, Int>,
}

impl Batch {
    fn new(iteration: usize, samples: std::ops::Range<usize>) -> Self {
        let device = tests::device();
        let samples: Vec<u64> = samples.map(|sample| sample as u64).collect();
        let token = |sample: u64, position: usize| {
            if sample % 2 == 1 && position >= SEQ - 2 {
                0
            } else {
                1 + (sample * 7 + position as u64 * (1 + sample % 3)) as i32 % (VOCABULARY as i32 - 1)
            }
        };
        let tokens: Vec<i32> = samples
            .iter()
            .flat_map(|&sample| (0..SEQ).map(move |position| token(sample, position)))
            .collect();
        let labels: Vec<i32> = samples.iter().map(|sample| (sample % 3) as i32).collect();
        Self {
            iteration: iteration as u64,
            tokens: Tensor::from_data(TensorData::new(tokens, [samples.len(), SEQ]), (&device, DType::I32)),
            labels: Tensor::from_data(TensorData::new(labels, [samples.len()]), (&device, DType::I32)),
            samples,
        }
    }

    fn padding(&self) -> Tensor<2, Bool> {
        self.tokens.clone().equal_elem(0)
    }

    /// The mean over the samples, `[1]`.
    fn loss(&self, scores: Tensor<2>) -> Tensor<1> {
        CrossEntropyLossConfig::new()
            .init(&scores.device())
            .forward(scores, self.labels.clone())
    }
}

/// The loss of each step of burn's own model, trained by burn.
fn train_burn(config: &TransformerEncoderConfig) -> Vec<f64> {
    let mut model = initialize(Classifier::new(config));
    let mut optimizer = AdamWConfig::new().init();
    let step = |step: usize| {
        let batch = Batch::new(step, step * SAMPLES..(step + 1) * SAMPLES);
        let loss = batch.loss(model.forward(&batch));
        let value = loss.clone().into_data().iter::<f64>().sum();
        let gradients = GradientsParams::from_grads(loss.backward(), &model);
        model = optimizer.step(LEARNING_RATE, model.clone(), gradients);
        value
    };
    (0..STEPS).map(step).collect()
}

/// The loss of each step of the converted model in a context's layout, on every rank. It is given samples `shift`
/// further than it should be.
fn train(context: &ParallelContext, config: &TransformerEncoderConfig, shift: usize) -> anyhow::Result<Vec<f64>> {
    let stages = context.pipeline_group();
    let model = Stage::new(config, context)?;
    let mut model = DistributedDataParallel::new(vec![model], context, DataParallelConfig::new())?;
    let mut optimizer = ElementWiseOptimizer::from(AdamWConfig::new().build());
    let schedule = ScheduleConfig {
        kind: ScheduleKind::OneForwardOneBackward,
        num_stages: stages.size(),
        num_chunks: 1,
        num_micro_batches: MICRO_BATCHES,
    };
    let pipeline = PipelineExecutor::new(schedule.init()?, context)?;
    let (data, ranks) = (context.data_group().rank(), context.data_group().size());
    let size = SAMPLES / ranks / MICRO_BATCHES;
    let mut losses = Vec::new();
    for step in 0..STEPS {
        let first = shift + step * SAMPLES + data * MICRO_BATCHES * size;
        let batches: Vec<_> = (0..MICRO_BATCHES)
            .map(|number| Batch::new(step, first + number * size..first + (number + 1) * size))
            .collect();
        let parts = pipeline.train(&mut model, &batches, |_, loss| loss / MICRO_BATCHES as f64)?;
        let gradients = model.gradients()?;
        model.step(LEARNING_RATE, &mut optimizer, gradients)?;
        let parts = parts
            .into_iter()
            .map(|part| part.into_data().iter::<f64>().sum::<f64>());
        let mut loss = [parts.sum::<f64>() / ranks as f64];
        stages.all_reduce(&mut loss, ReduceOp::Sum)?;
        context.data_group().all_reduce(&mut loss, ReduceOp::Sum)?;
        losses.push(loss[0]);
    }
    Ok(losses)
}
