//! Random programs: many operations in a random order, in several groups at the same time.

use super::contract::{assert_same_bits, reduced, values};
use super::*;
use crate::collectives::ReduceOp;

/// The program is a function of the seed, so all ranks of a group run the same one.
fn run_program(group: &ProcessGroup, seed: u64, operations: u64) {
    let (n, rank) = (group.size(), group.rank());
    // Contributions are modelled by index in the group.
    let mut pending = Vec::new();
    for index in 0..operations {
        let salt = scramble(seed).wrapping_add(index);
        let random = scramble(salt);
        let length = match random % 5 {
            0 => 0,
            1..=3 => (random >> 8) as usize % 3000,
            _ => (random >> 8) as usize % 100_000,
        };
        let op = [ReduceOp::Sum, ReduceOp::Mean, ReduceOp::Max][(random >> 40) as usize % 3];
        let peer = (random >> 48) as usize % n;
        let mut buffer = values::<f32>(rank, length, salt);
        match (random >> 56) % 8 {
            0 => {
                group.all_reduce(&mut buffer, op).unwrap();
                assert_same_bits(&buffer, &reduced(n, length, salt, op), "all_reduce");
            }
            1 | 2 => pending.push((group.all_reduce_start(buffer, op), length, salt, op)),
            3 => {
                let mut output = vec![0.0; n * length];
                group.all_gather(&buffer, &mut output).unwrap();
                let expected: Vec<f32> = (0..n).flat_map(|rank| values(rank, length, salt)).collect();
                assert_same_bits(&output, &expected, "all_gather");
            }
            4 => {
                let input = values::<f32>(rank, n * length, salt);
                let mut shard = vec![0.0; length];
                group.reduce_scatter(&input, &mut shard, op).unwrap();
                let expected = reduced(n, n * length, salt, op);
                let own = &expected[rank * length..(rank + 1) * length];
                assert_same_bits(&shard, own, "reduce_scatter");
            }
            5 => {
                group.broadcast(&mut buffer, peer).unwrap();
                assert_same_bits(&buffer, &values(peer, length, salt), "broadcast");
            }
            6 if rank == peer => drop(group.send_start(buffer, (peer + 1) % n)),
            6 if rank == (peer + 1) % n => {
                group.recv(&mut buffer, peer).unwrap();
                assert_same_bits(&buffer, &values(peer, length, salt), "recv");
            }
            6 => {}
            _ => group.barrier().unwrap(),
        }
        if random.is_multiple_of(3) {
            for (handle, length, salt, op) in pending.drain(..).rev() {
                let result = handle.wait().unwrap();
                assert_same_bits(&result, &reduced(n, length, salt, op), "all_reduce_start");
            }
        }
    }
    group.barrier().unwrap();
}

/// A grid of 2 × 2 ranks: each is in a row, a column and the whole, and uses all three at once.
#[test]
fn random_programs_in_concurrent_groups_match_the_model() {
    for engine in ENGINES {
        run_worlds(worlds_for(engine, 4, TIMEOUT), |world| {
            let options = GroupOptions { engine };
            let (row, column) = (world.rank() / 2, world.rank() % 2);
            let connect = |name: &str, ranks: &[usize]| ProcessGroup::connect(&world, name, ranks, &options).unwrap();
            let groups = [
                (connect("row", &[2 * row, 2 * row + 1]), row as u64),
                (connect("column", &[column, column + 2]), 2 + column as u64),
                (connect("all", &[0, 1, 2, 3]), 4),
            ];
            std::thread::scope(|scope| {
                for (group, seed) in &groups {
                    scope.spawn(move || run_program(group, *seed, 100));
                }
            });
        });
    }
}
