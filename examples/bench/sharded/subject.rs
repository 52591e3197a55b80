//! The models that are measured, each with its optimizer.

use anyhow::Context as _;
use burn::optim::{GradientsParams, ModuleOptimizer};
use burn::tensor::{Device, Int, Tensor, TensorData};
use burn_flex::{Flex, FlexDevice};
use burn_megatron::context::ParallelContext;
use burn_megatron::data_parallel::{DataParallelConfig, ElementWiseOptimizer, ShardingStrategy, StepPart};
use burn_megatron::initialize;
use burn_megatron::optimizer::{ElementWise, ShardedOptimizer};
use burn_megatron::parameters::list_parameters;
use burn_megatron::sharded::{
    self, AxisRole, Mesh, PlacedDataParallel, Plan, backward, distribute, explain, parallelize,
};
use burn_megatron::training::{LearningRateConfig, Trainer, TrainerConfig, TrainingConfig};
use clap::ValueEnum;
use cubecl_kernels::{Kernels, set_kernels};
use models::gpt::Gpt;
use plain_models::fused_gpt::FusedGpt;
use plain_models::gpt::{PlainGpt, PlainGptConfig};

use super::plain::Model;
use super::{Layout, Problem};
use crate::sizes::micro_batch;

const LEARNING_RATE: f64 = 6e-4;
const SEED: u64 = 1;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// `PlainGpt` on burn's device.
    Plain,
    /// `PlainGpt` on a device of placed tensors, without a mesh.
    Unplaced,
    /// `PlainGpt` on such a device, its parameters placed on the mesh of the layout.
    Placed,
    /// The same in `DistributedDataParallel`.
    Wrapped,
    /// `FusedGpt`, the same model of fused operations, placed likewise.
    FusedPlaced,
    /// The same in `DistributedDataParallel`.
    FusedWrapped,
    /// The bundled GPT of parallel layers and of burn's operations.
    Explicit,
    /// The same of fused operations.
    Fused,
}

/// Place and problem of a model.
#[derive(Clone, Copy)]
pub struct Place<'a> {
    pub layout: Layout,
    pub context: &'a ParallelContext,
    pub mesh: &'a Mesh,
    pub problem: &'a Problem,
    pub num_steps: usize,
}

pub trait Subject {
    /// Trains on the tokens of a step, and returns its loss.
    fn step(&mut self, step: usize) -> anyhow::Result<f64>;
    /// The bytes of parameters that this rank holds.
    fn parameter_bytes(&self) -> usize;
}

/// Makes a model, not trained yet.
///
/// # Communication
/// Making the bundled GPT's trainer; a [`PlainGpt`] needs none.
pub fn make(kind: Kind, place: &Place<'_>) -> anyhow::Result<Box<dyn Subject>> {
    Ok(match kind {
        Kind::Plain => Box::new(Burn::<PlainGpt>::new(place.problem, Device::flex())),
        Kind::Unplaced => Box::new(Burn::<PlainGpt>::new(place.problem, placed_device())),
        Kind::Placed => Box::new(Placed::<PlainGpt>::new(place)?),
        Kind::Wrapped => Box::new(Wrapped::<PlainGpt>::new(place)?),
        Kind::FusedPlaced => Box::new(Placed::<FusedGpt>::new(place)?),
        Kind::FusedWrapped => Box::new(Wrapped::<FusedGpt>::new(place)?),
        Kind::Explicit => Box::new(Explicit::new(place, Kernels::Plain)?),
        Kind::Fused => Box::new(Explicit::new(place, Kernels::Fused)?),
    })
}

fn placed_device() -> Device {
    sharded::device::<Flex>(FlexDevice)
}

fn plan(layout: Layout) -> Plan {
    match layout {
        Layout::One | Layout::Dp2 => Plan::new(),
        Layout::Fsdp2 => Plan::new().fully_shard(AxisRole::Data),
        Layout::Tp2 | Layout::Tp2sp => Plan::new()
            .vocabulary("tokens")
            .column("layers.*.attention.{query,key,value}")
            .row("layers.*.attention.output")
            .column("layers.*.inner")
            .row("layers.*.outer")
            .column("output"),
    }
}

