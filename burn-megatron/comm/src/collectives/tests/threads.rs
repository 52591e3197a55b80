//! Several threads of a rank on one group: whose calls are taken, and whose are refused.

use super::*;
use crate::collectives::{CollectiveError, ReduceOp};
use std::sync::mpsc;
use std::thread::{Builder, scope};

/// More calls than either thread of a rank gets done.
const MANY: usize = 10_000;
const LENGTH: usize = 50;

/// All-reduces numbers that say whose they are, until that fails; a sum must be of one thread's numbers alone.
fn reduce_until_refused(group: &ProcessGroup, number: f64) -> CollectiveError {
    for _ in 0..MANY {
        let mut buffer = [number; LENGTH];
        match group.all_reduce(&mut buffer, ReduceOp::Sum) {
            Ok(()) => assert_eq!(buffer, [number * group.size() as f64; LENGTH]),
            Err(error) => return error,
        }
    }
    panic!("{MANY} calls of two threads were taken");
}

/// Returns whether an error is that of a call that has failed elsewhere.
fn is_of_another(error: &CollectiveError) -> bool {
    use CollectiveError::{PeerFailed, PeerLeft, Poisoned};
    matches!(error, Poisoned { .. } | PeerLeft { .. } | PeerFailed { .. })
}

/// Runs `intruder` on a thread of this name while `owner` runs on this one.
fn alongside<R: Send>(intruder: impl FnOnce() -> R + Send, owner: impl FnOnce()) -> R {
    scope(|scope| {
        let thread = Builder::new().name("intruder".into());
        let thread = thread.spawn_scoped(scope, intruder).unwrap();
        owner();
        thread.join().unwrap()
    })
}

pub(super) fn a_second_thread_with_collectives_is_refused(suite: &Suite) {
    suite.with_groups(2, TIMEOUT, |_, group| {
        let clone = group.clone();
        let error = alongside(
            || reduce_until_refused(&clone, 100.0),
            || {
                let error = reduce_until_refused(&group, 1.0);
                assert!(is_of_another(&error), "{error}");
            },
        );
        // The first to fail may be the other rank.
        if !is_of_another(&error) {
            let rank = group.rank();
            let message = error.to_string();
            for words in [
                "group all [0, 1]: thread \"intruder\" (ThreadId(",
                &format!("of rank {rank} called all_reduce sum of 50 f64 at "),
                "but the group's collectives belong to thread ",
                "threads.rs",
                "ProcessGroup::hand_over",
            ] {
                assert!(message.contains(words), "{words:?} is not in {message}");
            }
        }
        group.barrier().unwrap_err();
    });
}

/// Neither thread has connected the group: no call of either is taken, so that no sum can be of both.
pub(super) fn two_threads_without_the_collectives_are_both_refused(suite: &Suite) {
    suite.with_groups(2, TIMEOUT, |_, group| {
        scope(|scope| {
            for number in [1.0, 100.0] {
                let group = &group;
                scope.spawn(move || {
                    let mut buffer = [number; LENGTH];
                    group.all_reduce(&mut buffer, ReduceOp::Sum).unwrap_err();
                    group
                        .all_reduce_start(buffer.to_vec(), ReduceOp::Sum)
                        .wait()
                        .unwrap_err();
                });
            }
        });
        let error = group.barrier().unwrap_err().to_string();
        assert!(error.contains("which connected the group"), "{error}");
    });
}

/// What was handed over goes to one of two threads, and the program still ends with an error.
pub(super) fn two_threads_that_race_for_collectives_end_with_an_error(suite: &Suite) {
    suite.with_groups(2, TIMEOUT, |_, group| {
        group.barrier().unwrap();
        group.hand_over();
        scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| while group.barrier().is_ok() {});
            }
        });
        group.barrier().unwrap_err();
    });
}

/// Calls that do not overlap in time may still come in another order on another rank.
pub(super) fn threads_that_take_turns_are_refused(suite: &Suite) {
    suite.with_groups(2, TIMEOUT, |_, group| {
        group.hand_over();
        let clone = group.clone();
        std::thread::spawn(move || clone.barrier().unwrap()).join().unwrap();
        let clone = group.clone();
        let second = std::thread::spawn(move || clone.barrier().unwrap_err());
        let error = second.join().unwrap().to_string();
        let is_first =
            error.contains("last called barrier at ") && error.contains("has ended without handing them over");
        assert!(is_first || error.contains("gave the group up"), "{error}");
    });
}

pub(super) fn collectives_that_are_handed_over_are_taken_and_return(suite: &Suite) {
    suite.with_groups(2, TIMEOUT, |_, group| {
        let reduce = |group: &ProcessGroup, number: f64| {
            let mut buffer = [number; LENGTH];
            group.all_reduce(&mut buffer, ReduceOp::Sum).unwrap();
            assert_eq!(buffer, [2.0 * number; LENGTH]);
            let started = group.all_reduce_start(buffer.to_vec(), ReduceOp::Mean);
            assert_eq!(started.wait().unwrap(), [2.0 * number; LENGTH]);
        };
        for round in 0..20 {
            let number = f64::from(round);
            reduce(&group, number);
            // A started call is this thread's, whoever waits for it.
            let started = group.all_reduce_start(vec![number; LENGTH], ReduceOp::Max);
            group.hand_over();
            scope(|scope| {
                scope.spawn(|| {
                    reduce(&group, number + 0.5);
                    assert_eq!(started.wait().unwrap(), [number; LENGTH]);
                });
            });
        }
        // Back and forth between two threads that live.
        let (to_other, from_here) = mpsc::channel();
        let (to_here, from_other) = mpsc::channel();
        scope(|scope| {
            let group = &group;
            scope.spawn(move || {
                for number in from_here {
                    reduce(group, number);
                    group.hand_over();
                    to_here.send(()).unwrap();
                }
            });
            for number in [1.0, 2.0, 3.0] {
                group.hand_over();
                to_other.send(number).unwrap();
                from_other.recv().unwrap();
                reduce(group, -number);
            }
            drop(to_other);
        });
    });
}

pub(super) fn a_second_thread_with_transfers_of_one_peer_is_refused(suite: &Suite) {
    suite.with_groups(3, TIMEOUT, |world, group| {
        if group.rank() > 0 {
            group.recv(&mut [0u8; 3], 0).unwrap();
            world.store().wait("refused", TIMEOUT).unwrap();
            return;
        }
        group.send(&[1u8; 3], 1).unwrap();
        let refused = alongside(
            || {
                group.send(&[2u8; 3], 2).unwrap();
                group.send(&[2u8; 3], 1).unwrap_err().to_string()
            },
            || {},
        );
        world.store().set("refused", b"").unwrap();
        assert!(
            refused.contains("the group's sends to rank 1 belong to thread"),
            "{refused}"
        );
        assert!(refused.contains("last called send of 3 u8 to rank 1"), "{refused}");
    });
}

pub(super) fn a_group_of_one_takes_calls_of_any_thread(suite: &Suite) {
    suite.run_ranks(1, TIMEOUT, |world| {
        for group in [suite.connect(&world, "alone", &[0]).unwrap(), ProcessGroup::single()] {
            alongside(|| group.barrier().unwrap(), || group.barrier().unwrap());
        }
    });
}
