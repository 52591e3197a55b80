//! A layout's training against that of one rank, which every rank of the layout trains in the same process; and a
//! checkpoint that goes from layout to layout.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use burn::tensor::DType;
use burn_megatron::checkpoint::Checkpoint;
use burn_megatron::context::ParallelContext;
use burn_megatron::launch::World;
use burn_megatron::parity::{Judge, Tolerance, compare_shard};
use burn_megatron::training::{Trainer, TrainerState};
use libtest_mimic::Failed;
use models::decoder::Decoder;
use tests::checkpoints::expect_same;

use super::checkpoints::writer;
use super::comparison::{Layout, print_worst};
use super::layouts::{PARITY_BROKEN, parameter_differences, unpad};
use super::problem;
use tests::harness::{Case, Job};

/// A trainer and the ranks that it trains on.
pub struct Trained {
    pub trainer: Trainer<Decoder>,
    pub context: ParallelContext,
}

/// Trains both, and fails unless the layout starts with the bits of one rank and has its losses, gradients and
/// parameters up to rounding.
pub fn compare_training(layout: &mut Trained, one: &mut Trained, dtype: DType, steps: u64) -> anyhow::Result<()> {
    let differences = |layout: &Trained, one: &Trained| {
        let (model, whole) = (layout.trainer.model(), one.trainer.model());
        parameter_differences(model, &layout.context, whole, &one.context)
    };
    for part in differences(layout, one)? {
        ensure!(
            part.difference == 0.0,
            "{PARITY_BROKEN}: {} starts with other bits",
            part.name
        );
    }
    let coordinates = layout.context.coordinates();
    let data_size = layout.context.grid().data_parallel_size();
    let mut judge: Option<Judge> = None;
    for step in 0..steps {
        let mut wholes: HashMap<String, Vec<f64>> = HashMap::new();
        let whole = one
            .trainer
            .step_inspected(&problem::micro_batches(step, 0, 1), |gradients| {
                for entry in gradients.entries() {
                    wholes.insert(entry.name.clone(), unpad(&gradients.values(entry), &entry.placement));
                }
            })?;
        let num_parameters = wholes.values().map(Vec::len).sum();
        let judge = judge.get_or_insert_with(|| Judge::new(Tolerance::of(dtype), num_parameters, dtype == DType::F64));
        let mut parts = Vec::new();
        let micro_batches = problem::micro_batches(step, coordinates.data, data_size);
        let part = layout.trainer.step_inspected(&micro_batches, |gradients| {
            for entry in gradients.entries() {
                let compared = wholes
                    .get(&entry.name)
                    .with_context(|| format!("one rank has no gradient of {}", entry.name))
                    .map(|whole| compare_shard(&entry.name, whole, &gradients.values(entry), &entry.placement));
                parts.push(compared);
            }
        })?;
        judge.scalars(step + 1, [part.loss, whole.loss], [part.grad_norm, whole.grad_norm]);
        for part in parts.into_iter().collect::<anyhow::Result<Vec<_>>>()?.iter().flatten() {
            judge.gradient(step + 1, part, whole.grad_norm);
        }
        for part in &differences(layout, one)? {
            judge.parameter(step + 1, part);
        }
        if let Some(first) = judge.failures().first() {
            anyhow::bail!("{PARITY_BROKEN} on rank {}: {first}", layout.context.rank());
        }
    }
    let judge = judge.context("at least one step")?;
    print_worst(&judge);
    Ok(())
}

/// Fails unless a checkpoint keeps its bits on its way through layouts, whose cases `describe` returns: the first one
/// trains a little and saves, each other one loads and saves. The cases call [`pass_on`].
pub fn same_bits_in_every_layout(chain: &[Layout], describe: impl Fn(Layout) -> Case) -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    for (link, &layout) in chain.iter().enumerate() {
        let case = describe(layout)
            .with("check", "checkpoint")
            .with("link", link)
            .with("folder", folder.path().display());
        let output = Job::new(case, layout.world_size()).output();
        output.map_err(|error| format!("{}: {error:#}", layout.name))?;
    }
    let open = |link| Checkpoint::latest(link_folder(folder.path(), link))?.context("a checkpoint of each link");
    let first = open(0).map_err(|error| error.to_string())?;
    for (link, layout) in chain.iter().enumerate().skip(1) {
        let compared = open(link).and_then(|other| expect_same_bits(&first, &other));
        compared.map_err(|error| format!("{}: {error:#}", layout.name))?;
    }
    Ok(())
}

fn link_folder(folder: &Path, link: usize) -> PathBuf {
    folder.join(link.to_string())
}

/// Trains a little, or loads what the link before has saved, and saves.
pub fn pass_on(trainer: &mut Trainer<Decoder>, case: &Case, world: &World) -> anyhow::Result<()> {
    let (folder, link): (PathBuf, usize) = (case.setting("folder")?, case.setting("link")?);
    if link == 0 {
        for step in 0..3 {
            trainer.step(&problem::micro_batches(step, 0, 1))?;
        }
    } else {
        let checkpoint = Checkpoint::latest(link_folder(&folder, link - 1))?.context("the checkpoint before")?;
        let state: TrainerState = serde_json::from_value(checkpoint.state().clone())?;
        trainer.restore(&checkpoint, &state)?;
    }
    let mut writer = writer(world, &link_folder(&folder, link))?;
    let state = serde_json::to_value(trainer.state())?;
    Ok(writer.save(trainer.iteration(), trainer.snapshot()?, state)?)
}

fn expect_same_bits(first: &Checkpoint, other: &Checkpoint) -> anyhow::Result<()> {
    let names = |checkpoint: &Checkpoint| {
        let mut names: Vec<String> = checkpoint.arrays().iter().map(|array| array.name.clone()).collect();
        names.sort();
        names
    };
    ensure!(names(first) == names(other), "other arrays: {:?}", names(other));
    expect_same(first, other, |_| true).map(drop)
}
