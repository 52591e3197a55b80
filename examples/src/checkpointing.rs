//! `Checkpointing`: when a training program saves, and what it must find to continue.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail, ensure};
use burn_megatron::checkpoint::{Checkpoint, CheckpointConfig, CheckpointError, CheckpointWriter, ReadConfig};
use burn_megatron::collectives::{GroupConfig, ProcessGroup};
use burn_megatron::context::ParallelContext;
use burn_megatron::launch::{Environment, World};
use burn_megatron::optimizer::OptimizerKind;
use burn_megatron::training::{TrainerState, TrainingConfig};
use models::ModelFamily;
use models::huggingface::AdapterConfig;
use models::registry::FAMILIES;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::arguments::CheckpointArguments;
use crate::device::TrainingBackend;
use crate::run_tokenizer::TokenizerState;
use crate::session::Session;

/// The field of a checkpoint's state that says which run has saved it, as its launcher calls it.
const RUN: &str = "run";

/// The most that the first rank tells of the checkpoint that it has found: a path, or why it has none.
const MAX_FOUND_BYTES: usize = 1 << 20;

/// The family of a checkpoint's model, which is read before the rest: only it knows what the rest means.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FamilyState {
    /// Its name. Checkpoints of early versions have none.
    #[serde(default = "first_family")]
    pub family: String,
}

fn first_family() -> String {
    FAMILIES[0].name.to_owned()
}

impl FamilyState {
    /// Returns that of a checkpoint.
    ///
    /// # Errors
    /// When the checkpoint is another program's.
    pub fn of(checkpoint: &Checkpoint) -> anyhow::Result<Self> {
        parse_state(checkpoint)
    }
}

/// What every checkpoint of a model says, also one that was imported: enough to take its parameters.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(bound = "")]
pub struct ModelState<C: ModelFamily> {
    #[serde(default = "first_family")]
    pub family: String,
    pub model: C,
    /// The folder that the parameters come from, where they are another program's: then there is nothing else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub imported_from: Option<PathBuf>,
    /// The tokenizer, whose files are arrays; none of early versions, and of parameters that came without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokenizer: Option<TokenizerState>,
    /// The low-rank adapters, if there are any: their factors are arrays.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adapters: Option<AdapterConfig>,
}

impl<C: ModelFamily> ModelState<C> {
    /// Returns that of a model whose parameters another program has written to `folder`, with its tokenizer if that is
    /// carried along.
    pub fn imported(model: C, folder: &Path, tokenizer: Option<TokenizerState>) -> Self {
        Self {
            family: C::NAME.to_owned(),
            model,
            imported_from: Some(folder.to_owned()),
            tokenizer,
            adapters: None,
        }
    }

    /// Returns that of a checkpoint.
    ///
    /// # Errors
    /// When the checkpoint is another program's, or of another family.
    pub fn of(checkpoint: &Checkpoint) -> anyhow::Result<Self> {
        let FamilyState { family } = FamilyState::of(checkpoint)?;
        ensure!(
            family == C::NAME,
            "{} is of the model family {family}, and this run of {}",
            checkpoint.path().display(),
            C::NAME
        );
        parse_state(checkpoint)
    }

    /// Checks that a model of `model` can take the checkpoint's parameters.
    ///
    /// # Errors
    /// Names the first size that differs, and both values.
    pub fn check(&self, path: &Path, model: &C) -> anyhow::Result<()> {
        let stored = &self.model;
        ensure!(
            stored.vocab_size() == model.vocab_size(),
            "{} is of another model: its vocabulary has {} tokens and that of this run's tokenizer {}",
            path.display(),
            stored.vocab_size(),
            model.vocab_size()
        );
        match first_difference(stored.sizes(), model.sizes()) {
            None => Ok(()),
            Some(difference) => bail!("{} is of another model: {difference}", path.display()),
        }
    }
}

/// Whether a checkpoint of any family has low-rank adapters.
pub fn has_adapters(checkpoint: &Checkpoint) -> bool {
    let adapters = checkpoint.state().get("adapters");
    adapters.is_some_and(|adapters| !adapters.is_null())
}

fn parse_state<S: DeserializeOwned>(checkpoint: &Checkpoint) -> anyhow::Result<S> {
    serde_json::from_value(checkpoint.state().clone())
        .with_context(|| format!("{} is no checkpoint of this program", checkpoint.path().display()))
}

