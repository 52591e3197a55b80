//! `ScheduleConfig`: which schedule, for how many stages, chunks and micro-batches.

use std::{fmt, str::FromStr};

use burn::config::Config;
use serde::{Deserialize, Serialize};

use super::{
    Schedule, ScheduleError,
    generate::{self, Sizes},
};

/// The most tasks of a schedule, forward and backward, over all stages.
const MAX_TASKS: usize = 1 << 21;

/// The training schedules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ScheduleKind {
    /// All forward passes, then all backward passes: `gpipe`.
    ///
    /// # Reference
    /// Huang et al. 2019, arXiv:1811.06965.
    GPipe,
    /// One forward pass, then one backward pass, after a warm-up: `1f1b`.
    ///
    /// # Reference
    /// PipeDream-flush: Narayanan et al. 2021, arXiv:2006.09503.
    OneForwardOneBackward,
    /// 1F1B over several chunks per stage: `interleaved`, or `interleaved:G` with a group size.
    ///
    /// # Reference
    /// Narayanan et al. 2021, arXiv:2104.04473, section 2.2.
    Interleaved {
        /// Micro-batches that a chunk takes before the next chunk's turn; none stands for the number of stages.
        group_size: Option<usize>,
    },
}

impl ScheduleKind {
    /// All kinds, with their usual group size.
    pub const ALL: [Self; 3] = [
        Self::GPipe,
        Self::OneForwardOneBackward,
        Self::Interleaved { group_size: None },
    ];

    /// The usual schedule for this many chunks per stage: 1F1B, interleaved where there are several.
    pub fn for_chunks(num_chunks: usize) -> Self {
        match num_chunks {
            0 | 1 => ScheduleKind::OneForwardOneBackward,
            _ => ScheduleKind::Interleaved { group_size: None },
        }
    }
}

/// What determines a schedule.
#[derive(Config, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ScheduleConfig {
    /// Which schedule.
    #[config(default = "ScheduleKind::OneForwardOneBackward")]
    pub kind: ScheduleKind,
    /// Stages: p.
    pub num_stages: usize,
    /// Chunks per stage: v.
    #[config(default = 1)]
    pub num_chunks: usize,
    /// Micro-batches of a step: m.
    pub num_micro_batches: usize,
}

impl ScheduleConfig {
    /// Returns the training schedule.
    ///
    /// On every stage the backward passes of a chunk run in ascending order of their micro-batches, whatever the
    /// schedule, so that gradients are summed in the same order.
    ///
    /// # Errors
    /// When a size is zero or the tasks are too many; for GPipe and 1F1B when there are several chunks; for the
    /// interleaved schedule when p or v is 1, or unless p <= g <= m with m mod g either 0 or at least p. The message
    /// gives the rule, the values and the nearest valid ones.
    pub fn init(&self) -> Result<Schedule, ScheduleError> {
        self.validate()?;
        let sizes = self.sizes()?;
        Ok(match self.kind {
            ScheduleKind::GPipe => generate::gpipe(sizes),
            ScheduleKind::OneForwardOneBackward => generate::one_forward_one_backward(sizes),
            ScheduleKind::Interleaved { group_size } => {
                generate::interleaved(sizes, group_size.unwrap_or(self.num_stages))
            }
        })
    }

    /// Checks that there is a training schedule, without making it.
    ///
    /// # Errors
    /// As [`init`](Self::init).
    pub fn validate(&self) -> Result<(), ScheduleError> {
        self.sizes()?;
        match self.kind {
            ScheduleKind::GPipe | ScheduleKind::OneForwardOneBackward if self.num_chunks > 1 => {
                Err(ScheduleError::SeveralChunks {
                    kind: self.kind.to_string(),
                    num_chunks: self.num_chunks,
                })
            }
            ScheduleKind::GPipe | ScheduleKind::OneForwardOneBackward => Ok(()),
            ScheduleKind::Interleaved { group_size } => self.check_interleaved(group_size.unwrap_or(self.num_stages)),
        }
    }

    /// Returns the forward passes alone, for validation. It exists for all sizes, and is the same for all kinds:
    /// groups of p micro-batches go through the chunks in turn, the last group with what is left.
    ///
    /// # Errors
    /// When a size is zero or the tasks are too many.
    pub fn forward_only(&self) -> Result<Schedule, ScheduleError> {
        Ok(generate::forward_only(self.sizes()?))
    }

