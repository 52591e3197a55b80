//! [`FlightRecorder`]: the rings of one process, and when they are written.
//!
//! A call takes a lock three times: when it is made, when it begins and when it ends. No other thread holds that lock
//! for longer than the writing of a few words.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::panic::Location;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use signal_hook::consts::SIGUSR1;
use signal_hook::iterator::Signals;

use super::file::{RankRecord, RecordedCall, RecordedGroup, State, write};

/// Names of the environment variables that the recorder reads.
pub mod variables {
    /// Folder for the files; none are written unless it is set.
    pub const FOLDER: &str = "BURN_MEGATRON_FLIGHT_RECORDER_DIR";
    /// Calls that each group keeps; 0 for none.
    pub const LENGTH: &str = "BURN_MEGATRON_FLIGHT_RECORDER_LEN";
}

/// Calls that each group keeps by default.
const DEFAULT_LENGTH: usize = 256;
/// Groups that are kept when they are gone.
const MAX_GONE_GROUPS: usize = 64;

/// Whose calls are recorded.
#[derive(Clone, Debug)]
pub struct RankIdentity {
    /// The rank.
    pub rank: usize,
    /// The number of ranks.
    pub world_size: usize,
    /// The host's name.
    pub host: String,
    /// The job's id.
    pub job_id: String,
}

/// A call as its caller describes it.
#[derive(Clone, Copy, Debug)]
pub struct CallNote {
    /// The operation: `all_reduce`.
    pub operation: &'static str,
    /// How values are reduced, for reductions.
    pub reduce_op: Option<&'static str>,
    /// Type of the elements.
    pub element_type: &'static str,
    /// Elements in this rank's buffer or shard.
    pub length: usize,
    /// Global rank of a broadcast's root, or of the other side of a transfer.
    pub peer: Option<usize>,
}

/// The recorder of one process. Clones share it.
///
/// `Debug` writes whose it is, and no call: everything that communicates holds one.
#[derive(Clone)]
pub struct FlightRecorder {
    inner: Arc<Inner>,
}

struct Inner {
    identity: RankIdentity,
    length: usize,
    folder: Option<PathBuf>,
    clock: Clock,
    groups: Mutex<Groups>,
    /// Held while a file is written; later files keep the first failure.
    failure: Mutex<Option<String>>,
    /// How far this rank's program has come, in its own words.
    progress: Mutex<Option<String>>,
}

#[derive(Default)]
struct Groups {
    recorders: Vec<Arc<GroupRecorder>>,
    /// How many groups of each name and ranks there have been.
    made: HashMap<String, u64>,
}

/// Turns the cheap clock into the time of day.
#[derive(Clone, Copy, Debug)]
struct Clock {
    start: Instant,
    start_unix_secs: f64,
}

impl Clock {
    fn new() -> Self {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self {
            start: Instant::now(),
            start_unix_secs: since_epoch.as_secs_f64(),
        }
    }

    fn unix_secs(&self, time: Instant) -> f64 {
        self.start_unix_secs + time.saturating_duration_since(self.start).as_secs_f64()
    }
}

impl FlightRecorder {
    /// Returns the recorder of a rank, whose files go to `folder`, or else to where the environment says, if it does.
    /// Those of ranks that have been started `restarts` times before go to `restart-<restarts>` there, so that what an
    /// earlier start has written stays. With a folder, SIGUSR1 writes the file from now on.
    ///
    /// # Errors
    /// The environment's number of calls is none; SIGUSR1 cannot be watched.
    pub fn from_environment(identity: RankIdentity, folder: Option<PathBuf>, restarts: u64) -> io::Result<Self> {
        let folder = folder.or_else(|| std::env::var_os(variables::FOLDER).map(PathBuf::from));
        let folder = folder.map(|folder| match restarts {
            0 => folder,
            restarts => folder.join(format!("restart-{restarts}")),
        });
        let length = match std::env::var(variables::LENGTH) {
            Err(_) => DEFAULT_LENGTH,
            Ok(text) => text.parse().map_err(|_| {
                let what = format!("{} is {text:?}: expected a number of calls", variables::LENGTH);
                io::Error::new(io::ErrorKind::InvalidInput, what)
            })?,
        };
        let recorder = Self::new(identity, length, folder);
        if recorder.inner.folder.is_some() {
            write_on_signal(Arc::downgrade(&recorder.inner))?;
        }
        Ok(recorder)
    }

    /// Returns a recorder of `length` calls per group.
    pub fn new(identity: RankIdentity, length: usize, folder: Option<PathBuf>) -> Self {
        Self {
            inner: Arc::new(Inner {
                identity,
                length,
                folder,
                clock: Clock::new(),
                groups: Mutex::default(),
                failure: Mutex::default(),
                progress: Mutex::default(),
            }),
        }
    }

