//! The driver: order within streams, and none between them but by events; kernels; errors.

use std::ffi::CString;
use std::ptr::null_mut;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use cudarc::driver::{DriverError, result, sys, sys::CUresult};

use crate::gpu::{
    allocate, argument, code, download, is_busy, kernel, launch, open, pause, stream, synchronize, text, upload, write,
};
use crate::scene::{Role, Scene};

pub fn scenes() -> Vec<Scene> {
    vec![
        Scene::new("driver::work_of_a_stream_is_done_in_order", in_order).jitter(200),
        Scene::new("driver::streams_without_a_wait_race", streams_race).jitter(800),
        Scene::new("driver::an_event_orders_streams", event_orders).jitter(800),
        Scene::new(
            "driver::an_event_is_what_was_recorded_last_before_the_wait",
            event_of_the_wait,
        )
        .jitter(100),
        Scene::new(
            "driver::blocking_streams_and_the_default_one_wait_for_each_other",
            default_stream,
        )
        .jitter(300),
        Scene::new("driver::queries_and_times_tell_how_far_a_stream_is", queries),
        Scene::new(
            "driver::arguments_are_copied_when_a_kernel_is_launched",
            arguments_are_copied,
        )
        .jitter(2000),
        Scene::new("driver::kernels_have_the_shared_memory_of_the_launch", shared_memory),
        Scene::new("driver::wrong_launches_are_refused", wrong_launches),
        Scene::new("driver::what_does_not_compile_is_reported", refused_source),
        Scene::new("driver::values_in_memory_order_streams", values_order).jitter(300),
        Scene::new(
            "driver::loads_and_allocations_wait_for_what_runs",
            loads_and_allocations_wait,
        ),
        Scene::new("driver::a_load_that_would_wait_for_ever_ends_the_context", endless_load).wait_limit(1),
        Scene::new("driver::devices_are_as_the_environment_says", devices).devices(3),
        Scene::new("driver::devices_are_the_gpus_that_are_named", gpus)
            .devices(3)
            .gpus("H100,A100"),
        Scene::new("driver::visible_devices_are_renumbered", visible)
            .devices(3)
            .visible("2,0,5,1"),
    ]
}

const SCALE: &std::ffi::CStr = c"
extern \"C\" __global__ void scale(float* values, float by, int count) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) values[i] *= by;
}
extern \"C\" __global__ void add(const float* from, float* to, int count) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) to[i] += from[i];
}
";

fn in_order(_: &Role) -> Result<()> {
    let stream = open(0)?;
    let (scale, add) = (kernel(SCALE, "scale")?, kernel(SCALE, "add")?);
    let count = 300i32;
    let values: Vec<f32> = (0..count).map(|value| value as f32).collect();
    let (a, b) = (upload(&values, stream)?, upload(&values, stream)?);
    for by in [2.0f32, 3.0] {
        launch(
            scale,
            3,
            128,
            stream,
            &mut [argument(&a), argument(&by), argument(&count)],
        )?;
        launch(add, 3, 128, stream, &mut [argument(&a), argument(&b), argument(&count)])?;
    }
    // 1 + 2 + 6
    let expected: Vec<f32> = values.iter().map(|value| value * 9.0).collect();
    ensure!(download::<f32>(b, 300, stream)? == expected);
    Ok(())
}

/// Writes in one stream, copies in another, and returns how often what was copied is old.
fn old_copies(does_wait: bool) -> Result<usize> {
    let (writer, reader) = (open(0)?, stream()?);
    let (from, to) = (allocate(4, writer)?, allocate(4, reader)?);
    let mut old = 0;
    for turn in 0..60u32 {
        write(from, &[turn], writer)?;
        if does_wait {
            wait_for(reader, writer)?;
        }
        // SAFETY: both are four bytes.
        unsafe { result::memcpy_dtod_async(to, from, 4, reader)? };
        old += usize::from(download::<u32>(to, 1, reader)? != [turn]);
        synchronize(writer)?;
    }
    Ok(old)
}

