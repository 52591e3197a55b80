//! [`Report`]: the records of all ranks side by side: which ranks are late, at which call, and which ranks wait there.
//!
//! # The rule
//!
//! Calls are lined up lane by lane: a group's collectives are one lane, its transfers from one rank to another are one
//! lane each. A rank is *late* in a lane when another rank of the lane has begun a call that it has not ended well, and
//! this rank has not begun that call. A rank without a record has begun nothing that is known. A late rank may itself
//! wait, in another lane, for another late rank: the *culprits* are those that wait nowhere.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::Range;

use super::file::{RankRecord, RecordedCall, RecordedGroup, State};

/// A rank that others wait for.
#[derive(Clone, Debug, PartialEq)]
pub struct LateRank {
    /// The rank.
    pub rank: usize,
    /// Whether it has written a record: one that hangs or was killed has not.
    pub has_record: bool,
    /// Group, and sender and receiver of a transfer.
    pub lane: String,
    /// The last call of the lane that it has begun, if any is known.
    pub last: Option<RecordedCall>,
    /// The call that others have begun and it has not.
    pub awaited: RecordedCall,
    /// The ranks that wait there.
    pub waiting: Vec<usize>,
}

/// Two ranks that made different calls under the same number.
#[derive(Clone, Debug, PartialEq)]
pub struct OutOfStep {
    /// Group, and sender and receiver of a transfer.
    pub lane: String,
    /// The lower rank, and its call.
    pub first: (usize, RecordedCall),
    /// The other rank, and its call.
    pub other: (usize, RecordedCall),
}

/// What the records of a job say together. Its `Display` is a short table.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// The job's id.
    pub job_id: String,
    /// The number of ranks.
    pub world_size: usize,
    /// Ranks without a record, in runs, ascending.
    pub missing: Vec<Range<usize>>,
    /// Each rank's host and the first failure that it met.
    pub failures: Vec<(usize, String, String)>,
    /// The late ranks, lane by lane.
    pub late: Vec<LateRank>,
    /// Ranks that made different calls under the same number.
    pub out_of_step: Vec<OutOfStep>,
    /// Ranks that others wait for and that wait for no rank.
    pub culprits: Vec<usize>,
}

/// Name, ranks, generation of a group, and sender and receiver of a transfer.
type LaneKey = (String, Vec<usize>, u64, Option<(usize, usize)>);
/// The calls of each rank that have a number.
type Lane<'a> = BTreeMap<usize, Vec<&'a RecordedCall>>;

impl Report {
    /// Lines up the records of one job.
    pub fn new(records: &[RankRecord]) -> Self {
        let world_size = records.iter().map(|record| record.world_size).max().unwrap_or(0);
        let recorded: BTreeSet<usize> = records.iter().map(|record| record.rank).collect();
        let lanes = lanes(records);
        let late_ranks: Vec<LateRank> = lanes
            .iter()
            .flat_map(|(key, lane)| find_late(key, lane, &recorded))
            .collect();
        let waiting: BTreeSet<usize> = late_ranks.iter().flat_map(|late| late.waiting.clone()).collect();
        let late: BTreeSet<usize> = late_ranks.iter().map(|late| late.rank).collect();
        let idle: Vec<usize> = late.difference(&waiting).copied().collect();
        Self {
            job_id: records.first().map_or_else(String::new, |record| record.job_id.clone()),
            world_size,
            missing: gaps(&recorded, world_size),
            failures: records
                .iter()
                .filter_map(|record| Some((record.rank, record.host.clone(), record.failure.clone()?)))
                .collect(),
            out_of_step: lanes
                .iter()
                .filter_map(|(key, lane)| find_out_of_step(key, lane))
                .collect(),
            // A circle of ranks that wait for each other: each of them.
            culprits: if idle.is_empty() {
                late.into_iter().collect()
            } else {
                idle
            },
            late: late_ranks,
        }
    }
}

fn lanes(records: &[RankRecord]) -> BTreeMap<LaneKey, Lane<'_>> {
    let mut lanes: BTreeMap<LaneKey, Lane<'_>> = BTreeMap::new();
    for record in records {
        for group in &record.groups {
            for call in group.calls.iter().filter(|call| call.sequence.is_some()) {
                let key = lane_key(record.rank, group, call);
                lanes.entry(key).or_default().entry(record.rank).or_default().push(call);
            }
        }
    }
    lanes
}

fn lane_key(rank: usize, group: &RecordedGroup, call: &RecordedCall) -> LaneKey {
    let transfer = match (call.operation.as_str(), call.peer) {
        ("send", Some(peer)) => Some((rank, peer)),
        ("recv", Some(peer)) => Some((peer, rank)),
        _ => None,
    };
    (group.name.clone(), group.ranks.clone(), group.generation, transfer)
}

fn lane_name((name, ranks, generation, transfer): &LaneKey) -> String {
    let mut text = format!("{name} {ranks:?}");
    if *generation > 1 {
        text.push_str(&format!(" ({generation})"));
    }
    if let Some((from, to)) = transfer {
        text.push_str(&format!(" {from} -> {to}"));
    }
    text
}

fn begun(calls: &[&RecordedCall]) -> Option<u64> {
    let begun = calls.iter().filter(|call| call.started.is_some());
    begun.filter_map(|call| call.sequence).max()
}

