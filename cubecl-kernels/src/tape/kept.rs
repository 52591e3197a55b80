//! [`Kept`]: what a graph keeps of an activation between its forward and its backward pass.
//!
//! A graph keeps the tensor itself, unless a [`Keeper`] has been given the activations of a piece of work to put them
//! somewhere else.

use std::any::Any;
use std::cell::RefCell;
use std::fmt;
use std::sync::Arc;

use burn::tensor::{Tensor, backend::Backend, ops::FloatTensor};

use super::{float, primitive};

/// Gets a tensor back from where a [`Keeper`] has put it.
pub type Return<B> = Box<dyn FnOnce() -> FloatTensor<B> + Send>;

/// Puts activations where they take no room until the backward pass wants them.
pub trait Keeper<B: Backend> {
    /// Takes an activation, and returns what gets it back: the same values in the same type and shape.
    ///
    /// What gets it back is dropped without a call where the graph is, such as one that nothing is trained by.
    fn keep(&self, activation: FloatTensor<B>) -> Return<B>;
}

/// An activation that a backward rule needs.
pub struct Kept<B: Backend, const D: usize>(Place<B, D>);

enum Place<B: Backend, const D: usize> {
    Here(Tensor<B, D>),
    Elsewhere(Return<B>),
}

thread_local! {
    /// An `Arc<dyn Keeper<B>>` of some backend.
    static KEEPER: RefCell<Option<Box<dyn Any>>> = const { RefCell::new(None) };
}

/// Runs work on this thread whose activations go to a keeper: those that the operations of this crate keep on this
/// backend.
pub fn keeping<B: Backend, R>(keeper: Arc<dyn Keeper<B>>, work: impl FnOnce() -> R) -> R {
    struct Before(Option<Box<dyn Any>>);
    impl Drop for Before {
        fn drop(&mut self) {
            let before = self.0.take();
            KEEPER.with_borrow_mut(|keeper| *keeper = before);
        }
    }
    let before = KEEPER.with_borrow_mut(|current| current.replace(Box::new(keeper)));
    let _before = Before(before);
    work()
}

/// Returns an activation for a backward rule to capture.
pub fn keep<B: Backend, const D: usize>(activation: Tensor<B, D>) -> Kept<B, D> {
    let keeper = KEEPER.with_borrow(|keeper| keeper.as_ref()?.downcast_ref::<Arc<dyn Keeper<B>>>().cloned());
    Kept(match keeper {
        None => Place::Here(activation),
        Some(keeper) => Place::Elsewhere(keeper.keep(primitive(activation))),
    })
}

impl<B: Backend, const D: usize> Kept<B, D> {
    /// Returns the activation, from wherever it is.
    pub fn get(self) -> Tensor<B, D> {
        match self.0 {
            Place::Here(activation) => activation,
            Place::Elsewhere(get) => float(get()),
        }
    }
}

impl<B: Backend, const D: usize> fmt::Debug for Kept<B, D> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self.0 {
            Place::Here(_) => "Kept::Here",
            Place::Elsewhere(_) => "Kept::Elsewhere",
        })
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::atomic::{AtomicUsize, Ordering};

    use burn::backend::Autodiff;
    use burn_flex::Flex;

    use super::*;
    use crate::swiglu::swiglu;

    type B = Autodiff<Flex>;

    /// Gives back twice what it was given.
    #[derive(Default)]
    struct Doubling(AtomicUsize);

    impl Keeper<Flex> for Doubling {
        fn keep(&self, activation: FloatTensor<Flex>) -> Return<Flex> {
            self.0.fetch_add(1, Ordering::Relaxed);
            Box::new(move || primitive(float::<Flex, 2>(activation).mul_scalar(2.0)))
        }
    }

    fn gradient(input: &Tensor<B, 2>, output: Tensor<B, 2>) -> Vec<f32> {
        let gradients = output.sum().backward();
        let gradient = input.grad(&gradients).expect("it is tracked");
        gradient.into_data().to_vec().expect("f32")
    }

    fn input(factor: f64) -> Tensor<B, 2> {
        let ramp = Tensor::<B, 1>::from_floats([0.5, -1.0, 2.0, 0.25], &Default::default());
        ramp.reshape([1, 4]).mul_scalar(factor).detach().require_grad()
    }

    fn forward(input: &Tensor<B, 2>) -> Tensor<B, 2> {
        swiglu(input.clone()).expect("two halves")
    }

    #[test]
    fn a_rule_computes_with_what_the_keeper_gives_back() {
        let keeper = Arc::new(Doubling::default());
        let (once, twice) = (input(1.0), input(2.0));
        let kept = keeping::<Flex, _>(keeper.clone(), || forward(&once));
        assert_eq!(keeper.0.load(Ordering::Relaxed), 1);
        assert_eq!(gradient(&once, kept), gradient(&twice, forward(&twice)));
    }

    #[test]
    fn a_keeper_is_asked_for_its_own_work_alone() {
        let [outer, inner] = [(); 2].map(|()| Arc::new(Doubling::default()));
        let count = |keeper: &Arc<Doubling>| keeper.0.load(Ordering::Relaxed);
        let tensor = || Tensor::<Flex, 2>::ones([1, 2], &Default::default());
        keeping::<Flex, _>(outer.clone(), || {
            let failed = catch_unwind(AssertUnwindSafe(|| {
                keeping::<Flex, _>(inner.clone(), || {
                    keep(tensor());
                    panic!("in the inner work");
                })
            }));
            assert!(failed.is_err());
            keep(tensor());
            std::thread::scope(|scope| {
                scope.spawn(|| keep(tensor()));
            });
            // Another backend's.
            keep(Tensor::<B, 2>::from_inner(tensor()));
        });
        assert_eq!([count(&outer), count(&inner)], [1, 1]);
        assert!(matches!(keep(tensor()).0, Place::Here(_)));
    }
}
