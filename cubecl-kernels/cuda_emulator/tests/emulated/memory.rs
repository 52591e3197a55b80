//! Memory: unwritten and freed memory holds no numbers, and accesses outside an allocation are refused.

use anyhow::{Result, ensure};
use cudarc::driver::{result, sys, sys::CUresult};

use crate::gpu::{
    allocate, argument, code, download, free, kernel, launch, open, pause, stream, synchronize, upload, write,
};
use crate::scene::{Role, Scene};

pub fn scenes() -> Vec<Scene> {
    vec![
        Scene::new("memory::what_was_not_written_is_not_a_number", unwritten),
        Scene::new("memory::a_free_that_does_not_wait_for_a_reader_shows", early_free),
        Scene::new("memory::a_free_that_waits_for_the_reader_does_not", late_free),
        Scene::new("memory::wrong_addresses_and_sizes_are_refused", refused),
        Scene::new("memory::copies_of_freed_memory_end_the_context", freed_copy),
        Scene::new("memory::writes_past_an_allocation_end_the_context", written_past),
        Scene::new("memory::pinned_memory_is_copied_when_the_stream_comes_there", pinned).jitter(100),
        Scene::new(
            "memory::pinned_memory_that_is_freed_before_its_copy_is_found",
            freed_pinned,
        ),
        Scene::new("memory::rows_are_copied_with_their_pitch", rows),
        Scene::new("memory::addresses_say_whose_they_are", owners).devices(2),
        Scene::new("memory::there_is_as_much_as_the_device_has", exhausted),
    ]
}

const COPY: &std::ffi::CStr = c"
extern \"C\" __global__ void copy(const float* from, float* to, int count) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) to[i] = from[i];
}
";

fn unwritten(_: &Role) -> Result<()> {
    let stream = open(0)?;
    let values = download::<f32>(allocate(64, stream)?, 16, stream)?;
    ensure!(values.iter().all(|value| value.is_nan()), "{values:?}");
    // SAFETY: the address is checked, and freed once.
    unsafe {
        let address = result::malloc_sync(64)?;
        ensure!(download::<f32>(address, 16, stream)?[15].is_nan());
        result::memset_d8_async(address, 0, 60, stream)?;
        let values = download::<f32>(address, 16, stream)?;
        ensure!(values[..15] == [0.0; 15] && values[15].is_nan());
        result::free_sync(address)?;
    }
    Ok(())
}

/// Keeps a stream busy.
unsafe extern "C" fn sleep(_: *mut std::ffi::c_void) {
    std::thread::sleep(std::time::Duration::from_millis(200));
}

/// Copies by a kernel in one stream what is freed in another, and returns the copy.
fn copy_and_free(does_wait: bool) -> Result<Vec<f32>> {
    let (owner, reader) = (open(0)?, stream()?);
    let copy = kernel(COPY, "copy")?;
    let (from, to, count) = (upload(&[1.0f32; 8], owner)?, upload(&[2.0f32; 8], reader)?, 8i32);
    synchronize(owner)?;
    // SAFETY: the function ignores its argument; the handles live to the end.
    unsafe {
        result::stream::launch_host_function(reader, sleep, std::ptr::null_mut())?;
        launch(
            copy,
            1,
            8,
            reader,
            &mut [argument(&from), argument(&to), argument(&count)],
        )?;
        if does_wait {
            let event = result::event::create(sys::CUevent_flags::CU_EVENT_DEFAULT)?;
            result::event::record(event, reader)?;
            result::stream::wait_event(owner, event, sys::CUevent_wait_flags::CU_EVENT_WAIT_DEFAULT)?;
        }
    }
    free(from, owner)?;
    synchronize(owner)?;
    Ok(download(to, 8, reader)?)
}

fn early_free(_: &Role) -> Result<()> {
    let values = copy_and_free(false)?;
    ensure!(values.iter().all(|value| value.is_nan()), "{values:?}");
    Ok(())
}

fn late_free(_: &Role) -> Result<()> {
    let values = copy_and_free(true)?;
    ensure!(values == [1.0; 8], "{values:?}");
    Ok(())
}

