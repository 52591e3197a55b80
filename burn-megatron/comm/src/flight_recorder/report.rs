//! [`Report`]: the records of all ranks side by side: which ranks are late, at which call, and which ranks wait there.
//!
//! # The rule
//!
//! Calls are lined up lane by lane: a group's collectives are one lane, its transfers from one rank to another are one
//! lane each. A rank is *late* in a lane when another rank of the lane has begun a call that it has not ended well, and
//! this rank has not begun that call. A rank without a record has begun nothing that is known. A late rank may itself
//! wait, in another lane, for another late rank: the *culprits* are those that wait nowhere.

use std::collections::BTreeSet;
use std::fmt;
use std::ops::Range;
use std::path::Path;

use super::file::{FlightRecorderError, RankRecord, RecordFolder, RecordedCall};
use super::line_up::{GroupKey, Lane, LineUp, Transfer, transfer};
use crate::ranks::{RankSet, listed_ranks, ranks_by_text};

/// Failures, lanes and mismatches that are printed; more are counted.
const SHOWN: usize = 20;

/// A group, or sender and receiver in it, in which ranks wait for others.
#[derive(Clone, Debug, PartialEq)]
pub struct LateLane {
    /// Group, and sender and receiver of a transfer.
    pub lane: String,
    /// The call that some have begun and others have not.
    pub awaited: RecordedCall,
    /// The ranks that wait there.
    pub waiting: RankSet,
    /// The ranks that they wait for.
    pub late: Vec<LateRank>,
}

/// A rank that others wait for.
#[derive(Clone, Debug, PartialEq)]
pub struct LateRank {
    /// The rank.
    pub rank: usize,
    /// Whether it has written a record: one that hangs or was killed has not.
    pub has_record: bool,
    /// The last call of the lane that it has begun, if any is known.
    pub last: Option<RecordedCall>,
}

/// Two ranks that made different calls under the same number.
#[derive(Clone, Debug, PartialEq)]
pub struct OutOfStep {
    /// Group, and sender and receiver of a transfer.
    pub lane: String,
    /// The lower rank, and its call.
    pub first: (usize, Option<RecordedCall>),
    /// The other rank, and its call.
    pub other: (usize, RecordedCall),
}

/// A failure that ranks have met.
#[derive(Clone, Debug, PartialEq)]
pub struct MetFailure {
    /// The ranks and their hosts, ascending.
    pub ranks: Vec<(usize, String)>,
    /// What it was, in words.
    pub what: String,
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
    /// The first failure that each rank met, by its first rank.
    pub failures: Vec<MetFailure>,
    /// Where ranks are late: first where a rank is that waits for none.
    pub late: Vec<LateLane>,
    /// Ranks that made different calls under the same number, in the first 20 lanes where any did.
    pub out_of_step: Vec<OutOfStep>,
    /// The lanes where ranks did.
    pub lanes_out_of_step: usize,
    /// Ranks that others wait for and that wait for no rank.
    pub culprits: Vec<usize>,
}

impl Report {
    /// Lines up the records of one job, by rank, ascending.
    pub fn new(records: &[RankRecord]) -> Self {
        let mut line_up = LineUp::default();
        records.iter().cloned().for_each(|record| line_up.add(record));
        let again = |rank| records.iter().find(|record| record.rank == rank).cloned();
        Self::of(&line_up, again)
    }

    /// Lines up the records in a folder. Ranks may be missing: one that hangs writes nothing. Of thousands of records,
    /// a few are in memory at a time; they are read on all cores.
    ///
    /// # Errors
    /// The folder or a file cannot be read, there is none, one is broken, or they are of several jobs.
    pub fn read(folder: &Path) -> Result<Self, FlightRecorderError> {
        let folder = RecordFolder::open(folder)?;
        let mut line_up = LineUp::default();
        folder.for_each(|record| line_up.add(record))?;
        Ok(Self::of(&line_up, |rank| folder.read(rank).ok().flatten()))
    }

    /// `again` returns a rank's record once more.
    fn of(line_up: &LineUp, again: impl Fn(usize) -> Option<RankRecord>) -> Self {
        let lanes = line_up.lanes();
        let late = lanes
            .iter()
            .filter_map(|(group, transfer, lane)| find_late(group, *transfer, lane, &line_up.recorded));
        let mut late: Vec<LateLane> = late.collect();
        let waiting: BTreeSet<usize> = late.iter().flat_map(|lane| lane.waiting.iter()).collect();
        let all: BTreeSet<usize> = late
            .iter()
            .flat_map(|lane| lane.late.iter().map(|late| late.rank))
            .collect();
        let idle: BTreeSet<usize> = all.difference(&waiting).copied().collect();
        // A circle of ranks that wait for each other: each of them.
        let culprits = if idle.is_empty() { all } else { idle };
        late.sort_by_key(|lane| !lane.late.iter().any(|late| culprits.contains(&late.rank)));
        let out_of_step = || {
            lanes
                .iter()
                .filter_map(|(group, transfer, lane)| Some((group, *transfer, lane.out_of_step.as_ref()?)))
        };
        let mut failures: Vec<MetFailure> = line_up
            .failures
            .iter()
            .map(|(what, ranks)| MetFailure {
                ranks: ranks.clone(),
                what: what.clone(),
            })
            .collect();
        failures.sort_by_key(|failure| failure.ranks.first().map(|(rank, _)| *rank));
        Self {
            job_id: line_up.job_id.clone(),
            world_size: line_up.world_size,
            missing: gaps(&line_up.recorded, line_up.world_size),
            failures,
            late,
            lanes_out_of_step: out_of_step().count(),
            out_of_step: out_of_step()
                .take(SHOWN)
                .map(|(group, transfer, found)| {
                    let first = again(found.first_rank);
                    let first = first.and_then(|record| find_call(record, group, transfer, found.sequence));
                    OutOfStep {
                        lane: lane_name(group, transfer),
                        first: (found.first_rank, first),
                        other: found.other.clone(),
                    }
                })
                .collect(),
            culprits: culprits.into_iter().collect(),
        }
    }
}