/// What a checkpoint that a run saved has in addition to its arrays.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(bound = "")]
pub struct RunState<C: ModelFamily> {
    #[serde(default = "first_family")]
    pub family: String,
    /// How far training has come.
    pub trainer: TrainerState,
    pub model: C,
    /// The settings of the training: its schedules, and how many samples were asked for, on which their order depends.
    pub training: TrainingConfig,
    /// The hash of all text, in hexadecimal.
    pub text_hash: String,
    /// The tokenizer. Checkpoints of early versions have none: their tokens are bytes.
    #[serde(default)]
    pub tokenizer: Option<TokenizerState>,
    /// The low-rank adapters that were trained in place of the parameters, if there are any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adapters: Option<AdapterConfig>,
}

impl<C: ModelFamily> RunState<C> {
    /// Returns that of a checkpoint.
    ///
    /// # Errors
    /// When the checkpoint was imported, and has parameters only; when it is another program's.
    pub fn of(checkpoint: &Checkpoint) -> anyhow::Result<Self> {
        if let Some(folder) = ModelState::<C>::of(checkpoint)?.imported_from {
            bail!(
                "{} was imported from {} and has parameters only, no optimizer state to continue from: give \
                 --finetune to begin training with its parameters",
                checkpoint.path().display(),
                folder.display()
            );
        }
        parse_state(checkpoint)
    }

    /// Checks that the samples of a run continue where those of the checkpoint end.
    ///
    /// # Errors
    /// Names what differs, and both values.
    pub fn check_data(&self, path: &Path, text_hash: &str, training: &TrainingConfig) -> anyhow::Result<()> {
        let stored = samples(&self.text_hash, &self.training);
        if let Some(difference) = first_difference(stored, samples(text_hash, training)) {
            bail!(
                "{} was made with other samples: {difference}, so some would be trained on twice and others never; \
                 give --allow-data-change to continue anyway, or --finetune to start a new run with its parameters",
                path.display()
            );
        }
        Ok(())
    }

    /// Checks that a run continues with the checkpoint's schedules of learning rate and weight decay.
    ///
    /// # Errors
    /// Names what differs, and both values.
    pub fn check_schedules(&self, path: &Path, training: &TrainingConfig) -> anyhow::Result<()> {
        if let Some(difference) = first_difference(schedules(&self.training), schedules(training)) {
            bail!(
                "{} was made with other schedules: {difference}; give --override-opt-param-scheduler to continue with \
                 those of this run's flags",
                path.display()
            );
        }
        Ok(())
    }
}

