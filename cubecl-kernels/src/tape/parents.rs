//! [`Parents`]: the tensors before a node.

use burn::backend::DispatchTensor;
use burn::tensor::Tensor;

/// Tensors that a node comes from: one, an optional one, an array or a tuple of these.
pub trait Parents {
    /// Whether the gradient of each is wanted; never that of one that is not there.
    type Wanted;
    /// A gradient for each, if it has one.
    type Gradients;

    /// Appends the tensors in order, and nothing for those that are not there.
    fn flatten(self, tensors: &mut Vec<Option<DispatchTensor>>);

    /// Returns whether each is wanted.
    fn wanted(wanted: &mut impl Iterator<Item = bool>) -> Self::Wanted;

    /// Appends the gradients in the order of [`flatten`](Self::flatten).
    fn flatten_gradients(gradients: Self::Gradients, flat: &mut Vec<Option<DispatchTensor>>);
}

impl<const D: usize> Parents for Tensor<D> {
    type Wanted = bool;
    type Gradients = Option<Tensor<D>>;

    fn flatten(self, tensors: &mut Vec<Option<DispatchTensor>>) {
        tensors.push(Some(self.into_dispatch()));
    }

    fn wanted(wanted: &mut impl Iterator<Item = bool>) -> bool {
        wanted.next().expect("one for each parent")
    }

    fn flatten_gradients(gradient: Self::Gradients, flat: &mut Vec<Option<DispatchTensor>>) {
        flat.push(gradient.map(Tensor::into_dispatch));
    }
}

impl<const D: usize> Parents for Option<Tensor<D>> {
    type Wanted = bool;
    type Gradients = Option<Tensor<D>>;

    fn flatten(self, tensors: &mut Vec<Option<DispatchTensor>>) {
        tensors.push(self.map(Tensor::into_dispatch));
    }

    fn wanted(wanted: &mut impl Iterator<Item = bool>) -> bool {
        wanted.next().expect("one for each parent")
    }

    fn flatten_gradients(gradient: Self::Gradients, flat: &mut Vec<Option<DispatchTensor>>) {
        flat.push(gradient.map(Tensor::into_dispatch));
    }
}

impl<P: Parents, const N: usize> Parents for [P; N] {
    type Wanted = [P::Wanted; N];
    type Gradients = [P::Gradients; N];

    fn flatten(self, tensors: &mut Vec<Option<DispatchTensor>>) {
        for parents in self {
            parents.flatten(tensors);
        }
    }

    fn wanted(wanted: &mut impl Iterator<Item = bool>) -> Self::Wanted {
        std::array::from_fn(|_| P::wanted(wanted))
    }

    fn flatten_gradients(gradients: Self::Gradients, flat: &mut Vec<Option<DispatchTensor>>) {
        for gradients in gradients {
            P::flatten_gradients(gradients, flat);
        }
    }
}

macro_rules! tuples {
    ($(($($kind:ident $name:ident),+);)+) => {
        $(impl<$($kind: Parents),+> Parents for ($($kind,)+) {
            type Wanted = ($($kind::Wanted,)+);
            type Gradients = ($($kind::Gradients,)+);

            fn flatten(self, tensors: &mut Vec<Option<DispatchTensor>>) {
                let ($($name,)+) = self;
                $($name.flatten(tensors);)+
            }

            fn wanted(wanted: &mut impl Iterator<Item = bool>) -> Self::Wanted {
                ($($kind::wanted(wanted),)+)
            }

            fn flatten_gradients(($($name,)+): Self::Gradients, flat: &mut Vec<Option<DispatchTensor>>) {
                $($kind::flatten_gradients($name, flat);)+
            }
        })+
    };
}

tuples! {
    (A a, B b);
    (A a, B b, C c);
    (A a, B b, C c, D d);
}
