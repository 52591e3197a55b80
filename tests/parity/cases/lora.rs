//! Low-rank adapters: every layout against one rank, peft's training of them, and weights into which they are merged.
//!
//! `fixtures/lora.py` makes the files.

use std::collections::HashMap;
use std::path::Path;

use anyhow::{Context as _, ensure};
use burn::module::{Module, ModuleMapper, Param};
use burn::tensor::{DType, Int, Tensor, TensorData};
use burn_megatron::checkpoint::Checkpoint;
use burn_megatron::context::ParallelContext;
use burn_megatron::data::MicroBatch;
use burn_megatron::launch::World;
use burn_megatron::parameters::{Placement, read_host, tensor_from_host};
use burn_megatron::parity::{compare_shard, perturb_constants};
use burn_megatron::pipeline_parallel::{LayerLayout, LayerSizes};
use burn_megatron::random::{RandomStream, StepCoordinates, TokenMap};
use burn_megatron::tensor_parallel::LowRankConfig;
use burn_megatron::training::{LearningRateConfig, MODEL, Trainer, TrainingConfig, load_parameters};
use libtest_mimic::Trial;
use models::ModelFamily;
use models::decoder::Decoder;
use models::family::adapt_stage;
use models::gpt::GptConfig;
use models::huggingface::{AdapterConfig, AdapterFiles, ExportConfig, HuggingFaceModel, export};
use models::llama::LlamaConfig;
use serde_json::json;

use super::comparison::{DP2, Layout, ONE, PP2, TP2, TP2SP, TP4, TP4SP, connect, dtype};
use super::from_pytorch::fixtures::array;
use super::in_process::{Trained, compare_training, pass_on, same_bits_in_every_layout};
use super::layouts::parameters;
use super::problem;
use tests::harness::{Case, Job};

const STEPS: u64 = 6;
/// Rows of the embedding, which two ranks divide; the files have 61.
const PADDED: usize = 64;

pub fn trials() -> Vec<Trial> {
    let mut trials = comparisons();
    for model in ["llama", "gpt2"] {
        for layout in [ONE, TP2, TP2SP] {
            let case = layout.describe(Case::new("parity", "lora"), "f32").with("model", model);
            let name = format!("adapters_of_{model}_train_as_pefts_in_{}", layout.name);
            trials.push(Job::new(case.with("check", "peft"), layout.world_size()).succeeds(name));
        }
    }
    let name = "checkpoints_of_adapters_have_the_same_bits_in_every_layout";
    trials.push(Trial::test(name, || {
        same_bits_in_every_layout(&CHAIN, |layout| describe("llama", layout, "f32", "whole"))
    }));
    trials
}

fn comparisons() -> Vec<Trial> {
    let cases = [
        ("llama", TP2, "f64", "whole"),
        ("llama", TP2, "f32", "whole"),
        ("llama", TP2SP, "f64", "whole"),
        ("llama", TP2SP, "f32", "whole"),
        ("llama", TP4, "f64", "whole"),
        ("llama", TP4SP, "f32", "whole"),
        ("llama", PP2, "f64", "whole"),
        ("llama", PP2, "f32", "whole"),
        ("llama", DP2, "f64", "sharded"),
        ("llama", DP2, "f32", "whole"),
        ("gpt2", TP2, "f64", "whole"),
        ("gpt2", TP2SP, "f64", "whole"),
        ("gpt2", TP2SP, "f32", "whole"),
    ];
    let compared = |(model, layout, dtype, update): (&str, Layout, &str, &str)| {
        let name = format!("adapters_of_{model}_match_one_rank_in_{}_{dtype}_{update}", layout.name);
        let case = describe(model, layout, dtype, update).with("check", "training");
        Job::new(case, layout.world_size()).succeeds(name)
    };
    cases.map(compared).into()
}

fn describe(model: &str, layout: Layout, dtype: &str, update: &str) -> Case {
    let case = layout.describe(Case::new("parity", "lora"), dtype);
    case.with("model", model).with("update", update)
}

