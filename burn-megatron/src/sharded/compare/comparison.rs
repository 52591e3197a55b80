//! [`Comparison`]: how a program in a layout compares with the program on one rank.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{CompareError, FirstDifference, Judgement};

/// A program in a layout against the program on one rank. `Display` says it in words.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// The layout's name.
    pub layout: String,
    /// Losses, gradients and parameters: those of the rank on which the first difference was seen.
    pub judgement: Judgement,
    /// The rank that judged so.
    pub rank: usize,
    /// Whether operations were recorded.
    pub is_traced: bool,
    /// The first tensor that differs. Where parity holds, rounding that has grown does not count.
    pub first: Option<FirstDifference>,
    /// Of how many arrays the trace had only a sketch.
    pub num_sketches: usize,
}

impl Comparison {
    /// Whether the program computes in the layout what it does on one rank.
    pub fn is_equal(&self) -> bool {
        self.judgement.is_equal()
    }

    /// Returns the comparison if it is equal.
    ///
    /// # Errors
    /// What the comparison says if it is not.
    pub fn into_result(self) -> Result<Self, CompareError> {
        if self.is_equal() {
            Ok(self)
        } else {
            Err(CompareError::Parity(self.to_string()))
        }
    }
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.layout, self.judgement)?;
        if !self.is_equal() {
            write!(f, ", on rank {}", self.rank)?;
        }
        match &self.first {
            Some(first) => write!(f, "\n{first}")?,
            None if self.is_traced && !self.is_equal() => {
                write!(
                    f,
                    "\nno operation's tensors differ: what was judged is not what operations computed"
                )?;
            }
            None => {}
        }
        if self.num_sketches > 0 && self.first.is_some() {
            write!(
                f,
                "\n{} arrays were compared by sketches: CompareConfig::with_trace_bytes keeps more of them whole",
                self.num_sketches
            )?;
        }
        Ok(())
    }
}
