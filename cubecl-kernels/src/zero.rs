//! A zero on each device: what the graph is given where a gradient went elsewhere, or where only the order of steps
//! matters. Made once, so that it costs neither a launch nor a copy to the device.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::sync::{LazyLock, Mutex, PoisonError};
use std::thread::{self, ThreadId};

use burn::tensor::{DType, Tensor, backend::Backend, ops::FloatTensor};

use crate::precision::zeros;
use crate::tape::{float, primitive};

/// A zero, and what it is for.
struct Held<B: Backend> {
    /// Each thread has its own: burn's fusion queues operations by thread.
    thread: ThreadId,
    device: B::Device,
    dtype: DType,
    dimensions: usize,
    zero: FloatTensor<B>,
}

/// By backend, a `Vec<Held<B>>`.
static ZEROS: LazyLock<Mutex<HashMap<TypeId, Box<dyn Any + Send>>>> = LazyLock::new(Mutex::default);

/// Returns a zero, of one element.
pub(crate) fn zero<B: Backend, const D: usize>(device: &B::Device, dtype: DType) -> Tensor<B, D> {
    let mut zeros_of_all = ZEROS.lock().unwrap_or_else(PoisonError::into_inner);
    let of_backend = zeros_of_all
        .entry(TypeId::of::<B>())
        .or_insert_with(|| Box::new(Vec::<Held<B>>::new()));
    let held = of_backend
        .downcast_mut::<Vec<Held<B>>>()
        .expect("by the backend's type");
    let thread = thread::current().id();
    let wanted = (thread, device, dtype, D);
    let is_wanted = |held: &Held<B>| (held.thread, &held.device, held.dtype, held.dimensions) == wanted;
    if let Some(found) = held.iter().find(|held| is_wanted(held)) {
        return float(found.zero.clone());
    }
    let zero = primitive(zeros::<B, D>([1; D], device, dtype));
    held.push(Held {
        thread,
        device: device.clone(),
        dtype,
        dimensions: D,
        zero: zero.clone(),
    });
    float(zero)
}
