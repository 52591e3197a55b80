//! The job that the storm hits: a launcher, and ranks that train a small GPT and leave traces in the job's folder.

use std::fs;
use std::io::Write;
use std::process::ExitCode;
use std::thread::sleep;
use std::time::Duration;

use anyhow::Context as _;
use burn_megatron::collectives::ReduceOp;
use burn_megatron::context::ParallelContextConfig;
use burn_megatron::launch::{Environment, JoinConfig, Launcher, Nodes, StopFlag, World, join, report_and_exit};
use burn_megatron::topology::ParallelConfig;
use tests::job::{folder, note};
use tests::problem::{self, Variant};

/// What launcher and ranks are to do, as environment variables.
pub mod variables {
    pub const WORLD_SIZE: &str = "FAULT_STORM_WORLD_SIZE";
    pub const TENSOR: &str = "FAULT_STORM_TENSOR";
    pub const PIPELINE: &str = "FAULT_STORM_PIPELINE";
    pub const STEPS: &str = "FAULT_STORM_STEPS";
    /// `rank step millis`: that rank sleeps before that step; before joining if it is step 0.
    pub const SLEEP: &str = "FAULT_STORM_SLEEP";
    /// This launcher's number among two, and the address of the first.
    pub const NODE: &str = "FAULT_STORM_NODE";
}

/// The ranks' timeout, of the rendezvous, too.
pub const TIMEOUT: Duration = Duration::from_secs(4);
/// The longest silence: three quarters of that.
pub const SILENCE: Duration = Duration::from_secs(3);
/// What the launchers give the ranks to end when one has failed.
pub const GRACE: Duration = Duration::from_secs(1);
/// The store's port in a namespace.
const PORT: u16 = 29500;

fn number(name: &str) -> anyhow::Result<u64> {
    let value = std::env::var(name).with_context(|| format!("{name} is not set"))?;
    value.parse().with_context(|| format!("{name}={value}"))
}

/// Runs the launcher of the job, or of one of its two nodes.
pub fn launch() -> anyhow::Result<ExitCode> {
    let mut launcher = Launcher::new(number(variables::WORLD_SIZE)? as usize)
        .rendezvous_timeout(Duration::from_secs(20))
        .failure_grace(GRACE)
        .heartbeat_limit(None, TIMEOUT);
    if let Ok(node) = std::env::var(variables::NODE) {
        let (rank, address) = node.split_once(' ').context("a number and an address")?;
        launcher = launcher.nodes(Nodes {
            count: 2,
            rank: rank.parse()?,
            master_addr: address.into(),
            master_port: PORT,
        });
    }
    Ok(launcher.run()?.into())
}

pub fn run_rank() -> anyhow::Result<ExitCode> {
    let environment = Environment::detect()?.context("a rank has an environment")?;
    let variable = |name: &str| std::env::var(name).unwrap_or_default();
    let traces = [
        std::process::id().to_string(),
        variable("BURN_MEGATRON_JOB_ID"),
        variable("MASTER_PORT"),
    ];
    note(&format!("rank-{}", environment.rank), traces.join(" "));
    sleep_before(0, environment.rank)?;
    let world = join(&environment, &JoinConfig::new().with_all_timeouts(TIMEOUT))?;
    match train(&world) {
        Ok(code) => Ok(code),
        Err(error) => report_and_exit(&world, error.as_ref()),
    }
}

fn train(world: &World) -> anyhow::Result<ExitCode> {
    let stop = StopFlag::install()?;
    let config = ParallelConfig {
        tensor_parallel_size: number(variables::TENSOR)? as usize,
        pipeline_parallel_size: number(variables::PIPELINE)? as usize,
        ..ParallelConfig::default()
    };
    let context = ParallelContextConfig::new(config)
        .with_seed(problem::SEED)
        .init(world)?;
    let steps = number(variables::STEPS)?;
    let mut trainer = problem::trainer(Variant::USUAL, steps, &problem::Stages::one_chunk(), &context)?;
    let (data, data_size) = (context.coordinates().data, context.grid().data_parallel_size());
    let path = folder().join("losses");
    let mut losses = (world.rank() == 0).then(|| fs::File::create(path)).transpose()?;
    for step in 1..=steps {
        sleep_before(step, world.rank())?;
        let loss = trainer.step(&problem::micro_batches(step, data, data_size))?.loss;
        if let Some(losses) = &mut losses {
            writeln!(losses, "{:016x}", loss.to_bits())?;
        }
        let mut signal = [stop.is_set().then(|| stop.signal()).flatten().unwrap_or_default()];
        context.world_group().all_reduce(&mut signal, ReduceOp::Max)?;
        if signal[0] != 0 {
            return Ok(ExitCode::from(128 + signal[0] as u8));
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Sleeps if this rank is to be late for this step.
fn sleep_before(step: u64, rank: usize) -> anyhow::Result<()> {
    let Ok(text) = std::env::var(variables::SLEEP) else {
        return Ok(());
    };
    let numbers: Vec<u64> = text.split(' ').map(str::parse).collect::<Result<_, _>>()?;
    let [sleeper, before, millis] = numbers[..] else {
        anyhow::bail!("not three numbers: {text:?}")
    };
    if (sleeper, before) == (rank as u64, step) {
        note("sleeping", "");
        sleep(Duration::from_millis(millis));
    }
    Ok(())
}
