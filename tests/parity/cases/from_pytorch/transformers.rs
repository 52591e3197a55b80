//! Families in Hugging Face's files: logits, loss and gradients are those of transformers in f32 and of a plain
//! reference in PyTorch in f64, on one rank and tensor-parallel; what is exported has the files' bits.
//!
//! `fixtures/llama.py` and its like make the files.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use burn::module::{Module, ModuleMapper, Param};
use burn::tensor::{DType, Tensor, TensorData};
use burn_megatron::checkpoint::Checkpoint;
use burn_megatron::context::ParallelContext;
use burn_megatron::data::{EncoderTokens, MicroBatch, SentencePairs};
use burn_megatron::data_parallel::{DataParallelConfig, DistributedDataParallel, StepPart};
use burn_megatron::launch::World;
use burn_megatron::parameters::{Placement, read_host};
use burn_megatron::parity::compare_shard;
use burn_megatron::pipeline_parallel::{LayerLayout, LayerSizes, PipelineStage, StageOutput};
use burn_megatron::tensor_parallel::VocabParallelEmbedding;
use burn_megatron::training::{MODEL, TokenBatch, load_parameters};
use cubecl_kernels::flash_attention::Documents;
use libtest_mimic::Trial;
use models::ModelFamily;
use models::bert::BertConfig;
use models::bloom::BloomConfig;
use models::decoder::Decoder;
use models::gpt::GptConfig;
use models::huggingface::{ExportConfig, HuggingFaceModel, export};
use models::llama::LlamaConfig;
use models::neox::NeoxConfig;
use models::registry::Family;
use models::t5::{T5, T5Config};
use safetensors::tensor::SafeTensors;
use serde_json::json;

use super::fixtures::array;
use crate::parity::cases::comparison::{ONE, TP2, TP2SP, TP4, TP4SP, connect, dtype};
use tests::harness::{Case, Job};

/// Rows of the embedding, which two ranks divide; the files have 61.
const PADDED: usize = 64;
/// The largest difference of logits from those that transformers computes where the test runs, as a part of their norm.
const LOGITS_LIMIT: f64 = 1e-5;

/// The models, each in the folder of its family.
const MODELS: [&str; 16] = [
    "llama/llama3",
    "llama/mistral",
    "llama/multi_query",
    "llama/qwen2",
    "llama/qwen3",
    "llama/window",
    "llama/linear",
    "llama/yarn",
    "bert/bert",
    "bert/megatron-bert",
    "neox/pythia",
    "neox/sequential",
    "bloom/four",
    "bloom/six",
    "t5/t5",
    "t5/t5-v1.1",
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
                let case = layout
                    .describe(Case::new("parity", "transformers"), dtype)
                    .with("model", model);
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
        Some(("bert", _)) => compare::<BertConfig>(&model, case, world),
        Some(("llama", _)) => compare::<LlamaConfig>(&model, case, world),
        Some(("bloom", _)) => compare::<BloomConfig>(&model, case, world),
        Some(("neox", _)) => compare::<NeoxConfig>(&model, case, world),
        Some(("t5", _)) => compare::<T5Config>(&model, case, world),
        _ => anyhow::bail!("there is no family of {model}"),
    }
}

/// A model that scores the vocabulary.
trait Scores {
    fn logits_of(&self, batch: &TokenBatch) -> Tensor<2>;

    /// The embedding, as shared out as the scores.
    fn embedding(&self) -> Option<&VocabParallelEmbedding>;
}

impl Scores for Decoder {
    fn logits_of(&self, batch: &TokenBatch) -> Tensor<2> {
        self.logits_of(batch)
    }

    fn embedding(&self) -> Option<&VocabParallelEmbedding> {
        self.token_embedding.as_ref()
    }
}

impl Scores for T5 {
    fn logits_of(&self, batch: &TokenBatch) -> Tensor<2> {
        self.logits(batch)
    }

    fn embedding(&self) -> Option<&VocabParallelEmbedding> {
        self.shared.as_ref()
    }
}

/// Compares the logits of a model in a folder with those that transformers has computed, which are next to it. Returns
/// the norm of their difference, as a part of their own.
pub(super) fn compare_files(folder: PathBuf, context: ParallelContext) -> anyhow::Result<f64> {
    let truth = Truth::read(folder, DType::F32, context)?;
    match Family::of_files(&truth.folder)?.name {
        "gpt" => truth.compare_file::<GptConfig>(),
        "llama" => truth.compare_file::<LlamaConfig>(),
        "neox" => truth.compare_file::<NeoxConfig>(),
        "bloom" => truth.compare_file::<BloomConfig>(),
        "bert" => truth.compare_file::<BertConfig>(),
        "t5" => truth.compare_file::<T5Config>(),
        other => anyhow::bail!("there is no family {other}"),
    }
}