/// A setting by its flag or in words, and its value.
type Setting = (&'static str, String);

/// Names the first setting that is not the same in a checkpoint and in this run, and both values.
fn first_difference(
    stored: impl IntoIterator<Item = Setting>,
    given: impl IntoIterator<Item = Setting>,
) -> Option<String> {
    let mut pairs = stored.into_iter().zip(given);
    let ((what, stored), (_, given)) = pairs.find(|((_, stored), (_, given))| stored != given)?;
    Some(format!("{what} is {stored} there and {given} here"))
}

/// What decides which sample comes when.
fn samples(text_hash: &str, training: &TrainingConfig) -> [Setting; 4] {
    [
        ("the text (by its hash)", text_hash.to_owned()),
        ("the number of samples to train on", training.train_samples.to_string()),
        ("--seq-length", training.seq_length.to_string()),
        ("--seed", training.seed.to_string()),
    ]
}

/// The schedules of learning rate and weight decay, and whose they are, by flags or words, in units that do not depend
/// on the batch.
fn schedules(training: &TrainingConfig) -> [Setting; 12] {
    let (rate, decay) = (&training.learning_rate, &training.weight_decay);
    let kind = training.optimizer_choice().kind;
    [
        ("--lr", rate.max.to_string()),
        ("--min-lr", rate.min.to_string()),
        ("--lr-warmup-init", rate.init.to_string()),
        ("--lr-decay-style", format!("{:?}", rate.decay)),
        ("the warm-up, in samples,", rate.warm_up_samples.to_string()),
        (
            "the end of the learning rate's decay, in samples,",
            rate.decay_samples.to_string(),
        ),
        ("--weight-decay-incr-style", format!("{:?}", decay.increase)),
        ("the weight decay at the beginning", decay.start.to_string()),
        ("the weight decay at the end", decay.end.to_string()),
        ("the weight decay's rise, in samples,", decay.samples.to_string()),
        ("--no-decoupled-weight-decay", (kind == OptimizerKind::Adam).to_string()),
        (
            "the parameter groups (--param-group, --freeze):",
            training.groups().to_string(),
        ),
    ]
}

/// The checkpoint to continue from.
pub struct FoundCheckpoint {
    /// None without `--load`, or if the folder has no checkpoint.
    pub checkpoint: Option<Checkpoint>,
    /// The flags that say how it is taken.
    pub arguments: CheckpointArguments,
}

/// Finds the checkpoint to continue from, the same one on every rank: of a run that a launcher has started again, the
/// last that it has saved itself, if there is one. If `--load` has none, the first rank warns.
///
/// # Communication
/// Two broadcasts over the world, of 8 bytes and of what the first rank has found.
///
/// # Errors
/// When there is no checkpoint although one must be there, or it cannot be read; the first rank's words on every rank.
pub fn find(arguments: &CheckpointArguments, context: &ParallelContext) -> anyhow::Result<FoundCheckpoint> {
    if arguments.load.is_none() && arguments.save.is_none() {
        return Ok(FoundCheckpoint {
            checkpoint: None,
            arguments: arguments.clone(),
        });
    }
    // What the first rank sees counts: another may be saving, or a file system slow to show it.
    let here = (context.rank() == 0).then(|| find_here(arguments));
    let found = here.as_ref().map(|here| match here {
        Ok((checkpoint, is_own)) => Found::Checkpoint {
            path: checkpoint.as_ref().map(|checkpoint| checkpoint.path().to_owned()),
            is_own: *is_own,
        },
        Err(error) => Found::Failure(format!("rank 0: {error:#}")),
    });
    let (path, is_own) = match share(found, context)? {
        Found::Checkpoint { path, is_own } => (path, is_own),
        Found::Failure(what) => match here {
            Some(Err(error)) => return Err(error),
            _ => bail!(what),
        },
    };
    let checkpoint = match (here, path) {
        (Some(Ok((checkpoint, _))), _) => checkpoint,
        (_, None) => None,
        // The first rank has looked at every shard.
        (_, Some(path)) => Some(Checkpoint::open_with(path, ReadConfig::new().with_shards_later(true))?),
    };
    Ok(FoundCheckpoint {
        checkpoint,
        arguments: if is_own {
            arguments.after_restart()
        } else {
            arguments.clone()
        },
    })
}

/// What the first rank has found.
#[derive(Serialize, Deserialize)]
enum Found {
    Checkpoint {
        path: Option<PathBuf>,
        /// Whether it is of an earlier start of this run.
        is_own: bool,
    },
    Failure(String),
}

/// Returns what the first rank gives on every rank.
fn share(found: Option<Found>, context: &ParallelContext) -> anyhow::Result<Found> {
    let text = match &found {
        Some(found) => serde_json::to_string(found).context("what rank 0 has found")?,
        None => String::new(),
    };
    let text = share_text(text, context)?;
    serde_json::from_str(&text).context("what rank 0 has found")
}

/// Returns the first rank's text on every rank.
///
/// # Communication
/// Two broadcasts over the world, of 8 bytes and of the text.
pub(crate) fn share_text(text: String, context: &ParallelContext) -> anyhow::Result<String> {
    let world = context.world_group();
    let mut text = text.into_bytes();
    let mut length = [text.len() as i64];
    world.broadcast(&mut length, 0)?;
    let length = usize::try_from(length[0])
        .ok()
        .filter(|length| *length <= MAX_FOUND_BYTES);
    let length = length.with_context(|| format!("rank 0 tells more than {MAX_FOUND_BYTES} bytes of the checkpoint"))?;
    text.resize(length, 0);
    world.broadcast(&mut text, 0)?;
    String::from_utf8(text).context("what rank 0 has found")
}

/// The checkpoint, and whether it is of an earlier start of this run.
fn find_here(arguments: &CheckpointArguments) -> anyhow::Result<(Option<Checkpoint>, bool)> {
    if let Some(own) = find_own(arguments)? {
        return Ok((Some(own), true));
    }
    let Some(folder) = &arguments.load else {
        return Ok((None, false));
    };
    Ok((find_in(arguments, folder)?, false))
}

/// The last checkpoint in `--save` of a run that a launcher has started again, if this run has saved it: its begin may
/// have been refused, or it may have failed before.
fn find_own(arguments: &CheckpointArguments) -> anyhow::Result<Option<Checkpoint>> {
    let environment = Environment::detect()?.filter(|environment| environment.restarts() > 0);
    let (Some(environment), Some(folder)) = (environment, &arguments.save) else {
        return Ok(None);
    };
    let of_this_run = |checkpoint: &Checkpoint| {
        let run = checkpoint.state().get(RUN).and_then(Value::as_str);
        run.is_some() && run == environment.run()
    };
    Ok(Checkpoint::latest(folder)?.filter(of_this_run))
}

fn find_in(arguments: &CheckpointArguments, folder: &Path) -> anyhow::Result<Option<Checkpoint>> {
    // A path of one checkpoint means that one.
    let name = folder.file_name().and_then(OsStr::to_str);
    let names_one = name.is_some_and(|name| name.starts_with("iter_"));
    if arguments.finetune || arguments.exit_on_missing_checkpoint || names_one {
        return Ok(Some(Checkpoint::find(folder)?));
    }
    match Checkpoint::find(folder) {
        Ok(checkpoint) => Ok(Some(checkpoint)),
        Err(error @ CheckpointError::NoCheckpoint { .. }) => {
            tracing::warn!("starting from the beginning: {error}");
            Ok(None)
        }
        Err(error) => Err(error.into()),
    }
}

/// What has come of a save.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Saving {
    /// It continues during training.
    Begun,
    /// The checkpoint is whole, on the disk.
    Done,
}