fn wait_for(waits: sys::CUstream, works: sys::CUstream) -> Result<()> {
    // SAFETY: the streams are there; the event may be destroyed once it is waited for.
    unsafe {
        let event = result::event::create(sys::CUevent_flags::CU_EVENT_DISABLE_TIMING)?;
        result::event::record(event, works)?;
        result::stream::wait_event(waits, event, sys::CUevent_wait_flags::CU_EVENT_WAIT_DEFAULT)?;
        result::event::destroy(event)?;
    }
    Ok(())
}

fn streams_race(_: &Role) -> Result<()> {
    let old = old_copies(false)?;
    ensure!(
        old > 5 && old < 60,
        "{old} of 60 copies are old: that nothing waits does not show"
    );
    Ok(())
}

fn event_orders(_: &Role) -> Result<()> {
    let old = old_copies(true)?;
    ensure!(old == 0, "{old} of 60 copies are old");
    Ok(())
}

fn event_of_the_wait(_: &Role) -> Result<()> {
    let (slow, waits) = (open(0)?, stream()?);
    // SAFETY: all handles live to the end.
    unsafe {
        let event = result::event::create(sys::CUevent_flags::CU_EVENT_DEFAULT)?;
        result::stream::wait_event(waits, event, sys::CUevent_wait_flags::CU_EVENT_WAIT_DEFAULT)?;
        synchronize(waits)?;
        result::event::record(event, slow)?;
        result::stream::wait_event(waits, event, sys::CUevent_wait_flags::CU_EVENT_WAIT_DEFAULT)?;
        // Recorded again after a long pause: no stream was asked to wait for this.
        pause(slow, 2000)?;
        result::event::record(event, slow)?;
        synchronize(waits)?;
        ensure!(result::event::query(event).is_err(), "what takes long is done");
        result::event::synchronize(event)?;
    }
    Ok(())
}

fn default_stream(_: &Role) -> Result<()> {
    open(0)?;
    let blocking = result::stream::create(result::stream::StreamKind::Default)?;
    let null = result::stream::null();
    let (a, b) = (allocate(4, null)?, allocate(4, null)?);
    for turn in 0..60u32 {
        write(a, &[turn], blocking)?;
        // SAFETY: both are four bytes.
        unsafe { result::memcpy_dtod_async(b, a, 4, null)? };
        ensure!(download::<u32>(b, 1, blocking)? == [turn], "turn {turn}");
    }
    Ok(())
}

fn queries(_: &Role) -> Result<()> {
    let stream = open(0)?;
    // SAFETY: all handles live to the end.
    unsafe {
        let (start, end) = (
            result::event::create(sys::CUevent_flags::CU_EVENT_DEFAULT)?,
            result::event::create(sys::CUevent_flags::CU_EVENT_DEFAULT)?,
        );
        result::event::record(start, stream)?;
        pause(stream, 300)?;
        result::event::record(end, stream)?;
        ensure!(code(result::event::query(end)) == CUresult::CUDA_ERROR_NOT_READY);
        ensure!(sys::cuStreamQuery(stream) == CUresult::CUDA_ERROR_NOT_READY);
        ensure!(code(result::event::elapsed(start, end)) == CUresult::CUDA_ERROR_NOT_READY);
        result::event::synchronize(end)?;
        synchronize(stream)?;
        ensure!(sys::cuStreamQuery(stream) == CUresult::CUDA_SUCCESS);
        let milliseconds = result::event::elapsed(start, end)?;
        ensure!((290.0..3000.0).contains(&milliseconds), "{milliseconds} ms");
    }
    Ok(())
}

fn arguments_are_copied(_: &Role) -> Result<()> {
    let stream = open(0)?;
    let scale = kernel(SCALE, "scale")?;
    let values = upload(&[1.0f32; 8], stream)?;
    let (mut by, count) = (3.0f32, 8i32);
    launch(
        scale,
        1,
        8,
        stream,
        &mut [argument(&values), argument(&by), argument(&count)],
    )?;
    std::hint::black_box(&mut by);
    by = 100.0;
    std::hint::black_box(&by);
    ensure!(download::<f32>(values, 8, stream)? == [3.0; 8]);
    Ok(())
}

