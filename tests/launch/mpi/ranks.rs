//! What a rank under `mpirun` does: the contract, or something that must fail.

use std::ffi::{c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use burn_megatron::collectives::{EngineChoice, GroupConfig, ProcessGroup, ReduceOp};
use burn_megatron::launch::{Environment, JoinConfig, World, report_and_exit};
use burn_megatron_comm::collectives::tests::{CASES, Suite};

/// The role whose rank 1 hangs in `MPI_Init`, and the one whose rank 1 hangs in `MPI_Finalize`.
pub const HANGING: [&str; 2] = ["hangs_at_the_beginning", "hangs_at_the_end"];
/// The bound of these roles.
const HANGING_LIMIT: Duration = Duration::from_secs(3);

const OPTIONS: GroupConfig = GroupConfig::new().with_engine(EngineChoice::Mpi);

/// Runs one rank in a role.
pub fn run(role: &str) -> ExitCode {
    match run_role(role) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run_role(role: &str) -> anyhow::Result<()> {
    let environment = Environment::detect()?.context("mpirun has started this")?;
    match role {
        "contract" => contract(join(&environment)?),
        "other_numbers" => other_numbers(environment),
        "stays_away" => stays_away(&environment),
        "fails" => fails(&join(&environment)?),
        _ if HANGING.contains(&role) => hangs(&environment),
        _ => bail!("no role {role:?}"),
    }
}

fn join(environment: &Environment) -> anyhow::Result<World> {
    let options = JoinConfig::new().with_all_timeouts(Duration::from_secs(60));
    Ok(World::join(environment, &options)?)
}

/// Runs every case that asks for this number of ranks, or those whose names contain `CONTRACT_CASE`.
fn contract(world: World) -> anyhow::Result<()> {
    let rank = world.rank();
    let only = std::env::var("CONTRACT_CASE").ok();
    let suite = Suite::in_processes(&OPTIONS, world);
    for case in CASES {
        if only.as_ref().is_some_and(|only| !case.name.contains(only.as_str())) {
            continue;
        }
        let started = std::time::Instant::now();
        if catch_unwind(AssertUnwindSafe(|| (case.run)(&suite))).is_err() {
            bail!("rank {rank}: {} does not hold", case.name);
        }
        if suite.has_run() && rank == 0 {
            println!("held: {}", case.name);
            eprintln!("{:8.3} s {}", started.elapsed().as_secs_f64(), case.name);
        }
    }
    Ok(())
}

/// A launcher that numbers the ranks in another order than MPI.
fn other_numbers(mut environment: Environment) -> anyhow::Result<()> {
    environment.rank = environment.world_size - 1 - environment.rank;
    let world = join(&environment)?;
    ProcessGroup::connect(&world, "all", &[0, 1], &OPTIONS)?;
    Ok(())
}

/// Rank 1 makes no group over MPI, so the others must not wait for it in `MPI_Init`, which knows no end.
fn stays_away(environment: &Environment) -> anyhow::Result<()> {
    let world = World::join(
        environment,
        &JoinConfig::new().with_all_timeouts(Duration::from_secs(2)),
    )?;
    if world.rank() == 1 {
        std::thread::sleep(Duration::from_secs(4));
        return Ok(());
    }
    let Err(error) = ProcessGroup::connect(&world, "some", &[0, 2], &OPTIONS) else {
        bail!("a group is made without rank 1");
    };
    let expected = "group some [0, 2]: connect (MPI is initialised by all ranks of the job together) timed out after 2 \
                    s without progress, still missing: ranks [1]";
    ensure!(error.to_string() == expected, "{error}");
    Ok(())
}

/// Rank 1 fails while the others wait for it.
fn fails(world: &World) -> anyhow::Result<()> {
    let group = ProcessGroup::connect(world, "all", &[0, 1, 2], &OPTIONS)?;
    group.barrier()?;
    if world.rank() == 1 {
        report_and_exit(world, &std::io::Error::other("planted"));
    }
    if let Err(error) = group.all_reduce(&mut vec![0.0f32; 100_000], ReduceOp::Sum) {
        report_and_exit(world, &error);
    }
    bail!("the all-reduce succeeds without rank 1")
}

/// A group is made and the program ends well, but for what [`MPI_Init_thread`] and [`MPI_Finalize`] do below.
fn hangs(environment: &Environment) -> anyhow::Result<()> {
    let world = World::join(environment, &JoinConfig::new().with_all_timeouts(HANGING_LIMIT))?;
    ProcessGroup::connect(&world, "all", &[0, 1], &OPTIONS)?.barrier()?;
    Ok(())
}

/// Never returns on rank 1 of a role.
fn hang_in(role: &str) {
    let is = |name: &str, value: &str| std::env::var(name).is_ok_and(|text| text == value);
    while is(super::ROLE, role) && is("OMPI_COMM_WORLD_RANK", "1") {
        std::thread::sleep(Duration::from_secs(1));
    }
}

unsafe extern "C" {
    fn PMPI_Init_thread(argc: *mut c_int, argv: *mut c_void, required: c_int, provided: *mut c_int) -> c_int;
    fn PMPI_Finalize() -> c_int;
}

/// Stands before the library's, as the standard lets profilers do.
// SAFETY: the signature is the standard's; no other object of this program defines the name.
#[unsafe(no_mangle)]
unsafe extern "C" fn MPI_Init_thread(
    argc: *mut c_int,
    argv: *mut c_void,
    required: c_int,
    provided: *mut c_int,
) -> c_int {
    hang_in(HANGING[0]);
    // SAFETY: the caller's arguments, for the same function under its other name.
    unsafe { PMPI_Init_thread(argc, argv, required, provided) }
}

/// As above.
// SAFETY: as above.
#[unsafe(no_mangle)]
unsafe extern "C" fn MPI_Finalize() -> c_int {
    hang_in(HANGING[1]);
    // SAFETY: as above.
    unsafe { PMPI_Finalize() }
}
