//! [`Kept`]: what a graph keeps of an activation between its forward and its backward pass.
//!
//! A graph keeps the tensor itself, unless a [`Keeper`] has been given the activations of a piece of work to put them
//! somewhere else.

use std::cell::RefCell;
use std::fmt;
use std::sync::Arc;

use burn::backend::DispatchTensor;
use burn::tensor::Tensor;

/// Gets a tensor back from where a [`Keeper`] has put it.
pub type Return = Box<dyn FnOnce() -> DispatchTensor + Send>;

/// Puts activations where they take no room until the backward pass wants them.
pub trait Keeper {
    /// Takes an activation, and returns what gets it back: the same values in the same type and shape.
    ///
    /// What gets it back is dropped without a call where the graph is, such as one that nothing is trained by.
    fn keep(&self, activation: DispatchTensor) -> Return;
}

/// An activation that a backward rule needs.
pub struct Kept<const D: usize>(Place<D>);

enum Place<const D: usize> {
    Here(Tensor<D>),
    Elsewhere(Return),
}

thread_local! {
    static KEEPER: RefCell<Option<Arc<dyn Keeper>>> = const { RefCell::new(None) };
}

/// Runs work on this thread whose activations go to a keeper: those that the operations of this crate keep.
pub fn keeping<R>(keeper: Arc<dyn Keeper>, work: impl FnOnce() -> R) -> R {
    struct Before(Option<Arc<dyn Keeper>>);
    impl Drop for Before {
        fn drop(&mut self) {
            let before = self.0.take();
            KEEPER.with_borrow_mut(|keeper| *keeper = before);
        }
    }
    let before = KEEPER.with_borrow_mut(|current| current.replace(keeper));
    let _before = Before(before);
    work()
}

/// Returns an activation for a backward rule to capture.
pub fn keep<const D: usize>(activation: Tensor<D>) -> Kept<D> {
    let keeper = KEEPER.with_borrow(Clone::clone);
    Kept(match keeper {
        None => Place::Here(activation),
        Some(keeper) => Place::Elsewhere(keeper.keep(activation.into_dispatch())),
    })
}

impl<const D: usize> Kept<D> {
    /// Returns the activation, from wherever it is.
    pub fn get(self) -> Tensor<D> {
        match self.0 {
            Place::Here(activation) => activation,
            Place::Elsewhere(get) => Tensor::from_dispatch(get()),
        }
    }
}

impl<const D: usize> fmt::Debug for Kept<D> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self.0 {
            Place::Here(_) => "Kept::Here",
            Place::Elsewhere(_) => "Kept::Elsewhere",
        })
    }
}
