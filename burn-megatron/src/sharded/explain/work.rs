//! What this rank computes, in arithmetic operations, while it is counted.

use std::cell::Cell;

thread_local! {
    /// `None` while nothing is counted.
    static OPERATIONS: Cell<Option<u64>> = const { Cell::new(None) };
}

/// Runs, and returns the arithmetic operations of this rank's part of it.
pub(super) fn counted<T>(run: impl FnOnce() -> T) -> (T, u64) {
    struct Restore(Option<u64>);
    impl Drop for Restore {
        fn drop(&mut self) {
            OPERATIONS.set(self.0);
        }
    }
    let _restore = Restore(OPERATIONS.replace(Some(0)));
    let result = run();
    (result, OPERATIONS.get().unwrap_or(0))
}

pub(in crate::sharded) fn is_counting() -> bool {
    OPERATIONS.get().is_some()
}

/// Counts an operation of the backend, whose operands have these shapes on this rank.
pub(in crate::sharded) fn add(name: &str, operands: &[Vec<usize>], result_elements: usize) {
    if let Some(counted) = OPERATIONS.get() {
        OPERATIONS.set(Some(counted + operations(name, operands, result_elements) as u64));
    }
}

/// A multiplication and an addition for each term of a product; of everything else, an operation for each element of
/// the result.
fn operations(name: &str, operands: &[Vec<usize>], result_elements: usize) -> usize {
    let last = |operand: usize| operands[operand].last().copied().unwrap_or(1);
    let elements = |operand: usize| operands[operand].iter().product::<usize>();
    // Of a convolution's weight, for each element that it computes.
    let per_output = |weight: usize| elements(weight) / operands[weight].first().copied().unwrap_or(1).max(1);
    // Of attention: queries, keys and values in tensors of their own or in one; others follow, such as a bias of two
    // dimensions.
    let keys = || {
        let own = operands.get(1).filter(|shape| shape.len() == 4);
        own.unwrap_or(&operands[0])[1]
    };
    let is_convolution = name.starts_with("conv") && !name.contains("transpose");
    match name {
        "float_matmul" | "linear" => 2 * result_elements * last(0),
        "linear_weight_backward" => 2 * elements(0) * last(1),
        // Two matmuls of queries and keys; five backward. A number for each query and head comes with the output.
        "flash_attention" => 4 * (result_elements - result_elements / (last(0) + 1)) * keys(),
        // The gradient of the output comes last.
        "flash_attention_backward" => 10 * elements(operands.len() - 1) * keys(),
        _ if is_convolution && (name.ends_with("_x_backward") || name.ends_with("_weight_backward")) => {
            2 * elements(2) * per_output(1)
        }
        _ if is_convolution && !name.contains("backward") => 2 * result_elements * per_output(1),
        _ => result_elements,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terms_of_products_are_counted_twice_and_other_elements_once() {
        let [x, weight] = [vec![2, 5, 3], vec![1, 3, 4]];
        let terms = 2 * 5 * 3 * 4;
        assert_eq!(operations("float_matmul", &[x, weight], 40), 2 * terms);
        // Two images of one channel, three of 4 x 4 with a kernel of 2 x 2.
        let [image, kernel, map] = [vec![2, 1, 5, 5], vec![3, 1, 2, 2], vec![2, 3, 4, 4]];
        let terms = 2 * 3 * 16 * 4;
        assert_eq!(operations("conv2d", &[image.clone(), kernel.clone()], 96), 2 * terms);
        let operands = [image, kernel, map];
        assert_eq!(operations("conv2d_x_backward", &operands, 50), 2 * terms);
        assert_eq!(operations("conv2d_weight_backward", &operands, 12), 2 * terms);
        assert_eq!(operations("conv2d_bias_backward", &operands, 3), 3);
        assert_eq!(operations("float_add", &[vec![7], vec![7]], 7), 7);
    }

    #[test]
    fn fused_operations_count_as_their_matmuls() {
        let [input, weight, gradient] = [vec![10, 3], vec![3, 4], vec![10, 4]];
        let terms = 10 * 3 * 4;
        assert_eq!(operations("linear", &[input.clone(), weight], 40), 2 * terms);
        assert_eq!(operations("linear_weight_backward", &[input, gradient], 12), 2 * terms);
        // Two samples, five queries, seven keys, three heads of four.
        let [query, key, sums, bias] = [vec![2, 5, 3, 4], vec![2, 7, 3, 4], vec![2, 3, 5], vec![3, 11]];
        let terms = 2 * 5 * 7 * 3 * 4;
        let mut operands = vec![query.clone(), key.clone(), key, bias.clone()];
        assert_eq!(operations("flash_attention", &operands, 120 + 30), 4 * terms);
        operands.extend([query.clone(), sums.clone(), query.clone()]);
        assert_eq!(operations("flash_attention_backward", &operands, 456), 10 * terms);
        // Five heads in one tensor, three of them queries'.
        let terms = 2 * 5 * 5 * 3 * 4;
        let packed = vec![2, 5, 5, 4];
        assert_eq!(
            operations("flash_attention", std::slice::from_ref(&packed), 120 + 30),
            4 * terms
        );
        assert_eq!(
            operations("flash_attention", &[packed.clone(), bias], 120 + 30),
            4 * terms
        );
        let operands = [packed, query.clone(), sums, query];
        assert_eq!(operations("flash_attention_backward", &operands, 200), 10 * terms);
    }

    #[test]
    fn what_is_outside_is_not_counted() {
        add("float_add", &[], 3);
        let ((_, inner), outer) = counted(|| {
            add("float_add", &[], 3);
            counted(|| add("float_add", &[], 5))
        });
        assert_eq!((inner, outer, is_counting()), (5, 3, false));
    }
}