pub fn run(case: &Case, world: &World) -> anyhow::Result<()> {
    match case.setting::<String>("model")?.as_str() {
        "llama" => {
            let config = LlamaConfig::new(2, 20, 4, 2, 36, 15, problem::VOCAB_SIZE)
                .with_d_head(Some(6))
                .with_hidden_dropout(0.1)
                .with_attention_dropout(0.1)
                .with_init_deviation(0.3);
            let targets = ["q_proj", "k_proj", "v_proj", "o_proj", "up_proj", "down_proj"];
            run_with(
                case,
                world,
                &config.with_padded_vocab_size(Some(problem::PADDED_VOCAB_SIZE)),
                &targets,
            )
        }
        "gpt2" => {
            let variant = problem::Variant {
                n_layers: 2,
                ..problem::Variant::USUAL
            };
            run_with(case, world, &problem::model(variant), &["c_attn", "c_proj", "c_fc"])
        }
        other => anyhow::bail!("there is no model {other}"),
    }
}

fn run_with<C>(case: &Case, world: &World, config: &C, targets: &[&str]) -> anyhow::Result<()>
where
    C: ModelFamily<Stage = Decoder>,
{
    let context = connect(case, world)?;
    match case.setting::<String>("check")?.as_str() {
        "training" => {
            let mut layout = trained(case, config, targets, context)?;
            let mut one = trained(case, config, targets, ParallelContext::single(problem::SEED))?;
            compare_training(&mut layout, &mut one, dtype(case)?, STEPS)
        }
        "checkpoint" => pass_on(&mut trained(case, config, targets, context)?.trainer, case, world),
        "peft" => {
            // Names are given out once in a context.
            let contexts = [context, connect(case, world)?];
            match case.setting::<String>("model")?.as_str() {
                "llama" => trains_as_peft::<LlamaConfig>(
                    "llama",
                    |config| config.with_padded_vocab_size(Some(PADDED)),
                    contexts,
                ),
                _ => {
                    trains_as_peft::<GptConfig>("gpt2", |config| config.with_padded_vocab_size(Some(PADDED)), contexts)
                }
            }
        }
        other => anyhow::bail!("there is no check {other}"),
    }
}

fn trained<C>(case: &Case, config: &C, targets: &[&str], context: ParallelContext) -> anyhow::Result<Trained>
where
    C: ModelFamily<Stage = Decoder>,
{
    let variant = problem::Variant {
        update: case.setting("update")?,
        ..problem::Variant::USUAL
    };
    let layers = LayerLayout::even(LayerSizes {
        n_layers: config.n_layers(),
        num_stages: context.grid().pipeline_parallel_size(),
        num_chunks: 1,
    })?;
    let chunks = config.init_stage(&layers, &tests::device(), &context)?;
    let chunks = perturb_constants(chunks, 0.2, problem::SEED, &context);
    let targets = targets.iter().map(|&target| target.to_owned()).collect();
    let adapters = AdapterConfig::new(LowRankConfig::new(3, 4.0).with_dropout(0.1), targets, config)?;
    let chunks = adapt_stage(config, chunks, &adapters, &tests::device(), &context)?;
    // Zeros would hide what the first factors do.
    let chunks = chunks.map(&mut SecondFactors { context: &context });
    let training = problem::training(variant, STEPS);
    let trainer = Trainer::new(
        chunks,
        &training,
        problem::trainer_config(variant),
        &context,
        &tests::device(),
    )?;
    Ok(Trained { trainer, context })
}

/// Gives the second factors random values, the same in every layout.
struct SecondFactors<'a> {
    context: &'a ParallelContext,
}

impl ModuleMapper for SecondFactors<'_> {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let declaration = self.context.registry().declaration(param.id).expect("it is declared");
        if !declaration.name.ends_with("lora_B.weight") {
            return param;
        }
        param.map(|tensor| {
            let stream = RandomStream::new(problem::SEED, &declaration.name);
            let mut values = vec![0.0; declaration.placement.local_len()];
            for run in declaration.placement.runs() {
                stream.fill_normal(run.logical as u64, 0.2, &mut values[run.local..][..run.length]);
            }
            tensor_from_host(values, tensor.dims(), tensor.dtype(), &tensor.device()).require_grad()
        })
    }
}

