//! Recording: one process plays one rank, calls are counted, and nothing is computed.

use anyhow::{Context, Result, ensure};
use cuda_emulator::recording::{Recorded, Row};
use cudarc::driver::{result, sys::CUresult};

use crate::gpu::{
    allocate, argument, code, done, download, free, kernel, launch, open, pause, stream, synchronize, upload,
};
use crate::rank::communicator;
use crate::scene::{Role, Scene};

pub fn scenes() -> Vec<Scene> {
    vec![
        Scene::new("recording::calls_are_counted_by_kind_name_and_thread", counted).recording(1),
        Scene::new("recording::memory_is_addresses_up_to_the_limit", memory).recording(80 << 10),
        Scene::new("recording::peers_are_answered_for", peers).recording(1),
        Scene::new("recording::what_does_not_record_says_so", not_recording),
    ]
}

/// What no C++ compiler accepts: nothing is compiled.
const NONSENSE: &std::ffi::CStr = c"extern \"C\" __global__ void nothing(int count) { nonsense; }";

fn calls(recorded: &Recorded, kind: &str, name: &str, thread: &str) -> (u64, u64) {
    let [kind, name, thread] = [kind, name, thread].map(str::to_owned);
    recorded
        .calls
        .get(&Row { kind, name, thread })
        .copied()
        .unwrap_or_default()
}

fn counted(_: &Role) -> Result<()> {
    let stream = open(0)?;
    let nothing = kernel(NONSENSE, "nothing")?;
    let count = 3i32;
    launch(nothing, 1, 32, stream, &mut [argument(&count)])?;
    let other = std::thread::Builder::new().name("other".to_owned());
    let there = other.spawn(move || -> Result<()> {
        let (stream, nothing) = (open(0)?, kernel(NONSENSE, "nothing")?);
        (0..2).try_for_each(|_| Ok(launch(nothing, 1, 32, stream, &mut [argument(&count)])?))
    })?;
    there.join().ok().context("the other thread panics")??;
    let address = upload(&[1.0f32; 10], stream)?;
    let found: Vec<f32> = download(address, 10, stream)?;
    ensure!(found == [0.0; 10], "what is not there is {found:?}");
    synchronize(stream)?;
    free(address, stream)?;
    let recorded = Recorded::now()?;
    for ((kind, name, thread), expected) in [
        (("launch", "nothing", "main"), (1, 0)),
        (("launch", "nothing", "other"), (2, 0)),
        (("copy", "host to device, pageable", "main"), (1, 40)),
        (("copy", "device to host, pageable", "main"), (1, 40)),
        (("host wait", "stream", "main"), (1, 0)),
        (("allocation", "device", "main"), (1, 40)),
        (("free", "device", "main"), (1, 40)),
    ] {
        let found = calls(&recorded, kind, name, thread);
        ensure!(
            found == expected,
            "{kind} {name} of {thread}: {found:?} instead of {expected:?} in {recorded:?}"
        );
    }
    Ok(())
}

fn memory(_: &Role) -> Result<()> {
    const GIB: usize = 1 << 30;
    let stream = open(0)?;
    let (first, second) = (allocate(50 * GIB, stream)?, allocate(29 * GIB, stream)?);
    ensure!(
        code(allocate(2 * GIB, stream)) == CUresult::CUDA_ERROR_OUT_OF_MEMORY,
        "80 GiB hold 81"
    );
    free(second, stream)?;
    free(first, stream)?;
    allocate(70 * GIB, stream)?;
    let memory = Recorded::now()?.memory["device"];
    ensure!((memory.used, memory.peak) == (70 << 30, 79 << 30), "{memory:?}");
    let (unused, _) = result::mem_get_info()?;
    ensure!(unused == 10 * GIB, "{unused} bytes are free");
    Ok(())
}

fn peers(role: &Role) -> Result<()> {
    use cudarc::nccl::{result, sys::ncclDataType_t::ncclFloat32, sys::ncclRedOp_t::ncclSum};
    let compute = open(0)?;
    // The last of 64, of whom no other exists.
    let communicator = communicator(63, 64, role.ids[0])?;
    let address = upload(&[1.0f32; 64], compute)?;
    let (from, to) = (address as *const _, address as *mut _);
    // SAFETY: the emulator checks the addresses.
    unsafe {
        done(result::all_reduce(
            from,
            to,
            64,
            ncclFloat32,
            ncclSum,
            communicator,
            compute.cast(),
        ))?;
        done(result::all_gather(
            from,
            to,
            1,
            ncclFloat32,
            communicator,
            compute.cast(),
        ))?;
        done(result::recv(to, 64, ncclFloat32, 3, communicator, compute.cast()))?;
    }
    let other = stream()?;
    pause(other, 0)?;
    synchronize(compute)?;
    let recorded = Recorded::now()?;
    for (name, expected) in [
        ("AllReduce of 64", (1, 256)),
        ("AllGather of 64", (1, 256)),
        ("Receive of 64", (1, 256)),
    ] {
        let found = calls(&recorded, "nccl", name, "main");
        ensure!(found == expected, "{name}: {found:?} instead of {expected:?}");
    }
    Ok(())
}

fn not_recording(_: &Role) -> Result<()> {
    open(0)?;
    let error = Recorded::now().err().context("nothing is recorded")?.to_string();
    ensure!(error.contains("CUDA_EMULATOR_RECORDING"), "{error}");
    Ok(())
}