    fn sizes(&self) -> Result<Sizes, ScheduleError> {
        let Self {
            num_stages,
            num_chunks,
            num_micro_batches,
            ..
        } = *self;
        for (name, size) in [
            ("num_stages", num_stages),
            ("num_chunks", num_chunks),
            ("num_micro_batches", num_micro_batches),
        ] {
            if size == 0 {
                return Err(ScheduleError::Zero { name });
            }
        }
        let most = MAX_TASKS / num_stages.saturating_mul(num_chunks).saturating_mul(2);
        if num_micro_batches > most {
            return Err(ScheduleError::TooLarge {
                limit: MAX_TASKS,
                num_stages,
                num_chunks,
                num_micro_batches,
                most,
            });
        }
        Ok(Sizes {
            num_stages,
            num_chunks,
            num_micro_batches,
        })
    }

    fn check_interleaved(&self, group_size: usize) -> Result<(), ScheduleError> {
        let Self {
            num_stages,
            num_chunks,
            num_micro_batches,
            ..
        } = *self;
        if num_stages < 2 || num_chunks < 2 {
            return Err(ScheduleError::NothingToInterleave { num_stages, num_chunks });
        }
        if num_micro_batches < num_stages {
            return Err(ScheduleError::TooFewMicroBatches {
                num_stages,
                num_micro_batches,
            });
        }
        let is_valid = |group_size: usize, num_micro_batches: usize| {
            (num_stages..=num_micro_batches).contains(&group_size)
                && (num_micro_batches.is_multiple_of(group_size) || num_micro_batches % group_size >= num_stages)
        };
        if is_valid(group_size, num_micro_batches) {
            return Ok(());
        }
        let nearest = nearest(group_size, num_stages, num_micro_batches, |group| {
            is_valid(group, num_micro_batches)
        });
        let others = if group_size < num_stages {
            String::new()
        } else {
            let most = group_size.saturating_add(num_micro_batches);
            let counts = self::nearest(num_micro_batches, group_size, most, |count| is_valid(group_size, count));
            format!("; with group size {group_size} the nearest valid numbers of micro-batches are {counts}")
        };
        Err(ScheduleError::GroupSize {
            group_size,
            num_stages,
            num_micro_batches,
            nearest,
            others,
        })
    }
}

/// The valid values of `least..=most` on either side of `value`, as text.
fn nearest(value: usize, least: usize, most: usize, is_valid: impl Fn(usize) -> bool) -> String {
    let below = (least..value.min(most.saturating_add(1)))
        .rev()
        .find(|&value| is_valid(value));
    let above = (value.saturating_add(1).max(least)..=most).find(|&value| is_valid(value));
    let values: Vec<String> = below.iter().chain(&above).map(usize::to_string).collect();
    values.join(" and ")
}

impl fmt::Display for ScheduleKind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ScheduleKind::GPipe => formatter.write_str("gpipe"),
            ScheduleKind::OneForwardOneBackward => formatter.write_str("1f1b"),
            ScheduleKind::Interleaved { group_size: None } => formatter.write_str("interleaved"),
            ScheduleKind::Interleaved {
                group_size: Some(group_size),
            } => write!(formatter, "interleaved:{group_size}"),
        }
    }
}

impl FromStr for ScheduleKind {
    type Err = ScheduleError;

    fn from_str(text: &str) -> Result<Self, ScheduleError> {
        let unknown = || ScheduleError::UnknownKind { text: text.to_owned() };
        match text {
            "gpipe" => Ok(ScheduleKind::GPipe),
            "1f1b" => Ok(ScheduleKind::OneForwardOneBackward),
            "interleaved" => Ok(ScheduleKind::Interleaved { group_size: None }),
            _ => {
                let digits = text.strip_prefix("interleaved:").ok_or_else(unknown)?;
                let group_size = digits.parse().ok().filter(|&group_size: &usize| group_size > 0);
                Ok(ScheduleKind::Interleaved {
                    group_size: Some(group_size.ok_or_else(unknown)?),
                })
            }
        }
    }
}
