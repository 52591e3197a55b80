//! [`run`]: the whole `main` of a program, from the launcher to the exit code.

use std::error::Error;
use std::process::ExitCode;

use super::error::LaunchError;
use super::exit::{exit_code_of, report_and_exit, with_sources};
use super::launcher::Launcher;
use super::log_stderr;
use super::role::{Role, enter};
use super::world::{JoinConfig, World};

/// What a program exits with when its ranks could not be started, or could not join their job.
const NOT_STARTED: u8 = 2;

/// Runs `rank` on every rank of a job and returns what the program exits with.
///
/// Started by hand, this process starts `ranks` copies of itself with the same arguments, waits for them, and does not
/// call `rank` itself; one rank needs no copy. Started by torchrun, Slurm or Open MPI, it is a rank of their job:
/// `ranks` must then be the number of theirs, or 1 to accept any.
///
/// ```no_run
/// use burn_megatron_comm::collectives::{EngineChoice, ProcessGroup, ReduceOp};
/// use burn_megatron_comm::launch::World;
///
/// fn main() -> std::process::ExitCode {
///     burn_megatron_comm::run(4, work)
/// }
///
/// fn work(world: &World) -> Result<(), Box<dyn std::error::Error>> {
///     let ranks: Vec<usize> = (0..world.world_size()).collect();
///     let group = ProcessGroup::connect(world, "all", &ranks, &EngineChoice::Auto)?;
///     let mut number = [world.rank() as f32];
///     group.all_reduce(&mut number, ReduceOp::Sum)?;
///     if world.rank() == 0 {
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
/// - 1 in a rank: `rank` failed there. The error is printed by the rank that has it, the other ranks are informed,
///   and the process ends. The launcher names the rank that failed first and exits with its code.
/// - [`SECONDARY_FAILURE_EXIT_CODE`](super::SECONDARY_FAILURE_EXIT_CODE) in a rank that ends only because another
///   failed.
/// - 2: the ranks could not be started or could not join their job: `ranks` is 0, a launcher's variables contradict
///   each other, or the port is taken.
pub fn run<E: Into<Box<dyn Error>>>(ranks: usize, rank: impl FnOnce(&World) -> Result<(), E>) -> ExitCode {
    match enter(Launcher::new(ranks), &JoinConfig::new()) {
        Ok(Role::Launched(summary)) => summary.into(),
        Ok(Role::Rank(world)) => match accept(ranks, &world).and_then(|()| rank(&world).map_err(Into::into)) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => report_and_exit(&world, error.as_ref()),
        },
        Err(error) => {
            log_stderr(format_args!("error: {}", with_sources(&error)));
            exit_code_of(&error, NOT_STARTED)
        }
    }
}

/// Checks that a job has the number of ranks that the program asked for, if it asked for several.
fn accept(ranks: usize, world: &World) -> Result<(), Box<dyn Error>> {
    if ranks == 1 || ranks == world.world_size() {
        Ok(())
    } else {
        Err(Box::new(LaunchError::OtherWorldSize {
            asked: ranks,
            started: world.world_size(),
        }))
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
