//! What goes wrong, and that the error says what did.

use super::*;
use crate::collectives::{CollectiveError, ReduceOp};
use std::time::Instant;

/// Every rank makes its own call; all fail with this message, later calls with a secondary error.
fn assert_mismatch(
    suite: &Suite,
    n: usize,
    message: &str,
    call: impl Fn(&ProcessGroup) -> Result<(), CollectiveError> + Sync,
) {
    suite.with_groups(n, TIMEOUT, |_, group| {
        group.barrier().unwrap();
        let start = Instant::now();
        let error = call(&group).unwrap_err();
        assert_eq!(error.to_string(), message, "rank {}", group.rank());
        assert!(matches!(error, CollectiveError::Mismatch { .. }));
        let error = group.barrier().unwrap_err();
        assert!(matches!(&error, CollectiveError::Poisoned { first, .. } if first == message));
        assert!(error.to_string().contains("secondary error"), "{error}");
        assert!(start.elapsed() < Duration::from_secs(5));
    });
}

pub(super) fn different_operations_are_named_on_every_rank(suite: &Suite) {
    assert_mismatch(
        suite,
        2,
        "rank 1 of group all [0, 1] called all_gather of 128 f32 (call 1) while rank 0 called \
         all_reduce sum of 64 f32 (call 1)",
        |group| match group.rank() {
            0 => group.all_reduce(&mut [0.0f32; 64], ReduceOp::Sum),
            _ => group.all_gather(&[0.0f32; 128], &mut [0.0; 256]),
        },
    );
}

pub(super) fn different_lengths_are_named_on_every_rank(suite: &Suite) {
    // Small against several chunks, large against larger.
    for (short, long) in [(10, 300_000), (200_000, 300_000)] {
        assert_mismatch(
            suite,
            3,
            &format!(
                "rank 2 of group all [0, 1, 2] called all_reduce mean of {long} f32 (call 1) while \
                 rank 0 called all_reduce mean of {short} f32 (call 1)"
            ),
            |group| {
                let length = if group.rank() == 2 { long } else { short };
                group.all_reduce(&mut vec![0.0f32; length], ReduceOp::Mean)
            },
        );
    }
}

pub(super) fn different_types_roots_and_reductions_are_named(suite: &Suite) {
    assert_mismatch(
        suite,
        2,
        "rank 1 of group all [0, 1] called all_reduce sum of 8 i32 (call 1) while rank 0 called \
         all_reduce sum of 8 f32 (call 1)",
        |group| match group.rank() {
            0 => group.all_reduce(&mut [0.0f32; 8], ReduceOp::Sum),
            _ => group.all_reduce(&mut [0i32; 8], ReduceOp::Sum),
        },
    );
    assert_mismatch(
        suite,
        3,
        "rank 1 of group all [0, 1, 2] called broadcast of 100000 f32 from rank 1 (call 1) while \
         rank 0 called broadcast of 100000 f32 from rank 0 (call 1)",
        |group| group.broadcast(&mut vec![0.0f32; 100_000], group.rank()),
    );
    assert_mismatch(
        suite,
        2,
        "rank 1 of group all [0, 1] called all_reduce max of 8 f32 (call 1) while rank 0 called \
         all_reduce sum of 8 f32 (call 1)",
        |group| {
            let op = [ReduceOp::Sum, ReduceOp::Max][group.rank()];
            group.all_reduce(&mut [0.0f32; 8], op)
        },
    );
}

/// The sender of a large message is still at it and learns of the mismatch; its error repeats the
/// receiver's.
pub(super) fn different_transfers_are_named_on_both_sides(suite: &Suite) {
    let message = "rank 1 of group all [0, 1] called recv of 100 f32 from rank 0 (call 0) while \
                   rank 0 called send of 20000000 u8 to rank 1 (call 0)";
    suite.with_groups(2, TIMEOUT, |world, group| {
        let error = match group.rank() {
            0 => group.send(&vec![0u8; 20_000_000], 1).unwrap_err(),
            _ => group.recv(&mut [0.0f32; 100], 0).unwrap_err(),
        };
        match group.rank() {
            0 => assert!(matches!(&error, CollectiveError::PeerLeft { rank: 1, .. }), "{error}"),
            _ => assert!(matches!(&error, CollectiveError::Mismatch { .. }), "{error}"),
        }
        assert!(error.to_string().contains(message), "{error}");
        leave_together(world);
    });
}