/// The layouts through which a checkpoint goes.
const CHAIN: [Layout; 4] = [TP4, ONE, TP2SP, PP2];

/// Trains peft's adapter with peft's batches: losses, and the adapter in the end. Then compares the logits of the model
/// that its adapter is merged into.
fn trains_as_peft<C>(
    name: &str,
    padded: impl Fn(C) -> C,
    [context, of_merged]: [ParallelContext; 2],
) -> anyhow::Result<()>
where
    C: ModelFamily<Stage = Decoder>,
{
    let folder = tests::folder().join("parity/fixtures/lora").join(name);
    let expected = std::fs::read(folder.join("expected.safetensors"))?;
    let written = tempfile::tempdir()?;
    let (start, adapters) = import::<C>(&folder, "start", &written.path().join("start"))?;
    let model = HuggingFaceModel::<C>::open(folder.join("base"))?;
    let config = padded(model.config().clone());
    let layers = LayerLayout::even(LayerSizes {
        n_layers: config.n_layers(),
        num_stages: 1,
        num_chunks: 1,
    })?;
    let chunks = config.init_stage(&layers, &tests::device(), &context)?;
    let chunks = adapt_stage(&config, chunks, &adapters, &tests::device(), &context)?;
    let batches = Batches::read(&expected)?;
    let options = problem::trainer_config(problem::Variant::USUAL);
    let mut trainer = Trainer::new(chunks, &training(batches.count), options, &context, &tests::device())?;
    trainer.restore_parameters(&start)?;
    let (losses, _) = array(&expected, "losses")?;
    for (step, &expected) in losses.iter().enumerate() {
        let loss = trainer.step(&[batches.micro_batch(step)])?.loss;
        let difference = (loss - expected).abs() / expected;
        println!("loss {loss} against {expected}: {difference:.1e}");
        ensure!(difference < 2e-6, "step {step}: loss {loss} against {expected}");
    }
    let (end, _) = import::<C>(&folder, "trained", &written.path().join("trained"))?;
    for (name, (placement, values)) in parameters(trainer.model(), &context)? {
        let whole = read_whole(&end, &name, placement.logical_shape())?;
        for part in compare_shard(&name, &whole, &values, &placement) {
            let difference = part.difference / part.reference_norm;
            println!("{}: {difference:.1e}", part.name);
            ensure!(difference < 1e-4, "{} differs by {difference:.1e}", part.name);
        }
    }
    merged_as_peft::<C>(&end, &adapters, padded, (&expected, &batches), of_merged)
}

