//! Hugging Face's files: every layout takes what is imported, with every bit.
//!
//! A job trains and saves a checkpoint. The test's own process exports it and imports that. Further jobs, each in a
//! layout and with a padding of its own, take the imported parameters.

use std::path::PathBuf;

use anyhow::{Context as _, ensure};
use burn_megatron::checkpoint::Checkpoint;
use burn_megatron::launch::World;
use burn_megatron::training::MODEL;
use libtest_mimic::Trial;
use models::gpt::GptConfig;
use models::huggingface::{ExportConfig, HuggingFaceModel, export};
use serde_json::json;

use super::checkpoints::{step, trainer, writer};
use super::comparison::{Layout, ONE, TP4, connect, layout};
use super::problem;
use tests::harness::{Case, Job};
use tests::trials::trial;

const TP2SPPP2: Layout = layout("tp2sppp2", 2, true, 1).stages(2, 1);
const PP2V2DP2: Layout = layout("pp2v2dp2", 1, false, 2).stages(2, 2);

/// Who takes the imported parameters: with which padding.
const LOADS: [(Layout, usize); 4] = [(ONE, 61), (TP4, 64), (TP2SPPP2, 66), (PP2V2DP2, 70)];
const STEPS: u64 = 3;

pub fn trials() -> Vec<Trial> {
    let trial = |head: &'static str| {
        let name = format!("huggingface_files_keep_every_bit_from_layout_to_layout_{head}");
        trial(name, move || run_layouts(head))
    };
    ["tied", "untied"].map(trial).into()
}

/// The folders of a test.
struct Folders {
    root: tempfile::TempDir,
}

impl Folders {
    fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    /// Trains and saves, exports several files and imports them: `saved`, `files`, `imported`.
    fn make(head: &str) -> anyhow::Result<Self> {
        let root = tempfile::tempdir()?;
        let folders = Self { root };
        folders.run_job("save", &TP2SPPP2, problem::PADDED_VOCAB_SIZE, head)?;
        let saved = Checkpoint::latest(folders.path("saved"))?.context("nothing was saved")?;
        let options = ExportConfig {
            max_shard_bytes: 5000,
            ..ExportConfig::default()
        };
        let config = problem::model(variant(head, problem::PADDED_VOCAB_SIZE));
        export(&saved, &config, folders.path("files"), &options)?;
        ensure!(!folders.path("files/model.safetensors").exists(), "one file");
        let model = HuggingFaceModel::<GptConfig>::open(folders.path("files"))?;
        model.write_checkpoint(folders.path("imported"), json!(null))?;
        Ok(folders)
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
    let folders = Folders::make(head)?;
    for (layout, padded) in LOADS {
        folders.run_job("load", &layout, padded, head)?;
    }
    Ok(())
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
    let [loss, _] = step(&mut trainer, STEPS, &context)?;
    ensure!(loss.is_finite(), "the loss is {loss}");
    Ok(())
}
