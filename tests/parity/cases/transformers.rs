//! Families in Hugging Face's files: logits, loss and gradients are those of transformers in f32 and of a plain
//! reference in PyTorch in f64, on one rank and tensor-parallel; what is exported has the files' bits.
//!
//! `fixtures/llama.py` and its like make the files.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;

use anyhow::{Context as _, ensure};
use burn::module::{Module, ModuleMapper, Param};
use burn::tensor::{DType, Int, Tensor, TensorData};
use burn_flex::FlexDevice;
use burn_megatron::checkpoint::Checkpoint;
use burn_megatron::context::ParallelContext;
use burn_megatron::data_parallel::{DataParallelConfig, DistributedDataParallel, StepPart};
use burn_megatron::launch::World;
use burn_megatron::parameters::{Placement, read_host};
use burn_megatron::parity::compare_shard;
use burn_megatron::pipeline_parallel::{LayerLayout, LayerSizes};
use burn_megatron::random::{StepCoordinates, TokenMap};
use burn_megatron::training::{MODEL, load_parameters};
use libtest_mimic::Trial;
use models::ModelFamily;
use models::bloom::BloomConfig;
use models::decoder::Decoder;
use models::huggingface::{ExportConfig, HuggingFaceModel, export};
use models::llama::LlamaConfig;
use models::neox::NeoxConfig;
use safetensors::tensor::SafeTensors;
use serde_json::json;

use super::B;
use super::comparison::{ONE, TP2, TP2SP, TP4, TP4SP, connect, dtype};
use super::fixtures::array;
use crate::harness::{Case, Job};

/// Rows of the embedding, which two ranks divide; the files have 61.
const PADDED: usize = 64;

/// The models, each in the folder of its family.
const MODELS: [&str; 12] = [
    "llama/llama3",
    "llama/mistral",
    "llama/multi_query",
    "llama/qwen2",
    "llama/qwen3",
    "llama/window",
    "llama/linear",
    "llama/yarn",
    "neox/pythia",
    "neox/sequential",
    "bloom/four",
    "bloom/six",
];

pub fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    for model in MODELS {
        let (_, short) = model.split_once('/').expect("a folder of its family");
        // Where there is one key head, these share it.
        let more = if short == "multi_query" {
            [TP4, TP4SP].as_slice()
        } else {
            &[]
        };
        for layout in [ONE, TP2, TP2SP].iter().chain(more) {
            for dtype in ["f64", "f32"] {
                let case = layout.describe(Case::new("transformers"), dtype).with("model", model);
                let name = format!("{short}_is_pytorchs_in_{}_{dtype}", layout.name);
                trials.push(Job::new(case, layout.world_size()).succeeds(name));
            }
        }
    }
    trials
}

pub fn run(case: &Case, world: &World) -> anyhow::Result<()> {
    let model: String = case.setting("model")?;
    match model.split_once('/') {
        Some(("llama", _)) => compare::<LlamaConfig>(&model, case, world),
        Some(("bloom", _)) => compare::<BloomConfig>(&model, case, world),
        Some(("neox", _)) => compare::<NeoxConfig>(&model, case, world),
        _ => anyhow::bail!("there is no family of {model}"),
    }
}

fn compare<C: ModelFamily<Stage<B> = Decoder<B>>>(model: &str, case: &Case, world: &World) -> anyhow::Result<()> {
    let folder = tests::folder().join("parity/fixtures").join(model);
    let folder = folder.join(case.setting::<String>("dtype")?);
    let context = connect(case, world)?;
    let truth = Truth::read(folder, dtype(case)?, context)?;
    let written = tempfile::tempdir()?;
    let import = |from: PathBuf, name: &str| -> anyhow::Result<_> {
        let model = HuggingFaceModel::<C>::open(from)?;
        let checkpoint = Checkpoint::open(model.write_checkpoint(written.path().join(name), json!(null))?)?;
        let mut config = serde_json::to_value(model.config())?;
        config["padded_vocab_size"] = PADDED.into();
        Ok((serde_json::from_value::<C>(config)?, checkpoint))
    };
    let (config, checkpoint) = import(truth.folder.clone(), "model")?;
    let (_, gradients) = import(truth.folder.join("gradients"), "gradients")?;
    let layers = LayerLayout::even(LayerSizes {
        n_layers: config.n_layers(),
        num_stages: 1,
        num_chunks: 1,
    })?;
    let mut stages = config.init_stage::<B>(&layers, &FlexDevice, &truth.context)?;
    let model = stages.pop().context("the whole model")?;
    let model = load_parameters(model, &checkpoint, &truth.context)?;
    truth.compare_logits(&model)?;
    // What is loaded is not trained by itself.
    let model = model.map(&mut Thawed);
    truth.compare_gradients(model, &gradients)?;
    if truth.dtype == DType::F32 && world.world_size() == 1 {
        let again = written.path().join("again");
        export(&checkpoint, &config, &again, &ExportConfig::default())?;
        let [first, second] = [&truth.folder, &again].map(|folder| std::fs::read(folder.join("model.safetensors")));
        let (first, second) = (first?, second?);
        let (first, second) = (SafeTensors::deserialize(&first)?, SafeTensors::deserialize(&second)?);
        ensure!(
            first.len() == second.len(),
            "{} tensors in place of {}",
            second.len(),
            first.len()
        );
        // What is called otherwise in newer files.
        let named: HashMap<_, _> = second
            .iter()
            .map(|(name, tensor)| (C::imported_name(name), tensor))
            .collect();
        for (name, tensor) in first.iter() {
            let exported = named
                .get(&C::imported_name(name))
                .with_context(|| format!("{name} is not there"))?;
            ensure!(
                exported.shape() == tensor.shape(),
                "{name} has shape {:?}",
                exported.shape()
            );
            ensure!(exported.data() == tensor.data(), "{name} has other bits");
        }
    }
    Ok(())
}

