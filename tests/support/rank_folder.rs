//! [`RankFolder`]: a folder that all ranks of a job share.

use std::path::PathBuf;

use burn_megatron::collectives::{CollectiveError, ProcessGroup};

/// A folder of all ranks, which the first one removes.
pub struct RankFolder {
    pub path: PathBuf,
    is_own: bool,
}

impl RankFolder {
    /// Returns the name of a folder that is not there yet.
    ///
    /// # Communication
    /// A broadcast of 8 bytes.
    pub fn new(world: &ProcessGroup) -> Result<Self, CollectiveError> {
        let mut first = [i64::from(std::process::id())];
        world.broadcast(&mut first, 0)?;
        let path = std::env::temp_dir().join(format!("burn-megatron-ranks-{}", first[0]));
        let is_own = world.rank() == 0;
        Ok(Self { path, is_own })
    }
}

impl Drop for RankFolder {
    fn drop(&mut self) {
        if self.is_own {
            let _ = std::fs::remove_dir_all(&self.path);
        }
    }
}
