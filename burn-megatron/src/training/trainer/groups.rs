//! The groups of a trainer's parameters: which optimizer updates each, and with which numbers.

use burn::module::Module;

use crate::collectives::{CollectiveError, ReduceOp};
use crate::context::{ParallelContext, broadcast_bytes, gather_bytes};
use crate::data_parallel::{GradientEntry, bucket_parameters};
use crate::optimizer::{
    AnyOptimizer, GroupMatcher, OptimizerKind, ParameterGroup, ParameterGroupError, is_hidden_matrix,
};
use crate::parameters::NamePattern;
use crate::training::{TrainingConfig, TrainingConfigError, TrainingError};

/// The most bytes of names that one stage shows the others.
const MAX_NAME_BYTES: usize = 1 << 24;

/// The optimizers of a run, four for each group of parameters and four for those of no group: of what decays, and of
/// biases and norms, which the decay of the run spares; and of each of these the one of what an optimizer of matrices
/// is not for.
#[derive(Clone, Debug)]
pub(super) struct TrainerGroups {
    settings: Vec<Setting>,
    matcher: GroupMatcher,
    /// Returns whether each group has an optimizer of its own.
    has_optimizer: Vec<bool>,
}

/// One of the optimizers.
#[derive(Clone, Debug)]
struct Setting {
    kind: OptimizerKind,
    learning_rate_factor: f64,
    /// `None` for the schedule's.
    weight_decay: Option<f64>,
}

/// Settings that change from step to step.
#[derive(Clone, Copy, Debug)]
pub(super) struct StepSettings {
    /// The weight decay of the schedule.
    pub weight_decay: f64,
    /// The factor of gradients.
    pub gradient_scale: f64,
}

impl TrainerGroups {
    /// Returns the groups of a configuration.
    pub(super) fn new(config: &TrainingConfig) -> Result<Self, TrainingConfigError> {
        let groups = config.groups();
        let others = ParameterGroup::new("**");
        let settings = groups.groups().iter().chain([&others]).flat_map(|group| {
            let kind = group.optimizer.unwrap_or(config.optimizer_choice().kind);
            let rest = if kind == OptimizerKind::Muon {
                OptimizerKind::AdamW
            } else {
                kind
            };
            [(None, kind), (None, rest), (Some(0.0), kind), (Some(0.0), rest)].map(|(spared, kind)| Setting {
                kind,
                learning_rate_factor: group.learning_rate_factor,
                weight_decay: group.weight_decay.or(spared),
            })
        });
        Ok(Self {
            settings: settings.collect(),
            matcher: groups.matcher()?,
            has_optimizer: groups.groups().iter().map(|group| group.optimizer.is_some()).collect(),
        })
    }

    /// Which of the optimizers updates a parameter.
    pub(super) fn optimizer_of(&self, entry: &GradientEntry) -> usize {
        let last = self.matcher.patterns().len();
        let group = self.matcher.group_of(&entry.name).unwrap_or(last);
        // Who asks for Muon by a group has looked at the names.
        let is_asked = self.has_optimizer.get(group) == Some(&true);
        // Others have one optimizer for all, so that a bucket is updated in as few kernels as may be.
        let is_muon = self.settings[4 * group].kind == OptimizerKind::Muon;
        let is_rest = is_muon && !(is_hidden_matrix(entry) || is_asked && entry.dimensions() == 2);
        4 * group + 2 * usize::from(entry.dimensions() <= 1) + usize::from(is_rest)
    }

    /// The optimizers of a step.
    pub(super) fn optimizers(&self, config: &TrainingConfig, step: StepSettings) -> impl Iterator<Item = AnyOptimizer> {
        self.settings.iter().map(move |setting| {
            let decay = setting.weight_decay.unwrap_or(step.weight_decay);
            config
                .build_optimizer(setting.kind, decay)
                .with_learning_rate_factor(setting.learning_rate_factor)
                .with_gradient_scale(step.gradient_scale)
        })
    }
}

/// Returns a stage's chunks with the parameters of frozen groups frozen, after a look whether each group has some, on
/// whichever stage.
///
/// # Communication
/// Where there are groups, one all-reduce of a number for each over the pipeline group.
pub(super) fn freeze<M: Module>(
    chunks: Vec<M>,
    config: &TrainingConfig,
    context: &ParallelContext,
) -> Result<Vec<M>, TrainingError> {
    let groups = config.groups();
    let matcher = groups.matcher().map_err(TrainingConfigError::from)?;
    if matcher.patterns().is_empty() {
        return Ok(chunks);
    }
    let parameters = bucket_parameters::<_>(&chunks, context);
    let names: Vec<String> = parameters.into_iter().map(|parameter| parameter.name).collect();
    let is_here = |pattern: &NamePattern| i32::from(names.iter().any(|name| pattern.matches(name)));
    let mut found: Vec<i32> = matcher.patterns().iter().map(is_here).collect();
    context.pipeline_group().all_reduce(&mut found, ReduceOp::Max)?;
    if let Some(missed) = found.iter().position(|&found| found == 0) {
        let names = names_of_all_stages(&names, context)?;
        return Err(TrainingConfigError::from(ParameterGroupError::NoMatch {
            pattern: groups.groups()[missed].pattern.clone(),
            hint: matcher.patterns()[missed].nearest(names.lines()),
        })
        .into());
    }
    Ok(groups.freeze::<_>(chunks, context).map_err(TrainingConfigError::from)?)
}

/// The names of all parameters of the model, one a line, on every rank.
fn names_of_all_stages(names: &[String], context: &ParallelContext) -> Result<String, CollectiveError> {
    let group = context.pipeline_group();
    let gathered = gather_bytes(names.join("\n").into_bytes(), MAX_NAME_BYTES, group)?;
    let all = gathered.map(|stages| stages.join(&b'\n')).unwrap_or_default();
    let all = broadcast_bytes(all, 0, MAX_NAME_BYTES, group)?;
    Ok(String::from_utf8_lossy(&all).into_owned())
}
