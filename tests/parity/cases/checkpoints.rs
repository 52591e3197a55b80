//! Checkpoints: what one layout saves, another resumes from, on the one-rank run's curve; the same layout to the bit.
//!
//! A chain of jobs saves to one folder. Each loads what the one before it saved, in a layout, padding and way of
//! updating of its own, compares every value with those of the one-rank run at that step, and trains on.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use burn::tensor::{DType, TensorData};
use burn_megatron::checkpoint::{ArrayPart, Checkpoint, CheckpointConfig, CheckpointWriter};
use burn_megatron::collectives::{GroupConfig, ProcessGroup};
use burn_megatron::context::ParallelContext;
use burn_megatron::launch::World;
use burn_megatron::optimizer::OptimizerKind;
use burn_megatron::parity::{Judge, Tolerance};
use burn_megatron::training::{Trainer, TrainerState};
use libtest_mimic::{Failed, Trial};
use models::ModelConfig;
use models::gpt::Gpt;

use super::comparison::{DP2, DP4, HSDP2X2, Layout, ONE, TP2, TP2SP, TP4, connect, dtype, layout};
use super::problem;
use tests::harness::{Case, Job};

const TP2PP2: Layout = layout("tp2pp2", 2, false, 1).stages(2, 1);
const PP2DP2: Layout = layout("pp2dp2", 1, false, 2).stages(2, 1);
const PP2V2: Layout = layout("pp2v2", 1, false, 1).stages(2, 2);
const PP4: Layout = layout("pp4", 1, false, 1).stages(4, 1);
const TP2SPDP2: Layout = layout("tp2spdp2", 2, true, 2);

/// One link of a chain: who loads, trains on and saves, and how.
type Link = (Layout, &'static str, usize);

const CHAIN: &[Link] = &[
    (TP2PP2, "whole", 68),
    (PP2DP2, "sharded", 61),
    (TP4, "whole", 64),
    (PP4, "whole", 66),
    (ONE, "whole", 61),
    (PP2V2, "sharded", 62),
    (TP2SPDP2, "sharded_parameters", 62),
    (DP4, "sharded_gradients", 70),
    (TP2PP2, "whole", 68),
];
/// A chain of another optimizer than AdamW.
const OTHER_CHAIN: &[Link] = &[(DP2, "sharded", 61), (TP2, "whole", 68), (PP2DP2, "sharded", 61)];
const STEPS_PER_LINK: u64 = 2;
const TOTAL_STEPS: u64 = 20;

pub fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    for dtype in ["f64", "f32"] {
        let name = format!("checkpoints_go_from_layout_to_layout_on_the_one_rank_curve_{dtype}");
        trials.push(Trial::test(name, move || run_chain(CHAIN, dtype, "adam")));
    }
    for optimizer in ["sgd", "muon", "adafactor", "groups"] {
        let name = format!("checkpoints_of_{optimizer}_go_from_layout_to_layout_and_to_no_other_optimizer");
        trials.push(Trial::test(name, move || run_chain(OTHER_CHAIN, "f64", optimizer)));
    }
    for (layout, update) in [
        (DP2, "sharded"),
        (DP2, "sharded_gradients"),
        (HSDP2X2, "sharded_parameters"),
        (DP2, "whole"),
        (TP2SP, "whole"),
        (PP2DP2, "sharded"),
        (ONE, "whole"),
    ] {
        for dtype in ["f32", "f64"] {
            let case = layout
                .describe(Case::new("parity", "checkpoint"), dtype)
                .with("check", "resume")
                .with("update", update);
            let name = format!(
                "resumed_run_has_the_bits_of_an_undisturbed_one_{}_{update}_{dtype}",
                layout.name
            );
            trials.push(Job::new(case, layout.world_size()).succeeds(name));
        }
    }
    trials
}

fn run_chain(chain: &[Link], dtype: &'static str, optimizer: &str) -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    for (link, (layout, update, padded)) in chain.iter().enumerate() {
        let case = layout
            .describe(Case::new("parity", "checkpoint"), dtype)
            .with("check", "chain")
            .with("chunks", layout.chunks)
            .with("update", update)
            .with("padded", padded)
            .with("optimizer", optimizer)
            .with("first_step", link as u64 * STEPS_PER_LINK)
            .with("folder", folder.path().display());
        let output = Job::new(case, layout.world_size()).output();
        output.map_err(|error| format!("link {link}, {}: {error:#}", layout.name))?;
    }
    let saved = std::fs::read_dir(folder.path())?.filter_map(Result::ok);
    let saved = saved.filter(|entry| entry.file_name().to_string_lossy().starts_with("iter_"));
    if saved.count() == chain.len() {
        Ok(())
    } else {
        Err("a checkpoint is missing".into())
    }
}

