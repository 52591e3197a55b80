//! [`PeerFailure`]: which rank failed, where, and how.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::host::host_name;

/// What the store says of a rank whose connection closed without a goodbye.
pub(super) const CONNECTION_LOST: &str = "is dead: its connection to the store closed without a goodbye (killed?)";

/// How the failure begins of a rank whose process there never was.
pub(super) const COULD_NOT_BE_STARTED: &str = "could not be started";

/// How the suspicion begins that a rank did not come to where another one waits for it.
pub(crate) const DID_NOT_COME: &str = "did not come to ";

/// How the accusation begins that a rank's call does not fit those of the others: their own errors follow.
pub(crate) const OUT_OF_STEP: &str = "out of step: ";

/// How a failure begins that other processes tell of a rank, which may be unable to: a state, or an accusation. That
/// calls do not fit is not among them: both ranks have the error.
const ACCUSATIONS: [&str; 9] = [
    "is ",
    DID_NOT_COME,
    "gave group ",
    "its connection to ",
    "lost the store ",
    "out of reach",
    "ended without ",
    COULD_NOT_BE_STARTED,
    "never ",
];

/// The host of a rank that has not said where it is, or where the store does not answer.
pub(super) const UNKNOWN_HOST: &str = "unknown";

/// Whom a rank waits for or holds responsible, and why; of which host, the store knows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Suspicion {
    pub(crate) rank: usize,
    /// As [`PeerFailure::what`].
    pub(crate) what: String,
}

impl Suspicion {
    /// Some suspicion of a rank.
    #[cfg(test)]
    pub(super) fn example(rank: usize) -> Suspicion {
        let what = PeerFailure::example(rank).what;
        Suspicion { rank, what }
    }
}

/// Returns what is said of a rank that was last heard so long ago.
pub(super) fn silence_text(silence: Duration) -> String {
    format!("is silent: no heartbeat for {:.1} s", silence.as_secs_f64())
}

/// Which rank failed, where, and how.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerFailure {
    /// The rank that failed.
    pub rank: usize,
    /// Identity of its host, as [`World::host_of`](super::World::host_of) gives it.
    pub host: String,
    /// What happened, in words; where it is a state of the rank, it begins with `is `.
    pub what: String,
}

impl fmt::Display for PeerFailure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verb = if self.what.starts_with("is ") { "" } else { "failed: " };
        write!(
            formatter,
            "rank {} on host {} {verb}{}",
            self.rank,
            host_name(&self.host),
            self.what
        )
    }
}

impl PeerFailure {
    /// Returns the failure of a rank on a host.
    pub fn new(rank: usize, host: impl Into<String>, what: impl Into<String>) -> PeerFailure {
        let (host, what) = (host.into(), what.into());
        PeerFailure { rank, host, what }
    }

    /// Some failure of a rank.
    #[cfg(test)]
    pub(super) fn example(rank: usize) -> PeerFailure {
        PeerFailure::new(rank, "node/boot", format!("did not come; rank {rank}"))
    }

    /// What happened, as the rank itself says it where it is its own failure or it has met it too.
    pub(super) fn own_text(&self) -> &str {
        // All ranks of a mismatch have the same error; the accusation adds the place of the call.
        let text = self.what.strip_prefix(OUT_OF_STEP).unwrap_or(&self.what);
        text.rsplit_once("; at ").map_or(text, |(text, _place)| text)
    }

    /// Who failed, without the text that the rank prints itself; of a rank that cannot, what the others know of it.
    pub(super) fn in_short(&self) -> String {
        let is_accusation = ACCUSATIONS.iter().any(|beginning| self.what.starts_with(beginning));
        let text = if is_accusation {
            self.to_string()
        } else {
            format!("rank {} on host {} failed", self.rank, host_name(&self.host))
        };
        text.split(';').next().unwrap_or_default().to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_names_rank_host_and_what() {
        assert_eq!(
            PeerFailure::example(2).to_string(),
            "rank 2 on host node failed: did not come; rank 2"
        );
        let silent = PeerFailure {
            what: silence_text(Duration::from_millis(6234)),
            ..PeerFailure::example(3)
        };
        assert_eq!(
            silent.to_string(),
            "rank 3 on host node is silent: no heartbeat for 6.2 s"
        );
    }
}
