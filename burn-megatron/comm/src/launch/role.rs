//! [`enter`]: finds out what this process is: a rank of a job, a job of its own, or the one that starts the ranks.
//!
//! Called first thing by a program that trains.

use std::process::ExitCode;

use super::environment::Environment;
use super::error::LaunchError;
use super::exit::install_panic_hook;
use super::launcher::{LaunchSummary, Launcher};
use super::network::set_variables_of_nccl;
use super::world::{JoinConfig, World};

/// What this process is to do.
#[derive(Debug)]
pub enum Role {
    /// Train, as this rank.
    Rank(World),
    /// Exit: the ranks were started, and have ended.
    Launched(LaunchSummary),
}

/// Joins the job that the environment describes; without one, starts the launcher's ranks and waits for them, or is a
/// job of one rank.
///
/// # Communication
/// The rendezvous of all ranks.
///
/// # Errors
/// As [`join`] and [`Launcher::run`].
pub fn enter(launcher: Launcher, options: &JoinConfig) -> Result<Role, LaunchError> {
    // Who asks for several nodes starts one launcher on each, maybe with srun or mpirun: then it is no rank itself.
    let environment = if launcher.is_on_each_node() && !Environment::has_rank() {
        None
    } else {
        Environment::detect()?
    };
    match environment {
        Some(environment) => join(&environment, options).map(Role::Rank),
        None if launcher.world_size() == 1 && !launcher.restarts() => Ok(Role::Rank(World::single())),
        None => launcher.run().map(Role::Launched),
    }
}

/// Joins the job that `environment` describes. From now on a panic is a failure that the other ranks learn of, and
/// this process computes on its share of the machine's cores (with the feature `rayon`), unless `RAYON_NUM_THREADS`
/// is set.
///
/// Called before the process has other threads, it sets variables for NCCL and CUDA that are not set:
/// `NCCL_SOCKET_IFNAME` to the interface that `options` or `BURN_MEGATRON_INTERFACE` ask for, `NCCL_RUNTIME_CONNECT` to
/// 0, `CUDA_DEVICE_MAX_CONNECTIONS` to 32.
///
/// # Communication
/// The rendezvous of all ranks.
///
/// # Errors
/// When the ranks do not come together in time, or do not agree on who they are.
pub fn join(environment: &Environment, options: &JoinConfig) -> Result<World, LaunchError> {
    set_variables_of_nccl(options.interface.as_deref())?;
    let world = World::join(environment, options)?;
    install_panic_hook(&world);
    #[cfg(feature = "rayon")]
    share_cores(&world);
    Ok(world)
}

/// Gives rayon's pool this rank's share of the machine's cores.
#[cfg(feature = "rayon")]
fn share_cores(world: &World) {
    if std::env::var_os("RAYON_NUM_THREADS").is_none() {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let share = (cores / world.local_world_size()).max(1);
        // Fails when the pool is there already: then the program has chosen.
        let _ = rayon::ThreadPoolBuilder::new().num_threads(share).build_global();
    }
}

impl From<LaunchSummary> for ExitCode {
    fn from(summary: LaunchSummary) -> ExitCode {
        ExitCode::from(u8::try_from(summary.exit_code()).unwrap_or(1))
    }
}