/// A model, as a burn program trains it on one device.
struct Burn<M: Model> {
    /// Missing only while the optimizer has it, which takes the model itself: then nothing else holds its tensors.
    model: Option<M>,
    optimizer: ModuleOptimizer,
    problem: Problem,
    device: Device,
}

impl<M: Model> Burn<M> {
    fn new(problem: &Problem, device: Device) -> Self {
        device.seed(SEED);
        let device = device.autodiff();
        let sizes = &problem.sizes;
        let config = PlainGptConfig::new(
            sizes.vocab_size,
            sizes.seq_length,
            sizes.hidden_size,
            sizes.num_attention_heads,
            sizes.num_layers,
        );
        Self {
            // With the numbers of this seed, not of one that another model sets before the first step.
            model: Some(initialize(M::make(&config, &device))),
            optimizer: ModuleOptimizer::from(M::update()),
            problem: problem.clone(),
            device,
        }
    }

    /// Returns tokens and their successors.
    fn batch(&self, step: usize) -> [Tensor<2, Int>; 2] {
        let (samples, seq) = (self.problem.global_batch_size, self.problem.sizes.seq_length);
        let data = TensorData::new(self.problem.samples(step), [samples, seq + 1]);
        let all = Tensor::<2, Int>::from_data(data, &self.device);
        [all.clone().narrow(1, 0, seq), all.narrow(1, 1, seq)]
    }

    /// Trains on a batch with this backward pass, and returns the loss.
    fn train(
        &mut self,
        [tokens, targets]: [Tensor<2, Int>; 2],
        backward: impl FnOnce(Tensor<1>, &M) -> anyhow::Result<(f64, GradientsParams)>,
    ) -> anyhow::Result<f64> {
        let model = self.model.take().expect("every step puts it back");
        let (loss, gradients) = backward(model.mean_loss(tokens, targets), &model)?;
        self.model = Some(self.optimizer.step(LEARNING_RATE, model, gradients));
        Ok(loss)
    }
}

impl<M: Model> Subject for Burn<M> {
    fn step(&mut self, step: usize) -> anyhow::Result<f64> {
        self.train(self.batch(step), |loss, model| {
            let value = loss.clone().into_scalar::<f64>();
            Ok((value, GradientsParams::from_grads(loss.backward(), model)))
        })
    }

    fn parameter_bytes(&self) -> usize {
        self.model.as_ref().map_or(0, M::num_params) * size_of::<f32>()
    }
}

/// A model whose parameters and batches are placed on a mesh.
struct Placed<M: Model> {
    burn: Burn<M>,
    mesh: Mesh,
}

impl<M: Model> Placed<M> {
    fn new(place: &Place<'_>) -> anyhow::Result<Self> {
        let mut burn = Burn::new(place.problem, placed_device());
        let whole: M = burn.model.take().context("it was made")?;
        burn.model = Some(parallelize(whole, &plan(place.layout), place.mesh)?);
        let mesh = place.mesh.clone();
        Ok(Self { burn, mesh })
    }

    fn batch(&self, step: usize) -> [Tensor<2, Int>; 2] {
        let batch = self.burn.batch(step);
        batch.map(|tensor| distribute(tensor, &self.mesh, AxisRole::Data, 0))
    }
}

impl<M: Model> Subject for Placed<M> {
    fn step(&mut self, step: usize) -> anyhow::Result<f64> {
        let batch = self.batch(step);
        self.burn.train(batch, |loss, model| {
            let (loss, gradients) = backward(loss, model)?;
            Ok((loss.into_scalar::<f64>(), gradients))
        })
    }

    fn parameter_bytes(&self) -> usize {
        let bytes = |model: &M| {
            let (explanation, ()) = explain(model, &self.mesh, || ());
            explanation.local_parameter_bytes()
        };
        self.burn.model.as_ref().map_or(0, bytes)
    }
}

