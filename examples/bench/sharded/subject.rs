//! The models that are measured, each with its optimizer.

use anyhow::Context as _;
use burn::backend::Autodiff;
use burn::module::{AutodiffModule, ModuleVisitor, Param};
use burn::optim::adaptor::OptimizerAdaptor;
use burn::optim::{GradientsParams, Optimizer};
use burn::tensor::backend::AutodiffBackend;
use burn::tensor::{ElementConversion, Int, Tensor, TensorData};
use burn_flex::{Flex, FlexDevice};
use burn_megatron::collectives::CollectiveError;
use burn_megatron::context::ParallelContext;
use burn_megatron::data::MicroBatch;
use burn_megatron::data_parallel::{DataParallelConfig, ShardingStrategy, StepPart};
use burn_megatron::initialize;
use burn_megatron::optimizer::{ElementWise, ShardedOptimizer};
use burn_megatron::parameters::list_parameters;
use burn_megatron::random::RandomStream;
use burn_megatron::sharded::{
    AxisRole, Mesh, PlacedDataParallel, Plan, Sharded, ShardedBackend, backward, distribute, parallelize,
};
use burn_megatron::training::{LearningRateConfig, Trainer, TrainerConfig, TrainingConfig};
use clap::ValueEnum;
use cubecl_kernels::Kernels;
use models::gpt::{Gpt, GptConfig};
use plain_models::fused_gpt::FusedGpt;
use plain_models::gpt::{PlainGpt, PlainGptConfig};

use super::plain::Model;
use super::{Layout, Problem};

type PlainBackend = Autodiff<Flex>;
type PlacedBackend = Autodiff<Sharded<Flex>>;

const LEARNING_RATE: f64 = 6e-4;
const SEED: u64 = 1;

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// `PlainGpt` on burn's backend.
    Plain,
    /// `PlainGpt` on [`Sharded`], without a mesh.
    Unplaced,
    /// `PlainGpt` on [`Sharded`], its parameters placed on the mesh of the layout.
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

/// Where a model is, and what is trained.
#[derive(Clone, Copy)]
pub struct Place<'a> {
    pub layout: Layout,
    pub context: &'a ParallelContext,
    pub mesh: &'a Mesh,
    pub problem: &'a Problem,
    pub num_steps: usize,
}

/// A model in training.
pub trait Subject {
    /// Trains on the tokens of a step, and returns its loss.
    fn step(&mut self, step: usize) -> anyhow::Result<f64>;
    /// The bytes of parameters that this rank holds.
    fn parameter_bytes(&self) -> usize;
}

