//! Weights that a graph does not keep: its backward pass gets them again from where they are.
//!
//! As with the sinks of [`destination`](super::destination), what has the weight [supplies](supply) it by its node, and
//! a product with this weight finds the source there.

use std::fmt::Debug;
use std::sync::Arc;

use burn::backend::Autodiff;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::tensor::{Tensor, backend::Backend, ops::FloatTensor};

use crate::tape::{GradientRedirect, inner, lead, led, primitive};

/// Where a graph gets a weight for its backward pass, in place of keeping it.
pub trait WeightSource<B: Backend>: Debug + Send + Sync {
    /// Returns the weight as it was in the forward pass.
    fn fetch(&self) -> Tensor<B, 2>;
}

type Source<B> = Arc<dyn WeightSource<B>>;

/// Lets products with this weight fetch it for their backward pass, if they are recorded as long as this is kept.
pub fn supply<B: Backend, C: CheckpointStrategy>(
    weight: &FloatTensor<Autodiff<B, C>>,
    source: Source<B>,
) -> GradientRedirect {
    lead(weight.node.id, source)
}

/// What a graph has of a weight between its forward and its backward pass.
#[derive(Clone, Debug)]
pub enum RetainedWeight<B: Backend> {
    /// The weight.
    Kept(Tensor<B, 2>),
    /// Where it comes from.
    Fetched(Source<B>),
}

impl<B: Backend> RetainedWeight<B> {
    /// The source of a weight, if there is one, else the weight.
    pub fn of<C: CheckpointStrategy>(weight: &Tensor<Autodiff<B, C>, 2>) -> Self {
        let source = led::<Source<B>>(primitive(weight.clone()).node.id);
        source.map_or_else(|| Self::Kept(inner(weight)), Self::Fetched)
    }

    /// The weight.
    pub fn get(self) -> Tensor<B, 2> {
        match self {
            Self::Kept(weight) => weight,
            Self::Fetched(source) => source.fetch(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use burn::backend::autodiff::checkpoint::strategy::NoCheckpointing;
    use burn::tensor::Distribution;
    use burn_flex::Flex;

    use super::*;
    use crate::linear::linear;

    type B = Autodiff<Flex>;

    #[derive(Debug)]
    struct Counted(Tensor<Flex, 2>, AtomicUsize);

    impl WeightSource<Flex> for Counted {
        fn fetch(&self) -> Tensor<Flex, 2> {
            self.1.fetch_add(1, Ordering::Relaxed);
            self.0.clone()
        }
    }

    #[test]
    fn a_supplied_weight_is_fetched_once_and_gives_the_same_gradients() {
        let random = |shape: [usize; 2]| Tensor::<B, 2>::random(shape, Distribution::Default, &Default::default());
        let (input, weight) = (random([7, 4]).require_grad(), random([4, 3]).require_grad());
        let gradients = || {
            let output = linear(input.clone(), weight.clone(), None).expect("fits");
            let gradients = output.powi_scalar(2).sum().backward();
            [&input, &weight].map(|tensor| tensor.grad(&gradients).expect("it is used").into_data())
        };
        let kept = gradients();
        let source = Arc::new(Counted(weight.clone().inner(), AtomicUsize::new(0)));
        let supplied = supply::<Flex, NoCheckpointing>(&primitive(weight.clone()), source.clone());
        assert_eq!(gradients(), kept);
        drop(supplied);
        assert_eq!(gradients(), kept);
        assert_eq!(source.1.load(Ordering::Relaxed), 1, "only the first was supplied");
    }
}
