//! Operations on integers.

use std::future::Future;
use std::ops::Range;

use burn_backend::ExecutionError;
use burn_backend::ops::IntTensorOps;
use burn_backend::tensor::IndexingUpdateOp;
use burn_backend::tensor::{BoolTensor, IntTensor};
use burn_backend::{
    BoolDType, Distribution, FloatDType, IntDType, Scalar, Shape, Slice, SliceOps, TensorData, TensorMetadata,
};

use super::super::apply::apply;
use super::super::kind::{Bool, Float, Int};
use super::super::placement::Reduction::{Max, Min, Sum};
use super::super::rules::index::{GatherNd, ScatterAdd, ScatterNd, SelectAdd};
use super::super::rules::matmul::Matmul;
use super::super::rules::movement::{Assign, Concatenate, Expand, Permute, Reshape, Touch};
use super::super::rules::pointwise::{Binary, Elementwise, LINEAR, NON_LINEAR};
use super::super::rules::reduce::{Along, OfAll, Reduce};
use super::super::traffic::set_operation;
use super::super::{ShardedTensor, random};
use super::creation::{self, creation};
use super::indexing::{self, indexing};
use super::movement::{local_slices, moving, touched};
use super::operations;
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
    int_powi_scalar(lhs: Int; rhs: Scalar) -> Int = NON_LINEAR;
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

    int_prod(tensor: Int) -> Int = OfAll;
    int_mean(tensor: Int) -> Int = OfAll;
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
        int_to_device = "LINEAR";
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
        int_select_assign = "SelectAdd";
        int_gather = "Gather";
        int_scatter = "ScatterAdd";
    }

    creation!(
        IntSharded<B>, IntDType;
        int_from_data, int_into_data;
        int_zeros, int_ones, int_empty
    );

    /// Seeded by [`Backend::seed`](burn_backend::Backend::seed), which every rank must call alike.
    fn int_random(shape: Shape, distribution: Distribution, device: &B::Device, dtype: IntDType) -> IntSharded<B> {
        random::ints(random::next(), shape, distribution, device, dtype)
    }

    fn int_full(shape: Shape, fill_value: Scalar, device: &B::Device, dtype: IntDType) -> IntSharded<B> {
        creation::uniform(shape, device, dtype.into(), move |shape, device| {
            B::int_full(shape, fill_value, device, dtype)
        })
    }

    fn int_arange_step(range: Range<i64>, step: usize, device: &B::Device, dtype: IntDType) -> IntSharded<B> {
        creation::arange(range, step, device, dtype)
    }

    fn int_to_device(tensor: IntSharded<B>, device: &B::Device) -> IntSharded<B> {
        apply("int_to_device", tensor, || Box::new(LINEAR), |tensor, _| B::int_to_device(tensor, device))
    }

    moving!(
        IntSharded<B>;
        int_repeat_dim, int_swap_dims, int_transpose, int_permute, int_flip,
        int_reshape, int_expand, int_slice, int_slice_assign, int_cat, int_unfold
    );
    indexing!(
        IntSharded<B>, Some(clear::<B>), |tensor, _| tensor;
        int_select, int_select_assign, int_gather, int_scatter; update: IndexingUpdateOp
    );
}

fn clear<B: CollectiveBackend>(tensor: IntTensor<B>, mask: BoolTensor<B>) -> IntTensor<B> {
    B::int_mask_fill(tensor, mask, 0i64.into())
}