fn lane_name((name, ranks, generation): &GroupKey, transfer: Transfer) -> String {
    let mut text = format!("{name} {}", listed_ranks(ranks));
    if *generation > 1 {
        text.push_str(&format!(" ({generation})"));
    }
    if let Some((from, to)) = transfer {
        text.push_str(&format!(" {from} -> {to}"));
    }
    text
}

fn find_late(group: &GroupKey, transfer: Transfer, lane: &Lane, recorded: &BTreeSet<usize>) -> Option<LateLane> {
    let awaited = lane.awaited()?;
    let waits = lane.stuck.iter().filter(|(_, call)| call.sequence == awaited.sequence);
    let members = match transfer {
        Some((from, to)) => vec![from, to],
        None => group.1.clone(),
    };
    let late: Vec<LateRank> = members
        .into_iter()
        .filter(|&rank| lane.begun(rank) < awaited.sequence)
        .map(|rank| LateRank {
            rank,
            has_record: recorded.contains(&rank),
            last: lane.last.get(&rank).cloned(),
        })
        .collect();
    (!late.is_empty()).then(|| LateLane {
        lane: lane_name(group, transfer),
        awaited: awaited.clone(),
        waiting: waits.map(|(rank, _)| rank).collect(),
        late,
    })
}

/// A call of a rank that has begun.
fn find_call(
    record: RankRecord,
    (name, ranks, generation): &GroupKey,
    lane: Transfer,
    sequence: u64,
) -> Option<RecordedCall> {
    let rank = record.rank;
    let mut groups = record.groups.into_iter();
    let group = groups.find(|group| group.name == *name && group.ranks == *ranks && group.generation == *generation)?;
    group
        .calls
        .into_iter()
        .find(|call| call.sequence == Some(sequence) && call.started.is_some() && transfer(rank, call) == lane)
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

impl fmt::Display for MetFailure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ranks = self.ranks.iter().map(|(rank, _)| rank).collect::<RankSet>().named();
        let hosts: BTreeSet<&String> = self.ranks.iter().map(|(_, host)| host).collect();
        match hosts.first() {
            Some(host) if hosts.len() == 1 => write!(formatter, "{ranks} on host {host} failed: {}", self.what),
            _ => write!(formatter, "{ranks} on {} hosts failed: {}", hosts.len(), self.what),
        }
    }
}

impl LateLane {
    /// The calls that the late ranks have come to, each with those ranks.
    fn rows(&self) -> Vec<(String, RankSet)> {
        let last = |late: &LateRank| match (&late.last, late.has_record) {
            (Some(call), _) => call.to_string(),
            (None, true) => "none".to_owned(),
            (None, false) => "unknown".to_owned(),
        };
        ranks_by_text(self.late.iter().map(|late| (late.rank, last(late))))
    }
}

/// Writes that there are more than are shown.
fn count_rest(formatter: &mut fmt::Formatter<'_>, count: usize, what: &str) -> fmt::Result {
    match count.checked_sub(SHOWN) {
        Some(rest) if rest > 0 => writeln!(formatter, "... and {rest} more {what}"),
        _ => Ok(()),
    }
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
        for failure in self.failures.iter().take(SHOWN) {
            writeln!(formatter, "{failure}")?;
        }
        count_rest(formatter, self.failures.len(), "failures")?;
        for OutOfStep { lane, first, other } in &self.out_of_step {
            writeln!(formatter, "out of step in {lane}:")?;
            match &first.1 {
                Some(call) => writeln!(formatter, "  rank {} called {call}", first.0)?,
                None => writeln!(formatter, "  rank {} made another call", first.0)?,
            }
            writeln!(formatter, "  rank {} called {}", other.0, other.1)?;
        }
        count_rest(formatter, self.lanes_out_of_step, "groups out of step")?;
        if self.late.is_empty() && self.out_of_step.is_empty() {
            return writeln!(formatter, "no rank is late");
        }
        let shown = || self.late.iter().take(SHOWN);
        let width = shown().map(|lane| lane.lane.chars().count()).max().unwrap_or(0).max(5);
        if !self.late.is_empty() {
            writeln!(
                formatter,
                "{:width$}    late  its last call -> the call that it has not begun; who waits there",
                "group"
            )?;
        }
        for lane in shown() {
            for (last, ranks) in lane.rows() {
                let (name, late, waiting) = (&lane.lane, ranks.to_string(), lane.waiting.named());
                writeln!(
                    formatter,
                    "{name:width$}  {late:>6}  {last} -> {}; {waiting}",
                    lane.awaited
                )?;
            }
        }
        count_rest(formatter, self.late.len(), "groups in which ranks are late")?;
        if self.culprits.is_empty() {
            Ok(())
        } else {
            let culprits: RankSet = self.culprits.iter().collect();
            writeln!(formatter, "the others wait for: {}", culprits.named())
        }
    }
}
