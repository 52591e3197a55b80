//! [`LineUp`]: takes the records of a job one after the other, and keeps of each what a report needs.
//!
//! Of a record of 256 calls per group, that is the calls in which the rank is stuck, the last that it has begun, and a
//! number for each other one: the records of thousands of ranks need not be in memory at once.

use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{Hash, Hasher};

use super::file::{RankRecord, RecordedCall, RecordedGroup, State};

/// Name, ranks and generation of a group.
pub(super) type GroupKey = (String, Vec<usize>, u64);
/// Sender and receiver of a transfer; none of a collective.
pub(super) type Transfer = Option<(usize, usize)>;
/// A group's number, and what is transferred in it.
type LaneKey = (usize, Transfer);

/// What the records of a job say together.
#[derive(Default)]
pub(super) struct LineUp {
    pub(super) job_id: String,
    pub(super) world_size: usize,
    pub(super) recorded: BTreeSet<usize>,
    /// Which ranks, on which hosts, met a failure, by its text.
    pub(super) failures: BTreeMap<String, Vec<(usize, String)>>,
    groups: Vec<GroupKey>,
    numbers: HashMap<GroupKey, usize>,
    lanes: HashMap<LaneKey, Lane>,
}

/// The numbered calls of a group, or of the transfers from one rank to another.
#[derive(Default)]
pub(super) struct Lane {
    /// The last call that each rank has begun.
    pub(super) last: BTreeMap<usize, RecordedCall>,
    /// The first call in which each rank is stuck: later calls wait for it.
    pub(super) stuck: BTreeMap<usize, RecordedCall>,
    /// Of each call the first rank that has begun it, and a number for what it is.
    first: HashMap<u64, (usize, u64)>,
    pub(super) out_of_step: Option<Disagreement>,
}

/// Two ranks have made different calls under the same number.
pub(super) struct Disagreement {
    pub(super) sequence: u64,
    pub(super) first_rank: usize,
    pub(super) other: (usize, RecordedCall),
}

impl LineUp {
    /// Takes the next record; the ranks ascend.
    pub(super) fn add(&mut self, record: RankRecord) {
        let RankRecord {
            job_id,
            rank,
            world_size,
            host,
            failure,
            groups,
            ..
        } = record;
        if self.recorded.is_empty() {
            self.job_id = job_id;
        }
        self.world_size = self.world_size.max(world_size);
        self.recorded.insert(rank);
        if let Some(failure) = failure {
            self.failures.entry(failure).or_default().push((rank, host));
        }
        for RecordedGroup {
            name,
            ranks,
            generation,
            calls,
        } in groups
        {
            let group = self.number((name, ranks, generation));
            for call in calls {
                let lane = self.lanes.entry((group, transfer(rank, &call))).or_default();
                lane.add(rank, call);
            }
        }
    }

    /// Returns the lanes, by their groups' names.
    pub(super) fn lanes(&self) -> Vec<(&GroupKey, Transfer, &Lane)> {
        let lanes = self.lanes.iter();
        let mut lanes: Vec<_> = lanes
            .map(|(&(group, transfer), lane)| (&self.groups[group], transfer, lane))
            .collect();
        lanes.sort_by_key(|&(group, transfer, _)| (group, transfer));
        lanes
    }

    fn number(&mut self, key: GroupKey) -> usize {
        if let Some(number) = self.numbers.get(&key) {
            return *number;
        }
        self.groups.push(key.clone());
        self.numbers.insert(key, self.groups.len() - 1);
        self.groups.len() - 1
    }
}

impl Lane {
    fn add(&mut self, rank: usize, call: RecordedCall) {
        let (Some(sequence), Some(_)) = (call.sequence, call.started) else {
            return;
        };
        let (first_rank, first) = *self.first.entry(sequence).or_insert((rank, meaning(&call)));
        if first != meaning(&call) && self.out_of_step.is_none() {
            self.out_of_step = Some(Disagreement {
                sequence,
                first_rank,
                other: (rank, call.clone()),
            });
        }
        let is_earliest = |stuck: &RecordedCall| stuck.sequence <= Some(sequence);
        if matches!(call.state, State::Running | State::Failed) && !self.stuck.get(&rank).is_some_and(is_earliest) {
            self.stuck.insert(rank, call.clone());
        }
        if self.last.get(&rank).and_then(|last| last.sequence) < Some(sequence) {
            self.last.insert(rank, call);
        }
    }

    /// Returns the first call in which a rank is stuck.
    pub(super) fn awaited(&self) -> Option<&RecordedCall> {
        self.stuck.values().min_by_key(|call| call.sequence)
    }

    /// Returns the number of the last call that a rank has begun.
    pub(super) fn begun(&self, rank: usize) -> Option<u64> {
        self.last.get(&rank)?.sequence
    }
}

/// Sender and receiver of a call, if it is a transfer.
pub(super) fn transfer(rank: usize, call: &RecordedCall) -> Transfer {
    match (call.operation.as_str(), call.peer) {
        ("send", Some(peer)) => Some((rank, peer)),
        ("recv", Some(peer)) => Some((peer, rank)),
        _ => None,
    }
}

/// A number that is the same for calls that may have the same number in a lane.
fn meaning(call: &RecordedCall) -> u64 {
    let mut hasher = DefaultHasher::new();
    (&call.element_type, call.length).hash(&mut hasher);
    if !matches!(call.operation.as_str(), "send" | "recv") {
        (&call.operation, &call.reduce_op, call.peer).hash(&mut hasher);
    }
    hasher.finish()
}