pub fn run(case: &Case, world: &World) -> anyhow::Result<()> {
    match case.setting::<String>("check")?.as_str() {
        "chain" => link(case, world),
        "resume" => resume(case, world),
        other => anyhow::bail!("there is no check {other}"),
    }
}

fn variant(update: problem::Update, padded_vocab_size: usize) -> problem::Variant {
    problem::Variant {
        update,
        padded_vocab_size,
        ..problem::Variant::USUAL
    }
}

pub type TestTrainer = Trainer<Gpt>;

pub fn trainer(variant: problem::Variant, chunks: usize, context: &ParallelContext) -> anyhow::Result<TestTrainer> {
    let stages = problem::Stages {
        num_chunks: chunks,
        ..problem::Stages::default()
    };
    problem::trainer(variant, TOTAL_STEPS, &stages, context)
}

pub fn step(trainer: &mut TestTrainer, step: u64, context: &ParallelContext) -> anyhow::Result<[f64; 2]> {
    let (data, data_size) = (context.coordinates().data, context.grid().data_parallel_size());
    let result = trainer.step(&problem::micro_batches(step, data, data_size))?;
    Ok([result.loss, result.grad_norm])
}

pub fn writer(world: &World, folder: &Path) -> anyhow::Result<CheckpointWriter> {
    let ranks: Vec<usize> = (0..world.world_size()).collect();
    let group = match world.world_size() {
        1 => ProcessGroup::single(),
        _ => ProcessGroup::connect(world, "checkpoint", &ranks, &GroupConfig::new())?,
    };
    Ok(CheckpointWriter::new(group, folder, CheckpointConfig::new())?)
}

pub fn load(trainer: &mut TestTrainer, folder: &Path) -> anyhow::Result<()> {
    let checkpoint = Checkpoint::latest(folder)?.context("there is no checkpoint")?;
    let state: TrainerState = serde_json::from_value(checkpoint.state().clone())?;
    trainer.restore(&checkpoint, &state)?;
    ensure!(trainer.state() == state && state.iteration == checkpoint.iteration());
    Ok(())
}

pub fn save(trainer: &TestTrainer, writer: &mut CheckpointWriter) -> anyhow::Result<()> {
    let state = serde_json::to_value(trainer.state())?;
    Ok(writer.save(trainer.iteration(), trainer.snapshot()?, state)?)
}

fn link(case: &Case, world: &World) -> anyhow::Result<()> {
    let folder = PathBuf::from(case.setting::<String>("folder")?);
    let first: u64 = case.setting("first_step")?;
    let dtype = dtype(case)?;
    let single = ParallelContext::single(problem::SEED);
    let context = connect(case, world)?;
    let optimizer = case.setting("optimizer")?;
    let usual = variant(problem::Update::WHOLE, problem::PADDED_VOCAB_SIZE);
    let mut reference = trainer(problem::Variant { optimizer, ..usual }, 1, &single)?;
    for number in 0..first {
        step(&mut reference, number, &single)?;
    }
    let mut writer = writer(world, &folder)?;
    let variant = problem::Variant {
        optimizer,
        ..variant(case.setting("update")?, case.setting("padded")?)
    };
    let mut sharded = trainer(variant, case.setting("chunks")?, &context)?;
    if first > 0 {
        load(&mut sharded, &folder)?;
        let stored = match optimizer {
            problem::Optimizer::Of(OptimizerKind::Sgd) => &["momentum"][..],
            problem::Optimizer::Of(OptimizerKind::Muon) => &["gradient_mean"],
            // Of a matrix, or where a stage begins with a norm.
            problem::Optimizer::Of(OptimizerKind::Adafactor) => &["column_variance, row_variance", "variance"],
            _ => &[],
        };
        if !stored.is_empty() {
            refuses_state(stored, variant, &folder, case, world)?;
        }
    }
    let tolerance = Tolerance::of(dtype);
    // In f32 rounding grows along the chain; a value in the wrong place is off by as much as it is large.
    let allowed = if dtype == DType::F64 { tolerance.parameter } else { 1e-2 };
    compare_state(&sharded, &reference, allowed).context("before the first step")?;
    let mut judge = Judge::new(tolerance, problem::model(variant).num_parameters(), dtype == DType::F64);
    for number in first..first + STEPS_PER_LINK {
        let [loss, norm] = step(&mut sharded, number, &context)?;
        let [expected_loss, expected_norm] = step(&mut reference, number, &single)?;
        judge.scalars(number + 1, [loss, expected_loss], [norm, expected_norm]);
    }
    ensure!(judge.failures().is_empty(), "parity is broken: {}", judge.failures()[0]);
    compare_state(&sharded, &reference, allowed).context("after the last step")?;
    save(&sharded, &mut writer)
}

