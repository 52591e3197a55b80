//! The files of the flight recorder: one JSON object per rank.
//!
//! Times are seconds since 1970 by the rank's own clock.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::limits::MAX_WORLD_SIZE;
use serde::{Deserialize, Serialize};

const PREFIX: &str = "flight-record-rank-";

/// What one rank has recorded.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RankRecord {
    /// Version of this format.
    pub version: u32,
    /// The job's id.
    pub job_id: String,
    /// The rank.
    pub rank: usize,
    /// The number of ranks.
    pub world_size: usize,
    /// The host's name.
    pub host: String,
    /// The process.
    pub pid: u32,
    /// When the file was written.
    pub written_at: f64,
    /// The first failure that this rank met; `None` if a signal asked for the file.
    pub failure: Option<String>,
    /// The groups, in the order in which they were made.
    pub groups: Vec<RecordedGroup>,
}

/// The last calls of one group.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RecordedGroup {
    /// The group's name.
    pub name: String,
    /// Its global ranks.
    pub ranks: Vec<usize>,
    /// Counts the groups of this name and these ranks from 1.
    pub generation: u64,
    /// Its last calls, in the order in which they were made.
    pub calls: Vec<RecordedCall>,
}

/// One call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RecordedCall {
    /// The operation: `all_reduce`.
    pub operation: String,
    /// How values are reduced, for reductions.
    pub reduce_op: Option<String>,
    /// Type of the elements.
    pub element_type: String,
    /// Elements in this rank's buffer or shard.
    pub length: usize,
    /// Global rank of a broadcast's root, or of the other side of a transfer.
    pub peer: Option<usize>,
    /// Number among the group's collectives, or among the transfers from one rank to one other; none before it is
    /// known.
    pub sequence: Option<u64>,
    /// The line that made the call.
    pub called_at: String,
    /// What the caller called it.
    pub label: Option<String>,
    /// How far it has come.
    pub state: State,
    /// When it was made.
    pub queued: f64,
    /// When it began; none for a call that was refused.
    pub started: Option<f64>,
    /// When it ended.
    pub ended: Option<f64>,
    /// Why it failed.
    pub error: Option<String>,
}

/// How far a call has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// Waits for the calls made before it.
    Queued,
    /// In flight: waits for the other ranks, or moves data.
    Running,
    /// Has ended well.
    Done,
    /// Has failed.
    Failed,
}

/// Why the files of a job cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FlightRecorderError {
    /// The folder, or a file in it, cannot be read.
    #[error("cannot read {path}: {source}")]
    Read {
        /// Folder or file.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
    /// No rank has written a file.
    #[error("no flight records in {path}: expected files named {PREFIX}<rank>.json")]
    Empty {
        /// The folder.
        path: PathBuf,
    },
    /// A file is not what a rank writes.
    #[error("{path} is no flight record: {source}")]
    Broken {
        /// The file.
        path: PathBuf,
        /// Where and how it is broken.
        source: serde_json::Error,
    },
    /// A file contradicts itself, or comes from another version.
    #[error("{path} is no flight record: {what}")]
    Invalid {
        /// The file.
        path: PathBuf,
        /// The rule and the values.
        what: String,
    },
    /// The folder holds files of several jobs.
    #[error("{first} is of job {first_job} and {other} of job {other_job}: use one folder per job")]
    SeveralJobs {
        /// One file.
        first: PathBuf,
        /// Its job.
        first_job: String,
        /// Another file.
        other: PathBuf,
        /// Its job.
        other_job: String,
    },
}

impl RankRecord {
    /// The version that this crate writes and reads.
    pub(super) const VERSION: u32 = 1;

    fn check(&self) -> Result<(), String> {
        let Self {
            version,
            rank,
            world_size,
            ..
        } = self;
        if *version != Self::VERSION {
            return Err(format!("version {version}, expected {}", Self::VERSION));
        }
        if rank >= world_size {
            return Err(format!("rank {rank} is not below the world size {world_size}"));
        }
        if *world_size > MAX_WORLD_SIZE {
            return Err(format!("world size {world_size}, expected at most {MAX_WORLD_SIZE}"));
        }
        let strange = |group: &&RecordedGroup| !group.ranks.contains(rank);
        match self.groups.iter().find(strange) {
            Some(group) => Err(format!(
                "rank {rank} is not in its group {} {:?}",
                group.name, group.ranks
            )),
            None => Ok(()),
        }
    }
}

/// Writes a rank's file whole or not at all, over an older one; returns its path.
pub(super) fn write(folder: &Path, record: &RankRecord) -> io::Result<PathBuf> {
    fs::create_dir_all(folder)?;
    let path = folder.join(format!("{PREFIX}{}.json", record.rank));
    let unfinished = folder.join(format!(".{PREFIX}{}.{}.tmp", record.rank, record.pid));
    let written = fs::write(&unfinished, serde_json::to_vec(record)?).and_then(|()| fs::rename(&unfinished, &path));
    written.inspect_err(|_| drop(fs::remove_file(&unfinished)))?;
    Ok(path)
}

/// Returns the records in a folder, by rank, ascending. Ranks may be missing: one that hangs writes nothing.
///
/// # Errors
/// The folder or a file cannot be read, there is none, one is broken, or they are of several jobs.
pub fn read_folder(folder: &Path) -> Result<Vec<RankRecord>, FlightRecorderError> {
    let failed = |source| FlightRecorderError::Read {
        path: folder.to_owned(),
        source,
    };
    let mut records: Vec<(PathBuf, RankRecord)> = Vec::new();
    for file in fs::read_dir(folder).map_err(failed)? {
        let path = file.map_err(failed)?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if name.starts_with(PREFIX) && name.ends_with(".json") {
            let record = read(&path)?;
            records.push((path, record));
        }
    }
    let Some((first, of_first)) = records.first() else {
        return Err(FlightRecorderError::Empty {
            path: folder.to_owned(),
        });
    };
    if let Some((other, of_other)) = records.iter().find(|(_, record)| record.job_id != of_first.job_id) {
        return Err(FlightRecorderError::SeveralJobs {
            first: first.clone(),
            first_job: of_first.job_id.clone(),
            other: other.clone(),
            other_job: of_other.job_id.clone(),
        });
    }
    let mut records: Vec<RankRecord> = records.into_iter().map(|(_, record)| record).collect();
    records.sort_by_key(|record| record.rank);
    Ok(records)
}

fn read(path: &Path) -> Result<RankRecord, FlightRecorderError> {
    let bytes = fs::read(path).map_err(|source| FlightRecorderError::Read {
        path: path.to_owned(),
        source,
    })?;
    parse(path, &bytes)
}

/// Returns the record that a file's bytes are.
pub(super) fn parse(path: &Path, bytes: &[u8]) -> Result<RankRecord, FlightRecorderError> {
    let record: RankRecord = serde_json::from_slice(bytes).map_err(|source| FlightRecorderError::Broken {
        path: path.to_owned(),
        source,
    })?;
    record.check().map_err(|what| FlightRecorderError::Invalid {
        path: path.to_owned(),
        what,
    })?;
    Ok(record)
}
