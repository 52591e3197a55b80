//! [`PlanError`]: a plan that does not fit the model.

use crate::sharded::placement::AxisRole;
use crate::sharded::slot::OtherDevice;

/// A plan that does not fit the model.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum PlanError {
    #[error("{line}: {reason}")]
    Pattern { line: String, reason: String },
    #[error("{line} names no parameter of the model; {hint}")]
    NoMatch { line: String, hint: String },
    #[error("{first} and {second} both name parameter {name}; leave one of them out, or name less")]
    TwoLines {
        name: String,
        first: String,
        second: String,
    },
    #[error("{line}: parameter {name} of shape {shape:?} has no dimension {dimension}")]
    NoDimension {
        line: String,
        name: String,
        shape: Vec<usize>,
        dimension: usize,
    },
    #[error(
        "{line}: dimension {dimension} of parameter {name}, of length {length}, cannot be cut over {ranks} ranks; the \
         nearest valid lengths are {nearest}, the valid numbers of ranks up to that {divisors}"
    )]
    Indivisible {
        line: String,
        name: String,
        dimension: usize,
        length: usize,
        ranks: usize,
        nearest: String,
        divisors: String,
    },
    #[error(
        "{line}: {name} is the parameter of a {layer}, whose dimensions are others; column and row are for linear \
         layers, vocabulary for embeddings, channels for convolutions, shard for any parameter"
    )]
    OtherLayer {
        line: String,
        name: String,
        /// The layer's type.
        layer: String,
    },
    #[error("parameter {name}: {error}")]
    OtherDevice {
        name: String,
        /// The parameter's device.
        #[source]
        error: OtherDevice,
    },
    #[error("{line} needs an axis of role {role:?}, which the mesh does not have")]
    NoAxis { line: String, role: AxisRole },
}
