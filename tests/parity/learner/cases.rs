//! All cases, and what a rank does in each.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use anyhow::{Context as _, ensure};
use burn::data::dataloader::batcher::Batcher;
use burn::data::dataloader::{DataLoader, DataLoaderBuilder};
use burn::data::dataset::Dataset;
use burn::grad_clipping::{GradientClipping, GradientClippingConfig};
use burn::optim::lr_scheduler::exponential::ExponentialLrSchedulerConfig;
use burn::optim::lr_scheduler::module_lr_scheduler::ModuleLrScheduler;
use burn::optim::{AdamW, AdamWConfig, GradientsParams};
use burn::tensor::{DType, FloatDType, IntDType};
use burn::train::checkpoint::KeepLastNCheckpoints;
use burn::train::metric::store::{Aggregate, Direction, Split};
use burn::train::metric::{AccuracyMetric, LossMetric};
use burn::train::{Interrupter, Learner, MetricEarlyStoppingStrategy, StoppingCondition, SupervisedTraining};
use burn_megatron::context::ParallelContext;
use burn_megatron::data::{GlobalBatches, LastBatch, shard_loader};
use burn_megatron::data_parallel::{DataParallelConfig, ElementWiseOptimizer, ShardingStrategy, average_gradients};
use burn_megatron::launch::{Environment, World};
use burn_megatron::learner::{ParallelLearner, SilentRenderer};
use burn_megatron::topology::ParallelConfig;
use libtest_mimic::Trial;

use tests::device;
use tests::harness::{Case, Job};

use crate::parity::learner::net::{Batches, Dropping, INTERRUPTED, Net, Numbered, STEPS, Samples};
use crate::parity::learner::recording::{Entry, Recording};

/// All trials: what a rank runs, and on how many ranks.
pub fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    let mut add = |name: String, case: Case, ranks: usize| trials.push(Job::new(case, ranks).succeeds(name));
    for ranks in [1, 2, 4] {
        for sharded in [false, true] {
            let kind = if sharded { "sharded" } else { "whole" };
            let case = Case::new("learner", "parity")
                .with("sharded", sharded)
                .with("accumulation", 1);
            add(
                format!("learner_is_burn_trains_own_{kind}_on_{ranks}_ranks"),
                case,
                ranks,
            );
        }
    }
    let case = Case::new("learner", "parity")
        .with("sharded", true)
        .with("accumulation", 3);
    add("accumulated_gradients_are_those_of_one_rank".into(), case, 2);
    // Training batches of 26, 26 and 1 samples: the second rank has none of the last.
    let case = Case::new("learner", "parity")
        .with("sharded", false)
        .with("accumulation", 1);
    add("a_rank_without_samples_takes_part".into(), case.with("batch", 26), 2);
    for sharded in [false, true] {
        let kind = if sharded { "sharded" } else { "whole" };
        let case = Case::new("learner", "resuming")
            .with("sharded", sharded)
            .with("dtype", "f32");
        add(format!("learner_resumes_from_a_{kind}_checkpoint_on_2_ranks"), case, 2);
    }
    add("early_stopping_is_agreed".into(), Case::new("learner", "stopping"), 2);
    add(
        "interruption_of_one_rank_ends_all".into(),
        Case::new("learner", "interrupting"),
        2,
    );
    add(
        "running_means_reach_the_learner".into(),
        Case::new("learner", "norm"),
        2,
    );
    add(
        "a_converted_encoder_drops_what_it_drops_on_one_rank".into(),
        Case::new("learner", "dropout"),
        2,
    );
    for ranks in [2, 3] {
        add(
            format!("averaged_gradients_are_those_of_one_rank_on_{ranks}"),
            Case::new("learner", "averaging"),
            ranks,
        );
    }
    let fails = |case: &str, messages| {
        Job::new(Case::new("learner", case), 2).fails_with(format!("{case}_are_refused"), messages)
    };
    trials.extend([
        fails(
            "same_samples",
            &["ranks 0 and 1 had the same outputs in each of the first 3 training batches"],
        ),
        fails("other_settings", &["num_epochs is 1 on rank 0, and 2 on rank 1"]),
        fails(
            "other_modules",
            &["the ranks of group data do not have the same module: parameter 3 is"],
        ),
        fails(
            "unused_optimizers",
            &["the optimizer that ParallelLearner::shard returned was not used in the step"],
        ),
        fails(
            "gradients_that_nobody_takes",
            &["give Learner::new the one that ParallelLearner::shard returns"],
        ),
        fails(
            "optimizers_outside_launch",
            &["updates a model inside the launch of the same ParallelLearner"],
        ),
    ]);
    trials
}

