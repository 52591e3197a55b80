//! The small training problem that layouts are compared on: a GPT of odd sizes and random tokens.
//!
//! What one rank makes of it is trained by a job of its own, or by every rank in the same process.

use std::str::FromStr;

use anyhow::{Context as _, bail};
use burn::module::{Module, ModuleMapper, Param};
use burn::tensor::{FloatDType, Tensor, get_device_settings};
use burn_flex::FlexDevice;
use burn_megatron::context::ParallelContext;
use burn_megatron::data::MicroBatch;
use burn_megatron::data_parallel::DataParallelConfig;
use burn_megatron::optimizer::LossScaleConfig;
use burn_megatron::parity::perturb_constants;
use burn_megatron::pipeline_parallel::schedule::ScheduleKind;
use burn_megatron::pipeline_parallel::{LayerLayout, LayerSizes};
use burn_megatron::random::RandomStream;
use burn_megatron::training::{LearningRateConfig, Trainer, TrainerConfig, TrainingConfig, WeightDecayConfig};
use models::gpt::{Gpt, GptConfig};
use models::layers::LayerRecompute;

use crate::B;

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
    /// Gradient descent with momentum in place of AdamW.
    pub sgd: bool,
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
        update: Update::Whole,
        padded_vocab_size: PADDED_VOCAB_SIZE,
        precision: Precision::Usual,
        sgd: false,
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

/// Who updates what: written `whole`, `sharded`, `sharded_in_turn`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Update {
    /// Every data-parallel rank updates everything.
    Whole,
    /// Each data-parallel rank updates its shard, while gradients and parameters are on their way.
    Sharded,
    /// Each data-parallel rank updates its shard, one thing after the other.
    ShardedInTurn,
}

impl FromStr for Update {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        match text {
            "whole" => Ok(Update::Whole),
            "sharded" => Ok(Update::Sharded),
            "sharded_in_turn" => Ok(Update::ShardedInTurn),
            _ => bail!("no update is called {text}"),
        }
    }
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

/// Constant learning rate, no warm-up, weight decay on, eight samples a step in micro-batches of two.
pub fn training(variant: Variant, train_iters: u64) -> TrainingConfig {
    TrainingConfig {
        seq_length: SEQ_LENGTH,
        micro_batch_size: 2,
        global_batch_size: 8,
        rampup_batch_size: None,
        train_samples: train_iters * 8,
        // A clipped gradient is short.
        learning_rate: LearningRateConfig::constant(if variant.sgd { 0.1 } else { 1e-3 }),
        weight_decay: WeightDecayConfig::constant(0.1),
        clip_grad: if variant.clip { 1.0 } else { 0.0 },
        adam_beta1: 0.9,
        adam_beta2: 0.95,
        adam_eps: 1e-8,
        sgd_momentum: variant.sgd.then_some(0.9),
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
) -> anyhow::Result<Trainer<B, Gpt<B>>> {
    trainer_of(variant, &training(variant, train_iters), stages, context)
}

/// The same for another configuration of training.
pub fn trainer_of(
    variant: Variant,
    config: &TrainingConfig,
    stages: &Stages,
    context: &ParallelContext,
) -> anyhow::Result<Trainer<B, Gpt<B>>> {
    let sizes = LayerSizes {
        n_layers: variant.n_layers,
        num_stages: context.grid().pipeline_parallel_size(),
        num_chunks: stages.num_chunks,
    };
    let layers = match &stages.layers {
        Some(text) => LayerLayout::parse(sizes, text)?,
        None => LayerLayout::even(sizes)?,
    };
    let chunks = model(variant).init_stage(&layers, &FlexDevice, context)?;
    let chunks = perturb_constants::<B, _>(chunks, 0.2, SEED, context);
    let usual = get_device_settings::<B>(&FlexDevice).float_dtype;
    let chunks = match variant.precision {
        Precision::Usual => chunks,
        Precision::Half(half) => in_type(chunks, half),
        Precision::UsualFromHalf(half) => in_type(in_type(chunks, half), usual),
    };
    let options = TrainerConfig {
        schedule: stages.schedule,
        ..trainer_config(variant)
    };
    Ok(Trainer::new(chunks, config, options, context, &FlexDevice)?)
}

/// How a variant's trainer works: buckets are small, so there are many.
pub fn trainer_config(variant: Variant) -> TrainerConfig {
    TrainerConfig {
        data_parallel: DataParallelConfig::new()
            .with_bucket_size(Some(1500))
            .with_shard_gradients(variant.update != Update::Whole)
            .with_overlap_grad_reduce(variant.update != Update::ShardedInTurn),
        overlap_param_gather: variant.update != Update::ShardedInTurn,
        schedule: None,
        count_gradients: true,
        loss_scale: (variant.precision == Precision::Half(FloatDType::F16))
            .then_some(LossScaleConfig::Constant { loss_scale: 65536.0 }),
    }
}

/// A module with its parameters in another type, under the same identifiers.
pub fn in_type<M: Module<B>>(module: M, dtype: FloatDType) -> M {
    struct Cast(FloatDType);
    impl ModuleMapper<B> for Cast {
        fn map_float<const D: usize>(&mut self, param: Param<Tensor<B, D>>) -> Param<Tensor<B, D>> {
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
    let (micro, global) = (2, 8);
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
