//! Weights whose gradient is added straight to its sums, by the library that computes it, and so is neither rounded to
//! the weight's type nor written and read again.
//!
//! burn's graph knows tensors only. So what receives a weight's gradient [redirects](redirect) the weight's node to a
//! sink; a product with this weight finds the sink there, gives it the factors of the gradient in the backward pass,
//! and gives the graph a zero in the gradient's place.

use std::fmt::Debug;
use std::sync::Arc;

use burn::tensor::{Int, Tensor};

use super::{LinearGradients, LinearWanted, WeightOrder, affine_backward};
use crate::accumulate::vectors::{VectorDestination, VectorSums};
use crate::bias_dropout_add::BackwardInto;
use crate::operation::apply;
pub use crate::tape::GradientRedirect;
use crate::tape::{lead, led, node_id, zero};
use crate::token_range::TokenRange;

/// Destination of the gradient of one weight, which is added up there.
pub trait WeightSink: Debug + Send + Sync {
    /// Adds `a · b`, the weight's gradient in the weight's layout.
    fn add_product(&self, a: Tensor<2>, b: Tensor<2>);

    /// Adds the gradients of embeddings, where the weight is their table: see
    /// [`add_rows`](crate::embedding::add_rows).
    fn add_rows(&self, tokens: Tensor<1, Int>, gradient: Tensor<2>, range: TokenRange);
}

/// Leads products' gradients of this weight to a sink. Its node then receives zeros that have one element, and the sums
/// of these with the gradients of what else the weight is used for.
///
/// `None` if the weight is not tracked.
pub fn redirect(weight: &Tensor<2>, sink: Arc<dyn WeightSink>) -> Option<GradientRedirect> {
    Some(lead(node_id(weight)?, sink))
}

/// Returns the sink that a weight is led to.
pub(crate) fn sink_of(weight: &Tensor<2>) -> Option<Arc<dyn WeightSink>> {
    led(node_id(weight)?)
}

/// Destinations of the gradients of a product's parameters in place of the graph, if there are any.
pub struct LinearSinks {
    weight: Option<Arc<dyn WeightSink>>,
    bias: Option<VectorDestination>,
}

impl LinearSinks {
    /// Returns those that weight and bias are led to.
    pub(super) fn of(weight: &Tensor<2>, bias: Option<&Tensor<1>>) -> Self {
        Self {
            weight: sink_of(weight),
            bias: VectorDestination::of([bias]),
        }
    }
}

