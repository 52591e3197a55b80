//! Shared buffers: what every engine must do with them, and what becomes of them when something fails.

use super::contract::describe_case;
use super::model::{Modelled, assert_same_bits, reduced, values};
use super::*;
use crate::collectives::{CollectiveError, ReduceOp, SharedBuffer};
use half::bf16;
use std::time::Instant;

fn filled<T: Modelled>(group: &ProcessGroup, length: usize, salt: u64) -> SharedBuffer<T> {
    let mut buffer = group.allocate(length).unwrap();
    assert!(buffer.iter().all(|value| *value == T::zeroed()));
    buffer.copy_from_slice(&values(group.rank(), length, salt));
    buffer
}

/// Every operation, in one buffer again and again, against the model and the ordinary calls.
fn every_operation<T: Modelled>(group: &ProcessGroup, length: usize) {
    let (n, rank) = (group.size(), group.rank());
    let what = |name: &str| describe_case::<T>(group, name, length);
    let mut buffer = filled::<T>(group, length, 0);
    let is_expected = group.engine_name() == "shared-memory" && length > 0;
    assert_eq!((buffer.len(), buffer.is_shared()), (length, is_expected));
    for &op in T::OPS {
        let salt = 20 + op as u64;
        buffer.copy_from_slice(&values(rank, length, salt));
        group.all_reduce_shared(&mut buffer, op).unwrap();
        let mut ordinary = values::<T>(rank, length, salt);
        group.all_reduce(&mut ordinary, op).unwrap();
        assert_same_bits(&buffer, &ordinary, &what("all_reduce_shared"));
        assert_same_bits(&buffer, &reduced(n, length, salt, op), &what("all_reduce_shared"));
    }
    drop(buffer);

    let own = rank * length..(rank + 1) * length;
    let mut whole = filled::<T>(group, n * length, 0);
    for &op in T::OPS {
        let salt = 30 + op as u64;
        let input = values(rank, n * length, salt);
        whole.copy_from_slice(&input);
        group.reduce_scatter_shared(&mut whole, op).unwrap();
        let expected = reduced(n, n * length, salt, op);
        assert_same_bits(
            &whole[own.clone()],
            &expected[own.clone()],
            &what("reduce_scatter_shared"),
        );
        assert_same_bits(&whole[..own.start], &input[..own.start], "the others' shards");
        assert_same_bits(&whole[own.end..], &input[own.end..], "the others' shards");
    }
    whole.fill(T::zeroed());
    whole[own].copy_from_slice(&values(rank, length, 40));
    group.all_gather_shared(&mut whole).unwrap();
    let expected: Vec<T> = (0..n).flat_map(|rank| values(rank, length, 40)).collect();
    assert_same_bits(&whole, &expected, &what("all_gather_shared"));
}

pub(super) fn every_length<T: Modelled>(group: &ProcessGroup) {
    let chunk = 256 * 1024 / T::ELEMENT_TYPE.size_bytes();
    // Nothing, one element for many ranks, the small path's end, several blocks.
    for length in [0, 1, 3, chunk / 32, chunk / 32 + 1, chunk + 17] {
        every_operation::<T>(group, length);
    }
}

/// Slices of several parts, after each of which a rank shows that it makes progress.
pub(super) fn long_buffers_match_the_model(suite: &Suite) {
    let length = 9_000_001;
    suite.with_groups(2, TIMEOUT, |_, group| {
        let mut buffer = filled::<f32>(&group, length, 1);
        group.all_reduce_shared(&mut buffer, ReduceOp::Mean).unwrap();
        let expected = reduced(2, length, 1, ReduceOp::Mean);
        assert_same_bits(&buffer, &expected, group.engine_name());
    });
}

