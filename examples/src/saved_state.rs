//! What a checkpoint says in addition to its arrays, and what of it must be the same in a run that continues from it.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow, bail, ensure};
use burn_megatron::checkpoint::Checkpoint;
use burn_megatron::optimizer::OptimizerKind;
use burn_megatron::training::{AnnealingStyle, LearningRateDecay, TrainerState, TrainingConfig, WeightDecayIncrease};
use models::huggingface::AdapterConfig;
use models::registry::FAMILIES;
use models::{ModelFamily, ModelSettings};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::run_tokenizer::TokenizerState;

/// The field of a checkpoint's state that says which run has saved it, as its launcher calls it.
pub(crate) const RUN: &str = "run";

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
    /// The name of the model's family.
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

    /// Returns the checkpoint's model with what a run may change of it: dropout, recomputation, the padding of the
    /// vocabulary and the like. What else is asked for must be the checkpoint's, and that of the preset, if one is.
    ///
    /// # Errors
    /// When the vocabulary that is asked for has more tokens than the checkpoint's has rows; names the first size that
    /// differs, and both values.
    pub fn with_settings(self, checkpoint: &Path, settings: &ModelSettings) -> anyhow::Result<C> {
        let (path, stored) = (checkpoint.display(), self.model);
        let (rows, num_tokens) = (stored.vocab_size(), settings.vocab_size);
        ensure!(
            num_tokens <= rows,
            "{path} is of another model: its vocabulary has {rows} rows, and this run's tokenizer {num_tokens} tokens: \
             expected no more than those"
        );
        let settings = &ModelSettings {
            vocab_size: rows,
            max_seq_length: settings.max_seq_length.or(Some(stored.max_seq_length())),
            ..settings.clone()
        };
        let asked_for = match settings.preset {
            Some(_) => C::from_settings(settings),
            None => stored.clone().with_settings(settings),
        };
        match first_difference(stored.sizes(), asked_for.sizes()) {
            None => Ok(stored.with_settings(settings)),
            Some(difference) => Err(other_model(checkpoint, &difference)),
        }
    }
}

/// Returns the error of flags that say another model than a checkpoint has.
pub(crate) fn other_model(checkpoint: &Path, difference: &str) -> anyhow::Error {
    anyhow!(
        "{} is of another model: {difference}; leave the model's flags out, the checkpoint says what it is",
        checkpoint.display()
    )
}

/// Returns the tokens of a sample of the run that has saved a checkpoint.
pub(crate) fn trained_length(checkpoint: &Checkpoint) -> Option<usize> {
    let length = checkpoint.state().pointer("/training/seq_length")?.as_u64()?;
    usize::try_from(length).ok()
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
    /// The name of the model's family.
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

    /// Checks that the samples of a run continue where those of the checkpoint end. `has_order_of` says whether those
    /// of this run are in the order of a run of that many samples.
    ///
    /// # Errors
    /// Names what differs, and both values.
    pub fn check_data(
        &self,
        path: &Path,
        text_hash: &str,
        training: &TrainingConfig,
        has_order_of: impl FnOnce(u64) -> anyhow::Result<bool>,
    ) -> anyhow::Result<()> {
        let (stored, given) = (self.training.train_samples, training.train_samples);
        let difference = match first_difference(samples(&self.text_hash, &self.training), samples(text_hash, training))
        {
            None if stored != given && !has_order_of(stored)? => Some(format!(
                "the number of samples to train on is {stored} there and {given} here, which takes other epochs of the \
                 text and puts its samples in another order"
            )),
            difference => difference,
        };
        if let Some(difference) = difference {
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

/// Numbers that decide which sample comes when, next to the number of epochs.
fn samples(text_hash: &str, training: &TrainingConfig) -> [Setting; 3] {
    [
        ("the text (by its hash)", text_hash.to_owned()),
        ("--seq-length", training.seq_length.to_string()),
        ("--seed", training.seed.to_string()),
    ]
}

/// The schedules of learning rate and weight decay, and whose they are, by flags or words, in units that do not depend
/// on the batch. What a constant one does not use is the same in all.
fn schedules(training: &TrainingConfig) -> [Setting; 12] {
    let (mut rate, mut decay) = (training.learning_rate, training.weight_decay);
    if rate.decay == LearningRateDecay::Constant {
        (rate.min, rate.decay_samples) = (rate.max, 0);
    }
    if decay.increase == WeightDecayIncrease::Constant {
        decay.samples = 0;
    }
    let kind = training.optimizer_choice().kind;
    [
        ("--lr", rate.max.to_string()),
        ("--min-lr", rate.min.to_string()),
        ("--lr-warmup-init", rate.init.to_string()),
        ("--lr-decay-style", decay_in_words(rate.decay)),
        ("the warm-up, in samples,", rate.warm_up_samples.to_string()),
        (
            "the end of the learning rate's decay, in samples,",
            rate.decay_samples.to_string(),
        ),
        (
            "--weight-decay-incr-style",
            match decay.increase {
                WeightDecayIncrease::Constant => "constant".to_owned(),
                WeightDecayIncrease::Linear => "linear".to_owned(),
                WeightDecayIncrease::Cosine => "cosine".to_owned(),
            },
        ),
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

/// Names how a learning rate decays, as `--lr-decay-style` does.
fn decay_in_words(decay: LearningRateDecay) -> String {
    let (style, samples) = match decay {
        LearningRateDecay::Constant => return "constant".to_owned(),
        LearningRateDecay::Linear => return "linear".to_owned(),
        LearningRateDecay::Cosine => return "cosine".to_owned(),
        LearningRateDecay::InverseSquareRoot => return "inverse-square-root".to_owned(),
        LearningRateDecay::WarmUpStableDecay { style, samples } => (style, samples),
    };
    let style = match style {
        AnnealingStyle::Linear => "linear",
        AnnealingStyle::Cosine => "cosine",
        AnnealingStyle::Exponential => "exponential",
        AnnealingStyle::MinusSquareRoot => "minus_sqrt",
    };
    format!("WSD ({style}, over {samples} samples)")
}