/// What a rank of a case does before it joins the job.
pub fn before_join(case: &Case) -> anyhow::Result<()> {
    let dtype = match case.setting::<String>("dtype") {
        Ok(dtype) if dtype == "f32" => FloatDType::F32,
        _ => FloatDType::F64,
    };
    Ok(device().configure((dtype, IntDType::I32))?)
}

/// Changes no rank's environment: no case here needs it.
pub fn change_environment(_case: &Case, _environment: &mut Environment) {}

pub fn run(case: &Case, world: &World) -> anyhow::Result<()> {
    let context = ParallelConfig::new().init(world)?;
    let folder = tempfile::tempdir()?;
    let folder = folder.path();
    match case.name.as_str() {
        "parity" => parity(case, &context, folder),
        "resuming" => resuming(case, &context),
        "stopping" => stopping(&context, folder),
        "interrupting" => interrupting(&context, folder),
        "norm" => norm(&context, folder),
        "dropout" => dropout(&context, folder),
        "averaging" => averaging(&context),
        "same_samples" => {
            let plan = Plan::new(folder, burn_loaders(BATCH));
            plan.launch(&context, Net::new(), false).map(drop)
        }
        "other_settings" => {
            let plan = Plan {
                epochs: 1 + world.rank(),
                ..Plan::new(folder, shared_loaders(&context)?)
            };
            plan.launch(&context, Net::new(), false).map(drop)
        }
        "unused_optimizers" => {
            let mut ranks = ParallelLearner::new(&context, DataParallelConfig::new());
            let _unused = ranks.shard(sharded_adamw());
            let plan = Plan::new(folder, shared_loaders(&context)?);
            let learner = Learner::new(Net::new(), adamw().init(), learning_rate());
            ranks.launch(plan.training(), learner)?;
            Ok(())
        }
        "gradients_that_nobody_takes" => {
            let ranks = ParallelLearner::new(
                &context,
                DataParallelConfig::new().with_sharding(ShardingStrategy::Optim),
            );
            let plan = Plan::new(folder, shared_loaders(&context)?);
            let learner = Learner::new(Net::new(), adamw().init(), learning_rate());
            ranks.launch(plan.training(), learner)?;
            Ok(())
        }
        "optimizers_outside_launch" => {
            let mut ranks = ParallelLearner::<Net>::new(&context, DataParallelConfig::new());
            let plan = Plan::new(folder, shared_loaders(&context)?);
            let learner = Learner::new(Net::new(), ranks.shard(sharded_adamw()), learning_rate());
            plan.training().launch(learner);
            Ok(())
        }
        "other_modules" => {
            let net = if world.rank() == 0 {
                Net::new()
            } else {
                Net::with_norm()
            };
            average_gradients(&net, GradientsParams::new(), context.data_group())?;
            Ok(())
        }
        other => anyhow::bail!("there is no case {other}"),
    }
}

const BATCH: usize = 8;
/// Neither is a multiple of the batch: the last one has 5 samples.
const TRAIN: Numbered = Numbered {
    name: "train",
    count: 53,
};
const VALID: Numbered = Numbered {
    name: "valid",
    count: 21,
};
const EPOCHS: usize = 3;
const SEED: u64 = 11;

