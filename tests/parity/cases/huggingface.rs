//! Hugging Face's files: PyTorch computes the same logits from what a layout has trained, and every layout takes what
//! is imported, with every bit.
//!
//! A job trains and saves a checkpoint. The test's own process exports it and imports that. Further jobs, each in a
//! layout and with a padding of its own, take the imported parameters; the one of one rank computes logits. PyTorch
//! runs where BURN_MEGATRON_PYTHON names an interpreter that has it: `huggingface_gpt2.py` says what else it needs.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use burn_flex::FlexDevice;
use burn_megatron::checkpoint::Checkpoint;
use burn_megatron::launch::World;
use burn_megatron::parameters::read_host;
use burn_megatron::training::{MODEL, TokenBatch};
use libtest_mimic::{Failed, Trial};
use models::gpt::GptConfig;
use models::huggingface::{ExportConfig, HuggingFaceModel, export};
use safetensors::tensor::{Dtype, SafeTensors, TensorView, serialize_to_file};
use serde_json::{Value, json};
use tests::checkpoints::expect_same;
use tests::program;

use super::checkpoints::{step, trainer, writer};
use super::comparison::{Layout, ONE, TP4, connect, layout};
use super::problem;
use tests::harness::{Case, Job};

const TP2SPPP2: Layout = layout("tp2sppp2", 2, true, 1).stages(2, 1);
const PP2V2DP2: Layout = layout("pp2v2dp2", 1, false, 2).stages(2, 2);

/// Who takes the imported parameters: with which padding.
const LOADS: [(Layout, usize); 4] = [(ONE, 61), (TP4, 64), (TP2SPPP2, 66), (PP2V2DP2, 70)];
const STEPS: u64 = 3;
/// The variable that names the interpreter.
const PYTHON: &str = "BURN_MEGATRON_PYTHON";
const PYTHON_LIMIT: Duration = Duration::from_secs(300);
/// The largest difference from PyTorch's logits, which are about 1.
const TOLERANCE: f64 = 1e-4;

pub fn trials() -> Vec<Trial> {
    let python = std::env::var_os(PYTHON).map(PathBuf::from);
    let mut trials = Vec::new();
    for head in ["tied", "untied"] {
        let name = format!("huggingface_files_keep_every_bit_from_layout_to_layout_{head}");
        trials.push(Trial::test(name, move || run_layouts(head).map_err(failed)));
        for (files, max_shard_bytes) in [("one_file", u64::MAX), ("several_files", 5000)] {
            let name = format!("huggingface_logits_of_{files}_are_those_of_pytorch_{head}");
            if python.is_none() {
                eprintln!("{name} is ignored: {PYTHON} names no interpreter with PyTorch");
            }
            let interpreter = python.clone().unwrap_or_default();
            let test = move || run_pytorch(&interpreter, head, max_shard_bytes).map_err(failed);
            trials.push(Trial::test(name, test).with_ignored_flag(python.is_none()));
        }
    }
    trials
}

fn failed(error: anyhow::Error) -> Failed {
    format!("{error:#}").into()
}

/// The folders of a test.
struct Folders {
    root: tempfile::TempDir,
}

impl Folders {
    fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    /// Trains and saves, exports and imports: `saved`, `files`, `imported`.
    fn make(head: &str, max_shard_bytes: u64) -> anyhow::Result<Self> {
        let root = tempfile::tempdir()?;
        let folders = Self { root };
        folders.run_job("save", &TP2SPPP2, problem::PADDED_VOCAB_SIZE, head)?;
        let saved = Checkpoint::latest(folders.path("saved"))?.context("nothing was saved")?;
        let options = ExportConfig {
            max_shard_bytes,
            ..ExportConfig::default()
        };
        let config = problem::model(variant(head, problem::PADDED_VOCAB_SIZE));
        export(&saved, &config, folders.path("files"), &options)?;
        let is_single = folders.path("files/model.safetensors").exists();
        ensure!(is_single == (max_shard_bytes == u64::MAX), "another number of files");
        folders.import("files", "imported")?;
        Ok(folders)
    }

    fn import(&self, files: &str, output: &str) -> anyhow::Result<Checkpoint> {
        let model = HuggingFaceModel::<GptConfig>::open(self.path(files))?;
        let written = model.write_checkpoint(self.path(output), json!(null))?;
        Ok(Checkpoint::open(written)?)
    }

