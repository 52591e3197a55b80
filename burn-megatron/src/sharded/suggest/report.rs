//! [`Suggestion`]: the plans that were tried, with what they cost, and the best of them.

use std::fmt;

use super::super::plan::Plan;
use crate::collectives::CollectiveError;

/// A plan that was tried, and what a step with it costs: of the rank for which it is most.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// The plan.
    pub plan: Plan,
    /// The seconds that a step is expected to take.
    pub seconds: f64,
    /// Bytes of a rank's parts of the parameters.
    pub parameter_bytes: usize,
    /// Arithmetic operations of a rank.
    pub operations: u64,
    /// The number of collectives.
    pub collectives: usize,
    /// Bytes of the whole tensors that they put together.
    pub communicated_bytes: usize,
}

/// The plans that were tried, the best first. `Display` writes a table.
#[derive(Clone, Debug)]
pub struct Suggestion {
    pub(super) candidates: Vec<Candidate>,
}

impl Suggestion {
    /// The best plan.
    pub fn plan(&self) -> &Plan {
        &self.candidates[0].plan
    }

    /// All of them, the best first; those that a rank has no room for last.
    pub fn candidates(&self) -> &[Candidate] {
        &self.candidates
    }
}

impl fmt::Display for Suggestion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:>10} {:>15} {:>12} {:>11} {:>12}  plan",
            "seconds", "parameter bytes", "operations", "collectives", "their bytes"
        )?;
        for candidate in &self.candidates {
            let Candidate {
                plan,
                seconds,
                parameter_bytes,
                operations,
                collectives,
                communicated_bytes,
            } = candidate;
            let plan = plan.to_string();
            let lines: Vec<&str> = plan.lines().collect();
            let plan = if lines.is_empty() {
                "everything whole".to_owned()
            } else {
                lines.join(", ")
            };
            writeln!(
                f,
                "{seconds:>10.2e} {parameter_bytes:>15} {operations:>12} {collectives:>11} {communicated_bytes:>12}  \
                 {plan}"
            )?;
        }
        Ok(())
    }
}

/// No plan can be suggested.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum SuggestError {
    #[error("a step with this plan failed: {source}\n{plan}")]
    Step {
        plan: Plan,
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    #[error(
        "no plan that was tried leaves {limit} bytes of parameters on a rank; the least is {least}, by\n{plan}use more \
         ranks, or a mesh with an axis that the model's sizes can be cut over"
    )]
    TooLarge { limit: usize, least: usize, plan: Plan },
    /// The ranks could not compare what they counted.
    #[error(transparent)]
    Collective(#[from] CollectiveError),
}