/// A loader for training, and one for validation.
type Loaders = [Arc<dyn DataLoader<Samples>>; 2];

fn dtype() -> DType {
    device().settings().float_dtype.into()
}

/// Batches of one process, loaded by burn.
fn burn_loaders(batch: usize) -> Loaders {
    let train = DataLoaderBuilder::new(Batches(dtype())).batch_size(batch).shuffle(SEED);
    let valid = DataLoaderBuilder::new(Batches(dtype())).batch_size(batch);
    [train.build(TRAIN), valid.build(VALID)]
}

/// This rank's shares of the same batches.
fn shared_loaders_of(context: &ParallelContext, batch: usize) -> anyhow::Result<Loaders> {
    let train = shard_loader(Batches(dtype()), context).batch_size(batch).shuffle(SEED);
    let valid = shard_loader(Batches(dtype()), context).batch_size(batch).num_workers(2);
    let (train, valid) = (train.last_batch(LastBatch::Uneven), valid.last_batch(LastBatch::Uneven));
    Ok([train.build(TRAIN)?, valid.build(VALID)?])
}

/// The same in batches of [`BATCH`].
fn shared_loaders(context: &ParallelContext) -> anyhow::Result<Loaders> {
    shared_loaders_of(context, BATCH)
}

/// A training, of either optimizer.
struct Plan<'a> {
    folder: &'a Path,
    loaders: Loaders,
    recording: Recording,
    epochs: usize,
    accumulation: Option<usize>,
    saves: bool,
    /// The epoch whose checkpoint it resumes from.
    resumes: Option<usize>,
    stops_early: bool,
    interrupter: Interrupter,
}

impl<'a> Plan<'a> {
    fn new(folder: &'a Path, loaders: Loaders) -> Self {
        Self {
            folder,
            loaders,
            recording: Recording::default(),
            epochs: EPOCHS,
            accumulation: None,
            saves: false,
            resumes: None,
            stops_early: false,
            interrupter: Interrupter::new(),
        }
    }

    fn training(&self) -> SupervisedTraining<Net> {
        let [train, valid] = self.loaders.clone();
        let mut training = SupervisedTraining::new(self.folder, train, valid)
            .metrics((AccuracyMetric::new(), LossMetric::new()))
            .with_metric_logger(self.recording.clone())
            .with_application_logger(None)
            .with_interrupter(self.interrupter.clone())
            .renderer(Box::new(SilentRenderer))
            .num_epochs(self.epochs);
        if let Some(accumulation) = self.accumulation {
            training = training.grads_accumulation(accumulation);
        }
        if self.saves || self.resumes.is_some() {
            training = training
                .with_default_checkpointers()
                .with_checkpointing_strategy(KeepLastNCheckpoints::new(EPOCHS));
        }
        if let Some(epoch) = self.resumes {
            training = training.checkpoint(epoch);
        }
        if !self.stops_early {
            training
        } else {
            training.early_stopping(MetricEarlyStoppingStrategy::new(
                &LossMetric::new(),
                Aggregate::Mean,
                Direction::Highest,
                Split::Valid,
                StoppingCondition::NoImprovementSince { n_epochs: 1 },
            ))
        }
    }

    /// Trains as burn-train does, in this process alone; returns the trained values.
    fn alone(&self, net: Net) -> anyhow::Result<Vec<f64>> {
        let learner = Learner::new(net, adamw().init(), learning_rate());
        let result = self.training().launch(learner);
        ensure!(result.error.is_none(), "{:?}", result.error);
        Ok(result.model.values())
    }

    /// Trains on the ranks of the context; returns the trained values.
    fn launch(&self, context: &ParallelContext, net: Net, sharded: bool) -> anyhow::Result<Vec<f64>> {
        // Several buckets.
        let config = DataParallelConfig::new().with_bucket_size(Some(20));
        let mut ranks = ParallelLearner::new(context, config);
        let optimizer = if sharded {
            ranks.shard(sharded_adamw())
        } else {
            adamw().init()
        };
        let result = ranks.launch(self.training(), Learner::new(net, optimizer, learning_rate()))?;
        ensure!(result.error.is_none(), "{:?}", result.error);
        Ok(result.model.values())
    }
}