    /// Returns a recorder that keeps nothing, for a group outside any job.
    pub fn detached() -> Self {
        let identity = RankIdentity {
            rank: 0,
            world_size: 1,
            host: String::new(),
            job_id: String::new(),
        };
        Self::new(identity, 0, None)
    }

    /// Notes how far this rank's program has come, for messages about calls of ranks that do not fit together.
    pub fn set_progress(&self, progress: String) {
        *self.inner.progress.lock() = Some(progress);
    }

    /// Returns how far this rank's program has come, if it has said so.
    pub fn progress(&self) -> Option<String> {
        self.inner.progress.lock().clone()
    }

    /// Returns where files are written, if anywhere.
    pub fn folder(&self) -> Option<&Path> {
        self.inner.folder.as_deref()
    }

    /// Returns the ring of a new group of these global ranks.
    pub fn group(&self, name: &str, ranks: &[usize]) -> Arc<GroupRecorder> {
        let mut groups = self.inner.groups.lock();
        let made = groups.made.entry(format!("{name} {ranks:?}")).or_default();
        *made += 1;
        let recorder = Arc::new(GroupRecorder {
            name: name.to_owned(),
            ranks: ranks.to_vec(),
            generation: *made,
            ring: Mutex::new(Ring {
                length: self.inner.length,
                entries: Vec::new(),
                next: 0,
            }),
        });
        let is_gone = |recorder: &Arc<GroupRecorder>| Arc::strong_count(recorder) == 1;
        if groups.recorders.iter().filter(|recorder| is_gone(recorder)).count() >= MAX_GONE_GROUPS
            && let Some(oldest) = groups.recorders.iter().position(is_gone)
        {
            groups.recorders.remove(oldest);
        }
        groups.recorders.push(recorder.clone());
        recorder
    }

    /// Returns the call that this rank made last, in words.
    pub fn last_call(&self) -> Option<String> {
        let groups = self.inner.groups.lock();
        let last = groups.recorders.iter().filter_map(|group| group.last_call());
        last.max_by_key(|(queued, _)| *queued).map(|(_, text)| text)
    }

    /// Writes this rank's file because of a failure, if there is a folder. The first failure is the one it tells.
    ///
    /// A file that cannot be written is a warning: the failure itself is worth more.
    pub fn write_failure(&self, what: &str) {
        self.inner.write_or_warn(Some(what));
    }

    /// Writes this rank's file, if there is a folder, and returns its path.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write(&self) -> io::Result<Option<PathBuf>> {
        self.inner.write(None)
    }

    /// Returns what would be written.
    pub fn record(&self) -> RankRecord {
        self.inner.record(None)
    }
}

impl fmt::Debug for FlightRecorder {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("FlightRecorder")
            .field("rank", &self.inner.identity.rank)
            .field("folder", &self.inner.folder)
            .field("groups", &self.inner.groups.lock().recorders.len())
            .finish()
    }
}

impl Inner {
    fn write_or_warn(&self, failure: Option<&str>) {
        if let Err(error) = self.write(failure) {
            let rank = self.identity.rank;
            tracing::warn!(
                "rank {rank} cannot write its flight record to {:?}: {error}",
                self.folder
            );
        }
    }

    fn write(&self, what: Option<&str>) -> io::Result<Option<PathBuf>> {
        let Some(folder) = &self.folder else { return Ok(None) };
        let mut failure = self.failure.lock();
        if let (None, Some(what)) = (&*failure, what) {
            *failure = Some(what.to_owned());
        }
        write(folder, &self.record(failure.clone())).map(Some)
    }

    fn record(&self, failure: Option<String>) -> RankRecord {
        let RankIdentity {
            rank,
            world_size,
            host,
            job_id,
        } = self.identity.clone();
        RankRecord {
            version: RankRecord::VERSION,
            job_id,
            rank,
            world_size,
            host,
            pid: std::process::id(),
            written_at: self.clock.unix_secs(Instant::now()),
            failure,
            groups: self
                .groups
                .lock()
                .recorders
                .iter()
                .map(|group| group.record(self.clock))
                .collect(),
        }
    }
}

/// Starts the thread that writes the file on SIGUSR1, for as long as there is a recorder.
fn write_on_signal(recorder: Weak<Inner>) -> io::Result<()> {
    let mut signals = Signals::new([SIGUSR1])?;
    std::thread::Builder::new()
        .name("flight-recorder".into())
        .spawn(move || {
            for _ in signals.forever() {
                match recorder.upgrade() {
                    Some(recorder) => recorder.write_or_warn(None),
                    None => return,
                }
            }
        })?;
    Ok(())
}

