//! Operations on booleans.

use std::future::Future;

use burn::tensor::backend::ExecutionError;
use burn::tensor::ops::{BoolTensor, BoolTensorOps};
use burn::tensor::{
    BoolDType, DType, FloatDType, IntDType, Scalar, Shape, Slice, TensorData, TensorMetadata, get_device_settings,
};

use super::super::apply::apply;
use super::super::kind::{Bool, Float, Int};
use super::super::placement::Reduction::{Max, Min};
use super::super::rules::index::{ScatterAdd, SelectAdd};
use super::super::rules::movement::Permute;
use super::super::rules::pointwise::{Binary, Elementwise, NON_LINEAR};
use super::super::rules::reduce::Reduce;
use super::super::{ShardedTensor, traffic};
use super::{creation, indexing, movement, operations};
use crate::collectives::CollectiveBackend;
use crate::sharded::movement::redistribute::gather;

type IntSharded<B> = ShardedTensor<B, Int>;
type BoolSharded<B> = ShardedTensor<B, Bool>;

operations! {
    BoolTensorOps, RULES;

    bool_equal(lhs: Bool, rhs: Bool) -> Bool = Binary::Other;
    bool_not_equal(lhs: Bool, rhs: Bool) -> Bool = Binary::Other;
    bool_equal_elem(lhs: Bool; rhs: Scalar) -> Bool = NON_LINEAR;
    bool_not_equal_elem(lhs: Bool; rhs: Scalar) -> Bool = NON_LINEAR;
    bool_not(tensor: Bool) -> Bool = NON_LINEAR;
    bool_and(lhs: Bool, rhs: Bool) -> Bool = Binary::Other;
    bool_or(lhs: Bool, rhs: Bool) -> Bool = Binary::Other;
    bool_xor(lhs: Bool, rhs: Bool) -> Bool = Binary::Other;
    bool_into_int(tensor: Bool; out_dtype: IntDType) -> Int = NON_LINEAR;
    bool_into_float(tensor: Bool; out_dtype: FloatDType) -> Float = NON_LINEAR;
    bool_mask_where(tensor: Bool, mask: Bool, value: Bool) -> Bool = Elementwise;
    bool_mask_fill(tensor: Bool, mask: Bool; value: Scalar) -> Bool = Elementwise;
    bool_any(tensor: Bool) -> Bool = Reduce::all(Max);
    bool_any_dim(tensor: Bool; dim: usize) -> Bool = Reduce::over(Max, dim);
    bool_all(tensor: Bool) -> Bool = Reduce::all(Min);
    bool_all_dim(tensor: Bool; dim: usize) -> Bool = Reduce::over(Min, dim);

    ; written {
        bool_from_data = "whole on every rank";
        bool_empty = "made when it is known which part is needed";
        bool_zeros = "made when it is known which part is needed";
        bool_ones = "made when it is known which part is needed";
        bool_into_data = "gathered";
        bool_argwhere = "gathered: how many elements a rank would have depends on their values";
        bool_device = "local";
        bool_to_device = "NON_LINEAR";
        bool_repeat_dim = "Touch";
        bool_swap_dims = "Permute";
        bool_transpose = "Permute";
        bool_permute = "Permute";
        bool_flip = "Touch";
        bool_reshape = "Reshape";
        bool_expand = "Expand";
        bool_slice = "Touch";
        bool_slice_assign = "Assign";
        bool_cat = "Concatenate";
        bool_unfold = "Touch";
        bool_select = "Select";
        bool_select_or = "SelectAdd";
        bool_gather = "Gather";
        bool_scatter_or = "ScatterAdd";
    }

    fn bool_from_data(data: TensorData, device: &B::Device) -> BoolSharded<B> {
        ShardedTensor::whole(B::bool_from_data(data, device))
    }

    fn bool_empty(shape: Shape, device: &B::Device, dtype: BoolDType) -> BoolSharded<B> {
        creation::uniform(shape, device, dtype.into(), move |shape, device| B::bool_empty(shape, device, dtype))
    }

    fn bool_zeros(shape: Shape, device: &B::Device, dtype: BoolDType) -> BoolSharded<B> {
        creation::uniform(shape, device, dtype.into(), move |shape, device| B::bool_zeros(shape, device, dtype))
    }

    fn bool_ones(shape: Shape, device: &B::Device, dtype: BoolDType) -> BoolSharded<B> {
        creation::uniform(shape, device, dtype.into(), move |shape, device| B::bool_ones(shape, device, dtype))
    }

    /// Collective if the tensor is cut.
    fn bool_into_data(tensor: BoolSharded<B>) -> impl Future<Output = Result<TensorData, ExecutionError>> + Send {
        traffic::set_operation("bool_into_data");
        B::bool_into_data(gather(tensor))
    }

    fn bool_argwhere(
        tensor: BoolSharded<B>,
        out_dtype: IntDType,
    ) -> impl Future<Output = IntSharded<B>> + 'static + Send {
        traffic::set_operation("bool_argwhere");
        let places = B::bool_argwhere(gather(tensor), out_dtype);
        async move { ShardedTensor::whole(places.await) }
    }

    fn bool_device(tensor: &BoolSharded<B>) -> B::Device {
        tensor.device()
    }

    fn bool_to_device(tensor: BoolSharded<B>, device: &B::Device) -> BoolSharded<B> {
        apply("bool_to_device", tensor, || Box::new(NON_LINEAR), |tensor, _| B::bool_to_device(tensor, device))
    }

    fn bool_repeat_dim(tensor: BoolSharded<B>, dim: usize, times: usize) -> BoolSharded<B> {
        movement::repeat("bool_repeat_dim", tensor, dim, times, |tensor| B::bool_repeat_dim(tensor, dim, times))
    }

    fn bool_swap_dims(tensor: BoolSharded<B>, dim1: usize, dim2: usize) -> BoolSharded<B> {
        let rule = |rank| Permute::swap(rank, dim1, dim2);
        movement::permute("bool_swap_dims", tensor, rule, |tensor| B::bool_swap_dims(tensor, dim1, dim2))
    }

    fn bool_transpose(tensor: BoolSharded<B>) -> BoolSharded<B> {
        let rule = |rank| Permute::swap(rank, rank - 2, rank - 1);
        movement::permute("bool_transpose", tensor, rule, B::bool_transpose)
    }

    fn bool_permute(tensor: BoolSharded<B>, axes: &[usize]) -> BoolSharded<B> {
        let rule = |_| Permute { from: axes.to_vec() };
        movement::permute("bool_permute", tensor, rule, |tensor| B::bool_permute(tensor, axes))
    }

    fn bool_flip(tensor: BoolSharded<B>, axes: &[usize]) -> BoolSharded<B> {
        movement::flip("bool_flip", tensor, axes, |tensor| B::bool_flip(tensor, axes))
    }

    fn bool_reshape(tensor: BoolSharded<B>, shape: Shape) -> BoolSharded<B> {
        movement::reshape("bool_reshape", tensor, shape, B::bool_reshape)
    }

    fn bool_expand(tensor: BoolSharded<B>, shape: Shape) -> BoolSharded<B> {
        movement::expand("bool_expand", tensor, shape, B::bool_expand)
    }

    fn bool_slice(tensor: BoolSharded<B>, slices: &[Slice]) -> BoolSharded<B> {
        movement::slice("bool_slice", tensor, slices)
    }

    fn bool_slice_assign(tensor: BoolSharded<B>, slices: &[Slice], value: BoolSharded<B>) -> BoolSharded<B> {
        movement::slice_assign("bool_slice_assign", tensor, slices, value, B::bool_slice_assign)
    }

    fn bool_cat(tensors: Vec<BoolSharded<B>>, dim: usize) -> BoolSharded<B> {
        movement::cat("bool_cat", tensors, dim)
    }

    fn bool_unfold(tensor: BoolSharded<B>, dim: usize, size: usize, step: usize) -> BoolSharded<B> {
        movement::unfold("bool_unfold", tensor, dim, size, step, |tensor| B::bool_unfold(tensor, dim, size, step))
    }

    fn bool_select(tensor: BoolSharded<B>, dim: usize, indices: IntSharded<B>) -> BoolSharded<B> {
        let run = |tensor, indices| {
            let dtype = TensorMetadata::dtype(&tensor);
            as_bool::<B>(B::bool_select(tensor, dim, indices), dtype)
        };
        indexing::select("bool_select", tensor, dim, indices, run, None)
    }

    fn bool_select_or(
        tensor: BoolSharded<B>,
        dim: usize,
        indices: IntSharded<B>,
        value: BoolSharded<B>,
    ) -> BoolSharded<B> {
        let rule = || {
            Box::new(SelectAdd {
                dimension: dim,
                is_linear: false,
            }) as _
        };
        apply("bool_select_or", (tensor, indices, value), rule, |(tensor, indices, value), _| {
            let dtype = TensorMetadata::dtype(&tensor);
            as_bool::<B>(B::bool_select_or(tensor, dim, indices, value), dtype)
        })
    }

    fn bool_gather(dim: usize, tensor: BoolSharded<B>, indices: IntSharded<B>) -> BoolSharded<B> {
        let run = |tensor, indices| {
            let dtype = TensorMetadata::dtype(&tensor);
            as_bool::<B>(B::bool_gather(dim, tensor, indices), dtype)
        };
        indexing::gather("bool_gather", dim, tensor, indices, run, None)
    }

    fn bool_scatter_or(
        dim: usize,
        tensor: BoolSharded<B>,
        indices: IntSharded<B>,
        value: BoolSharded<B>,
    ) -> BoolSharded<B> {
        let rule = || {
            Box::new(ScatterAdd {
                dimension: dim,
                is_linear: false,
            }) as _
        };
        apply("bool_scatter_or", (tensor, indices, value), rule, |(tensor, indices, value), _| {
            let dtype = TensorMetadata::dtype(&tensor);
            as_bool::<B>(B::bool_scatter_or(dim, tensor, indices, value), dtype)
        })
    }
}

/// The tensor as booleans of this type: burn-flex calls what it selects bytes.
fn as_bool<B: CollectiveBackend>(tensor: BoolTensor<B>, dtype: DType) -> BoolTensor<B> {
    if TensorMetadata::dtype(&tensor) == dtype {
        return tensor;
    }
    let ints = get_device_settings::<B>(&B::bool_device(&tensor)).int_dtype;
    B::int_not_equal_elem(B::bool_into_int(tensor, ints), 0i64.into(), dtype.into())
}