fn refused(_: &Role) -> Result<()> {
    let stream = open(0)?;
    let address = upload(&[1.0f32; 4], stream)?;
    let invalid = |outcome: Result<(), cudarc::driver::DriverError>, what: &str| {
        let code = outcome.err().map(|error| error.0);
        ensure!(code == Some(CUresult::CUDA_ERROR_INVALID_VALUE), "{what}: {code:?}");
        Ok(())
    };
    invalid(write(address, &[0.0f32; 5], stream), "a copy that is too long")?;
    invalid(write(address + 4, &[0.0f32; 4], stream), "a copy that begins late")?;
    invalid(write(address - 4, &[0.0f32; 1], stream), "a copy before the allocation")?;
    invalid(write(64, &[0.0f32; 1], stream), "a copy to nowhere")?;
    let host = [0.0f32; 4];
    invalid(
        write(host.as_ptr() as u64, &host, stream),
        "a copy to the host's memory as if it were the device's",
    )?;
    invalid(download::<f32>(address, 5, stream).map(drop), "a copy of too much")?;
    // SAFETY: the addresses are what is tried.
    unsafe {
        invalid(result::memset_d8_async(address, 0, 17, stream), "too long a memset")?;
        invalid(
            result::memcpy_dtod_async(address, address + 8, 12, stream),
            "too long a copy on the device",
        )?;
        invalid(result::malloc_sync(0).map(drop), "no bytes")?;
    }
    invalid(free(address + 4, stream), "a free of the middle")?;
    free(address, stream)?;
    invalid(free(address, stream), "a second free")?;
    invalid(
        download::<f32>(address, 1, stream).map(drop),
        "a copy of what was freed",
    )?;
    synchronize(stream)?;
    Ok(())
}

fn freed_copy(_: &Role) -> Result<()> {
    let (owner, reader) = (open(0)?, stream()?);
    let (from, to) = (upload(&[1.0f32], owner)?, upload(&[2.0f32], reader)?);
    synchronize(owner)?;
    // SAFETY: the function ignores its argument.
    unsafe {
        result::stream::launch_host_function(reader, sleep, std::ptr::null_mut())?;
        result::memcpy_dtod_async(to, from, 4, reader)?;
    }
    free(from, owner)?;
    let error = code(synchronize(reader));
    ensure!(error == CUresult::CUDA_ERROR_ILLEGAL_ADDRESS, "{error:?}");
    // The context does not recover.
    let error = code(allocate(4, owner));
    ensure!(error == CUresult::CUDA_ERROR_ILLEGAL_ADDRESS, "{error:?}");
    Ok(())
}

fn written_past(_: &Role) -> Result<()> {
    let stream = open(0)?;
    let copy = kernel(COPY, "copy")?;
    let (from, to, count) = (upload(&[1.0f32; 5], stream)?, allocate(16, stream)?, 5i32);
    launch(
        copy,
        1,
        8,
        stream,
        &mut [argument(&from), argument(&to), argument(&count)],
    )?;
    let code = code(synchronize(stream));
    ensure!(code == CUresult::CUDA_ERROR_ILLEGAL_ADDRESS, "{code:?}");
    Ok(())
}