pub(super) fn shared_buffers_come_back_in_any_order(suite: &Suite) {
    suite.with_groups(3, TIMEOUT, |_, group| {
        let rank = group.rank();
        let buffers: Vec<_> = (0..8)
            .map(|salt| filled::<f32>(&group, 5000 * salt + 1, salt as u64))
            .collect();
        let handles: Vec<_> = buffers
            .into_iter()
            .map(|buffer| group.all_reduce_shared_start(buffer, ReduceOp::Sum))
            .collect();
        let scattered = filled::<f64>(&group, 3 * 4001, 50);
        let scattered = group.reduce_scatter_shared_start(scattered, ReduceOp::Max);
        let gathered = filled::<bf16>(&group, 3 * 4001, 51);
        let gathered = group.all_gather_shared_start(gathered);
        let own = rank * 4001..(rank + 1) * 4001;
        for (salt, handle) in handles.into_iter().enumerate().rev() {
            let expected = reduced(3, 5000 * salt + 1, salt as u64, ReduceOp::Sum);
            assert_same_bits(&handle.wait().unwrap(), &expected, "all_reduce_shared_start");
        }
        let gathered = gathered.wait().unwrap();
        for rank in 0..3 {
            let shard = rank * 4001..(rank + 1) * 4001;
            let expected = values::<bf16>(rank, 3 * 4001, 51);
            assert_same_bits(&gathered[shard.clone()], &expected[shard], "all_gather_shared_start");
        }
        let expected = reduced::<f64>(3, 3 * 4001, 50, ReduceOp::Max);
        let scattered = scattered.wait().unwrap();
        assert_same_bits(&scattered[own.clone()], &expected[own], "reduce_scatter_shared_start");
    });
}

/// A started call whose handle was dropped still runs, with the buffer that no caller has any more.
pub(super) fn a_call_whose_buffer_is_not_waited_for_still_completes(suite: &Suite) {
    suite.with_groups(2, TIMEOUT, |_, group| {
        let mut buffer = filled::<f32>(&group, 100_000, group.rank() as u64);
        if group.rank() == 0 {
            drop(group.all_reduce_shared_start(buffer, ReduceOp::Sum));
        } else {
            group.all_reduce_shared(&mut buffer, ReduceOp::Sum).unwrap();
            assert_eq!(buffer.len(), 100_000);
        }
        group.barrier().unwrap();
    });
}

pub(super) fn two_groups_reduce_at_the_same_time(suite: &Suite) {
    suite.run_ranks(4, TIMEOUT, |world| {
        let (row, column) = (world.rank() / 2, world.rank() % 2);
        let groups = [
            suite.connect(&world, "row", &[2 * row, 2 * row + 1]).unwrap(),
            suite.connect(&world, "column", &[column, column + 2]).unwrap(),
        ];
        std::thread::scope(|scope| {
            for group in &groups {
                group.hand_over();
                scope.spawn(move || {
                    let mut buffer = group.allocate::<f64>(70_000).unwrap();
                    for salt in 0..20 {
                        buffer.copy_from_slice(&values(group.rank(), 70_000, salt));
                        group.all_reduce_shared(&mut buffer, ReduceOp::Sum).unwrap();
                        assert_same_bits(&buffer, &reduced(2, 70_000, salt, ReduceOp::Sum), group.name());
                    }
                });
            }
        });
    });
}

/// Small buffers go through the group's segment, large ones do not; calls of both kinds and ordinary ones alternate.
pub(super) fn ordinary_calls_and_those_on_shared_buffers_alternate(suite: &Suite) {
    suite.with_groups(3, TIMEOUT, |_, group| {
        let mut small = group.allocate::<f32>(100).unwrap();
        let mut large = group.allocate::<f32>(50_000).unwrap();
        for salt in 0..30 {
            for buffer in [&mut small, &mut large] {
                let length = buffer.len();
                buffer.copy_from_slice(&values(group.rank(), length, salt));
                group.all_reduce_shared(buffer, ReduceOp::Sum).unwrap();
                assert_same_bits(buffer, &reduced(3, length, salt, ReduceOp::Sum), "shared");
                let mut ordinary = values::<f32>(group.rank(), length, salt + 100);
                group.all_reduce(&mut ordinary, ReduceOp::Max).unwrap();
                assert_same_bits(&ordinary, &reduced(3, length, salt + 100, ReduceOp::Max), "ordinary");
            }
        }
    });
}

