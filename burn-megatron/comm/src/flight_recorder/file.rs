//! The files of the flight recorder: one JSON object per rank.
//!
//! Times are seconds since 1970 by the rank's own clock.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver};
use std::thread;

use crate::limits::MAX_WORLD_SIZE;
use serde::{Deserialize, Serialize};

const PREFIX: &str = "flight-record-rank-";
/// The largest file that is read.
const MAX_BYTES: u64 = 256 << 20;

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
#[allow(missing_docs, reason = "the messages say it")]
pub enum FlightRecorderError {
    /// The folder, or a file in it, cannot be read.
    #[error("cannot read {path}: {source}")]
    Read { path: PathBuf, source: io::Error },
    /// No rank has written a file.
    #[error("no flight records in {path}: expected files named {PREFIX}<rank>.json")]
    Empty { path: PathBuf },
    /// A file is not what a rank writes.
    #[error("{path} is no flight record: {source}")]
    Broken { path: PathBuf, source: serde_json::Error },
    /// A file contradicts itself, or comes from another version.
    #[error("{path} is no flight record: {what}")]
    Invalid { path: PathBuf, what: String },
    #[error("{first} is of job {first_job} and {other} of job {other_job}: use one folder per job")]
    SeveralJobs {
        first: PathBuf,
        first_job: String,
        other: PathBuf,
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

/// The files in a folder.
pub(super) struct RecordFolder {
    /// By rank, ascending.
    files: BTreeMap<usize, PathBuf>,
}

impl RecordFolder {
    /// Finds the files of a folder.
    ///
    /// # Errors
    /// The folder cannot be read, or there is no file.
    pub(super) fn open(folder: &Path) -> Result<Self, FlightRecorderError> {
        let failed = |source| FlightRecorderError::Read {
            path: folder.to_owned(),
            source,
        };
        let mut files = BTreeMap::new();
        for file in fs::read_dir(folder).map_err(failed)? {
            let path = file.map_err(failed)?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let rank = name.strip_prefix(PREFIX).and_then(|rest| rest.strip_suffix(".json"));
            if let Some(rank) = rank.and_then(|rank| rank.parse().ok()) {
                files.insert(rank, path);
            }
        }
        if files.is_empty() {
            let path = folder.to_owned();
            return Err(FlightRecorderError::Empty { path });
        }
        Ok(Self { files })
    }

    /// Takes the records, by rank, ascending. They are read on all cores, a few at a time.
    ///
    /// # Errors
    /// A file cannot be read or is broken, or they are of several jobs.
    pub(super) fn for_each(&self, mut take: impl FnMut(RankRecord)) -> Result<(), FlightRecorderError> {
        let readers = thread::available_parallelism()
            .map_or(1, usize::from)
            .min(self.files.len());
        let mut first: Option<(&Path, String)> = None;
        thread::scope(|scope| {
            // Each reads its share of the files and waits until the last but one is taken.
            let records: Vec<Receiver<_>> = (0..readers)
                .map(|reader| {
                    let (sender, receiver) = mpsc::sync_channel(1);
                    let share = self.files.iter().skip(reader).step_by(readers);
                    scope.spawn(move || {
                        share
                            .into_iter()
                            .all(|(rank, path)| sender.send(read(*rank, path)).is_ok())
                    });
                    receiver
                })
                .collect();
            for (place, path) in self.files.values().enumerate() {
                let record = records[place % readers]
                    .recv()
                    .expect("a reader reads all of its share")?;
                match &first {
                    None => first = Some((path, record.job_id.clone())),
                    Some((_, job)) if *job == record.job_id => {}
                    Some((first, job)) => {
                        return Err(FlightRecorderError::SeveralJobs {
                            first: first.to_path_buf(),
                            first_job: job.clone(),
                            other: path.clone(),
                            other_job: record.job_id,
                        });
                    }
                }
                take(record);
            }
            Ok(())
        })
    }

    /// Returns a rank's record, if it has written one.
    ///
    /// # Errors
    /// The file cannot be read or is broken.
    pub(super) fn read(&self, rank: usize) -> Result<Option<RankRecord>, FlightRecorderError> {
        self.files.get(&rank).map(|path| read(rank, path)).transpose()
    }
}

/// Reads the file that is named after a rank.
fn read(rank: usize, path: &Path) -> Result<RankRecord, FlightRecorderError> {
    let failed = |source| FlightRecorderError::Read {
        path: path.to_owned(),
        source,
    };
    let invalid = |what| FlightRecorderError::Invalid {
        path: path.to_owned(),
        what,
    };
    let bytes = fs::metadata(path).map_err(failed)?.len();
    if bytes > MAX_BYTES {
        return Err(invalid(format!("{bytes} bytes, expected at most {MAX_BYTES}")));
    }
    let record = parse(path, &fs::read(path).map_err(failed)?)?;
    if record.rank != rank {
        let what = format!("it is rank {}'s, and named after rank {rank}", record.rank);
        return Err(invalid(what));
    }
    Ok(record)
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