/// Makes a model, not trained yet.
///
/// # Communication
/// What making the bundled GPT's trainer needs; a [`PlainGpt`] needs none.
pub fn make(kind: Kind, place: &Place<'_>) -> anyhow::Result<Box<dyn Subject>> {
    let device = FlexDevice;
    Ok(match kind {
        Kind::Plain => Box::new(Burn::<PlainBackend, PlainGpt<_>>::new(place.problem, None)),
        Kind::Unplaced => Box::new(Burn::<PlacedBackend, PlainGpt<_>>::new(place.problem, None)),
        Kind::Placed => Box::new(Burn::<_, PlainGpt<_>>::placed(place)?),
        Kind::Wrapped => Box::new(Wrapped::<PlainGpt<_>>::new(place)?),
        Kind::FusedPlaced => Box::new(Burn::<_, FusedGpt<_>>::placed(place)?),
        Kind::FusedWrapped => Box::new(Wrapped::<FusedGpt<_>>::new(place)?),
        Kind::Explicit => Box::new(Explicit::new(place, Kernels::Plain, &device)?),
        Kind::Fused => Box::new(Explicit::new(place, Kernels::Fused, &device)?),
    })
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

/// A model, as a burn program trains it.
struct Burn<B: AutodiffBackend, M: Model<B>> {
    /// Missing only while the optimizer has it, which takes the model itself: then nothing else holds its tensors.
    model: Option<M>,
    optimizer: OptimizerAdaptor<M::Update, M, B>,
    problem: Problem,
    mesh: Option<Mesh>,
}

impl<M: Model<PlacedBackend>> Burn<PlacedBackend, M> {
    fn placed(place: &Place<'_>) -> anyhow::Result<Self> {
        let mut placed = Self::new(place.problem, Some(place.mesh.clone()));
        let whole = placed.model.take().context("it was made")?;
        placed.model = Some(parallelize(whole, &plan(place.layout), place.mesh)?);
        Ok(placed)
    }
}

impl<B: AutodiffBackend<Device = FlexDevice>, M: Model<B>> Burn<B, M> {
    fn new(problem: &Problem, mesh: Option<Mesh>) -> Self {
        B::seed(&FlexDevice, SEED);
        let config = PlainGptConfig::new(
            problem.vocab_size,
            problem.seq_length,
            problem.hidden_size,
            problem.num_attention_heads,
            problem.num_layers,
        );
        Self {
            // With the numbers of this seed, not of one that another model sets before the first step.
            model: Some(initialize(M::make(&config))),
            optimizer: OptimizerAdaptor::from(M::update()),
            problem: problem.clone(),
            mesh,
        }
    }

    /// Tokens and their successors.
    fn batch(&self, step: usize) -> [Tensor<B, 2, Int>; 2] {
        let (samples, seq) = (self.problem.global_batch_size, self.problem.seq_length);
        let data = TensorData::new(random_tokens(&self.problem, step), [samples, seq + 1]);
        let all = Tensor::<B, 2, Int>::from_data(data, &FlexDevice);
        [all.clone().narrow(1, 0, seq), all.narrow(1, 1, seq)]
    }
}

/// What of a training step depends on the backend.
trait Passes: AutodiffBackend {
    fn place(tensor: Tensor<Self, 2, Int>, mesh: &Mesh) -> Tensor<Self, 2, Int>;
    fn gradients<M: AutodiffModule<Self>>(
        loss: Tensor<Self, 1>,
        model: &M,
        mesh: Option<&Mesh>,
    ) -> Result<(f64, GradientsParams), CollectiveError>;
    fn local_elements<const D: usize>(tensor: &Tensor<Self, D>, mesh: Option<&Mesh>) -> usize;
}

/// burn's own backward pass.
fn plain_backward<B: AutodiffBackend, M: AutodiffModule<B>>(loss: Tensor<B, 1>, model: &M) -> (f64, GradientsParams) {
    let value = loss.clone().into_scalar().elem();
    (value, GradientsParams::from_grads(loss.backward(), model))
}

impl Passes for PlainBackend {
    fn place(tensor: Tensor<Self, 2, Int>, _mesh: &Mesh) -> Tensor<Self, 2, Int> {
        tensor
    }

    fn gradients<M: AutodiffModule<Self>>(
        loss: Tensor<Self, 1>,
        model: &M,
        _mesh: Option<&Mesh>,
    ) -> Result<(f64, GradientsParams), CollectiveError> {
        Ok(plain_backward(loss, model))
    }

    fn local_elements<const D: usize>(tensor: &Tensor<Self, D>, _mesh: Option<&Mesh>) -> usize {
        tensor.shape().num_elements()
    }
}

impl Passes for PlacedBackend {
    fn place(tensor: Tensor<Self, 2, Int>, mesh: &Mesh) -> Tensor<Self, 2, Int> {
        distribute(tensor, mesh, AxisRole::Data, 0)
    }

    fn gradients<M: AutodiffModule<Self>>(
        loss: Tensor<Self, 1>,
        model: &M,
        mesh: Option<&Mesh>,
    ) -> Result<(f64, GradientsParams), CollectiveError> {
        if mesh.is_none() {
            return Ok(plain_backward(loss, model));
        }
        let (loss, gradients) = backward(loss, model)?;
        Ok((loss.into_scalar().elem(), gradients))
    }

    fn local_elements<const D: usize>(tensor: &Tensor<Self, D>, mesh: Option<&Mesh>) -> usize {
        let shape = tensor.dims();
        let Some(mesh) = mesh else {
            return shape.iter().product();
        };
        let places = Self::float(tensor.clone().into_primitive().tensor()).places();
        mesh.shape().local_shape(&shape, &places, mesh.ranks()).iter().product()
    }
}

impl<B: Passes<Device = FlexDevice>, M: Model<B>> Subject for Burn<B, M> {
    fn step(&mut self, step: usize) -> anyhow::Result<f64> {
        let mut batch = self.batch(step);
        if let Some(mesh) = &self.mesh {
            batch = batch.map(|tensor| B::place(tensor, mesh));
        }
        let [tokens, targets] = batch;
        let model = self.model.take().expect("every step puts it back");
        let (loss, gradients) = B::gradients(model.mean_loss(tokens, targets), &model, self.mesh.as_ref())?;
        self.model = Some(self.optimizer.step(LEARNING_RATE, model, gradients));
        Ok(loss)
    }

    fn parameter_bytes(&self) -> usize {
        struct Bytes<'a> {
            mesh: Option<&'a Mesh>,
            bytes: usize,
        }
        impl<B: Passes> ModuleVisitor<B> for Bytes<'_> {
            fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
                let value = param.val();
                self.bytes += B::local_elements(&value, self.mesh) * value.dtype().size();
            }
        }
        let mut bytes = Bytes {
            mesh: self.mesh.as_ref(),
            bytes: 0,
        };
        if let Some(model) = &self.model {
            model.visit(&mut bytes);
        }
        bytes.bytes
    }
}

