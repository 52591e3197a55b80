//! [`FirstDifference`]: the first tensor that is not that of the one-rank run, and the operation that made it.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::exchange::bits;
use super::recording::Stage;
use super::seen::Judged;

/// What of an operation differs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum What {
    /// One that comes from outside the operations: a batch, a parameter, a draw; or one that has changed since it was
    /// made.
    Operand {
        /// Which one.
        index: usize,
    },
    /// One that the operation made.
    Result {
        /// Which one.
        index: usize,
    },
    /// The operation itself: the program is not that of one rank.
    Program {
        /// The operation of the one-rank run.
        expected: String,
        /// The operation in its place.
        found: String,
    },
}

/// An operand of the operation that is named.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OperandState {
    /// A parameter or a gradient by its name, or the operation that made it.
    pub tensor: String,
    /// Its whole shape.
    pub shape: Vec<usize>,
    /// Its placement on each axis of the mesh.
    pub places: String,
    /// The norm of its difference over its norm in the one-rank run.
    #[serde(with = "bits")]
    pub relative: f64,
}

/// The first tensor of a run in a layout that is not that of the one-rank run. `Display` says it in words.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FirstDifference {
    /// The rank that has the difference: others may have none.
    pub rank: usize,
    /// The number of the operation in the program, from 1.
    pub number: usize,
    /// The number of operations that were recorded.
    pub num_operations: usize,
    /// The operation of the backend; or `loss`, `gradient` or `parameter`, which are looked at when they are judged.
    pub operation: String,
    /// The part of the step.
    pub stage: Stage,
    /// The training step, from 1.
    pub step: usize,
    /// The names that are open there: see [`mark`](super::mark). In a backward pass those of the forward pass whose
    /// results the operation has.
    pub module: String,
    /// The parameters and gradients among the operation's tensors, or else among those of the last one that had some.
    pub near: Vec<String>,
    /// What of the operation differs.
    pub what: What,
    /// The tensor's name, if it is a parameter or a gradient, or that it comes from outside the operations.
    pub tensor: Option<String>,
    /// Its whole shape.
    pub shape: Vec<usize>,
    /// Its placement on each axis of the mesh.
    pub places: String,
    /// The norm of the difference; of what is not float, the number of elements that differ.
    #[serde(with = "bits")]
    pub difference: f64,
    /// The norm in the one-rank run; of what is not float, the number of elements.
    #[serde(with = "bits")]
    pub norm: f64,
    /// The part of the norm that is allowed.
    #[serde(with = "bits")]
    pub tolerance: f64,
    /// Where it differs most, or what is wrong with its shape.
    pub detail: String,
    /// The operands, which are right, or not far from it.
    pub operands: Vec<OperandState>,
    /// Whether the difference may be what rounding in its operands has become: nothing else was found.
    pub is_explained: bool,
}

impl fmt::Display for FirstDifference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { number, operation, .. } = self;
        match &self.what {
            What::Program { expected, found } => write!(
                f,
                "the first difference is the program: operation {number} is {found} in place of {expected}"
            )?,
            What::Operand { index } => write!(f, "the first tensor that differs is operand {index}")?,
            What::Result { .. } if Judged::is_name(operation) => {
                write!(f, "the first tensor that differs is the {operation} as it is judged")?;
            }
            What::Result { index } => write!(f, "the first tensor that differs is result {index}")?,
        }
        if !matches!(self.what, What::Program { .. }) {
            if let Some(tensor) = &self.tensor {
                write!(f, ", {tensor},")?;
            }
            write!(f, " of operation {number} of {}, {operation}", self.num_operations)?;
        }
        write!(
            f,
            ", in the {} of step {}, on rank {}",
            self.stage, self.step, self.rank
        )?;
        if !self.module.is_empty() {
            write!(f, "\n  module: {}", self.module)?;
        }
        if !self.near.is_empty() {
            write!(f, "\n  near: {}", self.near.join(", "))?;
        }
        if matches!(self.what, What::Program { .. }) {
            return Ok(());
        }
        write!(
            f,
            "\n  shape {:?}, {}: differs by {:.2e} where the norm is {:.2e} and {:.0e} of it is allowed",
            self.shape, self.places, self.difference, self.norm, self.tolerance
        )?;
        if !self.detail.is_empty() {
            write!(f, "\n  {}", self.detail)?;
        }
        for (index, operand) in self.operands.iter().enumerate() {
            let OperandState {
                tensor,
                shape,
                places,
                relative,
            } = operand;
            write!(
                f,
                "\n  operand {index}: {tensor}, {shape:?}, {places}, differs by {relative:.1e}"
            )?;
        }
        if self.is_explained {
            write!(
                f,
                "\n  no operation adds more than its operands explain: rounding has grown up to here"
            )?;
        }
        Ok(())
    }
}
