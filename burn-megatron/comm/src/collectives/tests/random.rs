//! Random programs: many operations in a random order, in several groups at the same time.

use super::model::{Modelled, assert_same_bits};
use super::operations::{Arguments, operations};
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
    let arguments = Arguments {
        length: random_length(random),
        salt,
        op: T::OPS[(random >> 40) as usize % T::OPS.len()],
        peer: (random >> 48) as usize % group.size(),
    };
    let operations = operations::<T>();
    let operation = &operations[(random >> 56) as usize % operations.len()];
    let (name, expected) = (operation.name, (operation.expected)(group, arguments));
    if (random >> 54) & 1 == 0 {
        assert_same_bits(&(operation.call)(group, arguments), &expected, name);
        return None;
    }
    let started = (operation.start)(group, arguments);
    Some(Box::new(move || assert_same_bits(&started(), &expected, name)))
}

/// A grid of 2 × 2 ranks: each is in a row, a column and the whole, and uses all three at once.
pub(super) fn random_programs_in_concurrent_groups_match_the_model(suite: &Suite) {
    suite.run_ranks(4, TIMEOUT, |world| {
        let (row, column) = (world.rank() / 2, world.rank() % 2);
        let groups = [
            (
                suite.connect(&world, "row", &[2 * row, 2 * row + 1]).unwrap(),
                row as u64,
            ),
            (
                suite.connect(&world, "column", &[column, column + 2]).unwrap(),
                2 + column as u64,
            ),
            (suite.connect(&world, "all", &[0, 1, 2, 3]).unwrap(), 4),
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
