//! The MPI library in this process: initialised once, by the first group that uses it; finalised at a proper end.
//!
//! `connect` calls [`check_place`], then [`join`]. The end is that of the process: MPI cannot be initialised twice, so
//! it outlives every group. A program that ends well (exit code 0) waits, for a bounded time, until all ranks have come
//! to their end, and finalises. One that ends with an error does neither, and does not call `MPI_Abort`, which would
//! kill the other ranks before they have said what they know: `mpirun` sees the exit code and ends the job.
//!
//! Neither `MPI_Init` nor `MPI_Finalize` has a bound, and neither may be left running on another thread. Both are
//! called only when all ranks are about to call them, and a process in which one hangs nevertheless says so and ends.

use super::request::{self, MpiError};
use super::watchdog::{end_process, watched};
use burn_megatron_comm::collectives::CollectiveError;
use burn_megatron_comm::collectives::external::GroupHealth;
use burn_megatron_comm::launch::{LaunchError, SECONDARY_FAILURE_EXIT_CODE, World, host_name};
use mpi::Threading;
use mpi::environment::Universe;
use std::ffi::{c_int, c_void};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// Rank and number of ranks, as set by `mpirun` of Open MPI, by any launcher that speaks PMIx (which sets no number)
/// and by MPICH's. Without any, `MPI_Init` would make a job of one process, or end this one with a message of its own.
const LAUNCHER_SIGNS: [(&str, Option<&str>); 3] = [
    ("OMPI_COMM_WORLD_RANK", Some("OMPI_COMM_WORLD_SIZE")),
    ("PMIX_RANK", None),
    ("PMI_RANK", Some("PMI_SIZE")),
];
/// The longest single wait in the store, after which the failure signal is looked at.
const STORE_SLICE: Duration = Duration::from_secs(1);
/// Sleep between two looks at whether all ranks have come to their end.
const END_SLICE: Duration = Duration::from_millis(1);
/// How long `MPI_Init` may still take when some rank has failed: what it waits for will hardly come.
const FAILED_GRACE: Duration = Duration::from_secs(5);

/// What MPI says about this process.
#[derive(Debug)]
struct Library {
    rank: usize,
    size: usize,
    /// The longest wait for the other ranks at the end.
    timeout: Duration,
}

static LIBRARY: OnceLock<Result<Library, String>> = OnceLock::new();
/// What is to be finalised; not there when the program has initialised MPI itself.
static UNIVERSE: Mutex<Option<Universe>> = Mutex::new(None);

/// Checks that `mpirun` has started this process, and where it says so, with the rank that it has in the job.
///
/// # Errors
/// In words.
pub(super) fn check_place(world: &World) -> Result<(), String> {
    let number = |name: &str| std::env::var(name).ok()?.parse::<usize>().ok();
    let signs = LAUNCHER_SIGNS.map(|(rank, size)| (rank, number(rank), size.and_then(number)));
    let Some((_, rank, size)) = signs.iter().find(|(_, rank, _)| rank.is_some()) else {
        return Err(format!(
            "this process was not started by mpirun (none of {} is set), which the engine over MPI needs",
            signs.map(|(name, ..)| name).join(", ")
        ));
    };
    match (rank, size) {
        (Some(rank), Some(size)) => compare_places((*rank, *size), world),
        _ => Ok(()),
    }
}

/// Compares rank and number of ranks in MPI with those in the job.
fn compare_places(in_mpi: (usize, usize), world: &World) -> Result<(), String> {
    let (rank, size) = (world.rank(), world.world_size());
    if in_mpi == (rank, size) {
        return Ok(());
    }
    Err(format!(
        "MPI has this process as rank {} of {}, the job as rank {rank} of {size}: the engine over MPI needs one \
         process per rank, all started by one mpirun",
        in_mpi.0, in_mpi.1
    ))
}

/// Initialises MPI unless that has been done. Collective over the world when it has not; the inner result is about this
/// rank alone, in words: too little thread support, another rank than in the job.
///
/// # Errors
/// Some ranks do not come, or one fails.
pub(super) fn join(world: &World, health: &GroupHealth) -> Result<Result<(), String>, CollectiveError> {
    static JOINING: Mutex<()> = Mutex::new(());
    let _joining = JOINING.lock().unwrap_or_else(PoisonError::into_inner);
    if LIBRARY.get().is_none() {
        wait_for_the_world(world, health)?;
    }
    let library = LIBRARY.get_or_init(|| initialise(world)).as_ref();
    Ok(library
        .map_err(Clone::clone)
        .and_then(|library| compare_places((library.rank, library.size), world)))
}

/// Waits until every rank of the job is about to initialise MPI: `MPI_Init` waits for all of them, without a bound.
fn wait_for_the_world(world: &World, health: &GroupHealth) -> Result<(), CollectiveError> {
    let (store, size) = (world.store(), world.world_size());
    let group = || health.label.to_string();
    let store_failed = |source| CollectiveError::Store { group: group(), source };
    let key_of = |rank: usize| format!("collectives/mpi/initialises/{rank}");
    let all = "collectives/mpi/initialises/all";
    store.set(&key_of(world.rank()), b"").map_err(store_failed)?;
    let count = store
        .add("collectives/mpi/initialises/count", 1)
        .map_err(store_failed)?;
    if count as usize >= size {
        store.set(all, b"").map_err(store_failed)?;
    }
    let start = Instant::now();
    loop {
        let left = health.timeout.saturating_sub(start.elapsed());
        match store.wait(all, left.min(STORE_SLICE)) {
            Ok(_) => return Ok(()),
            Err(source) => {
                health.check(None)?;
                if !matches!(source, LaunchError::WaitTimeout { .. }) {
                    return Err(store_failed(source));
                }
            }
        }
        if start.elapsed() >= health.timeout {
            return Err(CollectiveError::Timeout {
                group: group(),
                call: "connect (MPI is initialised by all ranks of the job together)".to_owned(),
                timeout_secs: health.timeout.as_secs_f64(),
                missing: (0..size)
                    .filter(|&rank| store.wait(&key_of(rank), Duration::ZERO).is_err())
                    .collect(),
            });
        }
    }
}