pub(super) fn a_timeout_names_exactly_the_missing_ranks(suite: &Suite) {
    suite.with_groups(4, SHORT_TIMEOUT, |world, group| {
        group.barrier().unwrap();
        if group.rank() % 2 == 1 {
            // Present in the job, but never comes.
            return leave_together(world);
        }
        let start = Instant::now();
        let error = group.all_reduce(&mut vec![0.0f32; 200_000], ReduceOp::Sum).unwrap_err();
        let expected = "group all [0, 1, 2, 3]: all_reduce sum of 200000 f32 (call 1) timed out \
                        after 0.3 s without progress, still missing: ranks [1, 3]";
        assert_eq!(error.to_string(), expected);
        assert!(start.elapsed() < Duration::from_millis(800));
        leave_together(world);
    });
}

pub(super) fn a_message_that_never_comes_times_out(suite: &Suite) {
    suite.with_groups(2, SHORT_TIMEOUT, |world, group| {
        if group.rank() == 1 {
            let error = group.recv(&mut [0u8; 4], 0).unwrap_err();
            let message = "recv of 4 u8 from rank 0 (call 0) timed out after 0.3 s without \
                           progress, still missing: ranks [0]";
            assert!(error.to_string().contains(message), "{error}");
        }
        leave_together(world);
    });
}

pub(super) fn a_receive_after_one_that_is_not_waited_for_times_out(suite: &Suite) {
    for is_started in [true, false] {
        suite.with_groups(2, SHORT_TIMEOUT, |world, group| {
            if group.rank() == 0 {
                return leave_together(world);
            }
            let first = group.recv_start::<u8>(4, 0);
            // Nothing is late until a thread waits for it.
            std::thread::sleep(Duration::from_millis(450));
            assert!(!first.is_done());
            let error = if is_started {
                group.recv_start::<u8>(4, 0).wait().unwrap_err()
            } else {
                group.recv(&mut [0u8; 4], 0).unwrap_err()
            };
            assert!(matches!(error, CollectiveError::Poisoned { .. }), "{error}");
            let error = first.wait().unwrap_err();
            assert!(error.to_string().contains("timed out after 0.3 s"), "{error}");
            leave_together(world);
        });
    }
}

pub(super) fn connecting_times_out_and_names_the_missing_rank(suite: &Suite) {
    suite.run_ranks(3, SHORT_TIMEOUT, |world| {
        if world.rank() == 1 {
            return leave_together(&world);
        }
        let error = suite.connect(&world, "all", &[0, 1, 2]).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("group all [0, 1, 2]: connect timed out"), "{text}");
        assert!(text.contains("missing: ranks [1]"), "{text}");
        leave_together(&world);
    });
}

fn raise(world: &World) {
    world
        .failure()
        .raise(PeerFailure::new(7, "elsewhere", "connection lost (killed?)"));
}

pub(super) fn a_failure_during_a_wait_ends_it_at_once(suite: &Suite) {
    suite.with_groups(2, TIMEOUT, |world, group| {
        group.barrier().unwrap();
        if group.rank() == 1 {
            std::thread::sleep(Duration::from_millis(500));
            return;
        }
        let start = Instant::now();
        let received = group.recv_start::<f32>(10, 1);
        let error = std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(150));
                raise(world);
            });
            group.all_reduce(&mut [0.0f32; 10], ReduceOp::Sum).unwrap_err()
        });
        assert!(start.elapsed() < Duration::from_millis(450), "{:?}", start.elapsed());
        let message = "rank 7 on host elsewhere failed: connection lost (killed?)";
        for error in [error, received.wait().unwrap_err(), group.barrier().unwrap_err()] {
            assert!(error.to_string().contains(message), "{error}");
        }
    });
}

pub(super) fn a_failure_before_a_call_is_seen(suite: &Suite) {
    suite.with_groups(2, TIMEOUT, |world, group| {
        group.barrier().unwrap();
        raise(world);
        let error = group.send(&[0u8; 4], 1 - group.rank()).unwrap_err();
        assert!(matches!(error, CollectiveError::PeerFailed { .. }), "{error}");
        let error = suite.connect(world, "late", &[0, 1]).unwrap_err();
        assert!(matches!(error, CollectiveError::PeerFailed { .. }), "{error}");
    });
}

