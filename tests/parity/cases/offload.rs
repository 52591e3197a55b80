//! The optimizer's state and shards of the parameters in files, against those in memory: the same bits, in every stage
//! of ZeRO; checkpoints that go from one to the other; and a disk that fails. Activations that go to the host and come
//! back, against those that stay: the same bits, too.

use std::path::PathBuf;

use anyhow::{Context as _, ensure};
use burn::tensor::FloatDType;
use burn_megatron::checkpoint::Checkpoint;
use burn_megatron::context::ParallelContext;
use burn_megatron::data_parallel::{ParameterOffload, ShardingStrategy};
use burn_megatron::launch::World;
use burn_megatron::optimizer::OptimizerOffload;
use libtest_mimic::{Failed, Trial};

use super::checkpoints::{TestTrainer, load, save, step, writer};
use super::comparison::{DP2, Layout, ONE, TP2SP, connect, layout};
use super::problem::{self, Offloads, Precision, Update, Variant};
use super::sharded::train_offloaded;
use tests::harness::{Case, Job};

const PP2DP2: Layout = layout("pp2dp2", 1, false, 2).stages(2, 1);
/// Steps from one checkpoint to the next.
const STEPS_PER_LINK: u64 = 2;

pub fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    for layout in [ONE, DP2, PP2DP2] {
        for numbers in ["f32", "f64", "bf16"] {
            let dtype = if numbers == "f64" { "f64" } else { "f32" };
            let case = layout.describe(Case::new("parity", "offload"), dtype);
            let case = case.with("check", "bits").with("numbers", numbers);
            let name = format!(
                "state_in_files_has_the_bits_of_that_in_memory_{}_{numbers}",
                layout.name
            );
            trials.push(Job::new(case, layout.world_size()).succeeds(name));
        }
    }
    for (layout, recompute, numbers) in [
        (ONE, "none", "f64"),
        (ONE, "uniform2", "f32"),
        (TP2SP, "none", "f32"),
        (DP2, "block1", "bf16"),
        (PP2DP2, "none", "bf16"),
    ] {
        let dtype = if numbers == "f64" { "f64" } else { "f32" };
        let case = layout.describe(Case::new("parity", "offload"), dtype);
        let case = case
            .with("check", "activations")
            .with("recompute", recompute)
            .with("numbers", numbers);
        let name = format!(
            "activations_that_leave_have_the_bits_of_those_that_stay_{}_{recompute}_{numbers}",
            layout.name
        );
        trials.push(Job::new(case, layout.world_size()).succeeds(name));
    }
    for (update, numbers) in [
        ("whole", "f64"),
        ("sharded", "bf16"),
        ("sharded_gradients", "f32"),
        ("sharded_parameters", "bf16"),
    ] {
        let dtype = if numbers == "f64" { "f64" } else { "f32" };
        let case = DP2.describe(Case::new("parity", "offload"), dtype);
        let case = case
            .with("check", "resume")
            .with("update", update)
            .with("numbers", numbers);
        let name = format!("checkpoints_go_from_memory_to_files_and_back_dp2_{update}_{numbers}");
        trials.push(Job::new(case, 2).succeeds(name));
    }
    trials.push(Trial::test(
        "full_disk_ends_the_job_by_the_file_s_name_and_harms_no_checkpoint",
        full_disk_harms_no_checkpoint,
    ));
    trials
}

/// A folder for the files of a job's ranks, which is empty for those who look.
pub struct FilesFolder(PathBuf);

impl FilesFolder {
    /// Makes it, if another rank has not.
    pub fn of(world: &World) -> anyhow::Result<Self> {
        let path = std::env::temp_dir().join(format!("burn-megatron-offload-{}", world.job_id()));
        std::fs::create_dir_all(&path)?;
        Ok(Self(path))
    }

    /// A share of the optimizer's state in files there.
    fn share(&self, fraction: f64) -> OptimizerOffload {
        let folder = self.0.clone();
        OptimizerOffload::Nvme { folder, fraction }
    }

    /// All of the optimizer's state in files there.
    pub fn state(&self) -> Offloads {
        Offloads {
            optimizer: self.share(1.0),
            ..Offloads::default()
        }
    }

    /// All shards of the parameters in files there.
    pub fn parameters(&self) -> ParameterOffload {
        let folder = self.0.clone();
        ParameterOffload::Nvme { folder }
    }

    /// All that can be in files there.
    pub fn all(&self, sharding: ShardingStrategy) -> Offloads {
        let parameters = match sharding {
            ShardingStrategy::OptimGradsParams => self.parameters(),
            _ => ParameterOffload::None,
        };
        Offloads {
            parameters,
            ..self.state()
        }
    }
}

impl Drop for FilesFolder {
    fn drop(&mut self) {
        // The last rank finds no other's file; one that is there says that it has been left.
        let _ = std::fs::remove_dir(&self.0);
    }
}

pub fn run(case: &Case, world: &World) -> anyhow::Result<()> {
    match case.setting::<String>("check")?.as_str() {
        "bits" => bits(case, world),
        "activations" => activations(case, world),
        "resume" => resume(case, world),
        "full_disk" => full_disk(case, world),
        other => anyhow::bail!("there is no check {other}"),
    }
}

fn variant(case: &Case, update: Update) -> anyhow::Result<Variant> {
    Ok(Variant {
        update,
        precision: match case.setting::<String>("numbers")?.as_str() {
            "bf16" => Precision::Half(FloatDType::BF16),
            _ => Precision::Usual,
        },
        ..Variant::USUAL
    })
}

/// The stages of ZeRO that a layout allows.
fn shardings(context: &ParallelContext) -> &'static [ShardingStrategy] {
    match context.grid().pipeline_parallel_size() {
        1 => &ShardingStrategy::ALL,
        _ => &ShardingStrategy::ALL[..2],
    }
}

