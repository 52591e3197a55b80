//! How a job of many processes comes together, notices that one of them is gone, and ends:
//! [`burn_megatron_comm::launch`], and [`run`] for programs that train.
//!
//! A program that chooses more than the number of ranks calls [`enter`]; if it calls layers outside a wrapper, their
//! collectives' errors are caught by [`catch_collective_error`], as [`run`] does.

use std::error::Error;
use std::process::ExitCode;

pub use burn_megatron_comm::launch::*;

use crate::collectives::catch_collective_error;

/// Runs `rank` on every rank of a job and returns what the program exits with.
///
/// Started by hand, this process starts `ranks` copies of itself with the same arguments, waits for them, and does not
/// call `rank` itself; one rank needs no copy. Started by torchrun, Slurm or Open MPI, it is a rank of their job:
/// `ranks` must then be the number of theirs, or 1 to accept any.
///
/// ```no_run
/// use std::process::ExitCode;
///
/// use burn_megatron::collectives::{GroupConfig, ReduceOp};
/// use burn_megatron::launch::World;
/// use burn_megatron::sharded::{AxisRole, Mesh};
///
/// fn main() -> ExitCode {
///     burn_megatron::run(4, train)
/// }
///
/// fn train(world: &World) -> Result<(), Box<dyn std::error::Error>> {
///     let mesh = Mesh::connect(world, &[(AxisRole::Data, world.world_size())], &GroupConfig::new())?;
///     let mut number = [world.rank() as f32];
///     mesh.group(0).all_reduce(&mut number, ReduceOp::Sum)?;
///     if world.rank() == 0 {
///         println!("the ranks' numbers add up to {}", number[0]);
///     }
///     Ok(())
/// }
/// ```
///
/// What a program does before the call, such as reading its arguments, it does in the launcher and in every rank. More
/// settings than the number of ranks: [`enter`].
///
/// # Communication
/// The rendezvous of all ranks.
///
/// # Errors
/// As [`burn_megatron_comm::run`]. A collective that fails in a forward or backward pass, which cannot return its
/// error, counts as an error that `rank` returns.
pub fn run<E: Into<Box<dyn Error>>>(ranks: usize, rank: impl FnOnce(&World) -> Result<(), E>) -> ExitCode {
    burn_megatron_comm::run(ranks, |world| -> Result<(), Box<dyn Error>> {
        catch_collective_error(|| rank(world))?.map_err(Into::into)
    })
}