fn shared_memory(_: &Role) -> Result<()> {
    let stream = open(0)?;
    let source = c"
typedef unsigned char uint8;
extern \"C\" __global__ void reverse(float* values) {
extern __shared__ __align__(16) uint8 dynamic_shared_mem[];
    float* kept = reinterpret_cast<float*>(dynamic_shared_mem);
    kept[threadIdx.x] = values[threadIdx.x];
    __syncthreads();
    values[threadIdx.x] = kept[blockDim.x - 1 - threadIdx.x];
}
";
    let reverse = kernel(source, "reverse")?;
    let values = upload(&[1.0f32, 2.0, 3.0, 4.0], stream)?;
    let run = |shared: u32| {
        // SAFETY: the kernel takes one pointer.
        unsafe { result::launch_kernel(reverse, (1, 1, 1), (4, 1, 1), shared, stream, &mut [argument(&values)]) }
    };
    run(16)?;
    ensure!(download::<f32>(values, 4, stream)? == [4.0, 3.0, 2.0, 1.0]);
    ensure!(code(run(100 << 10)) == CUresult::CUDA_ERROR_INVALID_VALUE);
    let most = sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
    // SAFETY: the function is there.
    unsafe {
        result::function::set_function_attribute(reverse, most, 100 << 10)?;
        let more = code(result::function::set_function_attribute(reverse, most, 166_913));
        ensure!(more == CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    run(100 << 10)?;
    ensure!(download::<f32>(values, 4, stream)? == [1.0, 2.0, 3.0, 4.0]);
    // Less than it uses.
    run(8)?;
    ensure!(code(synchronize(stream)) == CUresult::CUDA_ERROR_LAUNCH_FAILED);
    Ok(())
}

fn wrong_launches(_: &Role) -> Result<()> {
    let stream = open(0)?;
    let scale = kernel(SCALE, "scale")?;
    let (values, by, count) = (upload(&[1.0f32; 8], stream)?, 2.0f32, 8i32);
    let mut arguments = [argument(&values), argument(&by), argument(&count)];
    for (blocks, threads) in [(0, 1), (1, 0), (1, 1025)] {
        let error = code(launch(scale, blocks, threads, stream, &mut arguments));
        ensure!(
            error == CUresult::CUDA_ERROR_INVALID_VALUE,
            "{blocks} blocks of {threads}"
        );
    }
    let error = code(launch(null_mut(), 1, 1, stream, &mut arguments));
    ensure!(error == CUresult::CUDA_ERROR_INVALID_HANDLE);
    let error = code(launch(scale, 1, 1, stream.wrapping_byte_add(1), &mut arguments));
    ensure!(error == CUresult::CUDA_ERROR_INVALID_HANDLE);
    let error = code(launch(
        scale,
        1,
        1,
        stream,
        &mut [argument(&values), null_mut(), argument(&count)],
    ));
    ensure!(error == CUresult::CUDA_ERROR_INVALID_VALUE);
    ensure!(download::<f32>(values, 8, stream)? == [1.0; 8]);
    Ok(())
}

fn refused_source(_: &Role) -> Result<()> {
    open(0)?;
    let error = text(kernel(
        c"extern \"C\" __global__ void broken() { no_such_thing(); }",
        "broken",
    ));
    ensure!(error.contains("no_such_thing"), "{error}");
    ensure!(text(kernel(SCALE, "no_such_kernel")).contains("NOT_FOUND"));
    let ptx = CString::new(".version 8.0")?;
    // SAFETY: it ends with a zero.
    let error = code(unsafe { result::module::load_data(ptx.as_ptr().cast()) });
    ensure!(error == CUresult::CUDA_ERROR_INVALID_PTX);
    Ok(())
}

fn values_order(_: &Role) -> Result<()> {
    let (writer, reader) = (open(0)?, stream()?);
    let flag = upload(&[0u32], writer)?;
    let (from, to) = (upload(&[0u32], writer)?, upload(&[0u32], reader)?);
    synchronize(writer)?;
    for turn in 1..30u32 {
        // SAFETY: all are four bytes.
        unsafe {
            sys::cuStreamWaitValue32_v2(reader, flag, turn, 0).result()?;
            result::memcpy_dtod_async(to, from, 4, reader)?;
            write(from, &[turn], writer)?;
            sys::cuStreamWriteValue32_v2(writer, flag, turn, 0).result()?;
        }
        ensure!(download::<u32>(to, 1, reader)? == [turn]);
    }
    Ok(())
}

fn devices(_: &Role) -> Result<()> {
    result::init()?;
    ensure!(result::device::get_count()? == 3);
    let uuids = [0, 1, 2].map(|ordinal| result::device::get_uuid(ordinal).map(|uuid| uuid.bytes));
    let uuids: Vec<_> = uuids.into_iter().collect::<Result<_, _>>()?;
    ensure!(uuids[0] != uuids[1] && uuids[1] != uuids[2] && uuids[0] != uuids[2]);
    ensure!(code(result::device::get(3)) == CUresult::CUDA_ERROR_INVALID_DEVICE);
    // No context is current.
    let error = code(result::stream::create(result::stream::StreamKind::NonBlocking));
    ensure!(error == CUresult::CUDA_ERROR_INVALID_CONTEXT);
    let streams = [open(0)?, open(1)?];
    let function = kernel(SCALE, "scale")?;
    let error = code(launch(function, 1, 1, streams[0], &mut [null_mut(); 3]));
    ensure!(
        error == CUresult::CUDA_ERROR_INVALID_HANDLE,
        "a kernel of another device"
    );
    let name = DriverError(CUresult::CUDA_ERROR_ILLEGAL_ADDRESS);
    ensure!(name.error_name()? == c"CUDA_ERROR_ILLEGAL_ADDRESS");
    Ok(())
}

fn gpus(_: &Role) -> Result<()> {
    use sys::CUdevice_attribute as Attribute;
    result::init()?;
    let of = |ordinal: i32| -> Result<_> {
        let device = result::device::get(ordinal)?;
        let numbers = [
            Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
            Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT,
            Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN,
        ];
        // SAFETY: the device is there.
        let numbers = numbers.map(|number| unsafe { result::device::get_attribute(device, number) });
        Ok((
            result::device::get_name(device)?,
            numbers.into_iter().collect::<Result<Vec<_>, _>>()?,
        ))
    };
    let found = [of(0)?, of(1)?, of(2)?];
    let [h100, a100] = [("H100", [9, 132, 232_448]), ("A100", [8, 108, 166_912])]
        .map(|(name, numbers)| (format!("CUDA emulator (as NVIDIA {name})"), numbers.to_vec()));
    ensure!(found == [h100, a100.clone(), a100], "{found:?}");
    Ok(())
}

fn visible(_: &Role) -> Result<()> {
    result::init()?;
    // The list ends at the first invalid entry.
    ensure!(result::device::get_count()? == 2);
    let numbers = [0, 1].map(|ordinal| result::device::get_uuid(ordinal).map(|uuid| uuid.bytes[15]));
    let numbers: Vec<_> = numbers.into_iter().collect::<Result<_, _>>()?;
    ensure!(numbers == [2, 0], "{numbers:?}");
    Ok(())
}

/// But not allocations in the order of a stream.
fn loads_and_allocations_wait(_: &Role) -> Result<()> {
    let (busy, other) = (open(0)?, stream()?);
    let waits: [(&str, &dyn Fn() -> Result<()>); 3] = [
        ("the load of a module", &|| kernel(SCALE, "scale").map(drop)),
        ("an allocation", &|| {
            // SAFETY: it is not used.
            Ok(unsafe { result::malloc_sync(64) }.map(drop)?)
        }),
        ("an allocation of pinned memory", &|| {
            // SAFETY: as above.
            Ok(unsafe { result::malloc_host(64, 0) }.map(drop)?)
        }),
    ];
    for (what, wait) in waits {
        pause(busy, 300)?;
        allocate(64, other)?;
        ensure!(is_busy(busy), "an allocation in the order of another stream waits");
        wait()?;
        ensure!(!is_busy(busy), "{what} does not wait");
    }
    Ok(())
}

fn endless_load(_: &Role) -> Result<()> {
    let stream = open(0)?;
    let begun = Instant::now();
    pause(stream, 20_000)?;
    let error = text(kernel(SCALE, "scale"));
    ensure!(error.contains("LAUNCH_TIMEOUT"), "{error}");
    // Who waits for what never ends learns of it.
    let synchronized = synchronize(stream);
    ensure!(synchronized.is_err(), "a context that has ended is well");
    ensure!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    // The context has ended.
    let late = CUresult::CUDA_ERROR_LAUNCH_TIMEOUT;
    ensure!(code(allocate(64, stream)) == late);
    Ok(())
}
