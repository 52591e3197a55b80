//! Operations on floats.

use std::future::Future;

use burn_backend::ExecutionError;
use burn_backend::ops::{FloatTensorOps, GridSampleOptions};
use burn_backend::tensor::IndexingUpdateOp;
use burn_backend::tensor::{BoolTensor, FloatTensor};
use burn_backend::{
    BoolDType, Distribution, FloatDType, IntDType, Scalar, Shape, Slice, SliceOps, TensorData, TensorMetadata,
};

use super::super::apply::apply;
use super::super::kind::{Bool, Float, Int};
use super::super::placement::Reduction::{Max, Min, Sum};
use super::super::rules::index::{GatherNd, ScatterAdd, ScatterNd, SelectAdd};
use super::super::rules::matmul::Matmul;
use super::super::rules::module::Named;
use super::super::rules::movement::{Assign, Concatenate, Expand, Permute, Reshape, Touch};
use super::super::rules::pointwise::{Binary, Elementwise, LINEAR, NON_LINEAR};
use super::super::rules::reduce::{Along, AlongAll, OfAll, Reduce};
use super::super::traffic::set_operation;
use super::super::{ShardedTensor, random};
use super::creation::{self, creation};
use super::indexing::{self, indexing};
use super::movement::{local_slices, moving, touched};
use super::operations;
use crate::collectives::CollectiveBackend;
use crate::sharded::movement::redistribute::gather;

type FloatSharded<B> = ShardedTensor<B, Float>;
type IntSharded<B> = ShardedTensor<B, Int>;

