//! Checkpoints of one file, in which every array is whole: what tools that know nothing of ranks can read, and what is
//! made of other programs' files.

use std::path::{Path, PathBuf};

use burn::tensor::{Bytes, DType};
use serde_json::Value;

use super::checksum::BLOCK_BYTES;
use super::error::CheckpointError;
use super::folder::SaveDirectory;
use super::index::Index;
use super::part::PartSpec;
use super::plan::{join, plan_shard, shard_name};
use super::reader::Checkpoint;
use super::shard::write_shard;
use crate::parameters::Placement;

/// A checkpoint that one process writes, array by array.
#[derive(Clone, Debug)]
pub struct UnshardedCheckpoint {
    /// The iteration that it is of.
    pub iteration: u64,
    /// For people who look at it.
    pub layout: Value,
    /// What a run needs to resume.
    pub state: Value,
    /// What it holds.
    pub arrays: Vec<WholeArray>,
}

/// An array that is written whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WholeArray {
    /// Its name.
    pub name: String,
    /// The type of its elements: F64, F32, F16, BF16 or U8.
    pub dtype: DType,
    /// Its logical shape.
    pub shape: Vec<usize>,
}

impl UnshardedCheckpoint {
    /// Writes into a folder of checkpoints, made if it is not there: one safetensors file in which each array has its
    /// name and its shape, and an index. Returns the checkpoint's folder.
    ///
    /// `data` is asked once for the elements of each array, row-major, and one array at a time is in memory.
    ///
    /// # Errors
    /// `data` fails; an array has another type, a name twice or a shape that cannot be counted; the folder is held by a
    /// run, has a checkpoint of this iteration already, or cannot be written to. Nothing is left then, and nothing
    /// replaced.
    ///
    /// # Panics
    /// When `data` returns another number of bytes than the array has.
    pub fn write(
        &self,
        directory: impl AsRef<Path>,
        data: impl FnMut(&WholeArray) -> Result<Bytes, CheckpointError>,
    ) -> Result<PathBuf, CheckpointError> {
        self.write_held(&SaveDirectory::hold(directory.as_ref())?, data)
    }

    fn write_held(
        &self,
        directory: &SaveDirectory,
        mut data: impl FnMut(&WholeArray) -> Result<Bytes, CheckpointError>,
    ) -> Result<PathBuf, CheckpointError> {
        let unfit = |cause| CheckpointError::Prepare {
            directory: directory.path().to_owned(),
            cause,
        };
        if let Some(there) = directory.checkpoint_of(self.iteration) {
            return Err(CheckpointError::IsThere { path: there });
        }
        let specs: Vec<PartSpec> = self.arrays.iter().map(spec).collect::<Result<_, _>>().map_err(unfit)?;
        let (plan, summary) = plan_shard(0, self.iteration, &specs).map_err(unfit)?;
        let (arrays, mut files) = join(&[summary]).map_err(unfit)?;
        let draft = directory.begin(self.iteration)?;
        if let [file] = files.as_mut_slice() {
            file.blocks = write_shard(&draft.path.join(shard_name(0)), &plan, &specs, |number| {
                let (array, spec) = (&self.arrays[number], &specs[number]);
                let bytes = data(array)?;
                let expected = spec.range.len() * array.dtype.size();
                assert_eq!(bytes.len(), expected, "the bytes of array {:?}", array.name);
                Ok(bytes)
            })?;
        }
        let index = Index {
            library_version: env!("CARGO_PKG_VERSION").to_owned(),
            iteration: self.iteration,
            world_size: 1,
            layout: self.layout.clone(),
            block_bytes: BLOCK_BYTES,
            files,
            arrays,
            state: self.state.clone(),
        };
        index.write(&draft.path)?;
        directory.commit(draft)
    }
}

fn spec(array: &WholeArray) -> Result<PartSpec, String> {
    let WholeArray { name, shape, .. } = array;
    let length = shape
        .iter()
        .try_fold(1, |length: usize, size| length.checked_mul(*size));
    let length = length.ok_or_else(|| format!("array {name:?} of shape {shape:?} has too many elements"))?;
    Ok(PartSpec {
        name: name.clone(),
        placement: Placement::whole(shape.clone()),
        range: 0..length,
        dtype: array.dtype,
    })
}

impl Checkpoint {
    /// Writes this checkpoint, unsharded, into a folder of checkpoints, as [`UnshardedCheckpoint::write`] does. Returns
    /// its folder.
    ///
    /// # Errors
    /// As [`read`](Self::read); the folder is held by a run, has a checkpoint of this iteration already (this one
    /// itself, maybe), or cannot be written to. Nothing is left then, and nothing replaced.
    pub fn write_unsharded(&self, directory: impl AsRef<Path>) -> Result<PathBuf, CheckpointError> {
        let directory = SaveDirectory::hold(directory.as_ref())?;
        let arrays = self.arrays().iter().map(|array| WholeArray {
            name: array.name.clone(),
            dtype: array.dtype,
            shape: array.shape.clone(),
        });
        let whole = UnshardedCheckpoint {
            iteration: self.iteration(),
            layout: serde_json::json!({ "converted_from": self.layout() }),
            state: self.state().clone(),
            arrays: arrays.collect(),
        };
        whole.write_held(&directory, |array| {
            let placement = Placement::whole(array.shape.clone());
            let range = 0..placement.local_len();
            Ok(self.read(&array.name, &placement, range)?.bytes)
        })
    }
}
