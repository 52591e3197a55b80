//! One save, step by step, on all ranks at once.
//!
//! plan, alone → rank 0 checks all plans and makes the temporary folder → each rank writes its shard → rank 0 writes
//! the index and renames. After each step the ranks tell each other whether it succeeded, so a failure on any rank ends
//! the save on all ranks, before anything has its final name.

use std::path::{Path, PathBuf};
use std::time::Instant;

use burn::tensor::Bytes;
use serde_json::Value;

use super::agreement::{agree, gather, share};
use super::checksum::BLOCK_BYTES;
use super::contents::{StoredArray, StoredFile};
use super::error::{Cause, CheckpointError};
use super::folder::{Draft, SaveDirectory};
use super::index::{Index, MAX_INDEX_BYTES};
use super::part::{ArrayPart, PartSpec};
use super::plan::{self, ShardPlan, Summary, plan_shard, shard_name};
use super::shard::write_shard;
use crate::collectives::ProcessGroup;

const SHARED_FOLDER: &str = "every rank must save to the same folder of a shared file system";

/// Where a rank saves to, and with whom.
#[derive(Debug)]
pub(super) struct Saver {
    pub group: ProcessGroup,
    pub directory: PathBuf,
    /// On rank 0 only.
    pub held: Option<SaveDirectory>,
    pub layout: Value,
    pub keep: Option<usize>,
}

impl Saver {
    /// Saves; every rank of the group calls it.
    ///
    /// # Errors
    /// The first failure of any rank, the same on every rank.
    pub fn save(&self, iteration: u64, mut parts: Vec<ArrayPart>, state: Value) -> Result<(), CheckpointError> {
        let begun = Instant::now();
        let rank = self.rank();
        let failed = |cause: Cause| cause.of_saving(iteration, &self.directory);

        let specs: Vec<PartSpec> = parts.iter().map(ArrayPart::spec).collect();
        let planned = plan_parts(rank, iteration, &specs, &parts);
        let planned = planned.map_err(|what| Cause::Other(format!("rank {rank}: {what}")));
        let (shard, summary) = agree(&self.group, planned)?.map_err(failed)?;

        let summaries = gather(&self.group, summary)?;
        let draft = summaries.map(|summaries| self.begin(iteration, &summaries)).transpose();
        let draft = agree(&self.group, draft)?.map_err(failed)?;
        let folder = share(&self.group, draft.as_ref().map(|draft| draft.folder.name.as_str()))?;

        let folder = self.directory.join(folder);
        let written = match shard.file_bytes {
            0 => Ok(Vec::new()),
            _ if !folder.is_dir() => Err(Cause::Other(format!(
                "rank {rank} does not find {}, which rank {} has made: {SHARED_FOLDER}",
                folder.display(),
                self.group.ranks()[0],
            ))),
            _ => {
                // Each part is freed when it has been written.
                let nothing = || Bytes::from_bytes_vec(Vec::new());
                let data = |number: usize| Ok(std::mem::replace(&mut parts[number].data, nothing()));
                let written = write_shard(&folder.join(shard_name(rank)), &shard, &specs, data);
                written.map_err(|error| Cause::of(rank, error))
            }
        };
        let blocks = agree(&self.group, written)?.map_err(failed)?;

        let blocks = gather(&self.group, blocks.into_iter().flat_map(u64::to_le_bytes).collect())?;
        let committed = match draft.zip(blocks) {
            Some((draft, blocks)) => self.commit(iteration, draft, &blocks, state),
            None => Ok(()),
        };
        agree(&self.group, committed)?.map_err(failed)?;

        tracing::info!(
            iteration,
            directory = %self.directory.display(),
            shard_bytes = shard.file_bytes,
            seconds = begun.elapsed().as_secs_f64(),
            "checkpoint saved"
        );
        self.tidy(iteration);
        Ok(())
    }

    fn rank(&self) -> usize {
        self.group.ranks()[self.group.rank()]
    }

    /// On rank 0: checks what all ranks are about to write, and makes the folder for it.
    fn begin(&self, iteration: u64, summaries: &[Vec<u8>]) -> Result<Plans, Cause> {
        let ranks = self.group.ranks();
        let parse = |(text, rank): (&Vec<u8>, &usize)| -> Result<Summary, Cause> {
            let parsed = serde_json::from_slice(text);
            parsed.map_err(|error| Cause::Other(format!("the plan of rank {rank} cannot be read: {error}")))
        };
        let summaries: Vec<Summary> = summaries.iter().zip(ranks).map(parse).collect::<Result<_, _>>()?;
        let (arrays, files) = plan::join(&summaries).map_err(Cause::Other)?;
        let folder = self.held().begin(iteration);
        Ok(Plans {
            folder: folder.map_err(|error| Cause::of(self.rank(), error))?,
            arrays,
            files,
        })
    }

