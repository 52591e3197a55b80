//! Rewriting a checkpoint as one file: what tools that know nothing of ranks can read.

use std::path::{Path, PathBuf};

use super::checksum::BLOCK_BYTES;
use super::error::CheckpointError;
use super::folder::SaveDirectory;
use super::index::Index;
use super::part::PartSpec;
use super::plan::{join, plan_shard, shard_name};
use super::reader::Checkpoint;
use super::shard::write_shard;
use crate::parameters::Placement;

impl Checkpoint {
    /// Writes this checkpoint, unsharded, into a folder of checkpoints: one safetensors file in which each array has its
    /// name and its logical shape, and an index. Returns its folder.
    ///
    /// One array at a time is in memory.
    ///
    /// # Errors
    /// As [`read`](Self::read); the folder is held by a run, holds this checkpoint itself, or cannot be
    /// written to. Nothing is left then.
    pub fn write_unsharded(&self, directory: impl AsRef<Path>) -> Result<PathBuf, CheckpointError> {
        let directory = SaveDirectory::hold(directory.as_ref())?;
        if directory.holds(self.path()) {
            return Err(CheckpointError::Prepare {
                directory: directory.path().to_owned(),
                cause: "it holds the checkpoint that is to be rewritten, which would be replaced".into(),
            });
        }
        let iteration = self.iteration();
        let specs: Vec<PartSpec> = (self.arrays().iter())
            .map(|array| PartSpec {
                name: array.name.clone(),
                placement: Placement::whole(array.shape.clone()),
                range: 0..array.num_elements(),
                dtype: array.dtype,
            })
            .collect();
        let draft = directory.begin(iteration)?;
        let unfit = |what| CheckpointError::IndexBroken {
            path: self.path().to_owned(),
            what,
        };
        let (plan, summary) = plan_shard(0, iteration, &specs).map_err(unfit)?;
        let (arrays, mut files) = join(&[summary]).map_err(unfit)?;
        if let [file] = files.as_mut_slice() {
            file.blocks = write_shard(&draft.path.join(shard_name(0)), &plan, &specs, |number| {
                let PartSpec {
                    name, placement, range, ..
                } = &specs[number];
                Ok(self.read(name, placement, range.clone())?.bytes)
            })?;
        }
        let index = Index {
            library_version: env!("CARGO_PKG_VERSION").to_owned(),
            iteration,
            world_size: 1,
            layout: serde_json::json!({ "converted_from": self.layout() }),
            block_bytes: BLOCK_BYTES,
            files,
            arrays,
            state: self.state().clone(),
        };
        index.write(&draft.path)?;
        directory.commit(draft)
    }
}
