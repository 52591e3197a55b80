//! Which engine a group gets, and the engine of a group of one. The ranks are threads.

use super::contract::every_length;
use super::*;
use crate::collectives::{CollectiveError, ReduceOp};
use half::bf16;

/// Between hosts an all-reduce over TCP is not cut into chunks, yet adds in the same order.
#[test]
fn ranks_on_two_hosts_match_the_model() {
    match_the_model_on(&["here", "here", "there"], EngineChoice::Tcp, "tcp");
    match_the_model_on(&["here", "there", "here"], EngineChoice::Auto, "tcp");
}

#[test]
fn hosts_of_any_size_match_the_model() {
    for hosts in [
        &["a", "a", "b"][..],
        &["a", "b", "b", "b"],
        &["a", "a", "b", "c", "c"],
        &["a", "a", "b", "b"],
    ] {
        match_the_model_on(hosts, EngineChoice::Auto, "hierarchical");
    }
}

fn match_the_model_on(hosts: &[&str], engine: EngineChoice, name: &str) {
    let hosts: Vec<_> = hosts.iter().copied().map(Some).collect();
    run_worlds(join_worlds_on(&hosts, TIMEOUT), |world| {
        let group = connect_all(&world, engine);
        assert_eq!(group.engine_name(), name);
        every_length::<f32>(&group);
        every_length::<bf16>(&group);
        every_length::<u8>(&group);
    });
}

#[test]
fn engines_are_chosen_and_named() {
    run_ranks(2, TIMEOUT, |world| {
        assert_eq!(
            connect_all(&world, EngineChoice::SharedMemory).engine_name(),
            "shared-memory"
        );
        assert_eq!(connect_all(&world, EngineChoice::Tcp).engine_name(), "tcp");
        let alone = [world.rank()];
        let group = ProcessGroup::connect(&world, "one", &alone, &EngineChoice::Auto);
        assert_eq!(group.unwrap().engine_name(), "single");
    });
}

#[test]
fn a_group_of_one_is_the_identity() {
    let group = ProcessGroup::single();
    assert_eq!((group.rank(), group.size(), group.ranks()), (0, 1, &[0][..]));
    every_length::<bf16>(&group);
    shared_buffers::every_length::<f32>(&group);
    let pending = group.all_gather_start(vec![1u8, 2]);
    assert!(pending.is_done());
    assert_eq!(pending.wait().unwrap(), [1, 2]);
    assert_eq!(group.bytes_communicated(), 0);
}

#[test]
fn ranks_that_choose_different_engines_get_an_error() {
    run_ranks(2, TIMEOUT, |world| {
        let options = ENGINES[world.rank()];
        let error = ProcessGroup::connect(&world, "all", &[0, 1], &options).unwrap_err();
        let message = "the ranks do not agree on engine: rank 1: tcp; rank 0: shared-memory";
        assert!(error.to_string().contains(message), "{error}");
    });
}

#[test]
fn groups_that_are_made_together_are_as_those_made_one_by_one() {
    for hosts in [
        [Some("a"); 4],
        [Some("a"), Some("a"), Some("b"), Some("b")],
        [Some("a"), Some("b"), Some("a"), Some("b")],
    ] {
        run_worlds(join_worlds_on(&hosts, TIMEOUT), |world| {
            let pair = world.rank() / 2 * 2;
            let members = [
                vec![0, 1, 2, 3],
                vec![pair, pair + 1],
                vec![world.rank()],
                vec![0, 1, 2, 3],
            ];
            let together: Vec<_> = ["all", "pair", "alone", "all"].into_iter().zip(&members).collect();
            let groups = ProcessGroup::connect_all(&world, &together, &EngineChoice::Auto).unwrap();
            for (group, ranks) in groups.iter().zip(&members) {
                let one = ProcessGroup::connect(&world, "one", ranks, &EngineChoice::Auto).unwrap();
                assert_eq!(
                    (group.engine_name(), group.ranks()),
                    (one.engine_name(), &ranks[..]),
                    "{hosts:?}"
                );
                let mut sum = [1 << world.rank()];
                group.all_reduce(&mut sum, ReduceOp::Sum).unwrap();
                assert_eq!(sum[0], ranks.iter().map(|rank| 1 << rank).sum::<i32>());
            }
        });
    }
}

#[test]
fn of_groups_that_are_made_together_the_one_that_waits_is_named() {
    run_ranks(3, SHORT_TIMEOUT, |world| {
        let pair = ("pair", vec![0, 1]);
        let groups = [pair.clone(), ("all", vec![0, 1, 2])];
        let of_rank = if world.rank() < 2 {
            &groups[..]
        } else {
            return leave_together(&world);
        };
        let error = ProcessGroup::connect_all(&world, of_rank, &EngineChoice::Tcp).unwrap_err();
        match &error {
            CollectiveError::Timeout { group, missing, .. } => {
                assert!(group.starts_with("all ") && *missing == [2], "{error}");
            }
            other => panic!("{other}"),
        }
        leave_together(&world);
    });
}

#[test]
fn a_rank_that_cannot_choose_says_so_to_the_others() {
    run_worlds(join_worlds_on(&[Some("here"), Some("there")], TIMEOUT), |world| {
        let options = [EngineChoice::Tcp, EngineChoice::SharedMemory][world.rank()];
        let error = ProcessGroup::connect(&world, "all", &[0, 1], &options).unwrap_err();
        let rule =
            "shared memory needs all ranks on one node, but ranks 0 and 1 are on different ones; use tcp or auto";
        let expected = match world.rank() {
            0 => format!("group all [0, 1]: the ranks do not agree on engine: rank 1: {rule}; rank 0: tcp"),
            _ => format!("group all [0, 1]: {rule}"),
        };
        assert_eq!(error.to_string(), expected);
    });
}
