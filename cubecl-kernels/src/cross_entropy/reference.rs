//! The cross-entropy of a shard in burn's operations.

use burn::tensor::{Bool, Int, Tensor, TensorData};

use crate::precision::{compute_type, narrow, widen, zeros};

/// Returns each row's statistics.
pub fn statistics(logits: Tensor<2>, targets: Tensor<1, Int>, valid: usize) -> [Tensor<1>; 3] {
    let rows = logits.dims()[0];
    let device = logits.device();
    if rows == 0 || valid == 0 {
        let dtype = compute_type(logits.dtype());
        let nothing = TensorData::full([rows], f32::NEG_INFINITY);
        let maximum = Tensor::from_data(nothing, (&device, dtype));
        let zeros = zeros([rows], &device, dtype);
        return [maximum, zeros.clone(), zeros];
    }
    let logits = widen(logits).narrow(1, 0, valid);
    let maximum = logits.clone().max_dim(1);
    // Exponentials of a row that is −∞ throughout are 0, not those of ∞ − ∞.
    let shift = maximum
        .clone()
        .mask_fill(maximum.clone().equal_elem(f64::NEG_INFINITY), 0.0);
    let sum = (logits.clone() - shift).exp().sum_dim(1);
    // Where nothing is above −∞, some backends' maximum is the smallest finite number.
    let maximum = maximum.mask_fill(sum.clone().equal_elem(0.0), f64::NEG_INFINITY);
    let (local, elsewhere) = localize(targets, valid);
    let target = logits.gather(1, local.unsqueeze_dim::<2>(1)).squeeze_dim::<1>(1);
    [
        maximum.squeeze_dim(1),
        sum.squeeze_dim(1),
        target.mask_fill(elsewhere, 0.0),
    ]
}

/// Returns the logits' gradient, in their type, for that of the rows' losses.
pub fn backward(
    logits: Tensor<2>,
    targets: Tensor<1, Int>,
    valid: usize,
    [maximum, sum, gradient]: [Tensor<1>; 3],
) -> Tensor<2> {
    let ([_, columns], dtype) = (logits.dims(), logits.dtype());
    let device = logits.device();
    if logits.dims().contains(&0) {
        return logits;
    }
    let logits = widen(logits);
    let dims = logits.dims();
    let numbers = Tensor::<1, Int>::arange(0..columns as i64, &device);
    let padding = numbers
        .clone()
        .greater_equal_elem(valid as i64)
        .unsqueeze::<2>()
        .expand(dims);
    let (local, elsewhere) = localize(targets, valid);
    let is_target: Tensor<2, Bool> = numbers
        .unsqueeze::<2>()
        .expand(dims)
        .equal(local.unsqueeze_dim::<2>(1).expand(dims));
    let is_target = is_target.bool_and(elsewhere.bool_not().unsqueeze_dim::<2>(1).expand(dims));
    let share = (logits - maximum.unsqueeze_dim::<2>(1)).exp() / sum.unsqueeze_dim::<2>(1);
    let one_hot = share.zeros_like().mask_fill(is_target, 1.0);
    let result = (share - one_hot) * gradient.unsqueeze_dim::<2>(1);
    narrow(result.mask_fill(padding, 0.0), dtype)
}

/// Returns each target's column, 0 for one outside the shard, and whether it is outside.
fn localize(targets: Tensor<1, Int>, valid: usize) -> (Tensor<1, Int>, Tensor<1, Bool>) {
    let elsewhere = targets
        .clone()
        .lower_elem(0)
        .bool_or(targets.clone().greater_equal_elem(valid as i64));
    (targets.mask_fill(elsewhere.clone(), 0), elsewhere)
}
