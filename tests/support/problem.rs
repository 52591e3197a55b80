//! The small training problem that layouts are compared on: a GPT of odd sizes and random tokens.
//!
//! What one rank makes of it is trained by a job of its own, or by every rank in the same process.

use std::str::FromStr;

use anyhow::{Context as _, bail};
use burn::module::{Module, ModuleMapper, Param};
use burn::tensor::{FloatDType, Tensor};
use burn_megatron::context::ParallelContext;
use burn_megatron::data::MicroBatch;
use burn_megatron::data_parallel::{DataParallelConfig, ParameterOffload, ShardingStrategy};
use burn_megatron::optimizer::{
    LossScaleConfig, OptimizerChoice, OptimizerKind, OptimizerOffload, ParameterGroup, ParameterGroups,
};
use burn_megatron::parity::perturb_constants;
use burn_megatron::pipeline_parallel::schedule::ScheduleKind;
use burn_megatron::pipeline_parallel::{LayerLayout, LayerSizes};
use burn_megatron::random::RandomStream;
use burn_megatron::training::{LearningRateConfig, Trainer, TrainerConfig, TrainingConfig, WeightDecayConfig};
use models::gpt::{Gpt, GptConfig};
use models::layers::LayerRecompute;

use crate::device;

pub const SEED: u64 = 42;
pub const D_MODEL: usize = 20;
pub const VOCAB_SIZE: usize = 61;
const SEQ_LENGTH: usize = 12;

/// What varies between the cases.
#[derive(Clone, Copy, Debug)]
pub struct Variant {
    pub tied: bool,
    pub clip: bool,
    pub dropout: f64,
    pub n_layers: usize,
    pub recompute: Recompute,
    pub update: Update,
    /// With the padding, which changes nothing.
    pub padded_vocab_size: usize,
    pub precision: Precision,
    pub optimizer: Optimizer,
    /// The most tokens whose logits are in one buffer.
    pub logit_chunk_tokens: Option<usize>,
}

impl Variant {
    /// Everything on, nothing unusual.
    pub const USUAL: Self = Self {
        tied: true,
        clip: true,
        dropout: 0.1,
        n_layers: 4,
        recompute: Recompute::Nothing,
        update: Update::WHOLE,
        padded_vocab_size: PADDED_VOCAB_SIZE,
        precision: Precision::Usual,
        optimizer: Optimizer::Of(OptimizerKind::AdamW),
        logit_chunk_tokens: None,
    };
}

/// In which numbers the model computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precision {
    /// Those of the process.
    Usual,
    /// 16 bits, f16 with a loss scale of 65536.
    Half(FloatDType),
    /// Those of the process, from values that 16 bits can hold.
    UsualFromHalf(FloatDType),
}

/// The usual one, for up to four tensor ranks.
pub const PADDED_VOCAB_SIZE: usize = 68;

/// What data-parallel ranks share out: written `whole`, `sharded`, `sharded_gradients` or `sharded_parameters`, the
/// last three with `_in_turn` where nothing is computed while gradients and parameters are on their way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Update {
    pub sharding: ShardingStrategy,
    pub overlaps: bool,
}

impl Update {
    /// Every data-parallel rank updates everything.
    pub const WHOLE: Self = Self::overlapping(ShardingStrategy::NoShard);
    /// Each data-parallel rank updates its shard.
    pub const SHARDED: Self = Self::overlapping(ShardingStrategy::Optim);

    /// What is shared out, while gradients and parameters are on their way.
    pub const fn overlapping(sharding: ShardingStrategy) -> Self {
        let overlaps = true;
        Self { sharding, overlaps }
    }

    /// What is shared out, one thing after the other.
    pub const fn in_turn(sharding: ShardingStrategy) -> Self {
        let overlaps = false;
        Self { sharding, overlaps }
    }
}

impl FromStr for Update {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let (name, overlaps) = match text.strip_suffix("_in_turn") {
            Some(name) => (name, false),
            None => (text, true),
        };
        let sharding = match name {
            "whole" => ShardingStrategy::NoShard,
            "sharded" => ShardingStrategy::Optim,
            "sharded_gradients" => ShardingStrategy::OptimGrads,
            "sharded_parameters" => ShardingStrategy::OptimGradsParams,
            _ => bail!("no update is called {text}"),
        };
        Ok(Self { sharding, overlaps })
    }
}

/// Which optimizer: written by its name, or `groups`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Optimizer {
    /// One for all parameters.
    Of(OptimizerKind),
    /// AdamW, and other things for some groups.
    Groups,
}

impl Optimizer {
    /// That of the parameters in no group.
    pub fn kind(self) -> OptimizerKind {
        match self {
            Optimizer::Of(kind) => kind,
            Optimizer::Groups => OptimizerKind::AdamW,
        }
    }
}

impl FromStr for Optimizer {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        match text {
            "groups" => Ok(Optimizer::Groups),
            name => Ok(Optimizer::Of(name.parse().map_err(anyhow::Error::msg)?)),
        }
    }
}

