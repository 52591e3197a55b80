//! Against the flat engine: the same bits, fewer bytes between the ranks; and what goes wrong inside a node of several.

use super::super::super::tests::{
    SHORT_TIMEOUT, TIMEOUT, connect_all, group_parts, join_worlds_on, leave_together, run_worlds, scramble,
};
use super::*;
use crate::collectives::host::nodes::Placement;
use crate::collectives::host::{shared_memory, tcp};
use crate::collectives::process_group::describe;
use crate::collectives::rendezvous::Rendezvous;
use crate::collectives::{CollectiveError, EngineChoice, Operation, ProcessGroup, ReduceOp};
use crate::launch::World;
use std::time::{Duration, Instant};

const TWO_AND_TWO: [&str; 4] = ["a", "a", "b", "b"];

fn worlds(hosts: &[&str], timeout: Duration) -> Vec<World> {
    let hosts: Vec<_> = hosts.iter().copied().map(Some).collect();
    join_worlds_on(&hosts, timeout)
}

/// The engine of a group of all ranks.
fn connect(world: &World, health: &Arc<GroupHealth>, rendezvous: &Rendezvous) -> HierarchicalEngine {
    let placement = Placement::of(world, &health.label.ranks);
    let nodes = placement.nodes().unwrap();
    let own = nodes.iter().find(|node| node.contains(&world.rank())).unwrap();
    let node = (own.len() > 1).then(|| {
        let part = Arc::new(health.of_part("node", own.clone()));
        let rendezvous = Rendezvous::new(world, &part).unwrap();
        shared_memory::connect(world, &part, &rendezvous)
    });
    let tcp = tcp::connect_with(world, health, rendezvous, None).unwrap();
    HierarchicalEngine::new(health, nodes, node, tcp)
}

/// Values of any size and sign, whose sum depends on the order of additions.
fn random_values(rank: usize, length: usize) -> Vec<f32> {
    let value = |index: usize| {
        let bits = scramble(((rank as u64) << 32) + index as u64);
        let magnitude = 10f32.powi((bits % 9) as i32 - 4);
        ((bits >> 40) as f32 / (1u64 << 23) as f32 - 1.0) * magnitude
    };
    (0..length).map(value).collect()
}

/// Longer than what is on its way in the longest chain here, 8 chunks of 64 Ki elements.
const LENGTH: usize = 11 * 65_536 + 4321;

#[test]
fn sums_of_random_values_have_the_bits_of_the_flat_engine() {
    for hosts in [&TWO_AND_TWO[..], &["a", "b", "b", "b"], &["a", "a", "b", "c", "c"]] {
        run_worlds(worlds(hosts, TIMEOUT), |world| {
            let n = world.world_size();
            let hierarchical = connect_all(&world, EngineChoice::Hierarchical);
            let flat = connect_all(&world, EngineChoice::Tcp);
            let values = random_values(world.rank(), LENGTH / n * n);
            for op in [ReduceOp::Sum, ReduceOp::Mean] {
                let mut reduced = [values.clone(), values.clone()];
                let mut shards = [vec![0.0; LENGTH / n], vec![0.0; LENGTH / n]];
                for (index, group) in [&hierarchical, &flat].into_iter().enumerate() {
                    group.all_reduce(&mut reduced[index], op).unwrap();
                    group.reduce_scatter(&values, &mut shards[index], op).unwrap();
                }
                let bits = |values: &[f32]| values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
                assert!(bits(&reduced[0]) == bits(&reduced[1]), "all_reduce {op} on {hosts:?}");
                assert!(bits(&shards[0]) == bits(&shards[1]), "reduce_scatter {op} on {hosts:?}");
            }
        });
    }
}