fn pinned(_: &Role) -> Result<()> {
    let stream = open(0)?;
    let address = allocate(4, stream)?;
    // SAFETY: the memory is four bytes, which only the stream reads and writes at the time.
    unsafe {
        let host = result::malloc_host(4, 0)?.cast::<f32>();
        ensure!(host.read().is_nan());
        host.write(1.0);
        result::memcpy_htod_async(address, std::slice::from_raw_parts(host, 1), stream)?;
        synchronize(stream)?;
        host.write(2.0);
        result::memcpy_dtoh_async(std::slice::from_raw_parts_mut(host, 1), address, stream)?;
        synchronize(stream)?;
        ensure!(host.read() == 1.0);
        // Written over before the stream comes to it: the copy is of what is there then.
        result::stream::launch_host_function(stream, sleep, std::ptr::null_mut())?;
        result::memcpy_htod_async(address, std::slice::from_raw_parts(host, 1), stream)?;
        host.write(3.0);
        synchronize(stream)?;
        ensure!(download::<f32>(address, 1, stream)? == [3.0]);
        result::free_host(host.cast())?;
        ensure!(code(result::free_host(host.cast())) == CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    Ok(())
}

fn freed_pinned(_: &Role) -> Result<()> {
    let stream = open(0)?;
    let address = allocate(4, stream)?;
    // SAFETY: the emulator finds that the memory is gone, and does not read it.
    unsafe {
        let host = result::malloc_host(4, 0)?.cast::<f32>();
        host.write(1.0);
        pause(stream, 200)?;
        result::memcpy_htod_async(address, std::slice::from_raw_parts(host, 1), stream)?;
        result::free_host(host.cast())?;
    }
    ensure!(synchronize(stream).is_err(), "memory that was freed is copied");
    Ok(())
}

fn rows(_: &Role) -> Result<()> {
    let stream = open(0)?;
    let address = allocate(24, stream)?;
    let values = [1u32, 2, 3, 4];
    let mut copy = sys::CUDA_MEMCPY2D {
        srcXInBytes: 0,
        srcY: 0,
        srcMemoryType: sys::CUmemorytype::CU_MEMORYTYPE_HOST,
        srcHost: values.as_ptr().cast(),
        srcDevice: 0,
        srcArray: std::ptr::null_mut(),
        srcPitch: 8,
        dstXInBytes: 0,
        dstY: 0,
        dstMemoryType: sys::CUmemorytype::CU_MEMORYTYPE_DEVICE,
        dstHost: std::ptr::null_mut(),
        dstDevice: address,
        dstArray: std::ptr::null_mut(),
        dstPitch: 12,
        WidthInBytes: 8,
        Height: 2,
    };
    // SAFETY: the driver reads the host's memory before it returns, and checks the device's.
    unsafe { sys::cuMemcpy2DAsync_v2(&copy, stream) }.result()?;
    ensure!(download::<u32>(address, 6, stream)? == [1, 2, u32::MAX, 3, 4, u32::MAX]);
    for (pitch, height) in [(4, 2), (16, 3)] {
        (copy.dstPitch, copy.Height) = (pitch, height);
        // SAFETY: as above.
        let code = unsafe { sys::cuMemcpy2DAsync_v2(&copy, stream) };
        ensure!(code == CUresult::CUDA_ERROR_INVALID_VALUE, "pitch {pitch}: {code:?}");
    }
    Ok(())
}

fn exhausted(_: &Role) -> Result<()> {
    let stream = open(0)?;
    let (unused, total) = result::mem_get_info()?;
    ensure!(unused == total);
    let code = code(allocate(total + 1, stream));
    ensure!(code == CUresult::CUDA_ERROR_OUT_OF_MEMORY, "{code:?}");
    let address = allocate(1 << 20, stream)?;
    ensure!(result::mem_get_info()?.0 == total - (1 << 20));
    free(address, stream)?;
    synchronize(stream)?;
    ensure!(result::mem_get_info()?.0 == total);
    Ok(())
}

fn owners(_: &Role) -> Result<()> {
    use sys::CUpointer_attribute::{CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR};
    let streams = [open(0)?, open(1)?];
    for (ordinal, stream) in streams.into_iter().enumerate() {
        let address = allocate(100, stream)?;
        let (mut found, mut start) = (-1i32, 0u64);
        // SAFETY: the attributes are a number and an address.
        unsafe {
            sys::cuPointerGetAttribute(
                (&raw mut found).cast(),
                CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                address + 7,
            )
            .result()?;
            sys::cuPointerGetAttribute(
                (&raw mut start).cast(),
                CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
                address + 7,
            )
            .result()?;
            ensure!(
                found == ordinal as i32 && start == address,
                "device {found}, {start:#x}"
            );
            let attribute = CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL;
            let error = sys::cuPointerGetAttribute((&raw mut found).cast(), attribute, address + 101);
            ensure!(error == CUresult::CUDA_ERROR_INVALID_VALUE, "{error:?}");
        }
    }
    Ok(())
}
