//! Operations on integers.

use std::future::Future;
use std::ops::Range;

use burn::tensor::backend::ExecutionError;
use burn::tensor::ops::{BoolTensor, IntTensor, IntTensorOps};
use burn::tensor::{
    BoolDType, Distribution, FloatDType, IndexingUpdateOp, IntDType, Scalar, Shape, Slice, TensorData, TensorMetadata,
};

use super::super::apply::apply;
use super::super::kind::{Bool, Float, Int};
use super::super::placement::Reduction::{Max, Min, Sum};
use super::super::rules::index::{GatherNd, ScatterAdd, ScatterNd, SelectAdd};
use super::super::rules::matmul::Matmul;
use super::super::rules::movement::Permute;
use super::super::rules::pointwise::{Binary, Elementwise, LINEAR, NON_LINEAR};
use super::super::rules::reduce::{Along, Reduce};
use super::super::{ShardedTensor, random, traffic};
use super::{creation, indexing, movement, operations};
use crate::collectives::CollectiveBackend;
use crate::sharded::movement::redistribute::gather;

type IntSharded<B> = ShardedTensor<B, Int>;

operations! {
    IntTensorOps, RULES;

    int_add(lhs: Int, rhs: Int) -> Int = Binary::Add;
    int_sub(lhs: Int, rhs: Int) -> Int = Binary::Add;
    int_mul(lhs: Int, rhs: Int) -> Int = Binary::Multiply;
    int_div(lhs: Int, rhs: Int) -> Int = Binary::Other;
    int_remainder(lhs: Int, rhs: Int) -> Int = Binary::Other;
    int_powi(lhs: Int, rhs: Int) -> Int = Binary::Other;
    int_matmul(lhs: Int, rhs: Int) -> Int = Matmul;
    bitwise_and(lhs: Int, rhs: Int) -> Int = Binary::Other;
    bitwise_or(lhs: Int, rhs: Int) -> Int = Binary::Other;
    bitwise_xor(lhs: Int, rhs: Int) -> Int = Binary::Other;
    bitwise_left_shift(lhs: Int, rhs: Int) -> Int = Binary::Other;
    bitwise_right_shift(lhs: Int, rhs: Int) -> Int = Binary::Other;

    int_add_scalar(lhs: Int; rhs: Scalar) -> Int = NON_LINEAR;
    int_sub_scalar(lhs: Int; rhs: Scalar) -> Int = NON_LINEAR;
    int_mul_scalar(lhs: Int; rhs: Scalar) -> Int = LINEAR;
    int_div_scalar(lhs: Int; rhs: Scalar) -> Int = NON_LINEAR;
    int_remainder_scalar(lhs: Int; rhs: Scalar) -> Int = NON_LINEAR;
    int_powi_scalar_impl(lhs: Int; rhs: Scalar) -> Int = NON_LINEAR;
    int_clamp_min(tensor: Int; min: Scalar) -> Int = NON_LINEAR;
    int_clamp_max(tensor: Int; max: Scalar) -> Int = NON_LINEAR;
    int_clamp(tensor: Int; min: Scalar, max: Scalar) -> Int = NON_LINEAR;
    bitwise_and_scalar(lhs: Int; rhs: Scalar) -> Int = NON_LINEAR;
    bitwise_or_scalar(lhs: Int; rhs: Scalar) -> Int = NON_LINEAR;
    bitwise_xor_scalar(lhs: Int; rhs: Scalar) -> Int = NON_LINEAR;
    bitwise_left_shift_scalar(lhs: Int; rhs: Scalar) -> Int = NON_LINEAR;
    bitwise_right_shift_scalar(lhs: Int; rhs: Scalar) -> Int = NON_LINEAR;

    int_neg(tensor: Int) -> Int = LINEAR;
    int_cast(tensor: Int; dtype: IntDType) -> Int = NON_LINEAR;
    int_abs(tensor: Int) -> Int = NON_LINEAR;
    int_sign(tensor: Int) -> Int = NON_LINEAR;
    bitwise_not(tensor: Int) -> Int = NON_LINEAR;
    int_into_float(tensor: Int; out_dtype: FloatDType) -> Float = LINEAR;

    int_equal(lhs: Int, rhs: Int; out_dtype: BoolDType) -> Bool = Binary::Other;
    int_not_equal(lhs: Int, rhs: Int; out_dtype: BoolDType) -> Bool = Binary::Other;
    int_greater(lhs: Int, rhs: Int; out_dtype: BoolDType) -> Bool = Binary::Other;
    int_greater_equal(lhs: Int, rhs: Int; out_dtype: BoolDType) -> Bool = Binary::Other;
    int_lower(lhs: Int, rhs: Int; out_dtype: BoolDType) -> Bool = Binary::Other;
    int_lower_equal(lhs: Int, rhs: Int; out_dtype: BoolDType) -> Bool = Binary::Other;
    int_equal_elem(lhs: Int; rhs: Scalar, out_dtype: BoolDType) -> Bool = NON_LINEAR;
    int_not_equal_elem(lhs: Int; rhs: Scalar, out_dtype: BoolDType) -> Bool = NON_LINEAR;
    int_greater_elem(lhs: Int; rhs: Scalar, out_dtype: BoolDType) -> Bool = NON_LINEAR;
    int_greater_equal_elem(lhs: Int; rhs: Scalar, out_dtype: BoolDType) -> Bool = NON_LINEAR;
    int_lower_elem(lhs: Int; rhs: Scalar, out_dtype: BoolDType) -> Bool = NON_LINEAR;
    int_lower_equal_elem(lhs: Int; rhs: Scalar, out_dtype: BoolDType) -> Bool = NON_LINEAR;

    int_mask_where(tensor: Int, mask: Bool, value: Int) -> Int = Elementwise;
    int_mask_fill(tensor: Int, mask: Bool; value: Scalar) -> Int = Elementwise;

    int_sum(tensor: Int) -> Int = Reduce::all(Sum);
    int_sum_dim(tensor: Int; dim: usize) -> Int = Reduce::over(Sum, dim);
    int_max(tensor: Int) -> Int = Reduce::all(Max);
    int_max_dim(tensor: Int; dim: usize) -> Int = Reduce::over(Max, dim);
    int_min(tensor: Int) -> Int = Reduce::all(Min);
    int_min_dim(tensor: Int; dim: usize) -> Int = Reduce::over(Min, dim);
    int_max_abs(tensor: Int) -> Int = Reduce::all(Max).of_wholes();
    int_max_abs_dim(tensor: Int; dim: usize) -> Int = Reduce::over(Max, dim).of_wholes();
    int_any(tensor: Int; out_dtype: BoolDType) -> Bool = Reduce::all(Max).of_wholes();
    int_any_dim(tensor: Int; dim: usize, out_dtype: BoolDType) -> Bool = Reduce::over(Max, dim).of_wholes();
    int_all(tensor: Int; out_dtype: BoolDType) -> Bool = Reduce::all(Min).of_wholes();
    int_all_dim(tensor: Int; dim: usize, out_dtype: BoolDType) -> Bool = Reduce::over(Min, dim).of_wholes();

    int_prod_dim(tensor: Int; dim: usize) -> Int = Along::new(dim).with_length(1);
    int_mean_dim(tensor: Int; dim: usize) -> Int = Along::new(dim).with_length(1);
    int_cumsum(tensor: Int; dim: usize) -> Int = Along::linear(dim);
    int_cumprod(tensor: Int; dim: usize) -> Int = Along::new(dim);
    int_cummin(tensor: Int; dim: usize) -> Int = Along::new(dim);
    int_cummax(tensor: Int; dim: usize) -> Int = Along::new(dim);
    int_argmax(tensor: Int; dim: usize) -> Int = Along::new(dim).with_length(1);
    int_argmin(tensor: Int; dim: usize) -> Int = Along::new(dim).with_length(1);
    int_topk(tensor: Int; dim: usize, k: usize) -> Int = Along::new(dim).with_length(k);
    int_argtopk(tensor: Int; dim: usize, k: usize) -> Int = Along::new(dim).with_length(k);
    int_max_dim_with_indices(tensor: Int; dim: usize) -> (Int, Int) = Along::new(dim).with_length(1).with_indices();
    int_min_dim_with_indices(tensor: Int; dim: usize) -> (Int, Int) = Along::new(dim).with_length(1).with_indices();
    int_sort(tensor: Int; dim: usize, descending: bool) -> Int = Along::new(dim);
    int_sort_with_indices(tensor: Int; dim: usize, descending: bool) -> (Int, Int) = Along::new(dim).with_indices();
    int_argsort(tensor: Int; dim: usize, descending: bool) -> Int = Along::new(dim);

    int_gather_nd(data: Int, indices: Int) -> Int = GatherNd;
    int_scatter_nd(data: Int, indices: Int, values: Int; reduction: IndexingUpdateOp) -> Int = ScatterNd;

    ; written {
        int_from_data = "whole on every rank";
        int_random = "by logical coordinates";
        int_empty = "made when it is known which part is needed";
        int_zeros = "made when it is known which part is needed";
        int_ones = "made when it is known which part is needed";
        int_full = "made when it is known which part is needed";
        int_arange_step = "made when it is known which part is needed";
        int_into_data = "gathered";
        int_device = "local";
        int_to_device = "LINEAR";
        int_prod = "Along";
        int_repeat_dim = "Touch";
        int_swap_dims = "Permute";
        int_transpose = "Permute";
        int_permute = "Permute";
        int_flip = "Touch";
        int_reshape = "Reshape";
        int_expand = "Expand";
        int_slice = "Touch";
        int_slice_assign = "Assign";
        int_cat = "Concatenate";
        int_unfold = "Touch";
        int_select = "Select";
        int_select_add = "SelectAdd";
        int_gather = "Gather";
        int_scatter_add = "ScatterAdd";
    }

    fn int_from_data(data: TensorData, device: &B::Device) -> IntSharded<B> {
        ShardedTensor::whole(B::int_from_data(data, device))
    }

    /// Seeded by [`Backend::seed`](burn::tensor::backend::Backend::seed), which every rank must call alike.
    fn int_random(shape: Shape, distribution: Distribution, device: &B::Device, dtype: IntDType) -> IntSharded<B> {
        random::ints(random::next(), shape, distribution, device, dtype)
    }

    fn int_empty(shape: Shape, device: &B::Device, dtype: IntDType) -> IntSharded<B> {
        creation::uniform(shape, device, dtype.into(), move |shape, device| B::int_empty(shape, device, dtype))
    }

    fn int_zeros(shape: Shape, device: &B::Device, dtype: IntDType) -> IntSharded<B> {
        creation::uniform(shape, device, dtype.into(), move |shape, device| B::int_zeros(shape, device, dtype))
    }

    fn int_ones(shape: Shape, device: &B::Device, dtype: IntDType) -> IntSharded<B> {
        creation::uniform(shape, device, dtype.into(), move |shape, device| B::int_ones(shape, device, dtype))
    }

    fn int_full(shape: Shape, fill_value: Scalar, device: &B::Device, dtype: IntDType) -> IntSharded<B> {
        creation::uniform(shape, device, dtype.into(), move |shape, device| {
            B::int_full(shape, fill_value, device, dtype)
        })
    }

    fn int_arange_step(range: Range<i64>, step: usize, device: &B::Device, dtype: IntDType) -> IntSharded<B> {
        creation::arange(range, step, device, dtype)
    }

    /// Collective if the tensor is cut or a sum that has not been made.
    fn int_into_data(tensor: IntSharded<B>) -> impl Future<Output = Result<TensorData, ExecutionError>> + Send {
        traffic::set_operation("int_into_data");
        B::int_into_data(gather(tensor))
    }

    fn int_device(tensor: &IntSharded<B>) -> B::Device {
        tensor.device()
    }

    fn int_to_device(tensor: IntSharded<B>, device: &B::Device) -> IntSharded<B> {
        apply("int_to_device", tensor, || Box::new(LINEAR), |tensor, _| B::int_to_device(tensor, device))
    }

    fn int_prod(tensor: IntSharded<B>) -> IntSharded<B> {
        let count = tensor.shape().num_elements();
        Self::int_prod_dim(Self::int_reshape(tensor, Shape::new([count])), 0)
    }

    fn int_repeat_dim(tensor: IntSharded<B>, dim: usize, times: usize) -> IntSharded<B> {
        movement::repeat("int_repeat_dim", tensor, dim, times, |tensor| B::int_repeat_dim(tensor, dim, times))
    }

    fn int_swap_dims(tensor: IntSharded<B>, dim1: usize, dim2: usize) -> IntSharded<B> {
        let rule = |rank| Permute::swap(rank, dim1, dim2);
        movement::permute("int_swap_dims", tensor, rule, |tensor| B::int_swap_dims(tensor, dim1, dim2))
    }

    fn int_transpose(tensor: IntSharded<B>) -> IntSharded<B> {
        let rule = |rank| Permute::swap(rank, rank - 2, rank - 1);
        movement::permute("int_transpose", tensor, rule, B::int_transpose)
    }

    fn int_permute(tensor: IntSharded<B>, axes: &[usize]) -> IntSharded<B> {
        let rule = |_| Permute { from: axes.to_vec() };
        movement::permute("int_permute", tensor, rule, |tensor| B::int_permute(tensor, axes))
    }

    fn int_flip(tensor: IntSharded<B>, axes: &[usize]) -> IntSharded<B> {
        movement::flip("int_flip", tensor, axes, |tensor| B::int_flip(tensor, axes))
    }

    fn int_reshape(tensor: IntSharded<B>, shape: Shape) -> IntSharded<B> {
        movement::reshape("int_reshape", tensor, shape, B::int_reshape)
    }

    fn int_expand(tensor: IntSharded<B>, shape: Shape) -> IntSharded<B> {
        movement::expand("int_expand", tensor, shape, B::int_expand)
    }

    fn int_slice(tensor: IntSharded<B>, slices: &[Slice]) -> IntSharded<B> {
        movement::slice("int_slice", tensor, slices)
    }

    fn int_slice_assign(tensor: IntSharded<B>, slices: &[Slice], value: IntSharded<B>) -> IntSharded<B> {
        movement::slice_assign("int_slice_assign", tensor, slices, value, B::int_slice_assign)
    }

    fn int_cat(tensors: Vec<IntSharded<B>>, dim: usize) -> IntSharded<B> {
        movement::cat("int_cat", tensors, dim)
    }

    fn int_unfold(tensor: IntSharded<B>, dim: usize, size: usize, step: usize) -> IntSharded<B> {
        movement::unfold("int_unfold", tensor, dim, size, step, |tensor| B::int_unfold(tensor, dim, size, step))
    }

    fn int_select(tensor: IntSharded<B>, dim: usize, indices: IntSharded<B>) -> IntSharded<B> {
        let run = |tensor, indices| B::int_select(tensor, dim, indices);
        indexing::select("int_select", tensor, dim, indices, run, Some(clear::<B>))
    }

    fn int_select_add(
        tensor: IntSharded<B>,
        dim: usize,
        indices: IntSharded<B>,
        value: IntSharded<B>,
    ) -> IntSharded<B> {
        let rule = || {
            Box::new(SelectAdd {
                dimension: dim,
                is_linear: true,
            }) as _
        };
        apply("int_select_add", (tensor, indices, value), rule, |(tensor, indices, value), _| {
            B::int_select_add(tensor, dim, indices, value)
        })
    }

    fn int_gather(dim: usize, tensor: IntSharded<B>, indices: IntSharded<B>) -> IntSharded<B> {
        let run = |tensor, indices| B::int_gather(dim, tensor, indices);
        indexing::gather("int_gather", dim, tensor, indices, run, Some(clear::<B>))
    }

    fn int_scatter_add(
        dim: usize,
        tensor: IntSharded<B>,
        indices: IntSharded<B>,
        value: IntSharded<B>,
    ) -> IntSharded<B> {
        let rule = || {
            Box::new(ScatterAdd {
                dimension: dim,
                is_linear: true,
            }) as _
        };
        apply("int_scatter_add", (tensor, indices, value), rule, |(tensor, indices, value), _| {
            B::int_scatter_add(dim, tensor, indices, value)
        })
    }
}

fn clear<B: CollectiveBackend>(tensor: IntTensor<B>, mask: BoolTensor<B>) -> IntTensor<B> {
    B::int_mask_fill(tensor, mask, 0i64.into())
}
