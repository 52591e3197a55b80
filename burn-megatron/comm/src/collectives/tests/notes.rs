//! What a rank that waits leaves for the others to read, and whom they find by it.

use super::*;
use crate::launch::note_key;
use std::time::Instant;

/// Waits until the note of a rank names exactly the ranks `named`, in any order.
fn await_note(world: &World, rank: usize, named: &[usize]) {
    let start = Instant::now();
    loop {
        let note = world.store().wait(&note_key(rank), Duration::from_millis(1));
        let note = note.map_or(String::new(), |note| String::from_utf8(note).unwrap());
        let is_named = |other: &usize| note.contains(&format!("\"rank\":{other},"));
        let is_as_expected = |other: usize| is_named(&other) == named.contains(&other);
        if (0..world.world_size()).all(is_as_expected) {
            return;
        }
        assert!(
            start.elapsed() < TIMEOUT / 4,
            "rank {rank} shall wait for {named:?}: {note:?}"
        );
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_rank_that_waits_in_two_lanes_says_so_until_each_has_ended() {
    run_ranks(3, Duration::from_secs(8), |world| {
        let group = connect_all(&world, EngineChoice::Tcp);
        match world.rank() {
            0 => std::thread::scope(|scope| {
                for peer in [1, 2] {
                    let group = &group;
                    scope.spawn(move || group.recv(&mut [0u8; 4], peer).unwrap());
                }
            }),
            1 => {
                await_note(&world, 0, &[1, 2]);
                group.send(&[1u8; 4], 0).unwrap();
                world.store().set("sent", b"").unwrap();
            }
            _ => {
                world.store().wait("sent", TIMEOUT).unwrap();
                await_note(&world, 0, &[2]);
                group.send(&[2u8; 4], 0).unwrap();
                await_note(&world, 0, &[]);
            }
        }
        // No rank leaves while others look.
        group.barrier().unwrap();
    });
}

/// Rank 0 waits for rank 1, which first waits for rank 2 and then for rank 3, without a moment in which it has no note.
fn a_wait_that_moves_is_followed(engine: EngineChoice, name: &str) {
    const LIMIT: Duration = Duration::from_secs(4);
    let hosts = match engine {
        EngineChoice::Hierarchical => ["a", "a", "b", "b"].map(Some),
        _ => [None; 4],
    };
    run_worlds(join_worlds_on(&hosts, LIMIT), |world| {
        let options = engine;
        let connect = |name: &str, ranks: &[usize]| ProcessGroup::connect(&world, name, ranks, &options).unwrap();
        let rank = world.rank();
        let pair = (rank < 2).then(|| connect("pair", &[0, 1]));
        let others = (rank > 0).then(|| connect("others", &[1, 2, 3]));
        let start = Instant::now();
        match rank {
            0 => {
                let error = pair.unwrap().recv(&mut [0u8; 4], 1).unwrap_err();
                assert!(error.to_string().contains("timed out"), "{error}");
                let cause = world.suspicions().first_cause(Duration::from_millis(300));
                let cause = cause.unwrap().unwrap();
                assert_eq!(cause.rank, 3, "{name}: {cause:?}");
                let what = "did not come to barrier (call 0) of group others [1, 2, 3], where rank 1 waits for it";
                assert!(cause.what.contains(what), "{name}: {cause:?}");
                world.store().set("found", b"").unwrap();
            }
            1 => {
                others.unwrap().barrier().unwrap_err();
                let _ = world.store().wait("found", TIMEOUT);
            }
            2 => {
                // Over a tree rank 2 stands for the other rank of its node until it comes.
                let is_tree = engine == EngineChoice::Hierarchical;
                await_note(&world, 1, if is_tree { &[2] } else { &[2, 3] });
                // So late that it leaves no note of its own before rank 0 looks for one.
                std::thread::sleep((LIMIT * 7 / 8).saturating_sub(start.elapsed()));
                others.unwrap().barrier().unwrap_err();
                let _ = world.store().wait("found", TIMEOUT);
            }
            _ => {
                world.store().wait("found", TIMEOUT).unwrap();
            }
        }
    });
}

#[test]
fn a_wait_that_moves_to_another_rank_is_followed_over_shared_memory() {
    a_wait_that_moves_is_followed(EngineChoice::SharedMemory, "shared memory");
}

#[test]
fn a_wait_that_moves_to_another_rank_is_followed_over_tcp() {
    a_wait_that_moves_is_followed(EngineChoice::Tcp, "tcp");
}

#[test]
fn a_wait_that_moves_to_another_rank_is_followed_between_nodes() {
    a_wait_that_moves_is_followed(EngineChoice::Hierarchical, "hierarchical");
}
