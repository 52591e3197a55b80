//! Random programs: many operations in a random order, in several groups at the same time.

use super::contract::{Modelled, assert_same_bits, reduced, values};
use super::*;
use half::{bf16, f16};

/// Operations of all groups together.
const OPERATIONS: u64 = 10_000;
/// Started calls that a rank has on its way, at most.
const MAX_PENDING: usize = 8;

/// Waits for a started call and checks what it returns.
type Check = Box<dyn FnOnce()>;

/// Says which seed a program ran with, should it fail.
struct SeedOnFailure(u64);

impl Drop for SeedOnFailure {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("to repeat the random programs: CONTRACT_SEED={}", self.0);
        }
    }
}

/// Returns mostly small lengths, zero and odd ones among them, and now and then a large one.
fn random_length(random: u64) -> usize {
    let bits = (random >> 8) as usize;
    match random % 64 {
        0..4 => 0,
        4..40 => bits % 200,
        40..63 => bits % 3000,
        _ => bits % 150_000,
    }
}

/// The program is a function of the seed, so all ranks of a group run the same one.
fn run_program(group: &ProcessGroup, seed: u64, operations: u64) {
    let mut pending: Vec<Check> = Vec::new();
    for index in 0..operations {
        let salt = scramble(seed).wrapping_add(index);
        let random = scramble(salt);
        let operate = match (random >> 32) % 7 {
            0 => operate::<f32>,
            1 => operate::<f64>,
            2 => operate::<f16>,
            3 => operate::<bf16>,
            4 => operate::<i32>,
            5 => operate::<i64>,
            _ => operate::<u8>,
        };
        pending.extend(operate(group, random, salt));
        while pending.len() > MAX_PENDING || (random.is_multiple_of(5) && !pending.is_empty()) {
            // In another order than they were started.
            let chosen = scramble(random ^ pending.len() as u64) as usize % pending.len();
            pending.swap_remove(chosen)();
        }
    }
    group.barrier_start().wait().unwrap();
    pending.into_iter().for_each(|check| check());
}

/// Makes one call, blocking or started; contributions are modelled by index in the group.
fn operate<T: Modelled>(group: &ProcessGroup, random: u64, salt: u64) -> Option<Check> {
    let (n, rank) = (group.size(), group.rank());
    let length = random_length(random);
    let op = T::OPS[(random >> 40) as usize % T::OPS.len()];
    let peer = (random >> 48) as usize % n;
    let is_started = (random >> 54) & 1 == 1;
    let mut buffer = values::<T>(rank, length, salt);
    match (random >> 56) % 6 {
        0 => {
            let expected = reduced(n, length, salt, op);
            if is_started {
                let started = group.all_reduce_start(buffer, op);
                return Some(later(started, expected, "all_reduce_start"));
            }
            group.all_reduce(&mut buffer, op).unwrap();
            assert_same_bits(&buffer, &expected, "all_reduce");
        }
        1 => {
            let expected: Vec<T> = (0..n).flat_map(|rank| values(rank, length, salt)).collect();
            if is_started {
                return Some(later(group.all_gather_start(buffer), expected, "all_gather_start"));
            }
            let mut output = vec![T::zeroed(); n * length];
            group.all_gather(&buffer, &mut output).unwrap();
            assert_same_bits(&output, &expected, "all_gather");
        }
        2 => {
            let input = values::<T>(rank, n * length, salt);
            let expected = reduced(n, n * length, salt, op)[rank * length..(rank + 1) * length].to_vec();
            if is_started {
                let started = group.reduce_scatter_start(input, op);
                return Some(later(started, expected, "reduce_scatter_start"));
            }
            let mut shard = vec![T::zeroed(); length];
            group.reduce_scatter(&input, &mut shard, op).unwrap();
            assert_same_bits(&shard, &expected, "reduce_scatter");
        }
        3 => {
            let expected = values(peer, length, salt);
            if is_started {
                return Some(later(group.broadcast_start(buffer, peer), expected, "broadcast_start"));
            }
            group.broadcast(&mut buffer, peer).unwrap();
            assert_same_bits(&buffer, &expected, "broadcast");
        }
        4 if rank == peer => {
            let to = (peer + 1) % n;
            if is_started {
                let expected = buffer.clone();
                return Some(later(group.send_start(buffer, to), expected, "send_start"));
            }
            group.send(&buffer, to).unwrap();
        }
        4 if rank == (peer + 1) % n => {
            let expected = values(peer, length, salt);
            if is_started {
                return Some(later(group.recv_start(length, peer), expected, "recv_start"));
            }
            group.recv(&mut buffer, peer).unwrap();
            assert_same_bits(&buffer, &expected, "recv");
        }
        4 => {}
        _ if is_started => {
            let started = group.barrier_start();
            return Some(Box::new(move || started.wait().unwrap()));
        }
        _ => group.barrier().unwrap(),
    }
    None
}

fn later<T: Modelled>(started: crate::collectives::Pending<Vec<T>>, expected: Vec<T>, what: &'static str) -> Check {
    Box::new(move || assert_same_bits(&started.wait().unwrap(), &expected, what))
}

/// A grid of 2 × 2 ranks: each is in a row, a column and the whole, and uses all three at once.
pub(super) fn random_programs_in_concurrent_groups_match_the_model(suite: &Suite) {
    suite.run_ranks(4, TIMEOUT, |world| {
        let (row, column) = (world.rank() / 2, world.rank() % 2);
        let groups = [
            (suite.connect(&world, "row", &[2 * row, 2 * row + 1]), row as u64),
            (
                suite.connect(&world, "column", &[column, column + 2]),
                2 + column as u64,
            ),
            (suite.connect(&world, "all", &[0, 1, 2, 3]), 4),
        ];
        std::thread::scope(|scope| {
            for (group, number) in &groups {
                group.hand_over();
                scope.spawn(move || {
                    let _seed = SeedOnFailure(suite.seed);
                    // Two rows, two columns and the whole.
                    run_program(group, scramble(suite.seed).wrapping_add(*number), OPERATIONS / 5);
                });
            }
        });
    });
}
