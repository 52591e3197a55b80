//! The MPI library in this process: initialised once, by the first group that uses it; finalised at a proper end.
//!
//! `connect` calls [`join`]. The end is that of the process: MPI cannot be initialised twice, so it outlives every
//! group. A program that ends well (exit code 0) waits, for a bounded time, until all ranks have come to their end, and
//! finalises. One that ends with an error does neither, and does not call `MPI_Abort`, which would kill the other ranks
//! before they have said what they know: `mpirun` sees the exit code and ends the job.

use super::request::{self, MpiError};
use crate::launch::World;
use mpi::environment::Universe;
use mpi::{Threading, ffi};
use std::ffi::{c_int, c_void};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// Set by `mpirun` of Open MPI, of any launcher that speaks PMIx, and by MPICH's. Without one, `MPI_Init` would make a
/// job of one process, or end this process with a message of its own.
const LAUNCHER_SIGNS: [&str; 3] = ["OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"];
/// Sleep between two looks at whether all ranks have come to their end.
const END_SLICE: Duration = Duration::from_millis(1);

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

/// Initialises MPI unless that has been done, and checks that it has numbered the ranks as the job has.
///
/// # Errors
/// In words: no `mpirun`, too little thread support, other ranks than the job's.
pub(super) fn join(world: &World) -> Result<(), String> {
    let library = LIBRARY.get_or_init(|| initialise(world.timeout())).as_ref()?;
    let (rank, size) = (world.rank(), world.world_size());
    if (library.rank, library.size) != (rank, size) {
        return Err(format!(
            "MPI has this process as rank {} of {}, the job as rank {rank} of {size}: the engine over MPI needs one \
             process per rank, all started by one mpirun",
            library.rank, library.size
        ));
    }
    Ok(())
}

fn initialise(timeout: Duration) -> Result<Library, String> {
    if LAUNCHER_SIGNS.iter().all(|name| std::env::var_os(name).is_none()) {
        return Err(format!(
            "this process was not started by mpirun (none of {} is set), which the engine over MPI needs",
            LAUNCHER_SIGNS.join(", ")
        ));
    }
    let provided = match mpi::initialize_with_threading(Threading::Multiple) {
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
        Ok(true) => drop(universe),
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

/// The communicator of all processes of the `mpirun`.
pub(super) fn world_communicator() -> ffi::MPI_Comm {
    // SAFETY: a constant of the library, which is initialised: `join` comes first.
    unsafe { ffi::RSMPI_COMM_WORLD }
}