/// Parameters that have gradients.
struct Thawed;

impl ModuleMapper<B> for Thawed {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<B, D>>) -> Param<Tensor<B, D>> {
        param.set_require_grad(true)
    }
}

/// What PyTorch has computed.
struct Truth {
    folder: PathBuf,
    bytes: Vec<u8>,
    dtype: DType,
    context: ParallelContext,
}

impl Truth {
    fn read(folder: PathBuf, dtype: DType, context: ParallelContext) -> anyhow::Result<Self> {
        Ok(Self {
            bytes: std::fs::read(folder.join("expected.safetensors"))?,
            folder,
            dtype,
            context,
        })
    }

    fn tokens(&self, name: &str) -> anyhow::Result<Tensor<B, 2, Int>> {
        let (values, shape) = array(&self.bytes, name)?;
        let values: Vec<i32> = values.into_iter().map(|value| value as i32).collect();
        Ok(Tensor::from_data(
            TensorData::new(values, shape),
            (&FlexDevice, DType::I32),
        ))
    }

    fn step(&self, tokens: &Tensor<B, 2, Int>) -> StepCoordinates {
        let [samples, seq] = tokens.dims();
        let samples: Vec<u64> = (0..samples as u64).collect();
        StepCoordinates {
            seed: 1,
            iteration: 0,
            tokens: TokenMap::of_samples(&samples, seq),
        }
    }

    fn compare_logits(&self, model: &Decoder<B>) -> anyhow::Result<()> {
        let tokens = self.tokens("tokens")?;
        let step = self.step(&tokens);
        let logits = model.logits(tokens, &step);
        let shard = model.token_embedding.as_ref().context("the whole model")?.vocab_shard();
        let (expected, shape) = array(&self.bytes, "logits")?;
        let whole = [shape[0] * shape[1], shape[2]];
        let placement = Placement::new(whole, [0, shard.start()], [whole[0], shard.valid()]);
        let logits = read_host(logits.narrow(1, 0, shard.valid()));
        self.expect_close("the logits", &expected, &logits, &placement)
    }

    fn compare_gradients(&self, model: Decoder<B>, expected: &Checkpoint) -> anyhow::Result<()> {
        let (tokens, targets) = (self.tokens("tokens")?, self.tokens("targets")?);
        let step = self.step(&tokens);
        let mut model = DistributedDataParallel::<B, _>::new(model, &self.context, DataParallelConfig::new())?;
        let loss = model.backward(StepPart::Last, |model| {
            model.token_losses(tokens, targets, &step).mean()
        })?;
        let (expected_loss, _) = array(&self.bytes, "loss")?;
        self.expect_close("the loss", &expected_loss, &read_host(loss), &Placement::whole([1]))?;
        let gradients = model.gradients()?;
        // A rank may hold several parts of one.
        let names: HashSet<&str> = gradients.entries().iter().map(|entry| entry.name.as_str()).collect();
        ensure!(names.len() == expected.arrays().len(), "other parameters");
        for entry in gradients.entries() {
            let whole = Placement::whole(entry.placement.logical_shape());
            let length = whole.logical_len();
            let stored = expected.read(&format!("{MODEL}{}", entry.name), &whole, 0..length)?;
            let stored = TensorData::from_bytes(stored.bytes, [length], stored.dtype);
            let stored: Vec<f64> = stored.iter::<f64>().collect();
            let name = format!("the gradient of {}", entry.name);
            self.expect_close(&name, &stored, &gradients.values(entry), &entry.placement)?;
        }
        Ok(())
    }

    /// Compares by the norm of the whole array's difference.
    fn expect_close(&self, name: &str, expected: &[f64], ours: &[f64], placement: &Placement) -> anyhow::Result<()> {
        let limit = if self.dtype == DType::F64 { 1e-10 } else { 1e-4 };
        for part in compare_shard(name, expected, ours, placement) {
            let difference = part.difference / part.reference_norm;
            println!("{}: {difference:.1e}", part.name);
            ensure!(
                difference <= limit,
                "rank {}: {} differ by {difference:.1e} of their norm, at most {limit:.0e}",
                self.context.rank(),
                part.name
            );
        }
        Ok(())
    }
}
