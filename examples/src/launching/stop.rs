//! `StopReason`: why a run stops before its last step.

use std::fmt;
use std::process::ExitCode;

use burn_megatron::collectives::{ProcessGroup, ReduceOp};
use burn_megatron::launch::StopFlag;
use signal_hook::consts::{SIGINT, SIGTERM};

/// Why a run stops before its last step. Of several ranks' reasons the last of these counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum StopReason {
    /// The step is one after which a person wanted it to.
    IntervalIsOver = 1,
    /// The time that a person gave is over.
    TimeIsOver = 2,
    /// SIGINT came, by Ctrl-C say.
    Interrupted = 3,
    /// SIGTERM came, from a scheduler say.
    Terminated = 4,
}

impl StopReason {
    /// Returns the reason that a signal gave, if one came.
    pub fn of(stop: &StopFlag) -> Option<Self> {
        stop.is_set().then(|| match stop.signal() {
            Some(SIGTERM) => Self::Terminated,
            _ => Self::Interrupted,
        })
    }

    /// Returns the reason of a number, as its variants have them; none of another one.
    pub(crate) fn of_number(number: i32) -> Option<Self> {
        let reasons = [
            Self::IntervalIsOver,
            Self::TimeIsOver,
            Self::Interrupted,
            Self::Terminated,
        ];
        reasons.into_iter().find(|reason| *reason as i32 == number)
    }

    /// Returns why any rank of a group wants to stop, if one does, on all of them.
    ///
    /// # Communication
    /// One all-reduce of one number over the group.
    pub(crate) fn agree(of_this_rank: Option<Self>, group: &ProcessGroup) -> anyhow::Result<Option<Self>> {
        let mut number = [of_this_rank.map_or(0, |reason| reason as i32)];
        group.all_reduce(&mut number, ReduceOp::Max)?;
        Ok(Self::of_number(number[0]))
    }

    /// The exit code of a run that stopped for this reason: 128 + the signal's number, as a shell says.
    pub fn exit_code(self) -> ExitCode {
        match self {
            Self::IntervalIsOver | Self::TimeIsOver => ExitCode::SUCCESS,
            Self::Interrupted => ExitCode::from(128 + SIGINT as u8),
            Self::Terminated => ExitCode::from(128 + SIGTERM as u8),
        }
    }
}

impl fmt::Display for StopReason {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::IntervalIsOver => "the step is a multiple of --exit-interval",
            Self::TimeIsOver => "--exit-duration-in-mins is over",
            Self::Interrupted => "asked to by SIGINT",
            Self::Terminated => "asked to by SIGTERM",
        })
    }
}
