//! The steps of programs before they train: logging to the terminal, the number of ranks, the launcher's terminal, the
//! groups.

mod stop;

use std::io::IsTerminal as _;
use std::process::ExitCode;

use anyhow::Context as _;
use burn_megatron::context::ParallelContext;
use burn_megatron::launch::{
    self, Environment, JoinConfig, LaunchSummary, Launcher, Prefix, Role, World, exit_code_of, join, report_and_exit,
};
use burn_megatron::training::memory::explain_failed_allocations;
use burn_megatron_data::programs::with_causes;

use crate::arguments::{ParallelArguments, TrainingArguments};
use crate::terminal;

pub use stop::StopReason;

/// Becomes a rank of the job around this process, or starts the ranks of this program that the flags ask for.
///
/// # Communication
/// The rendezvous of all ranks.
///
/// # Errors
/// As [`launch::enter`]; when the job around this process has not the number of ranks that a person asked for.
pub fn enter(parallel: &ParallelArguments) -> anyhow::Result<Role> {
    enter_with(parallel, Prefix::AllButRankZero)
}

/// As [`enter`], for a program with a prompt: what rank 0 prints appears as it comes, and it reads what this process
/// gets on stdin.
///
/// # Communication
/// As [`enter`].
pub fn enter_interactive(parallel: &ParallelArguments) -> anyhow::Result<Role> {
    enter_with(parallel, Prefix::Interactive)
}

fn enter_with(parallel: &ParallelArguments, prefix: Prefix) -> anyhow::Result<Role> {
    show_warnings();
    // A program that knows what it needs has said so.
    explain_failed_allocations("use fewer or shorter texts at once, or more ranks".to_owned());
    parallel.check_nodes()?;
    let world_size = parallel.world_size();
    let is_launcher = !Environment::has_rank();
    if is_launcher && parallel.launcher.is_excluded() {
        eprintln!(
            "[launcher] node {} is left out: no rank is started here",
            parallel.launcher.node_rank
        );
        return Ok(Role::Launched(LaunchSummary::of_no_ranks()));
    }
    if is_launcher && parallel.launcher.is_on_each_node() && std::env::var_os("RANK").is_some() {
        eprintln!(
            "[launcher] RANK without LOCAL_WORLD_SIZE is the number of this pod or node: with --nnodes ranks start here"
        );
    }
    anyhow::ensure!(
        prefix != Prefix::Interactive || parallel.launcher.max_restarts == 0,
        "--max-restarts is not for a program with a prompt: what has been typed would be lost"
    );
    let mut options = parallel.communication.join_options()?;
    options.interface = parallel.launcher.interface.clone();
    let mut launcher = Launcher::new(world_size)
        .prefix(prefix)
        .max_restarts(parallel.launcher.max_restarts)
        .rendezvous_timeout(options.rendezvous_timeout)
        // Asked to stop, the ranks finish a step and save: of a large model, that takes minutes.
        .interrupt_grace(options.timeout)
        .heartbeat_limit(options.heartbeat_limit, options.timeout);
    if let Some(nodes) = parallel.launcher.nodes()? {
        launcher = launcher.nodes(nodes).on_each_node();
    }
    if let Some(interface) = &parallel.launcher.interface {
        launcher = launcher.interface(interface);
    }
    if let Some(ranks) = &parallel.launcher.log_rank {
        launcher = launcher.log_ranks(ranks.clone());
    }
    for (name, value) in terminal::environment() {
        launcher = launcher.environment(name, value);
    }
    let role = launch::enter(launcher, &options)?;
    if let Role::Rank(world) = &role {
        anyhow::ensure!(
            parallel.world_size.is_none() || world.world_size() == world_size,
            "--world-size {world_size} was asked for, but the launcher started {} ranks; leave the flag \
             out, or start that many",
            world.world_size()
        );
    }
    Ok(role)
}

/// Connects this rank's groups in the layout, and with the seed, that the flags ask for.
///
/// # Communication
/// Making the groups; on CUDA the ranks compare their GPUs.
///
/// # Errors
/// When the ranks do not agree, or two of them compute on one GPU without `--share-gpu`.
pub fn connect(arguments: &TrainingArguments, world: &World) -> anyhow::Result<ParallelContext> {
    let seed = u64::from(arguments.optimization.seed);
    let config = arguments.parallel.context_config().with_seed(seed);
    let context = arguments.device.connect(world, config)?;
    let context = context.with_deterministic(arguments.model.deterministic_mode);
    arguments.parallel.communication.overlapping(context)
}

/// Runs one of the ranks that a program starts of itself with a hidden `flag`. What goes wrong in it is reported to the
/// job, and ends the process.
///
/// # Communication
/// The rendezvous of all ranks, and that of `rank`.
///
/// # Errors
/// When this process was not started as a rank, or cannot join the job.
pub fn run_own_rank<T>(
    flag: &str,
    options: &JoinConfig,
    rank: impl FnOnce(&World) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let environment = Environment::detect()?;
    let environment = environment.with_context(|| format!("{flag} is for ranks that this program starts"))?;
    let world = join(&environment, options)?;
    rank(&world).or_else(|error| report_and_exit(&world, error.as_ref()))
}

/// Checks that no launcher has started this process, a `program` that starts ranks of its own.
///
/// # Errors
/// When one has, or its variables are wrong.
pub fn refuse_launcher(program: &str) -> anyhow::Result<()> {
    anyhow::ensure!(
        Environment::detect()?.is_none(),
        "{program} starts its own ranks: run it by itself, not under torchrun (RANK is set)"
    );
    Ok(())
}

/// Reports what a program failed of, if it failed, and returns its exit code: `failure` unless another rank's failure
/// was the cause.
pub fn exit_code(done: anyhow::Result<ExitCode>, failure: u8) -> ExitCode {
    done.unwrap_or_else(|error| {
        eprintln!("error: {}", with_causes(&error));
        exit_code_of(error.as_ref(), failure)
    })
}

/// Prints the library's warnings to stderr; `RUST_LOG` asks for more or less.
pub fn show_warnings() {
    let filter = tracing_subscriber::EnvFilter::builder()
        .with_default_directive(tracing::Level::WARN.into())
        .from_env_lossy();
    // Fails when a subscriber is there already, which then shows them.
    let _ = tracing_subscriber::fmt()
        .with_env_filter(filter)
        // Colours are for terminals: a launcher compares what ranks write.
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr)
        .try_init();
}