    fn run_job(&self, check: &str, layout: &Layout, padded: usize, head: &str) -> anyhow::Result<()> {
        let case = (layout.describe(Case::new("parity", "huggingface"), "f32"))
            .with("check", check)
            .with("head", head)
            .with("chunks", layout.chunks)
            .with("padded", padded)
            .with("folder", self.root.path().display());
        let output = Job::new(case, layout.world_size()).output();
        output.map(drop).with_context(|| format!("{check}, {}", layout.name))
    }
}

fn run_layouts(head: &'static str) -> anyhow::Result<()> {
    let folders = Folders::make(head, 5000)?;
    for (layout, padded) in LOADS {
        folders.run_job("load", &layout, padded, head)?;
    }
    Ok(())
}

fn run_pytorch(python: &Path, head: &'static str, max_shard_bytes: u64) -> anyhow::Result<()> {
    let folders = Folders::make(head, max_shard_bytes)?;
    folders.run_job("load", &ONE, problem::VOCAB_SIZE, head)?;
    let mut command = Command::new(python);
    command.arg(tests::folder().join("parity/huggingface_gpt2.py"));
    command.args(["files", "ours", "theirs"].map(|name| folders.path(name)));
    command.arg("--again").arg(folders.path("again"));
    let running =
        program::start(&mut command).with_context(|| format!("cannot start {PYTHON}={}", python.display()))?;
    let end = program::end(running, PYTHON_LIMIT)?;
    end.expect_code(0)?;
    let versions: Value = serde_json::from_str(end.stdout.lines().last().unwrap_or_default())
        .with_context(|| format!("no line of JSON: {}\n{}", end.stdout, end.stderr))?;
    println!("{versions}");

    let ours = Numbers::read(&folders.path("ours"))?.f32("logits")?;
    let theirs = Numbers::read(&folders.path("theirs"))?;
    let has_transformers = !versions["transformers"].is_null();
    for name in ["plain"].into_iter().chain(has_transformers.then_some("transformers")) {
        let expected = theirs.f64(name)?;
        ensure!(
            expected.len() == ours.len(),
            "{} logits, {name} has {}",
            ours.len(),
            expected.len()
        );
        let size = expected.iter().fold(0.0, |most: f64, value| most.max(value.abs()));
        let differences = ours
            .iter()
            .zip(&expected)
            .map(|(ours, theirs)| (f64::from(*ours) - theirs).abs());
        // A NaN counts as infinite.
        let worst = differences.fold(0.0, |most: f64, d| if d.is_nan() { f64::INFINITY } else { most.max(d) });
        println!("{name}: largest difference {worst:.1e} of logits up to {size:.2}");
        ensure!(size > 0.5, "{name}: the largest logit is {size}");
        ensure!(
            worst < TOLERANCE,
            "{name}: logits differ by {worst:.1e}, expected less than {TOLERANCE:.0e}"
        );
    }
    if !has_transformers {
        println!(
            "transformers cannot be imported by {}: not compared with",
            python.display()
        );
        return Ok(());
    }
    // What transformers has read and written is what was exported.
    let [first, second] = [
        Checkpoint::find(folders.path("imported"))?,
        folders.import("again", "imported_again")?,
    ];
    ensure!(first.arrays().len() == second.arrays().len());
    expect_same(&first, &second, |_| true).map(drop)
}

pub fn run(case: &Case, world: &World) -> anyhow::Result<()> {
    match case.setting::<String>("check")?.as_str() {
        "save" => save(case, world),
        "load" => load(case, world),
        other => anyhow::bail!("there is no check {other}"),
    }
}

fn variant(head: &str, padded_vocab_size: usize) -> problem::Variant {
    problem::Variant {
        tied: head == "tied",
        clip: true,
        dropout: 0.0,
        n_layers: 4,
        recompute: problem::Recompute::Nothing,
        update: problem::Update::SHARDED,
        padded_vocab_size,
        precision: problem::Precision::Usual,
        optimizer: problem::Variant::USUAL.optimizer,
        logit_chunk_tokens: None,
    }
}

