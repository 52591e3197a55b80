//! Calls that are started and waited for later.

use super::model::{assert_same_bits, reduced, values};
use super::*;
use crate::collectives::ReduceOp;
use std::time::Instant;

pub(super) fn handles_can_be_waited_for_in_any_order(suite: &Suite) {
    suite.with_groups(3, TIMEOUT, |_, group| {
        let rank = group.rank();
        let handles: Vec<_> = (0..12)
            .map(|salt| {
                let buffer = values::<f32>(rank, 1000 * salt as usize + 1, salt);
                group.all_reduce_start(buffer, ReduceOp::Sum)
            })
            .collect();
        let gathered = group.all_gather_start(values::<u8>(rank, 5, 50));
        let scattered = group.reduce_scatter_start(values::<i32>(rank, 9, 51), ReduceOp::Max);
        let root_value = group.broadcast_start(values::<i64>(rank, 4, 52), 2);
        for (salt, handle) in handles.into_iter().enumerate().rev() {
            let expected = reduced(3, 1000 * salt + 1, salt as u64, ReduceOp::Sum);
            assert_same_bits(&handle.wait().unwrap(), &expected, "all_reduce_start");
        }
        assert_same_bits(&root_value.wait().unwrap(), &values(2, 4, 52), "broadcast_start");
        let expected = &reduced::<i32>(3, 9, 51, ReduceOp::Max)[3 * rank..3 * rank + 3];
        assert_same_bits(&scattered.wait().unwrap(), expected, "reduce_scatter_start");
        let expected: Vec<u8> = (0..3).flat_map(|rank| values(rank, 5, 50)).collect();
        assert_same_bits(&gathered.wait().unwrap(), &expected, "all_gather_start");
    });
}

pub(super) fn blocking_calls_run_after_started_ones(suite: &Suite) {
    suite.with_groups(2, TIMEOUT, |_, group| {
        for salt in 0..30 {
            let started = group.all_reduce_start(values::<f64>(group.rank(), 500, salt), ReduceOp::Sum);
            let mut blocking = values::<f32>(group.rank(), 300, salt);
            group.all_reduce(&mut blocking, ReduceOp::Max).unwrap();
            assert!(started.is_done());
            assert_same_bits(&blocking, &reduced(2, 300, salt, ReduceOp::Max), "blocking");
            assert_same_bits(
                &started.wait().unwrap(),
                &reduced(2, 500, salt, ReduceOp::Sum),
                "started",
            );
        }
    });
}

pub(super) fn a_dropped_handle_still_completes(suite: &Suite) {
    suite.with_groups(2, TIMEOUT, |_, group| {
        if group.rank() == 0 {
            drop(group.all_reduce_start(vec![1.0f32; 100_000], ReduceOp::Sum));
            drop(group.send_start(vec![5u8; 1_000_000], 1));
        } else {
            let mut buffer = vec![2.0f32; 100_000];
            group.all_reduce(&mut buffer, ReduceOp::Sum).unwrap();
            assert!(buffer.iter().all(|&x| x == 3.0));
            let mut received = vec![0u8; 1_000_000];
            group.recv(&mut received, 0).unwrap();
            assert!(received.iter().all(|&x| x == 5));
        }
        // Here rank 0 drops the group; what it has started is still carried out.
    });
}

/// Both ranks start a large send before they receive; neither waits for the other.
pub(super) fn large_exchanges_do_not_block(suite: &Suite) {
    suite.with_groups(2, TIMEOUT, |_, group| {
        let (rank, peer) = (group.rank(), 1 - group.rank());
        let length = 3_000_000;
        let sent = group.send_start(values::<u8>(rank, length, 1), peer);
        let received = group.recv_start::<u8>(length, peer);
        group.barrier().unwrap();
        assert_same_bits(&received.wait().unwrap(), &values(peer, length, 1), "received");
        sent.wait().unwrap();
    });
}

pub(super) fn a_group_dropped_with_calls_pending_does_not_hang(suite: &Suite) {
    suite.with_groups(2, SHORT_TIMEOUT, |world, group| {
        if group.rank() == 0 {
            let handles: Vec<_> = (0..5)
                .map(|_| group.all_reduce_start(vec![0.0f32; 100_000], ReduceOp::Sum))
                .collect();
            let start = Instant::now();
            drop(group);
            assert!(start.elapsed() < Duration::from_secs(3), "{:?}", start.elapsed());
            for handle in handles {
                handle.wait().unwrap_err();
            }
        }
        leave_together(world);
    });
}

pub(super) fn a_group_can_be_shared_between_threads(suite: &Suite) {
    suite.with_groups(2, TIMEOUT, |_, group| {
        let peer = 1 - group.rank();
        std::thread::scope(|scope| {
            let clone = group.clone();
            scope.spawn(move || {
                for _ in 0..200 {
                    clone.send(&[1i32; 700], peer).unwrap();
                }
            });
            let clone = group.clone();
            scope.spawn(move || {
                for _ in 0..200 {
                    clone.recv(&mut [0i32; 700], peer).unwrap();
                }
            });
            for _ in 0..200 {
                let mut buffer = [1.0f64; 50];
                group.all_reduce(&mut buffer, ReduceOp::Sum).unwrap();
                assert_eq!(buffer, [2.0; 50]);
            }
        });
    });
}

pub(super) fn a_started_barrier_waits_for_every_rank(suite: &Suite) {
    suite.with_groups(3, TIMEOUT, |_, group| {
        group.barrier().unwrap();
        if group.rank() == 1 {
            std::thread::sleep(Duration::from_millis(300));
            group.barrier().unwrap();
            return;
        }
        let started = group.barrier_start();
        let second = group.barrier_start();
        // The other ranks' start is not this one's, hence the margin.
        std::thread::sleep(Duration::from_millis(100));
        assert!(!started.is_done());
        started.wait().unwrap();
        // That one rank 1 never joins: it leaves.
        let error = second.wait().unwrap_err().to_string();
        assert!(error.contains("rank 1 gave the group up"), "{error}");
    });
}