/// Fails unless AdamW refuses a checkpoint of another optimizer, by the names of what it has and lacks.
fn refuses_state(
    stored: &[&str],
    variant: problem::Variant,
    folder: &Path,
    case: &Case,
    world: &World,
) -> anyhow::Result<()> {
    let context = connect(case, world)?;
    let mut adamw = trainer(
        problem::Variant {
            optimizer: problem::Variant::USUAL.optimizer,
            ..variant
        },
        case.setting("chunks")?,
        &context,
    )?;
    let refusal = load(&mut adamw, folder)
        .err()
        .context("AdamW took another state for its moments")?;
    let message = refusal.to_string();
    let names = |stored: &&str| message.contains(&format!("has {stored} of the optimizer for parameter"));
    let is_told = stored.iter().any(names) && message.contains("this optimizer keeps moment_1, moment_2");
    ensure!(is_told, "{message}");
    Ok(())
}

/// Compares every value of this rank's part of a checkpoint, parameters and optimizer's state, with the one-rank
/// model's.
fn compare_state(sharded: &TestTrainer, reference: &TestTrainer, tolerance: f64) -> anyhow::Result<()> {
    let mut whole: HashMap<String, Vec<f64>> = HashMap::new();
    for part in reference.snapshot()? {
        let mut values = vec![0.0; part.placement.logical_len()];
        for (logical, value) in elements(part.clone()) {
            values[logical] = value;
        }
        whole.insert(part.name, values);
    }
    let mut compared = 0;
    for part in sharded.snapshot()? {
        let name = part.name.clone();
        let expected = whole.get(&name).with_context(|| format!("one rank has no {name}"))?;
        let (mut difference, mut norm) = (0.0, 0.0);
        let placement = part.placement.clone();
        for (logical, value) in elements(part) {
            // The bias of keys has a gradient of noise, which the optimizer makes as large as any other.
            if name.ends_with("c_attn.bias") && placement.fused_part(logical) == 1 {
                continue;
            }
            difference += (value - expected[logical]).powi(2);
            norm += expected[logical].powi(2);
            compared += 1;
        }
        let allowed = tolerance * norm.sqrt();
        ensure!(
            difference.sqrt() <= allowed,
            "{name} differs by {:.1e} from one rank's, of norm {:.1e}",
            difference.sqrt(),
            norm.sqrt()
        );
    }
    ensure!(compared > 0, "nothing was compared");
    Ok(())
}

/// The elements of a part, each with its index in the logical array.
fn elements(part: ArrayPart) -> Vec<(usize, f64)> {
    let length = part.range.len();
    let values: Vec<f64> = TensorData::from_bytes(part.data, [length], part.dtype).iter().collect();
    let mut found = Vec::new();
    for run in part.placement.runs() {
        for i in 0..run.length {
            if part.range.contains(&(run.local + i)) {
                found.push((run.logical + i, values[run.local + i - part.range.start]));
            }
        }
    }
    found
}

/// Six steps, or three, a save, a load into a new trainer, and three more.
fn resume(case: &Case, world: &World) -> anyhow::Result<()> {
    let shared = std::env::temp_dir().join(format!("burn-megatron-resume-{}", world.job_id()));
    let variant = variant(case.setting("update")?, problem::PADDED_VOCAB_SIZE);
    let mut undisturbed = {
        let context = connect(case, world)?;
        let mut trainer = trainer(variant, 1, &context)?;
        let figures: Vec<_> = (0..6)
            .map(|number| step(&mut trainer, number, &context))
            .collect::<Result<_, _>>()?;
        (trainer, figures)
    };
    let mut writer = writer(world, &shared)?;
    {
        let context = connect(case, world)?;
        let mut trainer = trainer(variant, 1, &context)?;
        (0..3).try_for_each(|number| step(&mut trainer, number, &context).map(drop))?;
        save(&trainer, &mut writer)?;
    }
    let context = connect(case, world)?;
    let mut resumed = trainer(variant, 1, &context)?;
    load(&mut resumed, &shared)?;
    for number in 3..6 {
        let figures = step(&mut resumed, number, &context)?;
        let expected = undisturbed.1[number as usize];
        ensure!(
            figures.map(f64::to_bits) == expected.map(f64::to_bits),
            "step {number}: loss and norm {figures:?}, undisturbed {expected:?}"
        );
    }
    let parts = (resumed.snapshot()?, undisturbed.0.snapshot()?);
    ensure!(
        parts.0.len() == parts.1.len(),
        "{} parts, not {}",
        parts.0.len(),
        parts.1.len()
    );
    for (part, expected) in parts.0.iter().zip(&parts.1) {
        ensure!(
            (&part.name, &part.range) == (&expected.name, &expected.range) && part.data[..] == expected.data[..],
            "{} has other bits",
            part.name
        );
    }
    undisturbed.1.clear();
    context.world_group().barrier()?;
    drop(writer);
    if world.rank() == 0 {
        std::fs::remove_dir_all(&shared)?;
    }
    Ok(())
}
