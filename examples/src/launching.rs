//! Finds out what this process is: a rank of a job, a job of its own, or the one that starts the ranks.
//!
//! Called first thing by every training program.

use std::process::ExitCode;
use std::time::Duration;

use burn_megatron::launch::{Environment, JoinOptions, LaunchError, Launcher, Prefix, World, install_panic_hook};

use crate::terminal;

/// What this process is to do.
pub enum Role {
    /// Train, as this rank.
    Rank(World),
    /// Exit: the ranks were started, and have ended.
    Launched(ExitCode),
}

/// Joins the job that the environment describes, starts `world_size` ranks of this program, or is a job of one.
///
/// # Communication
/// The rendezvous of all ranks.
///
/// # Errors
/// When the environment is not what a launcher makes, it has another number of ranks than was asked for, the ranks
/// cannot be started, or they do not come together in `timeout`.
pub fn enter(world_size: usize, asked_for: bool, timeout: Duration) -> anyhow::Result<Role> {
    if let Some(environment) = Environment::detect()? {
        anyhow::ensure!(
            !asked_for || environment.world_size == world_size,
            "--world-size {world_size} was asked for, but the launcher started {} ranks (WORLD_SIZE); leave the flag \
             out, or start as many",
            environment.world_size
        );
        return Ok(Role::Rank(join(&environment, timeout)?));
    }
    if world_size == 1 {
        return Ok(Role::Rank(World::single()));
    }
    let mut launcher = Launcher::new(world_size).prefix(Prefix::AllButRankZero);
    if let Some((name, value)) = terminal::environment() {
        launcher = launcher.environment(name, value);
    }
    let summary = launcher.run()?;
    let code = u8::try_from(summary.exit_code()).unwrap_or(1);
    Ok(Role::Launched(ExitCode::from(code)))
}

/// Joins the job that `environment` describes; from now on a panic is a failure that the other ranks learn of.
///
/// # Communication
/// The rendezvous of all ranks.
///
/// # Errors
/// When the ranks do not come together in `timeout`.
pub fn join(environment: &Environment, timeout: Duration) -> Result<World, LaunchError> {
    let options = JoinOptions {
        rendezvous_timeout: timeout,
        timeout,
        ..JoinOptions::default()
    };
    let world = World::join(environment, &options)?;
    install_panic_hook(&world);
    Ok(world)
}