/// A group of each kind: frozen, of another rate, of another decay, of another optimizer.
fn groups() -> ParameterGroups {
    let groups = [
        "h.1.mlp.**:frozen",
        "wpe.weight:frozen",
        "h.*.attn.c_proj.weight:optimizer=muon",
        "h.2.attn.**:optimizer=sgd,lr_mult=10",
        "h.2.mlp.**:optimizer=adafactor,lr_mult=10",
        "**.bias:weight_decay=0.3",
        "h.0.**:lr_mult=0.5,weight_decay=0",
    ];
    let groups = groups.map(|text| text.parse::<ParameterGroup>().expect("a group"));
    groups.to_vec().into()
}

/// What is recomputed in the backward pass: written `none`, `uniform2`, `block1`, say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recompute {
    Nothing,
    Layers(LayerRecompute),
}

impl FromStr for Recompute {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let number = |digits: &str| digits.parse().context("the number of layers");
        match text {
            "none" => Ok(Recompute::Nothing),
            _ => match (text.strip_prefix("uniform"), text.strip_prefix("block")) {
                (Some(digits), _) => Ok(Recompute::Layers(LayerRecompute::Uniform(number(digits)?))),
                (_, Some(digits)) => Ok(Recompute::Layers(LayerRecompute::Block(number(digits)?))),
                _ => bail!("no recomputation is called {text}"),
            },
        }
    }
}

/// How the stages of a pipeline share the layers, and in which order they work: what the flags of the same names say.
#[derive(Clone, Debug, Default)]
pub struct Stages {
    pub num_chunks: usize,
    /// Even if not given.
    pub layers: Option<String>,
    pub schedule: Option<ScheduleKind>,
}

impl Stages {
    /// One chunk per stage, the layers shared out evenly, in the usual order.
    pub fn one_chunk() -> Self {
        Self {
            num_chunks: 1,
            ..Self::default()
        }
    }
}

/// The model: sizes that are multiples of little but the tensor-parallel sizes.
pub fn model(variant: Variant) -> GptConfig {
    let layer_recompute = match variant.recompute {
        Recompute::Nothing => LayerRecompute::Nothing,
        Recompute::Layers(layers) => layers,
    };
    GptConfig::new(variant.n_layers, D_MODEL, 4, SEQ_LENGTH + 3, VOCAB_SIZE)
        .with_layer_recompute(layer_recompute)
        .with_logit_chunk_tokens(variant.logit_chunk_tokens)
        .with_d_hidden(Some(36))
        .with_padded_vocab_size(Some(variant.padded_vocab_size))
        .with_tied_embeddings(variant.tied)
        .with_hidden_dropout(variant.dropout)
        .with_attention_dropout(variant.dropout)
        // Larger than usual, so that attention is far from uniform and every gradient counts.
        .with_init_deviation(0.3)
}

/// An optimizer with the numbers of its paper, but for Adafactor's smallest root of a mean of squares: by its default
/// the noise of a gradient that is none, such as that of the keys' bias, would be as large as other directions.
fn choice(kind: OptimizerKind) -> OptimizerChoice {
    let mut choice = OptimizerChoice::new(kind);
    choice.adafactor.eps1 = Some(match device().settings().float_dtype {
        FloatDType::F64 => 1e-8,
        _ => 1e-4,
    });
    choice
}

/// Constant learning rate, no warm-up, weight decay on, eight samples a step in micro-batches of two.
pub fn training(variant: Variant, train_iters: u64) -> TrainingConfig {
    let kind = variant.optimizer.kind();
    TrainingConfig {
        seq_length: SEQ_LENGTH,
        micro_batch_size: 2,
        global_batch_size: 8,
        rampup_batch_size: None,
        train_samples: train_iters * 8,
        // A clipped gradient is short.
        learning_rate: LearningRateConfig::constant(match kind {
            OptimizerKind::Sgd => 0.1,
            OptimizerKind::Adafactor => 1e-2,
            _ => 1e-3,
        }),
        weight_decay: WeightDecayConfig::constant(0.1),
        clip_grad: if variant.clip { 1.0 } else { 0.0 },
        adam_beta1: 0.9,
        adam_beta2: 0.95,
        adam_eps: 1e-8,
        sgd_momentum: (kind == OptimizerKind::Sgd).then_some(0.9),
        optimizer: Some(choice(kind)),
        param_groups: (variant.optimizer == Optimizer::Groups).then(groups),
        seed: SEED,
        replica_check_interval: 5,
    }
}

/// Makes this rank's part of the model, biases and norms random, and its trainer. Buckets are small, so there are many.
pub fn trainer(
    variant: Variant,
    train_iters: u64,
    stages: &Stages,
    context: &ParallelContext,
) -> anyhow::Result<Trainer<Gpt>> {
    trainer_of(variant, &training(variant, train_iters), stages, context)
}

/// The same for another configuration of training.
pub fn trainer_of(
    variant: Variant,
    config: &TrainingConfig,
    stages: &Stages,
    context: &ParallelContext,
) -> anyhow::Result<Trainer<Gpt>> {
    trainer_offloaded(variant, config, stages, context, &Offloads::default())
}