fn save(case: &Case, world: &World) -> anyhow::Result<()> {
    let folder = PathBuf::from(case.setting::<String>("folder")?);
    let context = connect(case, world)?;
    let variant = variant(&case.setting::<String>("head")?, case.setting("padded")?);
    let mut trainer = trainer(variant, case.setting("chunks")?, &context)?;
    for number in 0..STEPS {
        step(&mut trainer, number, &context)?;
    }
    let mut writer = writer(world, &folder.join("saved"))?;
    Ok(writer.save(STEPS, trainer.snapshot()?, json!(null))?)
}

/// Takes the imported parameters, compares them with those that were saved, and trains a step with them.
fn load(case: &Case, world: &World) -> anyhow::Result<()> {
    let folder = PathBuf::from(case.setting::<String>("folder")?);
    let context = connect(case, world)?;
    let variant = variant(&case.setting::<String>("head")?, case.setting("padded")?);
    let mut trainer = trainer(variant, case.setting("chunks")?, &context)?;
    let imported = Checkpoint::find(folder.join("imported"))?;
    let saved = Checkpoint::find(folder.join("saved"))?;
    let mut initial = trainer.snapshot()?.into_iter();
    trainer.restore_parameters(&imported)?;
    let mut has_changed = false;
    for part in trainer.snapshot()? {
        ensure!(
            part.name.starts_with(MODEL) || part.name.contains(".updates."),
            "{}",
            part.name
        );
        if !part.name.starts_with(MODEL) {
            continue;
        }
        let expected = saved.read(&part.name, &part.placement, part.range.clone())?;
        ensure!(
            (expected.dtype, &expected.bytes[..]) == (part.dtype, &part.data[..]),
            "{} has other bits than were saved",
            part.name
        );
        let before = initial
            .find(|before| before.name == part.name)
            .context("the same parameters")?;
        has_changed |= before.data[..] != part.data[..];
    }
    ensure!(has_changed, "training had changed nothing");
    if world.world_size() == 1 {
        let micro_batch = &problem::micro_batches(STEPS, 0, 4)[0];
        let batch = TokenBatch::new(micro_batch, problem::SEED, 0);
        let logits = trainer.model()[0].logits(batch.tokens(&FlexDevice), &batch.step);
        let logits = read_host(logits.narrow(1, 0, problem::VOCAB_SIZE));
        let logits: Vec<u8> = logits.iter().flat_map(|value| (*value as f32).to_le_bytes()).collect();
        let tokens: Vec<u8> = micro_batch
            .tokens
            .iter()
            .flat_map(|token| token.to_le_bytes())
            .collect();
        let [samples, seq] = [micro_batch.micro_batch_size, micro_batch.seq_length];
        let tensors = [
            ("tokens", TensorView::new(Dtype::I32, vec![samples, seq], &tokens)?),
            (
                "logits",
                TensorView::new(Dtype::F32, vec![samples, seq, problem::VOCAB_SIZE], &logits)?,
            ),
        ];
        serialize_to_file(tensors, None, &folder.join("ours"))?;
    }
    let [loss, _] = step(&mut trainer, STEPS, &context)?;
    ensure!(loss.is_finite(), "the loss is {loss}");
    Ok(())
}

/// The tensors of a file.
struct Numbers(Vec<u8>);

impl Numbers {
    fn read(path: &Path) -> anyhow::Result<Self> {
        Ok(Self(std::fs::read(path)?))
    }

    fn f32(&self, name: &str) -> anyhow::Result<Vec<f32>> {
        let bytes = self.bytes(name, Dtype::F32)?;
        Ok(bytes
            .as_chunks()
            .0
            .iter()
            .map(|bytes| f32::from_le_bytes(*bytes))
            .collect())
    }

    fn f64(&self, name: &str) -> anyhow::Result<Vec<f64>> {
        let bytes = self.bytes(name, Dtype::F64)?;
        Ok(bytes
            .as_chunks()
            .0
            .iter()
            .map(|bytes| f64::from_le_bytes(*bytes))
            .collect())
    }

    fn bytes(&self, name: &str, dtype: Dtype) -> anyhow::Result<&[u8]> {
        let file = SafeTensors::deserialize(&self.0)?;
        let tensor = file.tensor(name).with_context(|| format!("there is no {name}"))?;
        ensure!(tensor.dtype() == dtype, "{name} is of {:?}", tensor.dtype());
        Ok(tensor.data())
    }
}
