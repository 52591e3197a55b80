//! Operations on booleans.

use std::future::Future;

use burn_backend::ExecutionError;
use burn_backend::ops::BoolTensorOps;
use burn_backend::tensor::BoolTensor;
use burn_backend::{
    BoolDType, DType, FloatDType, IntDType, Scalar, Shape, Slice, SliceOps, TensorData, TensorMetadata,
    get_device_settings,
};

use super::super::ShardedTensor;
use super::super::apply::apply;
use super::super::kind::{Bool, Float, Int};
use super::super::placement::Reduction::{Max, Min};
use super::super::rules::index::{ScatterAdd, SelectAdd};
use super::super::rules::movement::{Assign, Concatenate, Expand, Permute, Reshape, Touch};
use super::super::rules::pointwise::{Binary, Elementwise, NON_LINEAR};
use super::super::rules::reduce::Reduce;
use super::super::traffic::set_operation;
use super::creation::{self, creation};
use super::indexing::{self, indexing};
use super::movement::{local_slices, moving, touched};
use super::operations;
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

    creation!(
        BoolSharded<B>, BoolDType;
        bool_from_data, bool_into_data;
        bool_zeros, bool_ones, bool_empty
    );

    fn bool_argwhere(
        tensor: BoolSharded<B>,
        out_dtype: IntDType,
    ) -> impl Future<Output = IntSharded<B>> + 'static + Send {
        set_operation("bool_argwhere");
        let places = B::bool_argwhere(gather(tensor), out_dtype);
        async move { ShardedTensor::whole(places.await) }
    }

    fn bool_to_device(tensor: BoolSharded<B>, device: &B::Device) -> BoolSharded<B> {
        apply("bool_to_device", tensor, || Box::new(NON_LINEAR), |tensor, _| B::bool_to_device(tensor, device))
    }

    moving!(
        BoolSharded<B>;
        bool_repeat_dim, bool_swap_dims, bool_transpose, bool_permute, bool_flip,
        bool_reshape, bool_expand, bool_slice, bool_slice_assign, bool_cat, bool_unfold
    );
    indexing!(
        BoolSharded<B>, None::<indexing::Clear<B, Bool>>, as_bool::<B>;
        bool_select, bool_select_or, bool_gather, bool_scatter_or
    );
}

/// The tensor as booleans of this type: burn-flex calls what it selects bytes.
fn as_bool<B: CollectiveBackend>(tensor: BoolTensor<B>, dtype: DType) -> BoolTensor<B> {
    if TensorMetadata::dtype(&tensor) == dtype {
        return tensor;
    }
    let ints = get_device_settings::<B>(&tensor.device()).int_dtype;
    B::int_not_equal_elem(B::bool_into_int(tensor, ints), 0i64.into(), dtype.into())
}