operations! {
    FloatTensorOps, RULES;

    float_add(lhs: Float, rhs: Float) -> Float = Binary::Add;
    float_sub(lhs: Float, rhs: Float) -> Float = Binary::Add;
    float_mul(lhs: Float, rhs: Float) -> Float = Binary::Multiply;
    float_div(lhs: Float, rhs: Float) -> Float = Binary::Divide;
    float_remainder(lhs: Float, rhs: Float) -> Float = Binary::Other;
    float_powf(lhs: Float, rhs: Float) -> Float = Binary::Other;
    float_powi(lhs: Float, rhs: Int) -> Float = Binary::Other;
    float_atan2(lhs: Float, rhs: Float) -> Float = Binary::Other;
    float_matmul(lhs: Float, rhs: Float) -> Float = Matmul;
    float_cross(lhs: Float, rhs: Float; dim: usize) -> Float = AlongAll { dimension: dim, length: None };

    float_add_scalar(lhs: Float; rhs: Scalar) -> Float = NON_LINEAR;
    float_sub_scalar(lhs: Float; rhs: Scalar) -> Float = NON_LINEAR;
    float_mul_scalar(lhs: Float; rhs: Scalar) -> Float = LINEAR;
    float_div_scalar(lhs: Float; rhs: Scalar) -> Float = LINEAR;
    float_remainder_scalar(lhs: Float; rhs: Scalar) -> Float = NON_LINEAR;
    float_powi_scalar(lhs: Float; rhs: Scalar) -> Float = NON_LINEAR;
    float_powi_scalar_impl(lhs: Float; rhs: Scalar) -> Float = NON_LINEAR;
    float_powf_scalar(tensor: Float; value: Scalar) -> Float = NON_LINEAR;
    float_powf_scalar_impl(tensor: Float; value: Scalar) -> Float = NON_LINEAR;
    float_clamp_min(tensor: Float; min: Scalar) -> Float = NON_LINEAR;
    float_clamp_max(tensor: Float; max: Scalar) -> Float = NON_LINEAR;
    float_clamp(tensor: Float; min: Scalar, max: Scalar) -> Float = NON_LINEAR;

    float_neg(tensor: Float) -> Float = LINEAR;
    float_cast(tensor: Float; dtype: FloatDType) -> Float = LINEAR;
    float_recip(tensor: Float) -> Float = NON_LINEAR;
    float_exp(tensor: Float) -> Float = NON_LINEAR;
    float_log(tensor: Float) -> Float = NON_LINEAR;
    float_log1p(tensor: Float) -> Float = NON_LINEAR;
    float_sqrt(tensor: Float) -> Float = NON_LINEAR;
    float_abs(tensor: Float) -> Float = NON_LINEAR;
    float_cos(tensor: Float) -> Float = NON_LINEAR;
    float_sin(tensor: Float) -> Float = NON_LINEAR;
    float_tan(tensor: Float) -> Float = NON_LINEAR;
    float_cosh(tensor: Float) -> Float = NON_LINEAR;
    float_sinh(tensor: Float) -> Float = NON_LINEAR;
    float_tanh(tensor: Float) -> Float = NON_LINEAR;
    float_acos(tensor: Float) -> Float = NON_LINEAR;
    float_acosh(tensor: Float) -> Float = NON_LINEAR;
    float_asin(tensor: Float) -> Float = NON_LINEAR;
    float_asinh(tensor: Float) -> Float = NON_LINEAR;
    float_atan(tensor: Float) -> Float = NON_LINEAR;
    float_atanh(tensor: Float) -> Float = NON_LINEAR;
    float_round(tensor: Float) -> Float = NON_LINEAR;
    float_floor(tensor: Float) -> Float = NON_LINEAR;
    float_ceil(tensor: Float) -> Float = NON_LINEAR;
    float_trunc(tensor: Float) -> Float = NON_LINEAR;
    float_erf(tensor: Float) -> Float = NON_LINEAR;
    float_sign(tensor: Float) -> Float = NON_LINEAR;
    float_into_int(tensor: Float; out_dtype: IntDType) -> Int = NON_LINEAR;
    float_is_nan(tensor: Float; out_dtype: BoolDType) -> Bool = NON_LINEAR;
    float_is_inf(tensor: Float; out_dtype: BoolDType) -> Bool = NON_LINEAR;

    float_equal(lhs: Float, rhs: Float; out_dtype: BoolDType) -> Bool = Binary::Other;
    float_not_equal(lhs: Float, rhs: Float; out_dtype: BoolDType) -> Bool = Binary::Other;
    float_greater(lhs: Float, rhs: Float; out_dtype: BoolDType) -> Bool = Binary::Other;
    float_greater_equal(lhs: Float, rhs: Float; out_dtype: BoolDType) -> Bool = Binary::Other;
    float_lower(lhs: Float, rhs: Float; out_dtype: BoolDType) -> Bool = Binary::Other;
    float_lower_equal(lhs: Float, rhs: Float; out_dtype: BoolDType) -> Bool = Binary::Other;
    float_equal_elem(lhs: Float; rhs: Scalar, out_dtype: BoolDType) -> Bool = NON_LINEAR;
    float_not_equal_elem(lhs: Float; rhs: Scalar, out_dtype: BoolDType) -> Bool = NON_LINEAR;
    float_greater_elem(lhs: Float; rhs: Scalar, out_dtype: BoolDType) -> Bool = NON_LINEAR;
    float_greater_equal_elem(lhs: Float; rhs: Scalar, out_dtype: BoolDType) -> Bool = NON_LINEAR;
    float_lower_elem(lhs: Float; rhs: Scalar, out_dtype: BoolDType) -> Bool = NON_LINEAR;
    float_lower_equal_elem(lhs: Float; rhs: Scalar, out_dtype: BoolDType) -> Bool = NON_LINEAR;

    float_mask_where(tensor: Float, mask: Bool, value: Float) -> Float = Elementwise;
    float_mask_fill(tensor: Float, mask: Bool; value: Scalar) -> Float = Elementwise;

    float_sum(tensor: Float) -> Float = Reduce::all(Sum);
    float_sum_dim(tensor: Float; dim: usize) -> Float = Reduce::over(Sum, dim);
    float_max(tensor: Float) -> Float = Reduce::all(Max);
    float_max_dim(tensor: Float; dim: usize) -> Float = Reduce::over(Max, dim);
    float_min(tensor: Float) -> Float = Reduce::all(Min);
    float_min_dim(tensor: Float; dim: usize) -> Float = Reduce::over(Min, dim);
    float_max_abs(tensor: Float) -> Float = Reduce::all(Max).of_wholes();
    float_max_abs_dim(tensor: Float; dim: usize) -> Float = Reduce::over(Max, dim).of_wholes();
    float_any(tensor: Float; out_dtype: BoolDType) -> Bool = Reduce::all(Max).of_wholes();
    float_any_dim(tensor: Float; dim: usize, out_dtype: BoolDType) -> Bool = Reduce::over(Max, dim).of_wholes();
    float_all(tensor: Float; out_dtype: BoolDType) -> Bool = Reduce::all(Min).of_wholes();
    float_all_dim(tensor: Float; dim: usize, out_dtype: BoolDType) -> Bool = Reduce::over(Min, dim).of_wholes();

    float_prod(tensor: Float) -> Float = OfAll;
    float_prod_dim(tensor: Float; dim: usize) -> Float = Along::new(dim).with_length(1);
    float_cumsum(tensor: Float; dim: usize) -> Float = Along::linear(dim);
    float_cumprod(tensor: Float; dim: usize) -> Float = Along::new(dim);
    float_cummin(tensor: Float; dim: usize) -> Float = Along::new(dim);
    float_cummax(tensor: Float; dim: usize) -> Float = Along::new(dim);
    float_argmax(tensor: Float; dim: usize, out_dtype: IntDType) -> Int = Along::new(dim).with_length(1);
    float_argmin(tensor: Float; dim: usize, out_dtype: IntDType) -> Int = Along::new(dim).with_length(1);
    float_topk(tensor: Float; dim: usize, k: usize) -> Float = Along::new(dim).with_length(k);
    float_argtopk(tensor: Float; dim: usize, k: usize, out_dtype: IntDType) -> Int = Along::new(dim).with_length(k);
    float_max_dim_with_indices(tensor: Float; dim: usize, indices_dtype: IntDType) -> (Float, Int) =
        Along::new(dim).with_length(1).with_indices();
    float_min_dim_with_indices(tensor: Float; dim: usize, indices_dtype: IntDType) -> (Float, Int) =
        Along::new(dim).with_length(1).with_indices();
    float_sort(tensor: Float; dim: usize, descending: bool) -> Float = Along::new(dim);
    float_sort_with_indices(tensor: Float; dim: usize, descending: bool, indices_dtype: IntDType) -> (Float, Int) =
        Along::new(dim).with_indices();
    float_argsort(tensor: Float; dim: usize, descending: bool, out_dtype: IntDType) -> Int = Along::new(dim);

    float_gather_nd(data: Float, indices: Int) -> Float = GatherNd;
    float_scatter_nd(data: Float, indices: Int, values: Float; reduction: IndexingUpdateOp) -> Float = ScatterNd;
    float_grid_sample_2d(tensor: Float, grid: Float; options: GridSampleOptions) -> Float =
        Named::new("bc..,b...->bc..");

    ; written {
        float_from_data = "whole on every rank";
        float_random = "by logical coordinates";
        float_zeros = "made when it is known which part is needed";
        float_ones = "made when it is known which part is needed";
        float_full = "made when it is known which part is needed";
        float_empty = "made when it is known which part is needed";
        float_into_data = "gathered";
        float_to_device = "LINEAR";
        float_mean = "Reduce::all(Sum)";
        float_mean_dim = "Reduce::over(Sum, dim)";
        float_repeat_dim = "Touch";
        float_swap_dims = "Permute";
        float_transpose = "Permute";
        float_permute = "Permute";
        float_flip = "Touch";
        float_reshape = "Reshape";
        float_expand = "Expand";
        float_slice = "Touch";
        float_slice_assign = "Assign";
        float_cat = "Concatenate";
        float_unfold = "Touch";
        float_select = "Select";
        float_select_assign = "SelectAdd";
        float_gather = "Gather";
        float_scatter = "ScatterAdd";
    }

    creation!(
        FloatSharded<B>, FloatDType;
        float_from_data, float_into_data;
        float_zeros, float_ones, float_empty
    );

    /// Seeded by [`Backend::seed`](burn_backend::Backend::seed), which every rank must call alike.
    fn float_random(
        shape: Shape,
        distribution: Distribution,
        device: &B::Device,
        dtype: FloatDType,
    ) -> FloatSharded<B> {
        random::floats(random::next(), shape, distribution, device, dtype)
    }

    fn float_full(shape: Shape, fill_value: Scalar, device: &B::Device, dtype: FloatDType) -> FloatSharded<B> {
        creation::uniform(shape, device, dtype.into(), move |shape, device| {
            B::float_full(shape, fill_value, device, dtype)
        })
    }

    fn float_to_device(tensor: FloatSharded<B>, device: &B::Device) -> FloatSharded<B> {
        apply("float_to_device", tensor, || Box::new(LINEAR), |tensor, _| B::float_to_device(tensor, device))
    }

    fn float_mean(tensor: FloatSharded<B>) -> FloatSharded<B> {
        let count = tensor.shape().num_elements();
        apply("float_mean", tensor, || Box::new(Reduce::all(Sum)), |tensor, placed| {
            if placed.is_whole() {
                return B::float_mean(tensor);
            }
            let own = tensor.shape().num_elements();
            mean_term::<B>(tensor, [own, count], B::float_mean, B::float_sum)
        })
    }

    fn float_mean_dim(tensor: FloatSharded<B>, dim: usize) -> FloatSharded<B> {
        let count = tensor.shape()[dim];
        let rule = || Box::new(Reduce::over(Sum, dim)) as _;
        apply("float_mean_dim", tensor, rule, |tensor, placed| {
            if placed.has_all(0, dim) {
                return B::float_mean_dim(tensor, dim);
            }
            let own = tensor.shape()[dim];
            let (mean, sum) = (|tensor| B::float_mean_dim(tensor, dim), |tensor| B::float_sum_dim(tensor, dim));
            mean_term::<B>(tensor, [own, count], mean, sum)
        })
    }

    moving!(
        FloatSharded<B>;
        float_repeat_dim, float_swap_dims, float_transpose, float_permute, float_flip,
        float_reshape, float_expand, float_slice, float_slice_assign, float_cat, float_unfold
    );
    indexing!(
        FloatSharded<B>, Some(clear::<B>), |tensor, _| tensor;
        float_select, float_select_assign, float_gather, float_scatter; update: IndexingUpdateOp
    );
}

/// This rank's term of the mean over `count` elements, of which it has `own`. A sum of 16-bit elements may be out of
/// range where their mean is not.
fn mean_term<B: CollectiveBackend>(
    tensor: FloatTensor<B>,
    [own, count]: [usize; 2],
    mean: impl FnOnce(FloatTensor<B>) -> FloatTensor<B>,
    sum: impl FnOnce(FloatTensor<B>) -> FloatTensor<B>,
) -> FloatTensor<B> {
    if tensor.dtype().size() < 4 {
        B::float_mul_scalar(mean(tensor), (own as f64 / count as f64).into())
    } else {
        B::float_div_scalar(sum(tensor), (count as f64).into())
    }
}

fn clear<B: CollectiveBackend>(tensor: FloatTensor<B>, mask: BoolTensor<B>) -> FloatTensor<B> {
    B::float_mask_fill(tensor, mask, 0.0f64.into())
}
