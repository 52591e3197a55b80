//! [`RankFolder`]: a folder that all ranks of a job share.

use std::path::PathBuf;

use anyhow::Context as _;
use burn_megatron::collectives::ProcessGroup;
use tempfile::TempDir;

/// An empty folder of all ranks, which the first one removes.
pub struct RankFolder {
    pub path: PathBuf,
    _own: Option<TempDir>,
}

impl RankFolder {
    /// The first rank makes it.
    ///
    /// # Communication
    /// Two broadcasts: of the path's length, and of the path.
    pub fn new(world: &ProcessGroup) -> anyhow::Result<Self> {
        let own = (world.rank() == 0).then(tempfile::tempdir).transpose()?;
        let name = own
            .as_ref()
            .map(|folder| folder.path().to_str().context("a path in UTF-8").map(str::to_owned));
        let mut bytes: Vec<i32> = name.transpose()?.unwrap_or_default().bytes().map(i32::from).collect();
        let mut length = [bytes.len() as i64];
        world.broadcast(&mut length, 0)?;
        bytes.resize(length[0] as usize, 0);
        world.broadcast(&mut bytes, 0)?;
        let name: Vec<u8> = bytes.into_iter().map(|byte| byte as u8).collect();
        let path = PathBuf::from(String::from_utf8(name)?);
        Ok(Self { path, _own: own })
    }
}
