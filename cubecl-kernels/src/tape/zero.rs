//! A zero on each device: what the graph is given where a gradient went elsewhere, or where only the order of steps
//! matters. Made once, so that it costs neither a launch nor a copy to the device.

use std::sync::{Arc, Weak};

use burn::backend::DispatchTensor;
use burn::tensor::{DType, Device, Tensor};
use parking_lot::Mutex;

use crate::precision::zeros;

/// A zero, and what it is for.
struct Held {
    /// Each thread has its own: burn's fusion queues operations by thread. Gone when the thread has ended.
    thread: Weak<()>,
    device: Device,
    dtype: DType,
    dimensions: usize,
    zero: DispatchTensor,
}

/// Not of the threads themselves: tensors cannot be dropped where a thread's own variables are.
static ZEROS: Mutex<Vec<Held>> = Mutex::new(Vec::new());

thread_local! {
    /// What tells a thread from others, as long as it runs.
    static THREAD: Arc<()> = Arc::default();
}

/// Returns a zero, of one element.
pub fn zero<const D: usize>(device: &Device, dtype: DType) -> Tensor<D> {
    let mut zeros_of_all = ZEROS.lock();
    let thread = THREAD.with(Arc::downgrade);
    let is_wanted =
        |held: &&Held| held.thread.ptr_eq(&thread) && (&held.device, held.dtype, held.dimensions) == (device, dtype, D);
    if let Some(found) = zeros_of_all.iter().find(is_wanted) {
        return Tensor::from_dispatch(found.zero.clone());
    }
    let of_ended = zeros_of_all
        .extract_if(.., |held| held.thread.strong_count() == 0)
        .collect::<Vec<_>>();
    let zero = zeros::<D>([1; D], device, dtype);
    zeros_of_all.push(Held {
        thread,
        device: device.clone(),
        dtype,
        dimensions: D,
        zero: zero.clone().into_dispatch(),
    });
    // Dropped without the lock: a backend may ask for a zero then.
    drop(zeros_of_all);
    drop(of_ended);
    zero
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeros_of_threads_that_have_ended_are_dropped() {
        let ask = || drop(zero::<3>(&Device::flex(), DType::F32));
        let held = || ZEROS.lock().iter().filter(|held| held.dimensions == 3).count();
        for _ in 0..8 {
            std::thread::spawn(ask).join().expect("it ends");
        }
        ask();
        ask();
        assert!(held() <= 2, "{} are held", held());
    }
}