/// A placed model in `DistributedDataParallel`, its optimizer's state in the buckets' pieces.
struct Wrapped<M: Model<Update: ElementWise>> {
    model: PlacedDataParallel<M>,
    optimizer: ShardedOptimizer<M::Update>,
    batches: Placed<M>,
}

impl<M: Model<Update: ElementWise>> Wrapped<M> {
    fn new(place: &Place<'_>) -> anyhow::Result<Self> {
        let mut batches = Placed::<M>::new(place)?;
        let placed = batches.burn.model.take().context("it was made")?;
        let context = match place.layout {
            Layout::Fsdp2 => place.context.fully_sharded()?,
            _ => place.context.clone(),
        };
        let model = PlacedDataParallel::new(placed, place.mesh, &context, DataParallelConfig::new())?;
        Ok(Self {
            optimizer: ShardedOptimizer::new(model.local(), ElementWiseOptimizer::from(M::update()))?,
            model,
            batches,
        })
    }
}

impl<M: Model<Update: ElementWise>> Subject for Wrapped<M> {
    fn step(&mut self, step: usize) -> anyhow::Result<f64> {
        let [tokens, targets] = self.batches.batch(step);
        let loss = self
            .model
            .backward(StepPart::Last, |model| model.mean_loss(tokens, targets))?;
        let gradients = self.model.gradients()?;
        self.model.step(LEARNING_RATE, &mut self.optimizer, gradients)?;
        Ok(loss.into_scalar::<f64>())
    }

    fn parameter_bytes(&self) -> usize {
        let parameters = self.model.local().parameters().iter();
        parameters.map(|entry| entry.len() * entry.dtype.size()).sum()
    }
}

/// The bundled GPT with the trainer of this library.
struct Explicit {
    trainer: Trainer<Gpt>,
    kernels: Kernels,
    problem: Problem,
    /// The samples of a batch that this rank takes.
    samples: std::ops::Range<usize>,
}

impl Explicit {
    fn new(place: &Place<'_>, kernels: Kernels) -> anyhow::Result<Self> {
        let (problem, context) = (place.problem, place.context);
        // As in `PlainGpt`.
        let config = problem.sizes.gpt().with_tied_embeddings(false);
        let device = Device::flex().autodiff();
        let model = config.init(&device, context)?;
        let samples = context.data_shard(0..problem.global_batch_size)?;
        let training = TrainingConfig::new(
            problem.sizes.seq_length,
            samples.len(),
            problem.global_batch_size,
            (place.num_steps * problem.global_batch_size) as u64,
            LearningRateConfig::constant(LEARNING_RATE),
        )
        .with_clip_grad(0.0)
        .with_seed(SEED);
        let sharding = DataParallelConfig::new().with_sharding(if place.layout == Layout::Fsdp2 {
            ShardingStrategy::Optim
        } else {
            ShardingStrategy::NoShard
        });
        let trainer = TrainerConfig::new().with_data_parallel(sharding);
        let trainer = with_kernels(kernels, || {
            Ok(Trainer::new(vec![model], &training, trainer, context, &device)?)
        })?;
        Ok(Self {
            trainer,
            kernels,
            problem: problem.clone(),
            samples,
        })
    }
}

/// Runs operations in this form, which others leave as it is by default.
fn with_kernels<T>(kernels: Kernels, act: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<T> {
    set_kernels(kernels);
    let done = act();
    set_kernels(Kernels::default());
    done
}

impl Subject for Explicit {
    fn step(&mut self, step: usize) -> anyhow::Result<f64> {
        let seq = self.problem.sizes.seq_length;
        let all = self.problem.samples(step);
        let own = &all[self.samples.start * (seq + 1)..self.samples.end * (seq + 1)];
        let first = step * self.problem.global_batch_size + self.samples.start;
        let batch = micro_batch(own, seq, first as u64);
        with_kernels(self.kernels, || Ok(self.trainer.step(&[batch])?.loss))
    }

    fn parameter_bytes(&self) -> usize {
        let entries = self.trainer.model().iter().flat_map(list_parameters);
        entries
            .map(|entry| entry.shape.iter().product::<usize>() * entry.dtype.size())
            .sum()
    }
}
