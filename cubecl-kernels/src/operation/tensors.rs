//! [`Tensors`]: what an operation takes and gives, as the tensors of a program, of burn's dispatch, or of one backend.

use burn::backend::DispatchTensor;
use burn::tensor::{Bool, Float, Int, Tensor};

/// Tensors in or out of an operation: one, an optional one, an array, a list, or a tuple of these.
pub trait Tensors: Sized {
    /// The same arrangement of something else.
    type Of<T: Send + Sync>: Send + Sync;

    /// Returns burn's dispatched tensors.
    fn into_dispatch(self) -> Self::Of<DispatchTensor>;

    /// Returns tensors, of which `tensors` have the dimensions and kinds.
    fn from_dispatch(tensors: Self::Of<DispatchTensor>) -> Self;

    /// Returns what `each` makes of every element, in order.
    fn map<T: Send + Sync, U: Send + Sync>(of: Self::Of<T>, each: &mut impl FnMut(T) -> U) -> Self::Of<U>;

    /// Returns the same of references.
    fn by_ref<T: Send + Sync>(of: &Self::Of<T>) -> Self::Of<&T>;
}

macro_rules! kinds {
    ($($kind:ident),+) => {
        $(impl<const D: usize> Tensors for Tensor<D, $kind> {
            type Of<T: Send + Sync> = T;

            fn into_dispatch(self) -> DispatchTensor {
                Tensor::into_dispatch(self)
            }

            fn from_dispatch(tensor: DispatchTensor) -> Self {
                Tensor::from_dispatch(tensor)
            }

            fn map<T: Send + Sync, U: Send + Sync>(of: T, each: &mut impl FnMut(T) -> U) -> U {
                each(of)
            }

            fn by_ref<T: Send + Sync>(of: &T) -> &T {
                of
            }
        })+
    };
}

kinds!(Float, Int, Bool);

impl<A: Tensors> Tensors for Option<A> {
    type Of<T: Send + Sync> = Option<A::Of<T>>;

    fn into_dispatch(self) -> Self::Of<DispatchTensor> {
        self.map(A::into_dispatch)
    }

    fn from_dispatch(tensors: Self::Of<DispatchTensor>) -> Self {
        tensors.map(A::from_dispatch)
    }

    fn map<T: Send + Sync, U: Send + Sync>(of: Self::Of<T>, each: &mut impl FnMut(T) -> U) -> Self::Of<U> {
        of.map(|of| A::map(of, each))
    }

    fn by_ref<T: Send + Sync>(of: &Self::Of<T>) -> Self::Of<&T> {
        of.as_ref().map(A::by_ref)
    }
}

impl<A: Tensors, const N: usize> Tensors for [A; N] {
    type Of<T: Send + Sync> = [A::Of<T>; N];

    fn into_dispatch(self) -> Self::Of<DispatchTensor> {
        self.map(A::into_dispatch)
    }

    fn from_dispatch(tensors: Self::Of<DispatchTensor>) -> Self {
        tensors.map(A::from_dispatch)
    }

    fn map<T: Send + Sync, U: Send + Sync>(of: Self::Of<T>, each: &mut impl FnMut(T) -> U) -> Self::Of<U> {
        of.map(|of| A::map(of, each))
    }

    fn by_ref<T: Send + Sync>(of: &Self::Of<T>) -> Self::Of<&T> {
        of.each_ref().map(A::by_ref)
    }
}

impl<A: Tensors> Tensors for Vec<A> {
    type Of<T: Send + Sync> = Vec<A::Of<T>>;

    fn into_dispatch(self) -> Self::Of<DispatchTensor> {
        self.into_iter().map(A::into_dispatch).collect()
    }

    fn from_dispatch(tensors: Self::Of<DispatchTensor>) -> Self {
        tensors.into_iter().map(A::from_dispatch).collect()
    }

    fn map<T: Send + Sync, U: Send + Sync>(of: Self::Of<T>, each: &mut impl FnMut(T) -> U) -> Self::Of<U> {
        of.into_iter().map(|of| A::map(of, each)).collect()
    }

    fn by_ref<T: Send + Sync>(of: &Self::Of<T>) -> Self::Of<&T> {
        of.iter().map(A::by_ref).collect()
    }
}

macro_rules! tuples {
    ($(($($kind:ident $name:ident),+);)+) => {
        $(impl<$($kind: Tensors),+> Tensors for ($($kind,)+) {
            type Of<T: Send + Sync> = ($($kind::Of<T>,)+);

            fn into_dispatch(self) -> Self::Of<DispatchTensor> {
                let ($($name,)+) = self;
                ($($name.into_dispatch(),)+)
            }

            fn from_dispatch(($($name,)+): Self::Of<DispatchTensor>) -> Self {
                ($($kind::from_dispatch($name),)+)
            }

            fn map<T: Send + Sync, U: Send + Sync>(
                ($($name,)+): Self::Of<T>,
                each: &mut impl FnMut(T) -> U,
            ) -> Self::Of<U> {
                ($($kind::map($name, each),)+)
            }

            fn by_ref<T: Send + Sync>(($($name,)+): &Self::Of<T>) -> Self::Of<&T> {
                ($($kind::by_ref($name),)+)
            }
        })+
    };
}

tuples! {
    (A a, B b);
    (A a, B b, C c);
    (A a, B b, C c, D d);
    (A a, B b, C c, D d, E e);
    (A a, B b, C c, D d, E e, F f);
}

/// What an operation takes, as its kernels do.
pub type Of<A, T> = <A as Tensors>::Of<T>;