/// How exactly two results must agree.
#[derive(Clone, Copy)]
enum Exact {
    Bits,
    Rounding,
}

fn learning_rate() -> ModuleLrScheduler {
    let config = ExponentialLrSchedulerConfig::new(0.05, 0.95);
    config.init().expect("positive numbers")
}

fn adamw() -> AdamWConfig {
    AdamWConfig::new().with_grad_clipping(Some(GradientClippingConfig::Norm(0.3)))
}

/// The same, for an optimizer that is sharded.
fn sharded_adamw() -> ElementWiseOptimizer<AdamW> {
    ElementWiseOptimizer::from(AdamWConfig::new().build()).with_grad_clipping(GradientClipping::Norm(0.3))
}

/// Fails unless numbers are the same, to f64's rounding or to the bit.
fn expect_same(what: &str, left: &[f64], right: &[f64], to_the_bit: Exact) -> anyhow::Result<()> {
    let tolerance = match to_the_bit {
        Exact::Bits => 0.0,
        Exact::Rounding => 1e-10,
    };
    let largest = right.iter().fold(1e-3, |largest: f64, value| largest.max(value.abs()));
    let worst = left.iter().zip(right).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max) / largest;
    ensure!(
        left.len() == right.len() && worst <= tolerance,
        "{what}: {} numbers and {}, which differ by {worst:e}",
        left.len(),
        right.len()
    );
    println!("{what}: {} numbers, worst difference {worst:.1e}", left.len());
    Ok(())
}

/// Values, metrics and files of a training are those of burn-train in one process.
fn parity(case: &Case, context: &ParallelContext, folder: &Path) -> anyhow::Result<()> {
    let (sharded, accumulation) = (case.setting("sharded")?, case.setting::<usize>("accumulation")?);
    let batch = case.setting("batch").unwrap_or(BATCH);
    // A sharded optimizer adds up norms in another order, also on one rank.
    let exact = match (context.data_group().size(), sharded) {
        (1, false) => Exact::Bits,
        _ => Exact::Rounding,
    };
    // A sharded optimizer updates in place of `TrainStep::optimize`.
    let net = if sharded { Net::new() } else { Net::bounded() };
    let alone_folder = tempfile::tempdir()?;
    let accumulation = (accumulation > 1).then_some(accumulation);
    let alone = Plan {
        accumulation,
        ..Plan::new(alone_folder.path(), burn_loaders(batch))
    };
    let expected = alone.alone(net.clone())?;
    let plan = Plan {
        accumulation,
        saves: true,
        ..Plan::new(folder, shared_loaders_of(context, batch)?)
    };
    let values = plan.launch(context, net, sharded)?;
    expect_same("parameters", &values, &expected, exact)?;

    let (found, wanted) = (plan.recording.entries(), alone.recording.entries());
    let files = walk(folder)?;
    if context.rank() > 0 {
        ensure!(found.is_empty(), "rank {} logged {found:?}", context.rank());
        ensure!(files.is_empty(), "rank {} wrote {files:?}", context.rank());
        return Ok(());
    }
    expect_same_names(&found, &wanted)?;
    // Of each batch, and of the whole epoch.
    let batches = TRAIN.count.div_ceil(batch) + VALID.count.div_ceil(batch) + 2;
    ensure!(found.len() == EPOCHS * batches * 2, "{} metrics", found.len());
    let of = |entries: &[Entry]| -> Vec<f64> { entries.iter().map(|entry| entry.value.current()).collect() };
    expect_same("metrics of each batch and epoch", &of(&found), &of(&wanted), exact)?;
    ensure!(
        files.len() == 3 * EPOCHS,
        "{files:?} instead of model, optimizer and scheduler of each epoch"
    );
    Ok(())
}

