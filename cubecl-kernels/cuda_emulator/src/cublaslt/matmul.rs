//! The product as it is exported.

use std::ffi::c_void;
use std::sync::OnceLock;
use std::time::Duration;

use super::algorithm::Algorithm;
use super::element::Element;
use super::error::{EXECUTION_FAILED, Error, Outcome};
use super::handle::device_of;
use super::preference::Preference;
use super::problem::Problem;
use super::product::Product;
use crate::driver::device::stream::{Stream, resolve};
use crate::driver::device::{Device, current_or_first, number_in_environment};
use crate::driver::memory::{Place, place_of};
use crate::exported::exported;

/// While it is set, every product fails.
const FAILS: &str = "CUDA_EMULATOR_CUBLASLT_FAILS";

/// Reads alpha or beta, which are the host's.
///
/// # Safety
///
/// The pointer must be null, or point to device memory, or to an element of the type.
unsafe fn scalar(name: &str, element: Element, from: *const c_void) -> Outcome<f64> {
    if from.is_null() || matches!(place_of(from as usize), Some(Place::Device(_))) {
        return Err(Error::invalid(format!("{name} at {from:p} is not the host's")));
    }
    Ok(match element {
        // SAFETY: the caller's.
        Element::F64 => unsafe { from.cast::<f64>().read_unaligned() },
        // SAFETY: the caller's: the other type of scalars is `f32`.
        _ => f64::from(unsafe { from.cast::<f32>().read_unaligned() }),
    })
}

/// Checks a workspace, and returns the part of it that the algorithm uses: an address and its bytes.
fn workspace(algorithm: &Algorithm, address: usize, bytes: usize) -> Outcome<(usize, usize)> {
    let needed = algorithm.workspace();
    if bytes < needed || (address == 0 && bytes > 0) {
        let text = format!("the algorithm needs a workspace of {needed} bytes, and has {bytes} at {address:#x}");
        return Err(Error::invalid(text));
    }
    Ok((address, needed))
}

/// How much longer a product takes in its stream than it would.
fn slowness() -> Duration {
    static MICROSECONDS: OnceLock<u64> = OnceLock::new();
    let number = || number_in_environment("CUDA_EMULATOR_CUBLASLT_US").unwrap_or(0) as u64;
    Duration::from_micros(*MICROSECONDS.get_or_init(number))
}

/// Puts a product into a stream.
fn submit(product: Product, device: &'static Device, stream: &Stream) -> Outcome {
    if !std::ptr::eq(stream.device, device) {
        return Err(Error::invalid(format!(
            "a stream of device {}, and a handle of {}",
            stream.device.ordinal, device.ordinal
        )));
    }
    if !std::ptr::eq(current_or_first()?, device) {
        let text = format!("another device is current than the handle's, {}", device.ordinal);
        return Err(Error::new(EXECUTION_FAILED, text));
    }
    product.check(device)?;
    if std::env::var_os(FAILS).is_some() {
        return Err(Error::new(EXECUTION_FAILED, format!("{FAILS} is set")));
    }
    product.record();
    stream.submit(move || {
        std::thread::sleep(slowness());
        product.run()
    });
    Ok(())
}

exported! {
    fn cublasLtMatmul(
        handle: *mut c_void,
        operation: *mut c_void,
        alpha: *const c_void,
        a: *const c_void,
        a_layout: *mut c_void,
        b: *const c_void,
        b_layout: *mut c_void,
        beta: *const c_void,
        c: *const c_void,
        c_layout: *mut c_void,
        d: *mut c_void,
        d_layout: *mut c_void,
        algorithm: *const Algorithm,
        workspace_address: *mut c_void,
        workspace_bytes: usize,
        stream: *mut c_void,
    ) {
        let device = device_of(handle)?;
        let problem = Problem::of(operation, [a_layout, b_layout, c_layout, d_layout])?;
        // SAFETY: the caller's, or null.
        let algorithm = match unsafe { algorithm.as_ref() } {
            Some(algorithm) => *algorithm,
            // cuBLASLt chooses one itself.
            None => Algorithm::new(&problem, &Preference::ANYWHERE),
        };
        algorithm.check(&problem)?;
        let wide = problem.wide();
        let product = Product {
            problem,
            // SAFETY: the caller's pointer.
            alpha: unsafe { scalar("alpha", wide, alpha)? },
            // SAFETY: as above.
            beta: unsafe { scalar("beta", wide, beta)? },
            a: a as usize,
            b: b as usize,
            c: c as usize,
            d: d as usize,
            alignments: algorithm.alignments(),
            workspace: workspace(&algorithm, workspace_address as usize, workspace_bytes)?,
        };
        submit(product, device, &*resolve(stream)?)
    }
}