fn find_late(key: &LaneKey, lane: &Lane<'_>, recorded: &BTreeSet<usize>) -> Vec<LateRank> {
    // The first call in which a rank is stuck: later calls wait for it.
    let is_stuck =
        |call: &&&RecordedCall| call.started.is_some() && matches!(call.state, State::Running | State::Failed);
    let stuck: Vec<(usize, &RecordedCall)> = lane
        .iter()
        .flat_map(|(rank, calls)| calls.iter().filter(is_stuck).map(|call| (*rank, *call)))
        .collect();
    let Some(awaited) = stuck.iter().map(|(_, call)| *call).min_by_key(|call| call.sequence) else {
        return Vec::new();
    };
    let at_call = stuck.iter().filter(|(_, call)| call.sequence == awaited.sequence);
    let waiting: Vec<usize> = at_call.map(|(rank, _)| *rank).collect();
    let members = match key.3 {
        Some((from, to)) => vec![from, to],
        None => key.1.clone(),
    };
    let is_late = |rank: &usize| lane.get(rank).and_then(|calls| begun(calls)) < awaited.sequence;
    members
        .into_iter()
        .filter(is_late)
        .map(|rank| LateRank {
            rank,
            has_record: recorded.contains(&rank),
            lane: lane_name(key),
            last: lane.get(&rank).and_then(|calls| {
                let last = begun(calls)?;
                calls.iter().find(|call| call.sequence == Some(last)).copied().cloned()
            }),
            awaited: awaited.clone(),
            waiting: waiting.clone(),
        })
        .collect()
}

fn find_out_of_step(key: &LaneKey, lane: &Lane<'_>) -> Option<OutOfStep> {
    let mut firsts: BTreeMap<u64, (usize, &RecordedCall)> = BTreeMap::new();
    for (rank, calls) in lane {
        for call in calls.iter().filter(|call| call.started.is_some()) {
            let (first_rank, first) = *firsts.entry(call.sequence?).or_insert((*rank, call));
            if !first.agrees_with(call) {
                return Some(OutOfStep {
                    lane: lane_name(key),
                    first: (first_rank, first.clone()),
                    other: (*rank, (*call).clone()),
                });
            }
        }
    }
    None
}

impl RecordedCall {
    /// Whether two ranks may make these two calls under the same number.
    fn agrees_with(&self, other: &RecordedCall) -> bool {
        let data = |call: &RecordedCall| (call.element_type.clone(), call.length);
        let is_transfer = |call: &RecordedCall| matches!(call.operation.as_str(), "send" | "recv");
        if is_transfer(self) && is_transfer(other) {
            return data(self) == data(other);
        }
        let key = |call: &RecordedCall| (call.operation.clone(), call.reduce_op.clone(), call.peer);
        key(self) == key(other) && data(self) == data(other)
    }
}

impl fmt::Display for RecordedCall {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(sequence) = self.sequence {
            write!(formatter, "#{sequence} ")?;
        }
        write!(formatter, "{} ", self.operation)?;
        if let Some(op) = &self.reduce_op {
            write!(formatter, "{op} ")?;
        }
        write!(formatter, "{} {} at {}", self.length, self.element_type, self.called_at)?;
        match &self.label {
            Some(label) => write!(formatter, " ({label})"),
            None => Ok(()),
        }
    }
}

/// The runs of ranks below `world_size` that are not in a set: as few as its elements, however large the world.
fn gaps(ranks: &BTreeSet<usize>, world_size: usize) -> Vec<Range<usize>> {
    let ends = ranks.iter().copied().chain([world_size]);
    let starts = [0].into_iter().chain(ranks.iter().map(|rank| rank + 1));
    starts
        .zip(ends)
        .map(|(start, end)| start..end)
        .filter(|gap| !gap.is_empty())
        .collect()
}

fn runs_text(runs: &[Range<usize>]) -> String {
    let run = |run: &Range<usize>| match run.len() {
        1 => run.start.to_string(),
        _ => format!("{} to {}", run.start, run.end - 1),
    };
    runs.iter().map(run).collect::<Vec<_>>().join(", ")
}

impl fmt::Display for Report {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let missing: usize = self.missing.iter().map(ExactSizeIterator::len).sum();
        let written = self.world_size - missing;
        writeln!(
            formatter,
            "job {}: records of {written} of {} ranks",
            self.job_id, self.world_size
        )?;
        if !self.missing.is_empty() {
            writeln!(
                formatter,
                "no record (stopped, killed, or never failed): ranks {}",
                runs_text(&self.missing)
            )?;
        }
        for (rank, host, failure) in &self.failures {
            writeln!(formatter, "rank {rank} on host {host} failed: {failure}")?;
        }
        for OutOfStep { lane, first, other } in &self.out_of_step {
            writeln!(formatter, "out of step in {lane}:")?;
            for (rank, call) in [first, other] {
                writeln!(formatter, "  rank {rank} called {call}")?;
            }
        }
        if self.late.is_empty() && self.out_of_step.is_empty() {
            return writeln!(formatter, "no rank is late");
        }
        let width = self.late.iter().map(|late| late.lane.len()).max().unwrap_or(0).max(5);
        if !self.late.is_empty() {
            writeln!(
                formatter,
                "{:width$}    late  its last call -> the call that it has not begun; who waits there",
                "group"
            )?;
        }
        for late in &self.late {
            let last = match (&late.last, late.has_record) {
                (Some(call), _) => call.to_string(),
                (None, true) => "none".to_owned(),
                (None, false) => "unknown".to_owned(),
            };
            let LateRank {
                rank,
                lane,
                awaited,
                waiting,
                ..
            } = late;
            writeln!(
                formatter,
                "{lane:width$}  {rank:6}  {last} -> {awaited}; ranks {waiting:?}"
            )?;
        }
        if self.culprits.is_empty() {
            Ok(())
        } else {
            writeln!(formatter, "the others wait for: ranks {:?}", self.culprits)
        }
    }
}