/// Saves a session at its times.
#[derive(Debug)]
pub struct Checkpointing {
    writer: CheckpointWriter,
    interval: u64,
    is_asynchronous: bool,
    /// What tells this run's checkpoints from those of others when it has been started again.
    run: Option<String>,
}

impl Checkpointing {
    /// Takes the folder that the flags name; none where they name none.
    ///
    /// # Communication
    /// The ranks of the world connect a group for it.
    ///
    /// # Errors
    /// When another run saves there, or it cannot be written.
    pub fn new(
        arguments: &CheckpointArguments,
        world: &World,
        context: &ParallelContext,
    ) -> anyhow::Result<Option<Self>> {
        let Some(folder) = &arguments.save else {
            return Ok(None);
        };
        let ranks: Vec<usize> = (0..world.world_size()).collect();
        let group = match ranks.len() {
            1 => ProcessGroup::single(),
            _ => ProcessGroup::connect(world, "checkpoint", &ranks, &GroupConfig::new())?,
        };
        let grid = context.grid();
        let options = CheckpointConfig {
            keep: arguments.ckpt_keep,
            layout: json!({
                "tensor": grid.tensor_parallel_size(),
                "pipeline": grid.pipeline_parallel_size(),
                "data": grid.data_parallel_size(),
                "sequence_parallel": context.is_sequence_parallel(),
            }),
            ..CheckpointConfig::new()
        };
        Ok(Some(Self {
            writer: CheckpointWriter::new(group, folder, options)?,
            interval: arguments.save_interval,
            is_asynchronous: arguments.async_save,
            run: Environment::detect()?.and_then(|environment| environment.run().map(str::to_owned)),
        }))
    }

    /// Checks that the folder has no checkpoint that the run, which is where `session` is, has not come to yet.
    ///
    /// # Communication
    /// That of [`CheckpointWriter::begin_at`].
    ///
    /// # Errors
    /// When it has one: this run's checkpoints would be taken for older ones.
    pub fn begin(&self, session: &Session<impl TrainingBackend, impl ModelFamily>) -> anyhow::Result<()> {
        Ok(self.writer.begin_at(session.iteration())?)
    }

    /// Saves after a step if a save is due: at every interval, and after the last step of the run, whose save is waited
    /// for.
    ///
    /// If an asynchronous save has failed, the next one is waited for; the run continues if that succeeds.
    ///
    /// # Communication
    /// That of [`CheckpointWriter::save`], on a group of its own.
    ///
    /// # Errors
    /// When a checkpoint cannot be written: what was saved before is whole.
    pub fn after_step(
        &mut self,
        session: &Session<impl TrainingBackend, impl ModelFamily>,
        is_last: bool,
    ) -> anyhow::Result<Option<Saving>> {
        let step = session.iteration();
        let is_due = self.interval > 0 && step.is_multiple_of(self.interval);
        if !(is_due || is_last) {
            return Ok(None);
        }
        let earlier = self.writer.wait();
        let mut state = serde_json::to_value(session.state()).context("the state of the run")?;
        if let Some(run) = &self.run {
            state[RUN] = run.clone().into();
        }
        let is_begun = self.is_asynchronous && !is_last && earlier.is_ok();
        if is_begun {
            self.writer.save_start(step, session.snapshot()?, state)?
        } else {
            self.writer.save(step, session.snapshot()?, state)?
        }
        if let Err(error) = earlier {
            tracing::warn!(%error, "the checkpoint of step {step} is saved, the one before it is not");
        }
        Ok(Some(if is_begun { Saving::Begun } else { Saving::Done }))
    }
}
