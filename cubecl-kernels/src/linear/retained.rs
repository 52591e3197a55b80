//! Weights that a graph does not keep: its backward pass gets them again from where they are.
//!
//! As with the sinks of [`destination`](super::destination), what has the weight [supplies](supply) it by its node, and
//! a product with this weight finds the source there.

use std::fmt::Debug;
use std::sync::Arc;

use burn::tensor::Tensor;

use crate::tape::{GradientRedirect, inner, lead, led, node_id};

/// Source of a weight for the backward pass of a graph that does not keep it.
pub trait WeightSource: Debug + Send + Sync {
    /// Returns the weight as it was in the forward pass.
    fn fetch(&self) -> Tensor<2>;
}

type Source = Arc<dyn WeightSource>;

/// Lets products with this weight fetch it for their backward pass, if they are recorded as long as this is kept.
///
/// `None` if the weight is not tracked.
pub fn supply(weight: &Tensor<2>, source: Arc<dyn WeightSource>) -> Option<GradientRedirect> {
    Some(lead(node_id(weight)?, source))
}

/// Weight of a graph between its forward and its backward pass.
#[derive(Clone, Debug)]
pub enum RetainedWeight {
    /// The weight.
    Kept(Tensor<2>),
    /// A source of it.
    Fetched(Source),
}

impl RetainedWeight {
    /// Returns the source of a weight, if there is one, else the weight.
    pub fn of(weight: &Tensor<2>) -> Self {
        let source = node_id(weight).and_then(led::<Source>);
        source.map_or_else(|| Self::Kept(inner(weight)), Self::Fetched)
    }

    /// Returns the weight.
    pub fn get(self) -> Tensor<2> {
        match self {
            Self::Kept(weight) => weight,
            Self::Fetched(source) => source.fetch(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use burn::tensor::{Device, Distribution};

    use super::*;
    use crate::linear::linear;

    #[derive(Debug)]
    struct Counted(Tensor<2>, AtomicUsize);

    impl WeightSource for Counted {
        fn fetch(&self) -> Tensor<2> {
            self.1.fetch_add(1, Ordering::Relaxed);
            self.0.clone()
        }
    }

    #[test]
    fn a_supplied_weight_is_fetched_once_and_gives_the_same_gradients() {
        let device = Device::flex().autodiff();
        let random = |shape: [usize; 2]| Tensor::<2>::random(shape, Distribution::Default, &device).require_grad();
        let (input, weight) = (random([7, 4]), random([4, 3]));
        let gradients = || {
            let output = linear(input.clone(), weight.clone(), None).expect("fits");
            let gradients = output.powi_scalar(2).sum().backward();
            [&input, &weight].map(|tensor| tensor.grad(&gradients).expect("it is used").into_data())
        };
        let kept = gradients();
        let source = Arc::new(Counted(inner(&weight), AtomicUsize::new(0)));
        let supplied = supply(&weight, source.clone()).expect("it is tracked");
        assert_eq!(gradients(), kept);
        drop(supplied);
        assert_eq!(gradients(), kept);
        assert_eq!(source.1.load(Ordering::Relaxed), 1, "only the first was supplied");
    }
}