/// Fails unless the same metrics were logged: of which split, epoch and number of samples.
fn expect_same_names(found: &[Entry], wanted: &[Entry]) -> anyhow::Result<()> {
    let names = |entries: &[Entry]| -> Vec<String> {
        let name = |entry: &Entry| format!("{:?} {} {} {}", entry.split, entry.epoch, entry.metric, entry.count());
        entries.iter().map(name).collect()
    };
    let (found, wanted) = (names(found), names(wanted));
    ensure!(found == wanted, "{found:?}\n{wanted:?}");
    Ok(())
}

/// The names of the files in a folder and below.
fn walk(folder: &Path) -> anyhow::Result<Vec<String>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            files.extend(walk(&path)?)
        } else {
            files.push(path.display().to_string())
        }
    }
    Ok(files)
}

/// A run in two parts ends where one in one part does, and so does one that another number of ranks takes over.
fn resuming(case: &Case, context: &ParallelContext) -> anyhow::Result<()> {
    let sharded = case.setting("sharded")?;
    let whole_folder = tempfile::tempdir()?;
    let path = shared_path(context, whole_folder.path())?;
    // burn's loaders begin with the same order in a resumed run: without shuffling, so that epochs are alike.
    let loaders = |context: &ParallelContext| -> anyhow::Result<Loaders> {
        let train = shard_loader(Batches(dtype()), context).batch_size(BATCH);
        let train = train.last_batch(LastBatch::Uneven).build(TRAIN)?;
        let [_, valid] = shared_loaders(context)?;
        Ok([train, valid])
    };
    let whole = Plan {
        saves: true,
        ..Plan::new(&path, loaders(context)?)
    };
    let expected = whole.launch(context, Net::new(), sharded)?;
    context.world_group().barrier()?;

    let resumed = Plan {
        resumes: Some(1),
        ..Plan::new(&path, loaders(context)?)
    };
    let values = resumed.launch(context, Net::new(), sharded)?;
    // f32 as it was recorded.
    expect_same("parameters of a resumed run", &values, &expected, Exact::Bits)?;
    if context.rank() == 0 {
        let mut wanted = whole.recording.entries();
        wanted.retain(|entry| entry.epoch > 1);
        expect_same_names(&resumed.recording.entries(), &wanted)?;
    }
    context.world_group().barrier()?;
    if context.rank() == 0 {
        let alone = ParallelContext::single(0);
        let alone_plan = Plan {
            resumes: Some(1),
            ..Plan::new(&path, loaders(&alone)?)
        };
        let values = alone_plan.launch(&alone, Net::new(), sharded)?;
        let worst = values
            .iter()
            .zip(&expected)
            .map(|(a, b)| (a - b).abs())
            .fold(0.0, f64::max);
        ensure!(worst < 2e-6, "a rank that resumed alone is {worst:e} apart");
    }
    Ok(())
}

/// The first rank's folder, on every rank.
fn shared_path(context: &ParallelContext, mine: &Path) -> anyhow::Result<PathBuf> {
    let mut bytes = [0_u8; 256];
    let path = mine.to_str().context("a path is text")?.as_bytes();
    bytes[..path.len()].copy_from_slice(path);
    context.world_group().broadcast(&mut bytes, 0)?;
    Ok(String::from_utf8(bytes.to_vec())?.trim_end_matches('\0').into())
}

/// Ranks stop after the same epoch: the second, as only a loss that rises counts as better, and it falls.
///
/// burn-train alone is no measure here: what it asks its metrics may come before the last batches have been counted.
fn stopping(context: &ParallelContext, folder: &Path) -> anyhow::Result<()> {
    let plan = Plan {
        epochs: 40,
        stops_early: true,
        ..Plan::new(folder, shared_loaders(context)?)
    };
    plan.launch(context, Net::new(), false)?;
    let steps = STEPS.load(Ordering::Relaxed);
    ensure!(steps == 2 * 7, "rank {} made {steps} steps", context.rank());
    Ok(())
}

