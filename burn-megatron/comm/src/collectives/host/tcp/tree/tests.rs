//! What goes wrong far away in a tree, and that every rank says the same of it.

use super::super::connect_with;
use super::super::tests::barrier;
use crate::collectives::engines::engine::Engine;
use crate::collectives::error::CollectiveError;
use crate::collectives::tests::{Suite, TIMEOUT, group_parts, join_worlds_on, leave_together, run_ranks, run_worlds};
use crate::collectives::{EngineChoice, ProcessGroup, ReduceOp};
use crate::launch::World;
use std::time::{Duration, Instant};

/// With two children for each, five levels: 0 has 1 and 7, 7 has 8 and 11, 8 has 9 and 10.
const RANKS: usize = 14;
const PATIENCE: Duration = Duration::from_millis(800);

/// The ranks of nodes that share memory: 0 has 1 to 3 there, and the others below 4, 7 and 8.
const NODES: [&str; RANKS] = ["a", "a", "a", "a", "b", "b", "b", "c", "d", "d", "d", "d", "d", "d"];

fn connect(world: &World) -> ProcessGroup {
    let ranks: Vec<usize> = (0..RANKS).collect();
    if world.node_of(RANKS - 1) > 0 {
        return ProcessGroup::connect(world, "all", &ranks, &EngineChoice::Hierarchical).unwrap();
    }
    Suite::over_tree().connect(world, "all", &ranks).unwrap()
}

/// Runs `body` on ranks that meet over sockets, and on ranks of which some share memory.
fn run_both(timeout: Duration, body: impl Fn(World) + Sync) {
    run_ranks(RANKS, timeout, &body);
    run_worlds(join_worlds_on(&NODES.map(Some), timeout), &body);
}

/// All ranks but `late` come to a call, and must name these.
fn assert_named(late: &[usize]) {
    run_both(PATIENCE, |world| {
        let group = connect(&world);
        group.barrier().unwrap();
        if late.contains(&group.rank()) {
            return leave_together(&world);
        }
        match group.all_reduce(&mut [1.0_f32], ReduceOp::Sum).unwrap_err() {
            CollectiveError::Timeout { missing, .. } => assert_eq!(missing, late, "rank {}", group.rank()),
            error => panic!("rank {}: {error}", group.rank()),
        }
        leave_together(&world);
    });
}

#[test]
fn ranks_far_from_each_other_that_do_not_come_are_named_by_all() {
    assert_named(&[5, 9]);
}

#[test]
fn a_rank_with_others_below_it_that_does_not_come_is_named_by_all() {
    assert_named(&[7]);
    assert_named(&[8]);
}

#[test]
fn the_root_that_does_not_come_is_named_by_all() {
    assert_named(&[0]);
}

#[test]
fn ranks_that_leave_before_the_first_call_are_named() {
    // A leaf, and a rank with others below it.
    for leaver in [5, 7] {
        run_both(TIMEOUT, |world| {
            let group = connect(&world);
            let start = Instant::now();
            if group.rank() == leaver {
                group.give_up("no file");
                return leave_together(&world);
            }
            let error = group.barrier().unwrap_err().to_string();
            let cause = format!("rank {leaver} gave the group up: no file");
            assert!(error.contains(&cause), "rank {}: {error}", group.rank());
            assert!(start.elapsed() < Duration::from_secs(10), "rank {}", group.rank());
            drop(group);
            leave_together(&world);
        });
    }
}

#[test]
fn a_different_call_far_from_the_root_is_named_by_all() {
    run_both(TIMEOUT, |world| {
        let group = connect(&world);
        let length = if group.rank() == 9 { 3 } else { 2 };
        let error = group.all_reduce(&mut vec![1.0_f32; length], ReduceOp::Sum).unwrap_err();
        let expected = "rank 9 of group all [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13] called all_reduce sum of 3 \
                        f32 (call 0) while rank 0 called all_reduce sum of 2 f32 (call 0)";
        assert_eq!(error.to_string(), expected, "rank {}", group.rank());
    });
}

#[test]
fn a_rank_has_connections_to_its_neighbours_only() {
    run_ranks(RANKS, TIMEOUT, |world| {
        let (health, rendezvous) = group_parts(&world, "all");
        let engine = connect_with(&world, &health, &rendezvous, Some(2)).unwrap();
        engine.barrier(&barrier()).unwrap();
        let shape = engine.tree.as_ref().unwrap();
        let neighbours = shape.children.len() + usize::from(shape.parent.is_some());
        assert_eq!(engine.links.all().count(), neighbours, "rank {}", world.rank());
        leave_together(&world);
    });
}