/// Makes one call of each collective and returns the payload bytes that all of them have put on the wire by then.
fn bytes_on_the_wire(engine: &dyn Engine, wire: &TcpEngine, n: usize, length: usize) -> Vec<u64> {
    let call = |sequence, operation, length| CallDescriptor {
        sequence,
        peer: (operation == Operation::Broadcast).then_some(1),
        reduce_op: matches!(operation, Operation::AllReduce | Operation::ReduceScatter).then_some(ReduceOp::Max),
        ..describe::<u8>(operation, length)
    };
    let (mut whole, mut shard) = (vec![1; length], vec![1; length / n]);
    let mut sent = Vec::new();
    engine
        .all_reduce(&call(0, Operation::AllReduce, length), &mut whole)
        .unwrap();
    sent.push(wire.bytes_communicated());
    let scatter = call(1, Operation::ReduceScatter, length / n);
    engine.reduce_scatter(&scatter, &whole, &mut shard).unwrap();
    sent.push(wire.bytes_communicated());
    engine
        .all_gather(&call(2, Operation::AllGather, length / n), &shard, &mut whole)
        .unwrap();
    sent.push(wire.bytes_communicated());
    engine
        .broadcast(&call(3, Operation::Broadcast, length), &mut whole)
        .unwrap();
    sent.push(wire.bytes_communicated());
    sent
}

/// In lengths of the message, over all ranks of 2 + 1 + 2.
#[test]
fn a_byte_crosses_once_for_a_node_where_flat_tcp_sends_it_to_every_rank() {
    let hosts = ["a", "a", "b", "c", "c"];
    let (n, length) = (hosts.len(), 5 * 300_000);
    let counts = run_worlds(worlds(&hosts, TIMEOUT), |world| {
        let (health, rendezvous) = group_parts(&world, "counted");
        let engine = connect(&world, &health, &rendezvous);
        let (health, rendezvous) = group_parts(&world, "flat");
        let flat = tcp::connect_with(&world, &health, &rendezvous, None).unwrap();
        [
            bytes_on_the_wire(&engine, &engine.tcp, n, length),
            bytes_on_the_wire(&flat, &flat, n, length),
        ]
    });
    let totals = [0, 1].map(|engine| {
        let total = |call: usize| counts.iter().map(|counts| counts[engine][call]).sum::<u64>() as f64;
        let until = [0, 1, 2, 3].map(|call| total(call) / length as f64);
        [until[0], until[1] - until[0], until[2] - until[1], until[3] - until[2]]
    });
    // Two links: there and back; there, and back what 3 and 2 of 5 ranks need; every shard to two nodes; along the
    // chain.
    assert_eq!(totals[0].map(|total| (total * 5.0).round() / 5.0), [4.0, 3.0, 2.0, 2.0]);
    assert_eq!(totals[1].map(|total| (total * 5.0).round() / 5.0), [8.0, 4.0, 4.0, 4.0]);
}

/// With room for a part of a slice only, ranks wait for each other in the nodes and between them at the same time.
#[test]
fn sockets_without_room_block_no_rank() {
    for hosts in [
        &TWO_AND_TWO[..],
        &["a", "a", "b", "c", "c", "c"],
        &["a", "b", "c", "c", "d", "e"],
    ] {
        run_worlds(worlds(hosts, TIMEOUT), |world| {
            let (n, rank) = (world.world_size(), world.rank());
            let (health, rendezvous) = group_parts(&world, "narrow");
            let engine = connect(&world, &health, &rendezvous);
            engine.tcp.shrink_buffers();
            let shard_length = 600_000;
            let call = |sequence, operation, peer: Option<usize>| CallDescriptor {
                sequence,
                peer,
                reduce_op: peer.is_none().then_some(ReduceOp::Sum),
                ..describe::<u8>(operation, shard_length)
            };
            let total: u8 = (1..=n as u8).sum();
            let own = rank as u8 + 1;
            let (mut shard, mut whole) = (vec![own; shard_length], vec![own; shard_length * n]);
            engine
                .reduce_scatter(&call(0, Operation::ReduceScatter, None), &whole, &mut shard)
                .unwrap();
            assert!(shard.iter().all(|&value| value == total));
            shard.fill(own);
            engine
                .all_gather(&call(1, Operation::AllGather, None), &shard, &mut whole)
                .unwrap();
            for (peer, part) in whole.chunks(shard_length).enumerate() {
                assert!(part.iter().all(|&value| value == peer as u8 + 1));
            }
            whole.fill(own);
            engine
                .all_reduce(&call(2, Operation::AllReduce, None), &mut whole)
                .unwrap();
            assert!(whole.iter().all(|&value| value == total));
            for root in 0..n {
                whole.fill(own);
                engine
                    .broadcast(&call(3 + root as u64, Operation::Broadcast, Some(root)), &mut whole)
                    .unwrap();
                assert!(whole.iter().all(|&value| value == root as u8 + 1));
            }
        });
    }
}

