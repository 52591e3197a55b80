//! [`Plan`]: which parameters of a model are cut, along which dimension, over which ranks. By name.

mod error;
mod layers;
mod listed;
mod resolve;

use std::fmt;

pub use error::PlanError;
pub(super) use listed::planned_parameters;

use super::placement::AxisRole;

/// Which parameters of a model are cut.
///
/// Lines name parameters, or the layers that have them, by globs over their paths in the model: `*` is one name or a
/// part of one, `**` any names, `{query,key}` either; a layer may be named by its weight, too. What no line names is
/// whole on every rank, or cut by [`fully_shard`](Self::fully_shard).
///
/// # Example
/// ```
/// use burn_megatron::sharded::{AxisRole, Plan};
///
/// // Tensor parallelism of layers, one of them burn's own, and every parameter cut over the data-parallel ranks, too.
/// let plan = Plan::new()
///     .vocabulary("embedding")
///     .transformer_encoder("encoder")
///     .column("classifier.{query,key}")
///     .row("classifier.output")
///     .fully_shard(AxisRole::Data);
/// ```
#[derive(Clone, Debug, Default)]
pub struct Plan {
    lines: Vec<Line>,
    fully_sharded: Vec<AxisRole>,
}

/// A line of a plan: parameters by name, and what happens to them.
#[derive(Clone, Debug)]
struct Line {
    /// As the user wrote it.
    text: String,
    /// Of the parameter's name, with the dimension that is cut; the first must match something.
    parts: Vec<(String, Option<usize>)>,
    role: AxisRole,
    /// Whether the parameters are not to be cut for memory either.
    keeps_whole: bool,
    /// Layers of burn's whose parameters have other dimensions than the line cuts.
    not_for: &'static [&'static str],
}

/// A parameter, as a plan sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedParameter {
    /// Its path in the model.
    pub name: String,
    /// Its whole shape.
    pub shape: Vec<usize>,
    /// The type of the module that has it, such as `Linear`; empty if not known.
    pub layer: String,
}

/// Layers whose weights have output channels first.
const CONVOLUTIONS: &[&str] = &["Conv1d", "Conv2d", "Conv3d"];
const NO_CHANNELS: &[&str] = &["Embedding", "Linear"];
const NO_ROWS: &[&str] = &["Conv1d", "Conv2d", "Conv3d", "LayerNorm", "Linear", "RmsNorm"];

impl Plan {
    /// Returns a plan that leaves every parameter whole.
    pub fn new() -> Self {
        Self::default()
    }

    /// Cuts the outputs of linear layers over the tensor-parallel ranks: dimension 1 of their weights, and their
    /// biases.
    ///
    /// The layers' outputs are then cut along their last dimension.
    pub fn column(self, layers: &str) -> Self {
        self.line(
            format!("column(\"{layers}\")"),
            AxisRole::Tensor,
            [
                (format!("{layers}.weight"), Some(1)),
                (format!("{layers}.bias"), Some(0)),
            ],
        )
        .not_for(CONVOLUTIONS)
    }

    /// Cuts the inputs of linear layers over the tensor-parallel ranks: dimension 0 of their weights. The biases stay
    /// whole.
    ///
    /// Each rank then has a term of the layers' outputs.
    pub fn row(self, layers: &str) -> Self {
        self.line(
            format!("row(\"{layers}\")"),
            AxisRole::Tensor,
            [(format!("{layers}.weight"), Some(0)), (format!("{layers}.bias"), None)],
        )
        .not_for(CONVOLUTIONS)
    }

    /// Cuts the rows of embeddings over the tensor-parallel ranks: each looks up what it has.
    pub fn vocabulary(self, embeddings: &str) -> Self {
        let text = format!("vocabulary(\"{embeddings}\")");
        self.line(text, AxisRole::Tensor, [(format!("{embeddings}.weight"), Some(0))])
            .not_for(NO_ROWS)
    }

    /// Cuts the output channels of convolutions over the tensor-parallel ranks: dimension 0 of weights and biases.
    pub fn channels(self, convolutions: &str) -> Self {
        self.line(
            format!("channels(\"{convolutions}\")"),
            AxisRole::Tensor,
            [
                (format!("{convolutions}.weight"), Some(0)),
                (format!("{convolutions}.bias"), Some(0)),
            ],
        )
        .not_for(NO_CHANNELS)
    }

    /// Cuts a dimension of parameters over the ranks of a role.
    pub fn shard(self, parameters: &str, role: AxisRole, dimension: usize) -> Self {
        let text = format!("shard(\"{parameters}\", {role:?}, {dimension})");
        self.line(text, role, [(parameters.to_owned(), Some(dimension))])
    }

    /// Leaves parameters whole, and keeps [`fully_shard`](Self::fully_shard) from them.
    pub fn replicated(self, parameters: &str) -> Self {
        let text = format!("replicated(\"{parameters}\")");
        let mut plan = self.line(text, AxisRole::Data, [(parameters.to_owned(), None)]);
        if let Some(line) = plan.lines.last_mut() {
            line.keeps_whole = true;
        }
        plan
    }

    /// Cuts every parameter over the ranks of a role, next to other cuts, on the last axis of the role: along its first
    /// dimension that is long enough.
    ///
    /// Each operation gathers what it needs and lets go of it, so that a rank keeps its part of parameters, gradients
    /// and the optimizer's state: ZeRO's stage 3.
    ///
    /// # Reference
    /// Rajbhandari et al. 2020, arXiv:1910.02054.
    pub fn fully_shard(mut self, role: AxisRole) -> Self {
        if !self.fully_sharded.contains(&role) {
            self.fully_sharded.push(role);
        }
        self
    }

    fn line(mut self, text: String, role: AxisRole, parts: impl IntoIterator<Item = (String, Option<usize>)>) -> Self {
        self.lines.push(Line {
            text,
            parts: parts.into_iter().collect(),
            role,
            keeps_whole: false,
            not_for: &[],
        });
        self
    }

    /// Refuses the last line for parameters of these layers.
    fn not_for(mut self, layers: &'static [&'static str]) -> Self {
        if let Some(line) = self.lines.last_mut() {
            line.not_for = layers;
        }
        self
    }
}

/// One line per line of the plan.
impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for line in &self.lines {
            writeln!(f, "{}", line.text)?;
        }
        for role in &self.fully_sharded {
            writeln!(f, "fully_shard({role:?})")?;
        }
        Ok(())
    }
}
