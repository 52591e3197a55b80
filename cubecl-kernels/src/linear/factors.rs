//! The factors of the products, by the order of the weight.

use super::{LinearWanted, WeightOrder};

/// Returns a weight as the second factor of a product.
pub(super) fn input_first<T>(weight: T, order: WeightOrder, transpose: impl Fn(T) -> T) -> T {
    match order {
        WeightOrder::InputFirst => weight,
        WeightOrder::OutputFirst => transpose(weight),
    }
}

/// Returns the products that are the gradients of input and weight, if wanted, by views of the other factor: no
/// transposed copy is made here.
pub(super) fn factor_gradients<T: Clone, P>(
    [input, weight, gradient]: [T; 3],
    order: WeightOrder,
    wanted: LinearWanted,
    transpose: impl Fn(T) -> T,
    multiply: impl Fn(T, T) -> P,
) -> [Option<P>; 2] {
    let of_input = wanted
        .input
        .then(|| multiply(gradient.clone(), input_first(weight, order.turned(), &transpose)));
    let of_weight = wanted.weight.then(|| match order {
        WeightOrder::InputFirst => multiply(transpose(input), gradient),
        WeightOrder::OutputFirst => multiply(transpose(gradient), input),
    });
    [of_input, of_weight]
}
