//! [`GroupConfig`]: how a group is made.

use serde::{Deserialize, Serialize};

use super::{CollectiveError, EngineChoice, GroupOptions, ProcessGroup};

/// How a group is made. The same on every rank of the group.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupConfig {
    /// Which engine moves the bytes of host memory.
    pub engine: EngineChoice,
}

impl GroupConfig {
    /// Returns the configuration whose engine is chosen when a group is made.
    pub const fn new() -> Self {
        Self {
            engine: EngineChoice::Auto,
        }
    }

    /// Sets [`engine`](Self::engine).
    pub const fn with_engine(self, engine: EngineChoice) -> Self {
        Self { engine }
    }
}

impl GroupOptions for GroupConfig {
    fn engine(&self) -> EngineChoice {
        self.engine
    }

    fn check(&self) -> Result<(), String> {
        Ok(())
    }

    fn attach(&self, _group: &ProcessGroup) -> Result<(), CollectiveError> {
        Ok(())
    }
}
