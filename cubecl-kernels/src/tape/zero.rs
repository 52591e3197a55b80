//! A zero on each device: what the graph is given where a gradient went elsewhere, or where only the order of steps
//! matters. Made once, so that it costs neither a launch nor a copy to the device.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Weak};

use burn::tensor::{DType, Tensor, backend::Backend, ops::FloatTensor};
use parking_lot::Mutex;

use super::{float, primitive};
use crate::precision::zeros;

/// A zero, and what it is for.
struct Held<B: Backend> {
    /// Each thread has its own: burn's fusion queues operations by thread. Gone when the thread has ended.
    thread: Weak<()>,
    device: B::Device,
    dtype: DType,
    dimensions: usize,
    zero: FloatTensor<B>,
}

/// By backend, a `Vec<Held<B>>`.
static ZEROS: LazyLock<Mutex<HashMap<TypeId, Box<dyn Any + Send>>>> = LazyLock::new(Mutex::default);

thread_local! {
    /// What tells a thread from others, as long as it runs.
    static THREAD: Arc<()> = Arc::default();
}

/// Returns a zero, of one element.
pub fn zero<B: Backend, const D: usize>(device: &B::Device, dtype: DType) -> Tensor<B, D> {
    let mut zeros_of_all = ZEROS.lock();
    let of_backend = zeros_of_all
        .entry(TypeId::of::<B>())
        .or_insert_with(|| Box::new(Vec::<Held<B>>::new()));
    let held = of_backend
        .downcast_mut::<Vec<Held<B>>>()
        .expect("by the backend's type");
    let thread = THREAD.with(Arc::downgrade);
    let is_wanted = |held: &Held<B>| {
        held.thread.ptr_eq(&thread) && (&held.device, held.dtype, held.dimensions) == (device, dtype, D)
    };
    if let Some(found) = held.iter().find(|held| is_wanted(held)) {
        return float(found.zero.clone());
    }
    let of_ended = held
        .extract_if(.., |held| held.thread.strong_count() == 0)
        .collect::<Vec<_>>();
    let zero = primitive(zeros::<B, D>([1; D], device, dtype));
    held.push(Held {
        thread,
        device: device.clone(),
        dtype,
        dimensions: D,
        zero: zero.clone(),
    });
    // Dropped without the lock: a backend may ask for a zero then.
    drop(zeros_of_all);
    drop(of_ended);
    float(zero)
}

#[cfg(test)]
mod tests {
    use burn_flex::{Flex, FlexDevice};

    use super::*;

    fn held() -> usize {
        let zeros = ZEROS.lock();
        let of_backend = zeros.get(&TypeId::of::<Flex>());
        of_backend.map_or(0, |held| {
            held.downcast_ref::<Vec<Held<Flex>>>().expect("by its type").len()
        })
    }

    #[test]
    fn zeros_of_threads_that_have_ended_are_dropped() {
        let ask = || drop(zero::<Flex, 3>(&FlexDevice, DType::F32));
        for _ in 0..8 {
            std::thread::spawn(ask).join().expect("it ends");
        }
        ask();
        ask();
        assert!(held() <= 2, "{} are held", held());
    }
}