fn activations(case: &Case, world: &World) -> anyhow::Result<()> {
    let context = connect(case, world)?;
    for &sharding in shardings(&context) {
        let variant = Variant {
            recompute: case.setting("recompute")?,
            ..variant(case, Update::overlapping(sharding))?
        };
        let trained = |layers| {
            let offloads = Offloads {
                layers,
                ..Offloads::default()
            };
            train_offloaded(case, world, variant, &offloads)
        };
        let stay = trained(0)?;
        for layers in [1, usize::MAX] {
            stay.compare(&trained(layers)?, 0.0)
                .with_context(|| format!("{sharding:?}, {layers} layers"))?;
        }
    }
    Ok(())
}

fn bits(case: &Case, world: &World) -> anyhow::Result<()> {
    let folder = FilesFolder::of(world)?;
    let context = connect(case, world)?;
    for &sharding in shardings(&context) {
        for update in [Update::overlapping(sharding), Update::in_turn(sharding)] {
            let variant = variant(case, update)?;
            let trained = |offloads: &Offloads| train_offloaded(case, world, variant, offloads);
            let in_memory = trained(&Offloads::default())?;
            let share = Offloads {
                optimizer: folder.share(0.4),
                ..Offloads::default()
            };
            let mut in_files = vec![folder.state(), share];
            if sharding.shards_parameters() {
                in_files.push(folder.all(sharding));
                in_files.push(Offloads {
                    parameters: folder.parameters(),
                    ..Offloads::default()
                });
            }
            for offloads in in_files {
                in_memory
                    .compare(&trained(&offloads)?, 0.0)
                    .with_context(|| format!("{update:?}, {offloads:?}"))?;
            }
        }
    }
    let left = std::fs::read_dir(&folder.0)?.count();
    ensure!(left == 0, "{left} files are left");
    context.world_group().barrier()?;
    Ok(())
}

fn trainer(case: &Case, update: Update, context: &ParallelContext, offloads: &Offloads) -> anyhow::Result<TestTrainer> {
    let variant = variant(case, update)?;
    let config = problem::training(variant, 20);
    problem::trainer_offloaded(variant, &config, &problem::Stages::one_chunk(), context, offloads)
}

/// Three links of two steps each, that hold the state in files, in memory and in files again, against six steps of one
/// trainer.
fn resume(case: &Case, world: &World) -> anyhow::Result<()> {
    let folder = FilesFolder::of(world)?;
    let shared = std::env::temp_dir().join(format!("burn-megatron-offload-resume-{}", world.job_id()));
    let update: Update = case.setting("update")?;
    let undisturbed: Vec<[f64; 2]> = {
        let context = connect(case, world)?;
        let mut trainer = trainer(case, update, &context, &Offloads::default())?;
        let steps = (0..3 * STEPS_PER_LINK).map(|number| step(&mut trainer, number, &context));
        steps.collect::<Result<_, _>>()?
    };
    let mut writer = writer(world, &shared)?;
    let all = folder.all(update.sharding);
    for (link, offloads) in [all.clone(), Offloads::default(), all].iter().enumerate() {
        let context = connect(case, world)?;
        let mut trainer = trainer(case, update, &context, offloads)?;
        let first = link as u64 * STEPS_PER_LINK;
        if link > 0 {
            load(&mut trainer, &shared)?;
        }
        for number in first..first + STEPS_PER_LINK {
            let figures = step(&mut trainer, number, &context)?;
            let expected = undisturbed[number as usize];
            ensure!(
                figures.map(f64::to_bits) == expected.map(f64::to_bits),
                "step {number}: loss and norm {figures:?}, undisturbed {expected:?}"
            );
        }
        save(&trainer, &mut writer)?;
        context.world_group().barrier()?;
    }
    drop(writer);
    if world.rank() == 0 {
        std::fs::remove_dir_all(&shared)?;
    }
    Ok(())
}

fn full_disk_harms_no_checkpoint() -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let case = DP2
        .describe(Case::new("parity", "offload"), "f32")
        .with("check", "full_disk")
        .with("numbers", "f32")
        .with("folder", folder.path().display());
    Job::new(case, 2).fails(&[
        "rank 1",
        "cannot write ",
        "optimizer-state-rank-1-process-",
        "File too large",
    ])?;
    let checkpoint = Checkpoint::latest(folder.path())?.ok_or("the checkpoint is gone")?;
    if checkpoint.iteration() != 1 {
        return Err(format!("the last checkpoint is of step {}", checkpoint.iteration()).into());
    }
    Ok(())
}

/// A step, a checkpoint, and a second step in which rank 1 can write no more: its files have reached their limit.
fn full_disk(case: &Case, world: &World) -> anyhow::Result<()> {
    let folder = FilesFolder::of(world)?;
    let context = connect(case, world)?;
    let mut trainer = trainer(case, Update::SHARDED, &context, &folder.state())?;
    step(&mut trainer, 0, &context)?;
    let checkpoints: PathBuf = case.setting("folder")?;
    let mut writer = writer(world, &checkpoints)?;
    save(&trainer, &mut writer)?;
    if world.rank() == 1 {
        let limit = libc::rlimit {
            rlim_cur: 4096,
            rlim_max: libc::RLIM_INFINITY,
        };
        // SAFETY: the limit is a valid one of this process, and to ignore a signal runs no handler.
        let is_set = unsafe {
            libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
            libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit) == 0
        };
        ensure!(is_set, "{}", std::io::Error::last_os_error());
    }
    step(&mut trainer, 1, &context)?;
    save(&trainer, &mut writer)
}