/// Exports a checkpoint with its adapters merged, and compares the logits of what was exported.
fn merged_as_peft<C>(
    checkpoint: &Checkpoint,
    adapters: &AdapterConfig,
    padded: impl Fn(C) -> C,
    (expected, batches): (&[u8], &Batches),
    context: ParallelContext,
) -> anyhow::Result<()>
where
    C: ModelFamily<Stage = Decoder>,
{
    let written = tempfile::tempdir()?;
    let config: C = serde_json::from_value(checkpoint.state().clone())?;
    let options = ExportConfig {
        adapters: Some(adapters.clone()),
        ..ExportConfig::default()
    };
    let exported = written.path().join("exported");
    export(checkpoint, &config, &exported, &options)?;
    let model = HuggingFaceModel::<C>::open(&exported)?;
    let merged = Checkpoint::open(model.write_checkpoint(written.path().join("merged"), json!(null))?)?;
    let config = padded(model.config().clone());
    let layers = LayerLayout::even(LayerSizes {
        n_layers: config.n_layers(),
        num_stages: 1,
        num_chunks: 1,
    })?;
    let chunks = config.init_stage(&layers, &tests::device(), &context)?;
    let chunks = load_parameters(chunks, &merged, &context)?;
    let batch = batches.micro_batch(0);
    let shape = [batch.micro_batch_size, batch.seq_length];
    let tokens = Tensor::<2, Int>::from_data(TensorData::new(batch.tokens, shape), (&tests::device(), DType::I32));
    let step = StepCoordinates {
        seed: 1,
        iteration: 0,
        tokens: TokenMap::of_samples(&batch.sample_ids, batch.seq_length),
    };
    let shard = chunks[0]
        .token_embedding
        .as_ref()
        .context("the whole model")?
        .vocab_shard();
    let logits = read_host(chunks[0].logits(tokens, &step).narrow(1, 0, shard.valid()));
    let (expected, shape) = array(expected, "merged_logits")?;
    let whole = [shape[0] * shape[1], shape[2]];
    let placement = Placement::new(whole, [0, shard.start()], [whole[0], shard.valid()]);
    for part in compare_shard("the merged logits", &expected, &logits, &placement) {
        let difference = part.difference / part.reference_norm;
        println!("{}: {difference:.1e}", part.name);
        ensure!(difference < 1e-5, "{} differ by {difference:.1e}", part.name);
    }
    Ok(())
}

/// A base model with an adapter in peft's files, as a checkpoint whose state is the model's configuration.
fn import<C: ModelFamily>(folder: &Path, adapter: &str, output: &Path) -> anyhow::Result<(Checkpoint, AdapterConfig)> {
    let model = HuggingFaceModel::<C>::open(folder.join("base"))?;
    let files = AdapterFiles::open(folder.join(adapter), model.config())?;
    let state = serde_json::to_value(model.config())?;
    let written = model.write_checkpoint_with_arrays(output, state, files.arrays()?)?;
    Ok((Checkpoint::open(written)?, files.config().clone()))
}

fn read_whole(checkpoint: &Checkpoint, name: &str, shape: &[usize]) -> anyhow::Result<Vec<f64>> {
    let placement = Placement::whole(shape);
    let length = placement.local_len();
    let stored = checkpoint.read(&format!("{MODEL}{name}"), &placement, 0..length)?;
    Ok(TensorData::from_bytes(stored.bytes, [length], stored.dtype)
        .iter()
        .collect())
}

/// AdamW with the script's numbers, a micro-batch a step.
fn training(steps: usize) -> TrainingConfig {
    let usual = problem::training(problem::Variant::USUAL, steps as u64);
    TrainingConfig {
        micro_batch_size: 2,
        global_batch_size: 2,
        train_samples: 2 * steps as u64,
        learning_rate: LearningRateConfig::constant(1e-2),
        clip_grad: 0.0,
        ..usual
    }
}

/// The script's batches.
struct Batches {
    count: usize,
    samples: usize,
    seq_length: usize,
    values: HashMap<&'static str, Vec<i32>>,
}

impl Batches {
    fn read(file: &[u8]) -> anyhow::Result<Self> {
        let mut values = HashMap::new();
        let mut sizes = Vec::new();
        for name in ["tokens", "targets"] {
            let (found, shape) = array(file, name)?;
            values.insert(name, found.into_iter().map(|value| value as i32).collect());
            sizes = shape;
        }
        let [count, samples, seq_length] = sizes[..] else {
            anyhow::bail!("tokens of shape {sizes:?}");
        };
        Ok(Self {
            count,
            samples,
            seq_length,
            values,
        })
    }

    fn micro_batch(&self, step: usize) -> MicroBatch {
        let length = self.samples * self.seq_length;
        let of_step = |name| self.values[name][step * length..][..length].to_vec();
        MicroBatch {
            micro_batch_size: self.samples,
            seq_length: self.seq_length,
            tokens: of_step("tokens"),
            targets: of_step("targets"),
            sample_ids: (0..self.samples)
                .map(|sample| (step * self.samples + sample) as u64)
                .collect(),
            ..MicroBatch::default()
        }
    }
}