    /// On rank 0: writes the index and gives the checkpoint its name.
    fn commit(&self, iteration: u64, mut plans: Plans, blocks: &[Vec<u8>], state: Value) -> Result<(), Cause> {
        for file in &mut plans.files {
            let position = self.group.ranks().iter().position(|&rank| rank == file.rank);
            let bytes = &blocks[position.expect("the files are those of the ranks")];
            file.blocks = bytes
                .as_chunks::<8>()
                .0
                .iter()
                .map(|bytes| u64::from_le_bytes(*bytes))
                .collect();
            check_visible(&plans.folder.path, file)?;
        }
        let index = Index {
            library_version: env!("CARGO_PKG_VERSION").to_owned(),
            iteration,
            world_size: self.group.size(),
            layout: self.layout.clone(),
            block_bytes: BLOCK_BYTES,
            files: plans.files,
            arrays: plans.arrays,
            state,
        };
        let folder = plans.folder;
        let finish = || {
            index.write(&folder.path)?;
            self.held().commit(folder)
        };
        finish().map(drop).map_err(|error| Cause::of(self.rank(), error))
    }

    /// On rank 0: removes old checkpoints. That it cannot is no failure of the save: the next save tries again.
    fn tidy(&self, written: u64) {
        let Some(held) = &self.held else { return };
        if let Ok(Some(later)) = held.later_than(written) {
            tracing::warn!(
                written,
                later = %later.display(),
                "a checkpoint of a later iteration is there, from before, and stays: to load the latest is to load \
                 that one"
            );
        }
        if let Some(keep) = self.keep
            && let Err(error) = held.prune(keep, written)
        {
            tracing::warn!(%error, "an old checkpoint stays");
        }
    }

    fn held(&self) -> &SaveDirectory {
        self.held.as_ref().expect("rank 0 holds the folder")
    }
}

/// What rank 0 knows while the ranks write.
#[derive(Debug)]
struct Plans {
    /// Removed when this is dropped before it has its name.
    folder: Draft,
    arrays: Vec<StoredArray>,
    files: Vec<StoredFile>,
}

/// Plans this rank's shard; returns the summary as it is sent to rank 0.
fn plan_parts(
    rank: usize,
    iteration: u64,
    specs: &[PartSpec],
    parts: &[ArrayPart],
) -> Result<(ShardPlan, Vec<u8>), String> {
    let (shard, summary) = plan_shard(rank, iteration, specs)?;
    for part in parts {
        let expected = part.range.len().checked_mul(part.dtype.size());
        if expected != Some(part.data.len()) {
            return Err(format!(
                "array {:?}: {} bytes of data for {} elements of {:?}",
                part.name,
                part.data.len(),
                part.range.len(),
                part.dtype
            ));
        }
    }
    let summary = serde_json::to_vec(&summary).map_err(|error| error.to_string())?;
    if summary.len() as u64 > MAX_INDEX_BYTES {
        Err(format!(
            "its list of {} parts takes {} bytes: expected at most {MAX_INDEX_BYTES}",
            parts.len(),
            summary.len()
        ))
    } else {
        Ok((shard, summary))
    }
}

/// Checks that rank 0 sees what another rank has written: folders on two machines may have the same path and nothing
/// else in common.
fn check_visible(folder: &Path, file: &StoredFile) -> Result<(), Cause> {
    let path = folder.join(&file.name);
    match std::fs::metadata(&path) {
        Ok(metadata) if metadata.len() == file.bytes => Ok(()),
        found => Err(Cause::Other(format!(
            "rank {} has written {}, {} bytes; rank 0 finds {}: {SHARED_FOLDER}",
            file.rank,
            path.display(),
            file.bytes,
            found.map_or_else(
                |error| error.to_string(),
                |metadata| format!("{} bytes", metadata.len())
            ),
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shard_that_rank_0_does_not_see_is_named() {
        let folder = tempfile::TempDir::new().unwrap();
        let file = StoredFile {
            name: shard_name(3),
            rank: 3,
            bytes: 5,
            blocks: Vec::new(),
        };
        let message = |outcome: Result<(), Cause>| format!("{:?}", outcome.unwrap_err());
        let missing = message(check_visible(folder.path(), &file));
        std::fs::write(folder.path().join(&file.name), "four").unwrap();
        let short = message(check_visible(folder.path(), &file));
        for (found, words) in [(missing, "No such file"), (short, "rank 0 finds 4 bytes")] {
            assert!(found.contains(words) && found.contains("rank 3 has written"), "{found}");
            assert!(
                found.contains("rank_00003.safetensors, 5 bytes") && found.contains(SHARED_FOLDER),
                "{found}"
            );
        }
        std::fs::write(folder.path().join(&file.name), "fives").unwrap();
        assert_eq!(check_visible(folder.path(), &file), Ok(()));
    }
}
