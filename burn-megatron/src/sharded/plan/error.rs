//! [`PlanError`]: a plan that does not fit the model.

use crate::sharded::placement::AxisRole;

/// A plan that does not fit the model.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// An invalid pattern.
    #[error("{line}: {reason}")]
    Pattern {
        /// The line.
        line: String,
        /// What is wrong.
        reason: String,
    },
    /// A line that names nothing.
    #[error("{line} names no parameter of the model; {hint}")]
    NoMatch {
        /// The line.
        line: String,
        /// Names that come near.
        hint: String,
    },
    /// Two lines that name one parameter.
    #[error("{first} and {second} both name parameter {name}; leave one of them out, or name less")]
    TwoLines {
        /// The parameter.
        name: String,
        /// One line.
        first: String,
        /// The other.
        second: String,
    },
    /// A dimension that the parameter does not have.
    #[error("{line}: parameter {name} of shape {shape:?} has no dimension {dimension}")]
    NoDimension {
        /// The line.
        line: String,
        /// The parameter.
        name: String,
        /// Its shape.
        shape: Vec<usize>,
        /// The dimension.
        dimension: usize,
    },
    /// A length that the ranks do not divide.
    #[error(
        "{line}: dimension {dimension} of parameter {name}, of length {length}, cannot be cut over {ranks} ranks; the \
         nearest valid lengths are {nearest}, the valid numbers of ranks up to that {divisors}"
    )]
    Indivisible {
        /// The line.
        line: String,
        /// The parameter.
        name: String,
        /// The dimension.
        dimension: usize,
        /// Its length.
        length: usize,
        /// The ranks of the axis.
        ranks: usize,
        /// Lengths that would do.
        nearest: String,
        /// Numbers of ranks that would do.
        divisors: String,
    },
    /// An axis that the mesh does not have.
    #[error("{line} needs an axis of role {role:?}, which the mesh does not have")]
    NoAxis {
        /// The line.
        line: String,
        /// The role.
        role: AxisRole,
    },
}