/// Returns the gradients that are wanted for the output's; those of weight and bias go to their sinks, if they have
/// one.
pub fn gradients(
    input: Tensor<2>,
    weight: Tensor<2>,
    order: WeightOrder,
    gradient: Tensor<2>,
    wanted: LinearWanted,
    sinks: LinearSinks,
) -> LinearGradients {
    let (device, dtype) = (gradient.device(), gradient.dtype());
    let is_empty = input.dims().contains(&0) || gradient.dims().contains(&0);
    let goes = device.supports_dtype(dtype) && !is_empty;
    let of_weight = sinks.weight.filter(|_| wanted.weight && goes);
    let of_bias = sinks.bias.filter(|_| wanted.bias && goes);
    let others = LinearWanted {
        weight: wanted.weight && of_weight.is_none(),
        bias: wanted.bias && of_bias.is_none(),
        ..wanted
    };
    let mut gradients = affine_backward(input.clone(), weight, order, gradient.clone(), others);
    if let Some(destination) = of_bias {
        gradients.bias = Some(destination.nothing(&gradient));
        destination.add(|VectorSums { sums, places }| {
            let rule = BackwardInto { dropout: None, places };
            apply(&rule, (gradient.clone(), sums))
        });
    }
    if let Some(sink) = of_weight {
        gradients.weight = Some(zero(&device, dtype));
        match order {
            WeightOrder::InputFirst => sink.add_product(input.transpose(), gradient),
            WeightOrder::OutputFirst => sink.add_product(gradient.transpose(), input),
        }
    }
    gradients
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;

    use burn::tensor::{Device, Distribution};

    use super::*;
    use crate::embedding::{add_rows, embedding};
    use crate::linear::{linear, linear_transposed};

    /// Applies a weight, the second.
    type Way = fn(Tensor<2>, Tensor<2>) -> Tensor<2>;

    /// The sum of what came.
    #[derive(Debug, Default)]
    struct Sum(Mutex<Vec<Tensor<2>>>);

    impl WeightSink for Sum {
        fn add_product(&self, a: Tensor<2>, b: Tensor<2>) {
            self.0.lock().push(a.matmul(b));
        }

        fn add_rows(&self, tokens: Tensor<1, Int>, gradient: Tensor<2>, range: TokenRange) {
            let [_, columns] = gradient.dims();
            let sums = Tensor::zeros([range.count * columns], &Device::flex());
            let sums = add_rows(sums, 0, tokens, gradient, range).expect("fits");
            let mut products = self.0.lock();
            products.push(sums.reshape([range.count, columns]));
        }
    }

    fn random(shape: [usize; 2]) -> Tensor<2> {
        Tensor::random(shape, Distribution::Default, &Device::flex().autodiff())
    }

    /// The gradient that the graph gives a weight, those that its sink was given, and the gradient without a sink.
    fn gradients_of(loss: impl Fn(Tensor<2>) -> Tensor<1>) -> (Tensor<2>, Vec<Tensor<2>>, Tensor<2>) {
        let weight = random([4, 4]).require_grad();
        let sink = Arc::new(Sum::default());
        let led = redirect(&weight, sink.clone()).expect("it is tracked");
        let of_graph = weight.grad(&loss(weight.clone()).backward()).expect("it is used");
        let products = std::mem::take(&mut *sink.0.lock());
        drop(led);
        assert_eq!(Arc::strong_count(&sink), 1, "the sink is let go");
        let alone = weight.grad(&loss(weight.clone()).backward()).expect("it is used");
        assert!(sink.0.lock().is_empty(), "it is led nowhere any more");
        (of_graph, products, alone)
    }

    fn expect_same(found: Tensor<2>, expected: Tensor<2>) {
        found
            .into_data()
            .assert_approx_eq::<f32>(&expected.into_data(), burn::tensor::Tolerance::absolute(1e-5));
    }

    #[test]
    fn a_product_goes_to_the_sink_and_a_zero_to_the_graph() {
        let input = random([7, 4]);
        let ways: [Way; 2] = [
            |input, weight| linear(input, weight, None).expect("fits"),
            |input, weight| linear_transposed(input, weight).expect("fits"),
        ];
        for way in ways {
            let (of_graph, products, alone) = gradients_of(|weight| way(input.clone(), weight).powi_scalar(2).sum());
            assert_eq!(of_graph.dims(), [1, 1]);
            assert_eq!(of_graph.into_scalar::<f32>(), 0.0);
            assert_eq!(products.len(), 1);
            expect_same(products[0].clone(), alone);
        }
    }

    #[test]
    fn a_weight_that_is_used_twice_gives_two_products() {
        let input = random([7, 4]);
        let twice = |weight: Tensor<2>| {
            let hidden = linear(input.clone(), weight.clone(), None).expect("fits").tanh();
            linear_transposed(hidden, weight).expect("fits").powi_scalar(2).sum()
        };
        let (of_graph, products, alone) = gradients_of(twice);
        assert_eq!(of_graph.dims(), [1, 1]);
        let [first, second] = <[_; 2]>::try_from(products).expect("two");
        expect_same(first + second, alone);
    }

    #[test]
    fn a_tied_table_gives_a_product_and_rows() {
        let range = TokenRange { first: 2, count: 4 };
        let tied = |weight: Tensor<2>| {
            let tokens = Tensor::from_ints([5, 2, 1, 5, 6, 3], &Device::flex().autodiff());
            let hidden = embedding(weight.clone(), tokens, range).expect("fits").tanh();
            linear_transposed(hidden, weight).expect("fits").powi_scalar(2).sum()
        };
        let (of_graph, parts, alone) = gradients_of(tied);
        assert_eq!(of_graph.dims(), [1, 1]);
        let [product, rows] = <[_; 2]>::try_from(parts).expect("two");
        expect_same(product + rows, alone);
    }

    #[test]
    fn what_is_no_product_stays_in_the_graph() {
        let input = random([7, 4]);
        let both = |weight: Tensor<2>| {
            let product = linear(input.clone(), weight.clone(), None).expect("fits");
            product.powi_scalar(2).sum() + weight.powi_scalar(3).sum()
        };
        let (of_graph, products, alone) = gradients_of(both);
        assert_eq!((of_graph.dims(), products.len()), ([4, 4], 1));
        expect_same(of_graph + products[0].clone(), alone);
    }
}
