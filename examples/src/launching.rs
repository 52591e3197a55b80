//! What the programs do before they train: logging to the terminal, the number of ranks, the launcher's terminal.
//!
//! Called first thing by every training program.

use burn_megatron::launch::{self, JoinOptions, Launcher, Prefix, Role};

use crate::terminal;

/// Becomes a rank of the job around this process, or starts `world_size` ranks of this program.
///
/// `is_asked_for` says whether a person gave the number of ranks: then a job of another number is an error.
///
/// # Communication
/// The rendezvous of all ranks.
///
/// # Errors
/// As [`launch::enter`]; when the job around this process has not the number of ranks that was asked for.
pub fn enter(world_size: usize, is_asked_for: bool, options: &JoinOptions) -> anyhow::Result<Role> {
    show_warnings();
    let mut launcher = Launcher::new(world_size).prefix(Prefix::AllButRankZero);
    if let Some((name, value)) = terminal::environment() {
        launcher = launcher.environment(name, value);
    }
    let role = launch::enter(launcher, options)?;
    if let Role::Rank(world) = &role {
        anyhow::ensure!(
            !is_asked_for || world.world_size() == world_size,
            "--world-size {world_size} was asked for, but the launcher started {} ranks (WORLD_SIZE); leave the flag \
             out, or start as many",
            world.world_size()
        );
    }
    Ok(role)
}

/// Prints the library's warnings to stderr; `RUST_LOG` asks for more or less.
pub fn show_warnings() {
    let filter = tracing_subscriber::EnvFilter::builder()
        .with_default_directive(tracing::Level::WARN.into())
        .from_env_lossy();
    // Fails when a subscriber is there already, which then shows them.
    let _ = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .try_init();
}
