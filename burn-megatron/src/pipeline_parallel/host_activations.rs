//! [`HostActivations`]: what the graphs of a micro-batch keep, in host memory until their backward pass.

use std::sync::{Arc, Weak};

use burn::backend::{Dispatch, DispatchTensor};
use burn::tensor::{Device, Tensor, TensorData, Transaction};
use burn_backend::TensorMetadata;
use burn_backend::ops::FloatTensorOps;
use cubecl_kernels::tape::{Keeper, Return, keeping};
use parking_lot::Mutex;

/// Activations that go to host memory together, and come back one by one when the backward pass wants them.
#[derive(Debug)]
pub(super) struct HostActivations {
    /// Activations that have not gone yet, in the order in which they were kept.
    waiting: Mutex<Vec<Weak<Slot>>>,
}

/// An activation, which its graph keeps.
type Slot = Mutex<Place>;

#[derive(Debug)]
enum Place {
    /// `[elements]`
    Device(Tensor<1>),
    Host(TensorData, Device),
    /// It was given back.
    Returned,
}

impl HostActivations {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self {
            waiting: Mutex::default(),
        })
    }

    /// Runs work whose activations are to go to host memory.
    pub(super) fn capture<R>(self: &Arc<Self>, work: impl FnOnce() -> R) -> R {
        keeping(self.clone(), work)
    }

    /// Number of activations that have not gone yet.
    pub(super) fn num_waiting(&self) -> usize {
        self.waiting.lock().len()
    }

    /// Moves the first `count` waiting ones, by one read, which waits until the device has done what it was given
    /// before.
    ///
    /// # Panics
    /// When they cannot be read.
    pub(super) fn move_first(&self, count: usize) {
        let slots: Vec<_> = self.waiting.lock().drain(..count).collect();
        let mut moving = Vec::with_capacity(count);
        let mut reads = Transaction::default();
        // Of what no graph keeps there is nothing any more.
        for slot in slots.iter().filter_map(Weak::upgrade) {
            if let Place::Device(activation) = std::mem::replace(&mut *slot.lock(), Place::Returned) {
                moving.push((slot.clone(), activation.device()));
                reads = reads.register(activation);
            }
        }
        if moving.is_empty() {
            return;
        }
        let data = reads.try_execute().expect("activations go to host memory");
        for ((slot, device), data) in moving.into_iter().zip(data) {
            *slot.lock() = Place::Host(data, device);
        }
    }
}

impl Keeper for HostActivations {
    fn keep(&self, activation: DispatchTensor) -> Return {
        let shape = activation.shape();
        let elements = shape.num_elements();
        if elements == 0 {
            // burn takes a size of 0 in a reshape for that of before.
            return Box::new(|| activation);
        }
        let flat = Tensor::<1>::from_dispatch(Dispatch::float_reshape(activation, [elements].into()));
        let slot = Arc::new(Mutex::new(Place::Device(flat)));
        self.waiting.lock().push(Arc::downgrade(&slot));
        Box::new(move || {
            let flat = match std::mem::replace(&mut *slot.lock(), Place::Returned) {
                Place::Device(flat) => flat,
                Place::Host(data, device) => {
                    let dtype = data.dtype();
                    Tensor::from_data(data, (&device, dtype))
                }
                Place::Returned => unreachable!("an activation is given back once"),
            };
            Dispatch::float_reshape(flat.into_dispatch(), shape)
        })
    }
}

#[cfg(test)]
mod tests {
    use burn::tensor::Distribution;
    use cubecl_kernels::linear::linear;
    use cubecl_kernels::swiglu::swiglu;

    use super::*;

    fn random(shape: [usize; 2]) -> Tensor<2> {
        Tensor::random(shape, Distribution::Default, &Device::flex().autodiff()).require_grad()
    }

    #[test]
    fn gradients_are_the_same_wherever_activations_are() {
        let (input, weight, other) = (random([3, 4]), random([4, 8]), random([4, 2]));
        let host = HostActivations::new();
        let run = |moved: Option<usize>| {
            let forward = || {
                let hidden = linear(input.clone(), weight.clone(), None).expect("it fits");
                let hidden = swiglu(hidden).expect("two halves");
                linear(hidden, other.clone(), None).expect("it fits")
            };
            let output = match moved {
                None => forward(),
                Some(count) => {
                    let output = host.capture(forward);
                    assert_eq!(host.num_waiting(), 3);
                    host.move_first(count);
                    assert_eq!(host.num_waiting(), 3 - count);
                    output
                }
            };
            let gradients = output.powi_scalar(2).sum().backward();
            // What is back does not move.
            host.move_first(host.num_waiting());
            [&input, &weight, &other].map(|tensor| tensor.grad(&gradients).expect("it is used").into_data())
        };
        let on_device = run(None);
        for moved in 0..=3 {
            assert_eq!(run(Some(moved)), on_device, "{moved} moved");
        }
    }

    #[test]
    fn what_no_graph_keeps_is_freed_at_once() {
        let host = HostActivations::new();
        let untracked = |tensor: Tensor<2>| tensor.inner().autodiff();
        let (input, weight) = (untracked(random([3, 4])), untracked(random([4, 8])));
        host.capture(|| linear(input, weight, None).expect("it fits"));
        assert!(host.waiting.lock()[0].upgrade().is_none());
        host.move_first(1);
        assert_eq!(host.num_waiting(), 0);
    }

    #[test]
    fn a_moved_activation_is_held_by_the_host_alone() {
        let host = HostActivations::new();
        let activation = Tensor::<2>::ones([2, 3], &Device::flex());
        let get = host.keep(activation.clone().into_dispatch());
        let slot = host.waiting.lock()[0].upgrade().expect("it is kept");
        host.move_first(1);
        assert!(matches!(&*slot.lock(), Place::Host(data, _) if data.num_elements() == 6));
        assert_eq!(Tensor::<2>::from_dispatch(get()).into_data(), activation.into_data());
    }
}
