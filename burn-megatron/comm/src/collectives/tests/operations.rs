//! The operations, a row each: how one is called, blocking and started, and what it must return.
//!
//! The contract goes through all rows, and the random programs draw from them.

use super::ProcessGroup;
use super::model::{Modelled, reduced, values};
use crate::collectives::{Pending, ReduceOp};

/// The arguments of a call, the same on every rank.
#[derive(Clone, Copy)]
pub(super) struct Arguments {
    /// Elements of a buffer, or of a shard.
    pub length: usize,
    /// Of the values that the ranks bring.
    pub salt: u64,
    pub op: ReduceOp,
    /// The root; of a transfer the sender, whose receiver is the next rank.
    pub peer: usize,
}

impl Arguments {
    /// Returns this rank's buffer.
    fn own<T: Modelled>(self, group: &ProcessGroup) -> Vec<T> {
        values(group.rank(), self.length, self.salt)
    }

    /// Returns this rank's buffer of a shard for every rank.
    fn own_shards<T: Modelled>(self, group: &ProcessGroup) -> Vec<T> {
        values(group.rank(), group.size() * self.length, self.salt)
    }

    /// Returns the receiver of a transfer.
    fn receiver(self, group: &ProcessGroup) -> usize {
        (self.peer + 1) % group.size()
    }

    /// Returns whether this rank receives from another one.
    fn receives(self, group: &ProcessGroup) -> bool {
        group.size() > 1 && group.rank() == self.receiver(group)
    }

    /// Returns whether this rank sends to another one.
    fn sends(self, group: &ProcessGroup) -> bool {
        group.size() > 1 && group.rank() == self.peer
    }
}

/// Which of its arguments an operation looks at, other than the buffer.
#[derive(Clone, Copy)]
pub(super) enum Varies {
    Nothing,
    Op,
    Peer,
}

impl Varies {
    /// Returns all values of these, in a group of `n` ranks.
    pub(super) fn over<T: Modelled>(self, n: usize) -> Vec<(ReduceOp, usize)> {
        match self {
            Varies::Nothing => vec![(ReduceOp::Sum, 0)],
            Varies::Op => T::OPS.iter().map(|&op| (op, 0)).collect(),
            Varies::Peer => (0..n).map(|peer| (ReduceOp::Sum, peer)).collect(),
        }
    }
}

/// Waits for a started call and returns what it does.
type Started<T> = Box<dyn FnOnce() -> Vec<T>>;

/// An operation of groups.
pub(super) struct Row<T> {
    pub name: &'static str,
    pub varies: Varies,
    /// Makes the call; returns what is then in this rank's buffer.
    pub call: fn(&ProcessGroup, Arguments) -> Vec<T>,
    /// Starts the same call.
    pub start: fn(&ProcessGroup, Arguments) -> Started<T>,
    /// What both return.
    pub expected: fn(&ProcessGroup, Arguments) -> Vec<T>,
}

fn started<T: Modelled>(pending: Pending<Vec<T>>) -> Started<T> {
    Box::new(|| pending.wait().unwrap())
}

/// Returns all operations on buffers of the caller's own.
pub(super) fn operations<T: Modelled>() -> Vec<Row<T>> {
    vec![
        Row {
            name: "all_reduce",
            varies: Varies::Op,
            call: |group, arguments| {
                let mut buffer = arguments.own(group);
                group.all_reduce(&mut buffer, arguments.op).unwrap();
                buffer
            },
            start: |group, arguments| started(group.all_reduce_start(arguments.own(group), arguments.op)),
            expected: |group, Arguments { length, salt, op, .. }| reduced(group.size(), length, salt, op),
        },
        Row {
            name: "all_gather",
            varies: Varies::Nothing,
            call: |group, arguments| {
                let mut output = vec![T::zeroed(); group.size() * arguments.length];
                group.all_gather(&arguments.own(group), &mut output).unwrap();
                output
            },
            start: |group, arguments| started(group.all_gather_start(arguments.own(group))),
            expected: |group, Arguments { length, salt, .. }| {
                (0..group.size()).flat_map(|rank| values(rank, length, salt)).collect()
            },
        },
        Row {
            name: "reduce_scatter",
            varies: Varies::Op,
            call: |group, arguments| {
                let mut shard = vec![T::zeroed(); arguments.length];
                let input = arguments.own_shards(group);
                group.reduce_scatter(&input, &mut shard, arguments.op).unwrap();
                shard
            },
            start: |group, arguments| started(group.reduce_scatter_start(arguments.own_shards(group), arguments.op)),
            expected: |group, Arguments { length, salt, op, .. }| {
                let (n, rank) = (group.size(), group.rank());
                reduced(n, n * length, salt, op)[rank * length..(rank + 1) * length].to_vec()
            },
        },
        Row {
            name: "broadcast",
            varies: Varies::Peer,
            call: |group, arguments| {
                let mut buffer = arguments.own(group);
                group.broadcast(&mut buffer, arguments.peer).unwrap();
                buffer
            },
            start: |group, arguments| started(group.broadcast_start(arguments.own(group), arguments.peer)),
            expected: |_, Arguments { length, salt, peer, .. }| values(peer, length, salt),
        },
        Row {
            name: "send, recv",
            varies: Varies::Peer,
            call: |group, arguments| {
                let mut buffer = arguments.own(group);
                if arguments.sends(group) {
                    group.send(&buffer, arguments.receiver(group)).unwrap();
                } else if arguments.receives(group) {
                    group.recv(&mut buffer, arguments.peer).unwrap();
                }
                buffer
            },
            start: |group, arguments| {
                let buffer = arguments.own(group);
                if arguments.sends(group) {
                    started(group.send_start(buffer, arguments.receiver(group)))
                } else if arguments.receives(group) {
                    started(group.recv_start(buffer.len(), arguments.peer))
                } else {
                    Box::new(|| buffer)
                }
            },
            expected: |group, arguments| {
                let is_received = arguments.receives(group);
                let from = if is_received { arguments.peer } else { group.rank() };
                values(from, arguments.length, arguments.salt)
            },
        },
        Row {
            name: "barrier",
            varies: Varies::Nothing,
            call: |group, _| {
                group.barrier().unwrap();
                Vec::new()
            },
            start: |group, _| {
                let pending = group.barrier_start();
                Box::new(|| {
                    pending.wait().unwrap();
                    Vec::new()
                })
            },
            expected: |_, _| Vec::new(),
        },
    ]
}