/// All ranks end after the batch in which one was interrupted.
fn interrupting(context: &ParallelContext, folder: &Path) -> anyhow::Result<()> {
    let plan = Plan::new(folder, shared_loaders(context)?);
    if context.rank() == 1 {
        *INTERRUPTED.lock().expect("no panic") = Some((plan.interrupter.clone(), 10));
    }
    plan.launch(context, Net::new(), false)?;
    let steps = STEPS.load(Ordering::Relaxed);
    ensure!(steps == 10, "rank {} made {steps} steps", context.rank());
    let message = plan.interrupter.get_message();
    let expected = ["rank 1 was asked to stop", "asked in a step"][context.rank()];
    ensure!(message.as_deref() == Some(expected), "{message:?}");
    let epochs = plan.recording.epochs(&Split::Valid);
    ensure!(epochs <= 1, "the second epoch was not validated");
    Ok(())
}

/// A batch norm's running means are trained, and the same on all ranks.
fn norm(context: &ParallelContext, folder: &Path) -> anyhow::Result<()> {
    for sharded in [false, true] {
        let plan = Plan {
            saves: true,
            ..Plan::new(folder, shared_loaders(context)?)
        };
        let net = Net::with_norm();
        let before = net.values();
        let values = plan.launch(context, net, sharded)?;
        let mut first = values.clone();
        context.world_group().broadcast(&mut first, 0)?;
        ensure!(
            values == first,
            "rank {} has other values than the first",
            context.rank()
        );
        let unchanged = values.iter().zip(&before).filter(|(a, b)| a == b).count();
        ensure!(
            unchanged == 0,
            "{unchanged} of {} values have not changed",
            values.len()
        );
    }
    Ok(())
}

/// A converted encoder learns its step from the learner, and drops the same elements on any number of ranks.
fn dropout(context: &ParallelContext, folder: &Path) -> anyhow::Result<()> {
    let train = |context: &ParallelContext| -> anyhow::Result<Vec<f64>> {
        let [train, valid] = shared_loaders(context)?;
        let training = SupervisedTraining::new(folder, train, valid)
            .with_application_logger(None)
            .renderer(Box::new(SilentRenderer))
            .num_epochs(2);
        let learner = Learner::new(Dropping::new(context)?, adamw().init(), learning_rate());
        let ranks = ParallelLearner::new(context, DataParallelConfig::new());
        Ok(ranks.launch(training, learner)?.model.values())
    };
    let alone = train(&ParallelContext::single(0))?;
    expect_same("parameters", &train(context)?, &alone, Exact::Rounding)
}

/// A loop of one's own with `average_gradients` trains as one rank on the whole batch.
fn averaging(context: &ParallelContext) -> anyhow::Result<()> {
    let group = context.data_group();
    let batches = GlobalBatches::new(TRAIN.len(), BATCH, group.size(), LastBatch::Uneven)?;
    let samples = |places: std::ops::Range<usize>| -> Samples {
        let items = places.map(|place| TRAIN.get(place).expect("it is made")).collect();
        Batches(dtype()).batch(items, &device())
    };
    let (mut net, mut optimizer) = (Net::new(), adamw().init());
    let (mut alone, mut optimizer_alone) = (net.clone(), adamw().init());
    for batch in 0..batches.num_batches() {
        let loss = alone.loss(samples(batches.batch(batch)));
        let gradients = GradientsParams::from_grads(loss.backward(), &alone);
        alone = optimizer_alone.step(0.05, alone, gradients);

        let loss = net.loss(samples(batches.share(batch, group.rank()))) * batches.weight(batch, group.rank());
        let gradients = GradientsParams::from_grads(loss.backward(), &net);
        let gradients = average_gradients(&net, gradients, group)?;
        net = optimizer.step(0.05, net, gradients);
    }
    expect_same("parameters", &net.values(), &alone.values(), Exact::Rounding)
}