/// The ranks of a node differ, those of the other agree: all see it and name the same pair.
#[test]
fn a_mismatch_in_any_node_is_named_on_every_rank() {
    run_worlds(worlds(&TWO_AND_TWO, TIMEOUT), |world| {
        let group = connect_all(&world, EngineChoice::Hierarchical);
        let length = if world.rank() == 3 { 70_000 } else { 80_000 };
        let error = group.all_reduce(&mut vec![0.0f32; length], ReduceOp::Sum).unwrap_err();
        let message = "rank 3 of group all [0, 1, 2, 3] called all_reduce sum of 70000 f32 (call 0) while rank 0 \
                       called all_reduce sum of 80000 f32 (call 0)";
        assert_eq!(error.to_string(), message);
    });
}

#[test]
fn errors_inside_a_node_speak_of_the_whole_group() {
    run_worlds(worlds(&TWO_AND_TWO, TIMEOUT), |world| {
        let group = connect_all(&world, EngineChoice::Hierarchical);
        let message = "rank 3 of group all [0, 1, 2, 3] called recv of 5 f32 from rank 2 (call 0) while rank 2 called \
                       send of 7 f32 to rank 3 (call 0)";
        match world.rank() {
            2 => group.send(&[0.0f32; 7], 3).unwrap(),
            3 => {
                let error = group.recv(&mut [0.0f32; 5], 2).unwrap_err();
                assert_eq!(error.to_string(), message);
            }
            _ => {}
        }
        // Whoever hears of it first tells the others.
        let error = group.barrier().unwrap_err();
        assert!(error.to_string().contains(message), "{error}");
    });
    run_worlds(worlds(&TWO_AND_TWO, SHORT_TIMEOUT), |world| {
        let group = connect_all(&world, EngineChoice::Hierarchical);
        if world.rank() == 2 {
            let error = group.recv(&mut [0u8; 5], 3).unwrap_err();
            let message = "group all [0, 1, 2, 3]: recv of 5 u8 from rank 3 (call 0) timed out after 0.3 s without \
                           progress, still missing: ranks [3]";
            assert_eq!(error.to_string(), message);
        }
        leave_together(&world);
    });
}

/// A rank that fails while a large message is on its way, in the node where it is and in the other.
#[test]
fn a_failure_in_the_middle_of_a_call_ends_it_everywhere() {
    run_worlds(worlds(&TWO_AND_TWO, TIMEOUT), |world| {
        let (health, rendezvous) = group_parts(&world, "middle");
        let engine = connect(&world, &health, &rendezvous);
        let call = CallDescriptor {
            peer: Some(0),
            ..describe::<u8>(Operation::Broadcast, 30_000_000)
        };
        let start = Instant::now();
        if world.rank() == 1 {
            // Comes, and is gone before the data moves.
            engine.tcp.barrier(&call).unwrap();
            engine.leave("planted");
            return leave_together(&world);
        }
        let error = engine.broadcast(&call, &mut vec![0; call.length]).unwrap_err();
        engine.leave(&error.to_string());
        let text = error.to_string();
        assert!(
            text.contains("group middle [0, 1, 2, 3]: broadcast of 30000000 u8 from rank 0 (call 0)"),
            "{text}"
        );
        assert!(text.contains("rank 1 gave the group up: planted"), "{text}");
        assert!(start.elapsed() < Duration::from_secs(10));
        // The others may still want to know why.
        leave_together(&world);
    });
}

#[test]
fn ranks_of_a_host_that_are_not_neighbours_are_refused() {
    run_worlds(worlds(&["a", "b", "a"], TIMEOUT), |world| {
        let options = EngineChoice::Hierarchical;
        let error = ProcessGroup::connect(&world, "all", &[0, 1, 2], &options).unwrap_err();
        assert!(matches!(error, CollectiveError::NoAgreement { .. }), "{error}");
        assert!(
            error
                .to_string()
                .contains("between ranks 0 and 2, which share one, there is rank 1 of another"),
            "{error}"
        );
    });
}