pub(super) fn buffers_and_groups_go_in_any_order(suite: &Suite) {
    suite.with_groups(2, TIMEOUT, |_, group| {
        let rank = group.rank();
        let mut first = filled::<f32>(&group, 30_000, 1);
        let mut second = filled::<f32>(&group, 30_000, 2);
        group.all_reduce_shared(&mut first, ReduceOp::Sum).unwrap();
        if rank == 0 {
            // The other rank continues with its own.
            drop(first);
        } else {
            assert_same_bits(&first, &reduced(2, 30_000, 1, ReduceOp::Sum), "its own");
            first.fill(7.0);
        }
        group.all_reduce_shared(&mut second, ReduceOp::Sum).unwrap();
        drop(group);
        assert_same_bits(&second, &reduced(2, 30_000, 2, ReduceOp::Sum), "after the group");
        second.fill(1.0);
        assert!(second.iter().all(|&value| value == 1.0));
    });
}

/// Every rank makes its own call; all fail with this message.
fn assert_mismatch(suite: &Suite, message: &str, call: impl Fn(&ProcessGroup) -> Result<(), CollectiveError> + Sync) {
    suite.with_groups(2, TIMEOUT, |_, group| {
        let error = call(&group).unwrap_err();
        assert_eq!(error.to_string(), message, "rank {}", group.rank());
        assert!(matches!(error, CollectiveError::Mismatch { .. }));
    });
}

pub(super) fn different_allocations_are_named_on_every_rank(suite: &Suite) {
    assert_mismatch(
        suite,
        "rank 1 of group all [0, 1] called allocate of 101 f32 (call 0) while rank 0 called allocate of 100 f32 \
         (call 0)",
        |group| group.allocate::<f32>(100 + group.rank()).map(drop),
    );
    assert_mismatch(
        suite,
        "rank 1 of group all [0, 1] called allocate of 100 f64 (call 0) while rank 0 called allocate of 100 f32 \
         (call 0)",
        |group| match group.rank() {
            0 => group.allocate::<f32>(100).map(drop),
            _ => group.allocate::<f64>(100).map(drop),
        },
    );
    assert_mismatch(
        suite,
        "rank 1 of group all [0, 1] called allocate of 0 f32 (call 0) while rank 0 called allocate of 100 f32 (call 0)",
        |group| group.allocate::<f32>([100, 0][group.rank()]).map(drop),
    );
}

pub(super) fn different_buffers_and_calls_are_named_on_every_rank(suite: &Suite) {
    assert_mismatch(
        suite,
        "rank 1 of group all [0, 1] called all_reduce_shared sum of 9000 f32 in the buffer of call 0 (call 2) while \
         rank 0 called all_reduce_shared sum of 9000 f32 in the buffer of call 1 (call 2)",
        |group| {
            let mut first = group.allocate::<f32>(9000)?;
            let mut second = group.allocate::<f32>(9000)?;
            let buffer = match group.rank() {
                0 => &mut second,
                _ => &mut first,
            };
            group.all_reduce_shared(buffer, ReduceOp::Sum).inspect_err(|_| {
                assert!(buffer.is_empty(), "{buffer:?}");
            })
        },
    );
    assert_mismatch(
        suite,
        "rank 1 of group all [0, 1] called all_reduce sum of 9000 f32 (call 1) while rank 0 called all_reduce_shared \
         sum of 9000 f32 in the buffer of call 0 (call 1)",
        |group| {
            let mut buffer = group.allocate::<f32>(9000)?;
            match group.rank() {
                0 => group.all_reduce_shared(&mut buffer, ReduceOp::Sum),
                _ => group.all_reduce(&mut buffer, ReduceOp::Sum),
            }
        },
    );
}

