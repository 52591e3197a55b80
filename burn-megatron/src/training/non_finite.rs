//! `NonFiniteOrigin`: on which rank, and in which gradient, a number first was infinite or no number.

use std::fmt;

use crate::collectives::{CollectiveError, ProcessGroup};
use crate::data_parallel::ReducedGradients;

/// Maximum number of bytes of a parameter's name that are sent to other ranks.
const NAME_LENGTH: usize = 200;

/// Place where a gradient that is not finite was seen first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NonFiniteOrigin {
    /// In what a rank's backward pass gave.
    Received {
        /// The lowest such rank.
        rank: usize,
        /// First such parameter of the rank.
        parameter: String,
    },
    /// In the sum over the ranks only.
    Reduced {
        /// The lowest rank that has it.
        rank: usize,
        /// First such parameter of the rank.
        parameter: String,
    },
    /// In none: the loss alone is not finite, or the sum of squares.
    NoGradient,
}

impl NonFiniteOrigin {
    /// Finds out, together with all ranks of the world.
    ///
    /// # Communication
    /// One all-gather of some 200 bytes over the world.
    pub(super) fn find(gradients: &ReducedGradients, world: &ProcessGroup) -> Result<Self, CollectiveError> {
        let (kind, name) = match (gradients.first_non_finite_received(), gradients.first_non_finite()) {
            (Some(name), _) => (RECEIVED, name),
            (None, Some(name)) => (REDUCED, name),
            (None, None) => (NOTHING, ""),
        };
        let mut mine = [0u8; NAME_LENGTH + 1];
        mine[0] = kind;
        let length = name.len().min(NAME_LENGTH);
        mine[1..=length].copy_from_slice(&name.as_bytes()[..length]);
        let mut all = vec![0; mine.len() * world.size()];
        world.all_gather(&mine, &mut all)?;
        let find = |kind| {
            let rows = all.chunks_exact(mine.len()).enumerate();
            rows.filter(|(_, row)| row[0] == kind)
                .map(|(rank, row)| (rank, parameter_name(&row[1..])))
                .next()
        };
        Ok(match (find(RECEIVED), find(REDUCED)) {
            (Some((rank, parameter)), _) => Self::Received { rank, parameter },
            (None, Some((rank, parameter))) => Self::Reduced { rank, parameter },
            (None, None) => Self::NoGradient,
        })
    }
}

const NOTHING: u8 = 0;
const REDUCED: u8 = 1;
const RECEIVED: u8 = 2;

fn parameter_name(bytes: &[u8]) -> String {
    let text = bytes.split(|&byte| byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(text).into_owned()
}

impl fmt::Display for NonFiniteOrigin {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Received { rank, parameter } => write!(
                formatter,
                "the first gradient that is not finite is that of parameter {parameter} on rank {rank}"
            ),
            Self::Reduced { rank, parameter } => write!(
                formatter,
                "every rank's own gradients are finite, but their sum is not for parameter {parameter} of rank {rank}"
            ),
            Self::NoGradient => formatter.write_str("though every gradient is finite on every rank"),
        }
    }
}