/// A placed model in `DistributedDataParallel`, its optimizer's state in the buckets' pieces.
struct Wrapped<M: Model<PlacedBackend, Update: ElementWise<Flex>>> {
    model: PlacedDataParallel<PlacedBackend, M>,
    optimizer: ShardedOptimizer<Flex, M::Update>,
    batches: Burn<PlacedBackend, M>,
}

impl<M: Model<PlacedBackend, Update: ElementWise<Flex>>> Wrapped<M> {
    fn new(place: &Place<'_>) -> anyhow::Result<Self> {
        let mut batches = Burn::<PlacedBackend, M>::placed(place)?;
        let placed = batches.model.take().context("it was made")?;
        let context = match place.layout {
            Layout::Fsdp2 => place.context.fully_sharded()?,
            _ => place.context.clone(),
        };
        let model = PlacedDataParallel::new(placed, place.mesh, &context, DataParallelConfig::new())?;
        Ok(Self {
            optimizer: ShardedOptimizer::new(model.local(), OptimizerAdaptor::from(M::update()))?,
            model,
            batches,
        })
    }
}

impl<M: Model<PlacedBackend, Update: ElementWise<Flex>>> Subject for Wrapped<M> {
    fn step(&mut self, step: usize) -> anyhow::Result<f64> {
        let mesh = self.batches.mesh.clone().context("it has one")?;
        let [tokens, targets] = self
            .batches
            .batch(step)
            .map(|tensor| PlacedBackend::place(tensor, &mesh));
        let loss = self
            .model
            .backward(StepPart::Last, |model| model.mean_loss(tokens, targets))?;
        let gradients = self.model.gradients()?;
        self.model.step(LEARNING_RATE, &mut self.optimizer, gradients)?;
        Ok(loss.into_scalar().elem())
    }

    fn parameter_bytes(&self) -> usize {
        let parameters = self.model.local().parameters().iter();
        parameters.map(|entry| entry.len() * entry.dtype.size()).sum()
    }
}

/// The bundled GPT with the trainer of this library.
struct Explicit {
    trainer: Trainer<PlainBackend, Gpt<PlainBackend>>,
    problem: Problem,
    /// The samples of a batch that this rank takes.
    samples: std::ops::Range<usize>,
}

impl Explicit {
    fn new(place: &Place<'_>, kernels: Kernels, device: &FlexDevice) -> anyhow::Result<Self> {
        let problem = place.problem;
        let context = place.context.clone().with_kernels(kernels);
        // As in `PlainGpt`.
        let config = GptConfig::new(
            problem.num_layers,
            problem.hidden_size,
            problem.num_attention_heads,
            problem.seq_length,
            problem.vocab_size,
        )
        .with_tied_embeddings(false);
        let model = config.init::<PlainBackend>(device, &context)?;
        let samples = context.data_shard(0..problem.global_batch_size)?;
        let training = TrainingConfig::new(
            problem.seq_length,
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
        Ok(Self {
            trainer: Trainer::new(vec![model], &training, trainer, &context, device)?,
            problem: problem.clone(),
            samples,
        })
    }
}

impl Subject for Explicit {
    fn step(&mut self, step: usize) -> anyhow::Result<f64> {
        let seq = self.problem.seq_length;
        let all = random_tokens(&self.problem, step);
        let own: Vec<&[i32]> = all.chunks_exact(seq + 1).collect();
        let own = &own[self.samples.clone()];
        let batch = MicroBatch {
            tokens: own.iter().flat_map(|sample| sample[..seq].to_vec()).collect(),
            targets: own.iter().flat_map(|sample| sample[1..].to_vec()).collect(),
            sample_ids: self
                .samples
                .clone()
                .map(|sample| (step * self.problem.global_batch_size + sample) as u64)
                .collect(),
            micro_batch_size: own.len(),
            seq_length: seq,
            ..MicroBatch::default()
        };
        Ok(self.trainer.step(&[batch])?.loss)
    }

    fn parameter_bytes(&self) -> usize {
        let entries = self
            .trainer
            .model()
            .iter()
            .flat_map(list_parameters::<PlainBackend, Gpt<PlainBackend>>);
        entries
            .map(|entry| entry.shape.iter().product::<usize>() * entry.dtype.size())
            .sum()
    }
}

/// Samples of one token more than the model sees, one after the other.
fn random_tokens(problem: &Problem, step: usize) -> Vec<i32> {
    let mut numbers = vec![0.0; problem.global_batch_size * (problem.seq_length + 1)];
    RandomStream::new(SEED, &format!("step {step}")).fill_uniform(0, 1.0, &mut numbers);
    let token = |number: &f64| (((number + 1.0) / 2.0) * problem.vocab_size as f64) as i32;
    numbers
        .iter()
        .map(|number| token(number).min(problem.vocab_size as i32 - 1))
        .collect()
}