pub(super) fn a_rank_that_leaves_is_named(suite: &Suite) {
    suite.with_groups(2, TIMEOUT, |_, group| {
        group.barrier().unwrap();
        if group.rank() == 1 {
            // Sent before leaving: still arrives.
            group.send(&[3u8; 10], 0).unwrap();
            return;
        }
        std::thread::sleep(Duration::from_millis(50));
        let start = Instant::now();
        let mut buffer = [0u8; 10];
        group.recv(&mut buffer, 1).unwrap();
        assert_eq!(buffer, [3; 10]);
        let error = group.all_reduce(&mut vec![0.0f32; 100_000], ReduceOp::Sum).unwrap_err();
        let message = "because rank 1 gave the group up: it was dropped there";
        assert!(error.to_string().contains(message), "{error}");
        assert!(start.elapsed() < Duration::from_secs(5));
    });
}

pub(super) fn a_group_that_is_given_up_fails_on_all_ranks_at_once(suite: &Suite) {
    suite.with_groups(3, TIMEOUT, |_, group| {
        group.barrier().unwrap();
        let start = Instant::now();
        if group.rank() == 1 {
            group.give_up("no file");
            group.give_up("a later cause");
            let error = group.barrier().unwrap_err();
            assert!(
                matches!(&error, CollectiveError::Poisoned { first, .. } if first == "no file"),
                "{error}"
            );
            return;
        }
        let error = group.all_reduce(&mut vec![0.0f32; 100_000], ReduceOp::Sum).unwrap_err();
        // One of the two may hear it from the other.
        let message = "because rank 1 gave the group up: no file";
        assert!(error.to_string().contains(message), "{error}");
        assert!(start.elapsed() < Duration::from_secs(5));
    });
}

pub(super) fn a_disconnect_reason_can_be_read_without_a_call(suite: &Suite) {
    suite.with_groups(3, TIMEOUT, |world, group| {
        group.barrier().unwrap();
        let disconnect_reasons =
            || [0, 1, 2].map(|peer| (peer != group.rank()).then(|| group.core().engine.disconnect_reason(peer)));
        if group.rank() == 1 {
            // What has not been received yet does not hide it.
            group.send(&[3u8; 10], 0).unwrap();
            world.store().wait("looked", TIMEOUT).unwrap();
            return;
        }
        if group.rank() == 0 {
            assert_eq!(disconnect_reasons(), [None, Some(None), Some(None)]);
            world.store().set("looked", b"").unwrap();
        }
        let start = Instant::now();
        while disconnect_reasons()[1] != Some(Some("it was dropped there".to_owned())) {
            assert!(start.elapsed() < TIMEOUT / 2, "{:?}", disconnect_reasons());
            std::thread::sleep(Duration::from_millis(10));
        }
        world.store().set(&format!("read by {}", group.rank()), b"").unwrap();
        // Each of the two stays until the other has looked.
        world
            .store()
            .wait(&format!("read by {}", 2 - group.rank()), TIMEOUT)
            .unwrap();
    });
}

pub(super) fn wrong_arguments_are_refused_and_the_group_stays_usable(suite: &Suite) {
    suite.with_groups(2, TIMEOUT, |world, group| {
        let refused = |result: Result<(), CollectiveError>, message: &str| {
            let text = result.unwrap_err().to_string();
            assert!(text.contains(message), "{text}");
        };
        let rank = group.rank();
        refused(
            group.all_reduce(&mut [1i32], ReduceOp::Mean),
            "mean of i32: only sum and max",
        );
        refused(
            group.all_gather(&[0u8; 3], &mut [0; 7]),
            "output of length 7: expected 2 shards of length 3",
        );
        refused(group.broadcast(&mut [0u8; 3], 2), "root 2: expected less than 2");
        refused(group.send(&[0u8; 3], rank), "expected less than 2 and not this rank");
        let odd = group.reduce_scatter_start(vec![0.0f32; 3], ReduceOp::Sum).wait();
        refused(odd.map(drop), "input of length 3: expected 2 shards of length 1");
        group.barrier().unwrap();

        let connect =
            |name: &str, ranks: &[usize]| ProcessGroup::connect(world, name, ranks, &EngineChoice::Auto).map(drop);
        refused(connect("g", &[1, 0]), "ranks are not ascending");
        refused(connect("g", &[0, 1, 2]), "rank 2: expected less than the world size 2");
        refused(connect("g", &[1 - rank]), "is not among the ranks");
        refused(connect("", &[0, 1]), "name of 0 bytes");
        refused(connect("g\0", &[0, 1]), "control character");
    });
}