/// What is not where the model is.
#[derive(Clone, Debug, Default)]
pub struct Offloads {
    pub optimizer: OptimizerOffload,
    pub parameters: ParameterOffload,
    /// The layers of each chunk that have their activations in host memory.
    pub layers: usize,
}

/// The same with the optimizer's state, the parameters or activations elsewhere.
pub fn trainer_offloaded(
    variant: Variant,
    config: &TrainingConfig,
    stages: &Stages,
    context: &ParallelContext,
    offloads: &Offloads,
) -> anyhow::Result<Trainer<Gpt>> {
    let sharding = variant.update.sharding;
    let context = &context
        .clone()
        .with_layer_segments(sharding.shards_parameters())
        .with_offloaded_layers(offloads.layers);
    let chunks = chunks(variant, stages, context)?;
    let usual = trainer_config(variant);
    let options = TrainerConfig {
        schedule: stages.schedule,
        offload: offloads.optimizer.clone(),
        data_parallel: usual.data_parallel.with_offload_parameters(offloads.parameters.clone()),
        ..usual
    };
    Ok(Trainer::new(chunks, config, options, context, &device())?)
}

/// Makes this rank's part of the model, biases and norms random.
pub fn chunks(variant: Variant, stages: &Stages, context: &ParallelContext) -> anyhow::Result<Vec<Gpt>> {
    let sizes = LayerSizes {
        n_layers: variant.n_layers,
        num_stages: context.grid().pipeline_parallel_size(),
        num_chunks: stages.num_chunks,
    };
    let layers = match &stages.layers {
        Some(text) => LayerLayout::parse(sizes, text)?,
        None => LayerLayout::even(sizes)?,
    };
    let chunks = model(variant).init_stage(&layers, &device(), context)?;
    let chunks = perturb_constants(chunks, 0.2, SEED, context);
    let usual = device().settings().float_dtype;
    Ok(match variant.precision {
        Precision::Usual => chunks,
        Precision::Half(half) => in_type(chunks, half),
        Precision::UsualFromHalf(half) => in_type(in_type(chunks, half), usual),
    })
}

/// How a variant's trainer works: buckets are small, so there are many.
pub fn trainer_config(variant: Variant) -> TrainerConfig {
    TrainerConfig {
        data_parallel: DataParallelConfig::new()
            .with_bucket_size(Some(1500))
            .with_sharding(variant.update.sharding)
            .with_overlap_grad_reduce(variant.update.overlaps)
            .with_overlap_param_gather(variant.update.overlaps),
        overlap_param_gather: variant.update.overlaps,
        count_gradients: true,
        loss_scale: (variant.precision == Precision::Half(FloatDType::F16))
            .then_some(LossScaleConfig::Constant { loss_scale: 65536.0 }),
        ..TrainerConfig::new()
    }
}

/// A module with its parameters in another type, under the same identifiers.
pub fn in_type<M: Module>(module: M, dtype: FloatDType) -> M {
    struct Cast(FloatDType);
    impl ModuleMapper for Cast {
        fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
            param.map(|tensor| {
                let is_trained = tensor.is_require_grad();
                Tensor::from_inner(tensor.inner().cast(self.0)).set_require_grad(is_trained)
            })
        }
    }
    module.map(&mut Cast(dtype))
}

/// The micro-batches of a step that data-parallel rank `data` of `data_size` takes.
pub fn micro_batches(step: u64, data: usize, data_size: usize) -> Vec<MicroBatch> {
    micro_batches_of(2, step, data, data_size)
}

/// The same in micro-batches of `micro` samples.
pub fn micro_batches_of(micro: u64, step: u64, data: usize, data_size: usize) -> Vec<MicroBatch> {
    let global = 8;
    let rounds = global / (micro * data_size as u64);
    (0..rounds)
        .map(|round| {
            let first = step * global + (round * data_size as u64 + data as u64) * micro;
            micro_batch((first..first + micro).collect())
        })
        .collect()
}

/// Random tokens, and a mask that drops some targets, by sample number: the same in every layout.
fn micro_batch(sample_ids: Vec<u64>) -> MicroBatch {
    let mut tokens = Vec::new();
    let mut targets = Vec::new();
    let mut mask = Vec::new();
    for &sample in &sample_ids {
        let mut numbers = [0.0; 2 * SEQ_LENGTH + 1];
        RandomStream::new(SEED, &format!("sample {sample}")).fill_uniform(0, 1.0, &mut numbers);
        let (text, drops) = numbers.split_at(SEQ_LENGTH + 1);
        // The last four tokens of the vocabulary never appear: their embeddings get no gradient.
        let ids: Vec<i32> = text
            .iter()
            .map(|u| ((u + 1.0) / 2.0 * (VOCAB_SIZE - 4) as f64) as i32)
            .collect();
        tokens.extend(&ids[..SEQ_LENGTH]);
        targets.extend(&ids[1..]);
        mask.extend(drops.iter().map(|u| f32::from(u8::from(*u > -0.8))));
    }
    MicroBatch {
        micro_batch_size: sample_ids.len(),
        seq_length: SEQ_LENGTH,
        loss_mask: Some(mask),
        tokens,
        targets,
        sample_ids,
        ..MicroBatch::default()
    }
}