fn initialise(world: &World) -> Result<Library, String> {
    let timeout = world.timeout();
    let initialised = {
        let (watched_world, world) = (world.clone(), world.clone());
        let mut failed_at = None;
        let is_late = move |time: Duration| {
            if watched_world.failure().is_raised() {
                failed_at.get_or_insert(time);
            }
            time > timeout || failed_at.is_some_and(|failed| time > failed + FAILED_GRACE)
        };
        let end = move || end_in_init(&world);
        watched(is_late, end, || mpi::initialize_with_threading(Threading::Multiple))
    };
    let provided = match initialised.map_err(|error| format!("cannot start a thread: {error}"))? {
        Some((universe, provided)) => {
            *UNIVERSE.lock().unwrap_or_else(PoisonError::into_inner) = Some(universe);
            // SAFETY: `at_exit` is a function with the signature that on_exit(3) asks for, and needs no argument.
            if unsafe { on_exit(at_exit, std::ptr::null_mut()) } != 0 {
                return Err("cannot register the end of MPI with on_exit".to_owned());
            }
            provided
        }
        // The program was first, and will finalise.
        None => mpi::environment::threading_support(),
    };
    if provided != Threading::Multiple {
        return Err(format!(
            "the MPI library gives thread support {provided:?}: the engine over MPI needs Multiple \
             (MPI_THREAD_MULTIPLE), because collectives, sends and receives run at the same time"
        ));
    }
    let (rank, size) = request::world_place().map_err(|error| error.to_string())?;
    Ok(Library { rank, size, timeout })
}

/// Ends this process, which hangs in `MPI_Init`, and tells the other ranks.
fn end_in_init(world: &World) {
    let limit = world.timeout();
    let what = format!(
        "MPI_Init has not returned within {limit:?}, although all ranks of the job were about to call it: does it hang \
         on another rank?"
    );
    let place = format!("[rank {} on host {}]", world.rank(), host_name(world.host()));
    world.flight_recorder().write_failure(&what);
    match world.failure().cause() {
        Some(cause) => end_process(
            format_args!("{place} ends because {cause} (here: in MPI_Init)"),
            SECONDARY_FAILURE_EXIT_CODE,
        ),
        None => {
            world.fail(&what);
            end_process(format_args!("{place} failed: {what}"), 1)
        }
    }
}

#[cfg(not(target_env = "gnu"))]
compile_error!("the feature `mpi` needs glibc: on_exit tells it with which code the process ends");

unsafe extern "C" {
    /// As atexit(3), with the exit code; of glibc.
    fn on_exit(function: extern "C" fn(c_int, *mut c_void), argument: *mut c_void) -> c_int;
}

/// Called once, when `main` returns or something calls `exit`. The groups are gone by then, and so are their threads.
extern "C" fn at_exit(code: c_int, _: *mut c_void) {
    let universe = UNIVERSE.lock().unwrap_or_else(PoisonError::into_inner).take();
    let (0, Some(universe), Some(Ok(library))) = (code, universe, LIBRARY.get()) else {
        return;
    };
    // MPI_Finalize waits for all ranks without a bound, so it is called when all have come.
    match wait_for_the_end_of_all(library.timeout) {
        Ok(true) => finalise(universe, library),
        Ok(false) => {
            eprintln!(
                "rank {}: MPI is not finalised: not all ranks have come to their end within {:?}",
                library.rank, library.timeout
            );
            std::mem::forget(universe);
        }
        Err(error) => {
            eprintln!("rank {}: MPI is not finalised: {error}", library.rank);
            std::mem::forget(universe);
        }
    }
}

/// Calls `MPI_Finalize`; ends the process, with an error, if that does not return.
fn finalise(universe: Universe, library: &Library) {
    let (rank, limit) = (library.rank, library.timeout);
    let end = move || {
        let what = "although all ranks have come to their end";
        end_process(
            format_args!("rank {rank}: MPI_Finalize has not returned within {limit:?}, {what}"),
            1,
        )
    };
    let mut universe = Some(universe);
    if let Err(error) = watched(move |time| time > limit, end, || drop(universe.take())) {
        eprintln!("rank {rank}: MPI is not finalised: cannot start a thread: {error}");
        std::mem::forget(universe);
    }
}

/// Returns whether all ranks have called it within `limit`.
fn wait_for_the_end_of_all(limit: Duration) -> Result<bool, MpiError> {
    let start = Instant::now();
    let mut request = request::world_barrier()?;
    while !request.test()? {
        if start.elapsed() > limit {
            return Ok(false);
        }
        std::thread::sleep(END_SLICE);
    }
    Ok(true)
}