fn import<C: ModelFamily>(from: &Path, to: &Path) -> anyhow::Result<(C, Checkpoint)> {
    let model = HuggingFaceModel::<C>::open(from)?;
    let checkpoint = Checkpoint::open(model.write_checkpoint(to, json!(null))?)?;
    Ok((model.config().clone(), checkpoint))
}

fn compare<C: ModelFamily>(model: &str, case: &Case, world: &World) -> anyhow::Result<()>
where
    C::Stage: Scores,
{
    let folder = tests::folder().join("parity/fixtures").join(model);
    let folder = folder.join(case.setting::<String>("dtype")?);
    let context = connect(case, world)?;
    let truth = Truth::read(folder, dtype(case)?, context)?;
    let written = tempfile::tempdir()?;
    let (config, checkpoint) = import::<C>(&truth.folder, &written.path().join("model"))?;
    let (_, gradients) = import::<C>(&truth.folder.join("gradients"), &written.path().join("gradients"))?;
    let mut config = serde_json::to_value(config)?;
    config["padded_vocab_size"] = PADDED.into();
    let config = serde_json::from_value::<C>(config)?;
    let model = truth.load(&config, &checkpoint)?;
    truth.compare_logits(&model, truth.limit())?;
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

impl ModuleMapper for Thawed {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
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

    fn numbers(&self, name: &str) -> anyhow::Result<Vec<i32>> {
        let (values, _) = array(&self.bytes, name)?;
        Ok(values.into_iter().map(|value| value as i32).collect())
    }

    fn has(&self, name: &str) -> bool {
        array(&self.bytes, name).is_ok()
    }

    /// The samples, of the kind that the file has.
    fn batch(&self) -> anyhow::Result<MicroBatch> {
        let is_t5 = self.has("encoder_tokens");
        let (targets, shape) = array(&self.bytes, "targets")?;
        let (samples, seq_length) = (shape[0], shape[1]);
        let mut batch = MicroBatch {
            tokens: self.numbers(if is_t5 { "decoder_tokens" } else { "tokens" })?,
            targets: targets.into_iter().map(|value| value as i32).collect(),
            sample_ids: (0..samples as u64).collect(),
            micro_batch_size: samples,
            seq_length,
            ..MicroBatch::default()
        };
        if self.has("loss_mask") {
            batch.loss_mask = Some(
                self.numbers("loss_mask")?
                    .into_iter()
                    .map(|weight| weight as f32)
                    .collect(),
            );
        }
        if self.has("lengths") {
            let lengths: Vec<usize> = self
                .numbers("lengths")?
                .into_iter()
                .map(|length| length as usize)
                .collect();
            if is_t5 {
                let tokens = self.numbers("encoder_tokens")?;
                let seq_length = tokens.len() / samples;
                batch.encoder = Some(EncoderTokens {
                    tokens,
                    lengths,
                    seq_length,
                });
            } else {
                batch.documents = Some(Documents::of_padded(seq_length, &lengths)?);
            }
        }
        if self.has("is_random") {
            batch.sentences = Some(SentencePairs {
                token_types: self.numbers("token_types")?,
                is_random: Some(self.numbers("is_random")?),
            });
        }
        Ok(batch)
    }

    /// The largest difference of an array, as a part of its norm.
    fn limit(&self) -> f64 {
        if self.dtype == DType::F64 { 1e-10 } else { 1e-4 }
    }

    fn load<C: ModelFamily>(&self, config: &C, checkpoint: &Checkpoint) -> anyhow::Result<C::Stage> {
        let layers = LayerLayout::even(LayerSizes {
            n_layers: config.n_layers(),
            num_stages: 1,
            num_chunks: 1,
        })?;
        let mut stages = config.init_stage(&layers, &tests::device(), &self.context)?;
        let model = stages.pop().context("the whole model")?;
        Ok(load_parameters(model, checkpoint, &self.context)?)
    }

    fn compare_file<C: ModelFamily>(&self) -> anyhow::Result<f64>
    where
        C::Stage: Scores,
    {
        let written = tempfile::tempdir()?;
        let (config, checkpoint) = import::<C>(&self.folder, written.path())?;
        let mut config = serde_json::to_value(config)?;
        for dropout in ["hidden_dropout", "attention_dropout"] {
            config[dropout] = 0.0.into();
        }
        let config = serde_json::from_value::<C>(config)?;
        self.compare_logits(&self.load(&config, &checkpoint)?, LOGITS_LIMIT)
    }

    /// Compares the scores of all tokens but padding. Returns how much they differ.
    fn compare_logits(&self, model: &impl Scores, limit: f64) -> anyhow::Result<f64> {
        let micro_batch = self.batch()?;
        let logits = model.logits_of(&TokenBatch::new(&micro_batch, 1, 0));
        let shard = model.embedding().context("the whole model")?.vocab_shard();
        let (expected, shape) = array(&self.bytes, "logits")?;
        let whole = [shape[0] * shape[1], shape[2]];
        let placement = Placement::new(whole, [0, shard.start()], [whole[0], shard.valid()]);
        let mut logits = read_host(logits.narrow(1, 0, shard.valid()));
        if micro_batch.documents.is_some() {
            let lengths = self.numbers("lengths")?;
            for (token, row) in logits.chunks_mut(shard.valid().max(1)).enumerate() {
                if token % shape[1] >= lengths[token / shape[1]] as usize {
                    row.fill(0.0);
                }
            }
        }
        self.expect_close("the logits", (&expected, &logits), &placement, 0.0, limit)
    }

    /// Compares the loss, the mean over the tokens that count and that over the pairs of sentences, and all gradients.
    fn compare_gradients<S: PipelineStage<2, MicroBatch = TokenBatch> + Module>(
        &self,
        model: S,
        expected: &Checkpoint,
    ) -> anyhow::Result<()> {
        let micro_batch = self.batch()?;
        let mask = match &micro_batch.loss_mask {
            Some(mask) => mask.iter().map(|&weight| f64::from(weight)).collect(),
            None => vec![1.0; micro_batch.targets.len()],
        };
        let (counted, pairs) = (mask.iter().sum::<f64>(), micro_batch.num_pairs());
        let weights = mask.iter().map(|weight| weight / counted);
        let weights: Vec<f64> = weights.chain(vec![1.0 / pairs as f64; pairs]).collect();
        let weights = TensorData::from(&weights[..]).convert_dtype(self.dtype);
        let weights = Tensor::<1>::from_data(weights, (&tests::device(), self.dtype));
        let batch = TokenBatch::new(&micro_batch, 1, 0);
        let mut model = DistributedDataParallel::new(model, &self.context, DataParallelConfig::new())?;
        let loss = model.backward(StepPart::Last, |model| match model.forward(None, &batch) {
            StageOutput::Losses(losses) => (losses * weights).sum(),
            StageOutput::Activation(_) => panic!("the whole model gives losses"),
        })?;
        let (expected_loss, _) = array(&self.bytes, "loss")?;
        self.expect_close(
            "the loss",
            (&expected_loss, &read_host(loss)),
            &Placement::whole([1]),
            0.0,
            self.limit(),
        )?;
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
            // A softmax does not see a bias of keys: its gradient is the rounding of what queries and values have.
            let floor = if entry.name.ends_with("qkv.bias") {
                stored.iter().map(|value| value * value).sum::<f64>().sqrt()
            } else {
                0.0
            };
            let name = format!("the gradient of {}", entry.name);
            let values = (&stored[..], &gradients.values(entry)[..]);
            self.expect_close(&name, values, &entry.placement, floor, self.limit())?;
        }
        Ok(())
    }

    /// Compares by the norm of the whole array's difference, against the reference's, or `floor` if that is more.
    /// Returns the largest one.
    fn expect_close(
        &self,
        name: &str,
        (expected, ours): (&[f64], &[f64]),
        placement: &Placement,
        floor: f64,
        limit: f64,
    ) -> anyhow::Result<f64> {
        let mut largest = 0.0_f64;
        for part in compare_shard(name, expected, ours, placement) {
            let difference = part.difference / part.reference_norm.max(floor);
            println!("{}: {difference:.1e}", part.name);
            ensure!(
                difference <= limit,
                "rank {}: {} differ by {difference:.1e} of their norm, at most {limit:.0e}",
                self.context.rank(),
                part.name
            );
            largest = largest.max(difference);
        }
        Ok(largest)
    }
}
