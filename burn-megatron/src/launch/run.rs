//! [`run`]: the whole `main` of a program that trains, from the launcher to the exit code.

use std::error::Error;
use std::process::ExitCode;

use super::error::LaunchError;
use super::failure::{exit_code_of, report_and_exit, with_sources};
use super::launcher::Launcher;
use super::role::{Role, enter};
use super::say;
use super::world::{JoinConfig, World};
use crate::collectives::catch_collective_error;

/// What a program exits with when its ranks could not be started, or could not join their job.
const NOT_STARTED: u8 = 2;

/// Runs `rank` on every rank of a job and returns what the program exits with.
///
/// Started by hand, this process starts `ranks` copies of itself with the same arguments, waits for them, and does not
/// call `rank` itself; one rank needs no copy. Started by torchrun, Slurm or Open MPI, it is a rank of their job: `ranks`
/// must then be the number of theirs, or 1 to accept any.
///
/// ```no_run
/// use std::process::ExitCode;
///
/// use burn_megatron::prelude::*;
///
/// fn main() -> ExitCode {
///     burn_megatron::run(4, train)
/// }
///
/// fn train(world: &World) -> Result<(), Box<dyn std::error::Error>> {
///     let context = ParallelConfig::new().init(world)?;
///     let mut number = [context.rank() as f32];
///     context.world_group().all_reduce(&mut number, ReduceOp::Sum)?;
///     if context.rank() == 0 {
///         println!("the ranks' numbers add up to {}", number[0]);
///     }
///     Ok(())
/// }
/// ```
///
/// What a program does before the call, such as reading its arguments, it does in the launcher and in every rank. More
/// settings than the number of ranks: [`enter`](super::enter).
///
/// # Communication
/// The rendezvous of all ranks.
///
/// # Errors
/// Printed to stderr, and turned into the exit code:
/// - 0: every rank's `rank` returned `Ok`.
/// - 1 in a rank: `rank` failed there, or a collective did in a forward or backward pass, which cannot return its
///   error. The error is printed by the rank that has it, the other ranks are informed, and the process ends. The
///   launcher names the rank that failed first and exits with its code.
/// - [`SECONDARY_FAILURE_EXIT_CODE`](super::SECONDARY_FAILURE_EXIT_CODE) in a rank that ends only because another failed.
/// - 2: the ranks could not be started or could not join their job: `ranks` is 0, a launcher's variables contradict each
///   other, or the port is taken.
pub fn run<E: Into<Box<dyn Error>>>(ranks: usize, rank: impl FnOnce(&World) -> Result<(), E>) -> ExitCode {
    match enter(Launcher::new(ranks), &JoinConfig::new()) {
        Ok(Role::Launched(summary)) => summary.into(),
        Ok(Role::Rank(world)) => match accept(ranks, &world).and_then(|()| call(rank, &world)) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => report_and_exit(&world, error.as_ref()),
        },
        Err(error) => {
            say(format_args!("error: {}", with_sources(&error)));
            exit_code_of(&error, NOT_STARTED)
        }
    }
}

/// Calls `rank`, and returns its error, or that of a collective which ended it in a forward or backward pass.
fn call<E: Into<Box<dyn Error>>>(
    rank: impl FnOnce(&World) -> Result<(), E>,
    world: &World,
) -> Result<(), Box<dyn Error>> {
    catch_collective_error(|| rank(world))?.map_err(Into::into)
}

/// Checks that a job has the number of ranks that the program asked for, if it asked for several.
fn accept(ranks: usize, world: &World) -> Result<(), Box<dyn Error>> {
    match ranks == 1 || ranks == world.world_size() {
        true => Ok(()),
        false => Err(Box::new(LaunchError::OtherWorldSize {
            asked: ranks,
            started: world.world_size(),
        })),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_of_another_size_is_accepted_only_by_a_program_that_asks_for_one_rank() {
        let world = World::single();
        assert!(accept(1, &world).is_ok());
        let error = accept(2, &world).unwrap_err().to_string();
        assert!(
            error.contains("asked for 2 ranks") && error.contains("has 1"),
            "{error}"
        );
    }

    #[test]
    fn no_ranks_are_an_error_with_an_exit_code_of_its_own() {
        let code = run(0, |_| -> Result<(), LaunchError> { panic!("there is no rank") });
        assert_eq!(format!("{code:?}"), format!("{:?}", ExitCode::from(NOT_STARTED)));
    }
}