/// The last calls of one group.
///
/// `Debug` writes which group it is and how many calls it has made.
pub struct GroupRecorder {
    name: String,
    ranks: Vec<usize>,
    generation: u64,
    ring: Mutex<Ring>,
}

struct Ring {
    length: usize,
    /// Call number n is at index n modulo `length`.
    entries: Vec<Entry>,
    next: u64,
}

struct Entry {
    number: u64,
    note: CallNote,
    called_at: &'static Location<'static>,
    label: Option<Arc<str>>,
    sequence: Option<u64>,
    queued: Instant,
    started: Option<Instant>,
    ended: Option<Instant>,
    error: Option<String>,
}

impl GroupRecorder {
    /// Notes a call that was made; returns its number, for the calls below.
    pub fn queued(&self, note: CallNote, called_at: &'static Location<'static>, label: Option<Arc<str>>) -> u64 {
        let queued = Instant::now();
        let mut ring = self.ring.lock();
        let number = ring.next;
        ring.next += 1;
        let entry = Entry {
            number,
            note,
            called_at,
            label,
            sequence: None,
            queued,
            started: None,
            ended: None,
            error: None,
        };
        match ring.length {
            0 => {}
            length if ring.entries.len() < length => ring.entries.push(entry),
            length => ring.entries[(number % length as u64) as usize] = entry,
        }
        number
    }

    /// Notes the place of a call among those of its lane.
    pub fn numbered(&self, number: u64, sequence: u64) {
        self.change(number, |entry| entry.sequence = Some(sequence));
    }

    /// Notes that a call begins.
    pub fn started(&self, number: u64, sequence: u64) {
        let now = Instant::now();
        self.change(number, |entry| {
            entry.sequence = Some(sequence);
            entry.started = Some(now);
        });
    }

    /// Notes that a call has ended well.
    pub fn done(&self, number: u64) {
        let now = Instant::now();
        self.change(number, |entry| entry.ended = Some(now));
    }

    /// Notes that a call has failed, or was refused if it never began.
    pub fn failed(&self, number: u64, error: &str) {
        let now = Instant::now();
        self.change(number, |entry| {
            entry.ended = Some(now);
            entry.error = Some(error.to_owned());
        });
    }

    /// When the last call was made, and which it was.
    fn last_call(&self) -> Option<(Instant, String)> {
        let ring = self.ring.lock();
        let number = ring.next.checked_sub(1)?;
        let place = number.checked_rem(ring.length as u64)?;
        let entry = ring.entries.get(place as usize)?;
        let state = match (entry.started, entry.ended) {
            (_, Some(_)) => "done",
            (Some(_), None) => "running",
            (None, None) => "queued",
        };
        let text = format!(
            "last collective #{} {} of group {} ({state})",
            entry.sequence.unwrap_or(number),
            entry.note.operation,
            self.name
        );
        Some((entry.queued, text))
    }

    /// Changes an entry that is still there.
    fn change(&self, number: u64, change: impl FnOnce(&mut Entry)) {
        let mut ring = self.ring.lock();
        if ring.length == 0 {
            return;
        }
        let place = (number % ring.length as u64) as usize;
        if let Some(entry) = ring.entries.get_mut(place).filter(|entry| entry.number == number) {
            change(entry);
        }
    }

    fn record(&self, clock: Clock) -> RecordedGroup {
        let ring = self.ring.lock();
        let mut entries: Vec<&Entry> = ring.entries.iter().collect();
        entries.sort_by_key(|entry| entry.number);
        RecordedGroup {
            name: self.name.clone(),
            ranks: self.ranks.clone(),
            generation: self.generation,
            calls: entries.into_iter().map(|entry| entry.record(clock)).collect(),
        }
    }
}

impl fmt::Debug for GroupRecorder {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("GroupRecorder")
            .field("name", &self.name)
            .field("ranks", &self.ranks.len())
            .field("calls", &self.ring.lock().next)
            .finish()
    }
}

impl Entry {
    fn record(&self, clock: Clock) -> RecordedCall {
        let time = |time: Instant| clock.unix_secs(time);
        let note = self.note;
        RecordedCall {
            operation: note.operation.to_owned(),
            reduce_op: note.reduce_op.map(str::to_owned),
            element_type: note.element_type.to_owned(),
            length: note.length,
            peer: note.peer,
            sequence: self.sequence,
            called_at: self.called_at.to_string(),
            label: self.label.as_deref().map(str::to_owned),
            state: match (&self.error, self.started, self.ended) {
                (Some(_), _, _) => State::Failed,
                (None, _, Some(_)) => State::Done,
                (None, Some(_), None) => State::Running,
                (None, None, None) => State::Queued,
            },
            queued: time(self.queued),
            started: self.started.map(time),
            ended: self.ended.map(time),
            error: self.error.clone(),
        }
    }
}