pub(super) fn wrong_arguments_are_refused_and_the_buffer_is_kept(suite: &Suite) {
    suite.with_groups(2, TIMEOUT, |world, group| {
        let other = connect_all(world, EngineChoice::Tcp);
        let mut buffer = filled::<i32>(&group, 5, 3);
        let mut refused = |result: &dyn Fn(&mut SharedBuffer<i32>) -> Result<(), CollectiveError>, message: &str| {
            let error = result(&mut buffer).unwrap_err();
            assert!(matches!(error, CollectiveError::InvalidArgument { .. }), "{error}");
            assert!(error.to_string().contains(message), "{error}");
            assert_same_bits(&buffer, &values(group.rank(), 5, 3), "kept");
        };
        refused(
            &|buffer| other.all_reduce_shared(buffer, ReduceOp::Sum),
            "all_reduce_shared refused: the buffer was not allocated by this group",
        );
        refused(&|buffer| group.all_reduce_shared(buffer, ReduceOp::Mean), "mean of i32");
        let shards = "buffer of length 5: expected 2 shards of length 2";
        refused(&|buffer| group.all_gather_shared(buffer), shards);
        refused(&|buffer| group.reduce_scatter_shared(buffer, ReduceOp::Sum), shards);
        refused(
            &|_| group.allocate::<f64>(usize::MAX / 8).map(drop),
            "more than the address space",
        );
        group.all_reduce_shared(&mut buffer, ReduceOp::Sum).unwrap();
    });
}

pub(super) fn a_rank_that_does_not_come_is_named_and_the_buffer_is_lost(suite: &Suite) {
    for length in [10, 100_000] {
        suite.with_groups(3, SHORT_TIMEOUT, |world, group| {
            let mut buffer = filled::<f32>(&group, length, 1);
            let started = filled::<f32>(&group, length, 2);
            if group.rank() == 1 {
                return leave_together(world);
            }
            let error = group.all_reduce_shared(&mut buffer, ReduceOp::Sum).unwrap_err();
            let message = format!(
                "all_reduce_shared sum of {length} f32 in the buffer of call 0 (call 2) timed out after 0.3 s without \
                 progress, still missing: ranks [1]"
            );
            assert!(error.to_string().contains(&message), "{error}");
            assert!(buffer.is_empty() && !buffer.is_shared());
            let error = group
                .all_reduce_shared_start(started, ReduceOp::Sum)
                .wait()
                .unwrap_err();
            assert!(matches!(error, CollectiveError::Poisoned { .. }), "{error}");
            leave_together(world);
        });
    }
}

pub(super) fn a_failure_during_a_wait_for_a_buffer_ends_it_at_once(suite: &Suite) {
    suite.with_groups(2, TIMEOUT, |world, group| {
        let buffer = filled::<f32>(&group, 100_000, 1);
        group.barrier().unwrap();
        if group.rank() == 1 {
            // Waits until it learns of the failure.
            world.store().wait("never set", TIMEOUT).unwrap_err();
            return;
        }
        let start = Instant::now();
        let pending = group.all_reduce_shared_start(buffer, ReduceOp::Sum);
        std::thread::sleep(Duration::from_millis(100));
        world.failure().raise(PeerFailure::new(1, "here", "killed"));
        let error = pending.wait().unwrap_err();
        assert!(
            error.to_string().contains("rank 1 on host here failed: killed"),
            "{error}"
        );
        assert!(start.elapsed() < TIMEOUT / 3, "{:?}", start.elapsed());
    });
}

/// The rank that is late still finds the memory of one that has gone, and learns that it has.
pub(super) fn a_rank_that_drops_buffer_and_group_is_named(suite: &Suite) {
    suite.with_groups(2, TIMEOUT, |_, group| {
        let mut buffer = filled::<f32>(&group, 100_000, 1);
        group.barrier().unwrap();
        if group.rank() == 1 {
            return;
        }
        std::thread::sleep(Duration::from_millis(100));
        let error = group.all_reduce_shared(&mut buffer, ReduceOp::Sum).unwrap_err();
        assert!(matches!(error, CollectiveError::PeerLeft { rank: 1, .. }), "{error}");
        assert!(buffer.is_empty());
    });
}
