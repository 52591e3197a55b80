//! Operations that take elements by index, of any kind of tensor.

use std::ops::Range;

use burn_backend::tensor::{BoolTensor, IntTensor};
use burn_backend::{Shape, TensorMetadata, get_device_settings};

use super::super::ShardedTensor;
use super::super::apply::apply;
use super::super::kind::{Int, Kind};
use super::super::rules::index::{Gather, Select};
use crate::collectives::CollectiveBackend;

/// burn's operations that take or change elements by index, of tensors of one kind. `clear` is given for kinds that
/// have sums, and `update` where the operation has several ways to change an element; `finish` makes what the backend
/// returns a tensor of the first operand's type.
macro_rules! indexing {
    (
        $tensor:ty, $clear:expr, $finish:expr;
        $select:ident, $select_add:ident, $gather:ident, $scatter_add:ident $( ; $update:ident: $by:ty )?
    ) => {
        fn $select(tensor: $tensor, dim: usize, indices: IntSharded<B>) -> $tensor {
            let dtype = tensor.dtype();
            let run = |tensor, indices| $finish(B::$select(tensor, dim, indices), dtype);
            indexing::select(stringify!($select), tensor, dim, indices, run, $clear)
        }

        fn $select_add(
            tensor: $tensor,
            dim: usize,
            indices: IntSharded<B>,
            value: $tensor,
            $( $update: $by )?
        ) -> $tensor {
            let (dtype, is_linear) = (tensor.dtype(), $clear.is_some() $( && $update == <$by>::Add )?);
            let rule = || {
                Box::new(SelectAdd {
                    dimension: dim,
                    is_linear,
                }) as _
            };
            apply(
                stringify!($select_add),
                (tensor, indices, value),
                rule,
                |(tensor, indices, value), _| {
                    let changed = B::$select_add(tensor, dim, indices, value $(, $update )?);
                    $finish(changed, dtype)
                },
            )
        }

        fn $gather(dim: usize, tensor: $tensor, indices: IntSharded<B>) -> $tensor {
            let dtype = tensor.dtype();
            let run = |tensor, indices| $finish(B::$gather(dim, tensor, indices), dtype);
            indexing::gather(stringify!($gather), dim, tensor, indices, run, $clear)
        }

        fn $scatter_add(
            dim: usize,
            tensor: $tensor,
            indices: IntSharded<B>,
            value: $tensor,
            $( $update: $by )?
        ) -> $tensor {
            let (dtype, is_linear) = (tensor.dtype(), $clear.is_some() $( && $update == <$by>::Add )?);
            let rule = || {
                Box::new(ScatterAdd {
                    dimension: dim,
                    is_linear,
                }) as _
            };
            apply(
                stringify!($scatter_add),
                (tensor, indices, value),
                rule,
                |(tensor, indices, value), _| {
                    let changed = B::$scatter_add(dim, tensor, indices, value $(, $update )?);
                    $finish(changed, dtype)
                },
            )
        }
    };
}
pub(super) use indexing;

/// Sets elements to zero.
pub(super) type Clear<B, K> = fn(<K as Kind<B>>::Tensor, BoolTensor<B>) -> <K as Kind<B>>::Tensor;

/// `clear` is given for kinds that have sums.
pub(super) fn select<B: CollectiveBackend, K: Kind<B>>(
    name: &'static str,
    tensor: ShardedTensor<B, K>,
    dimension: usize,
    indices: ShardedTensor<B, Int>,
    run: impl FnOnce(K::Tensor, IntTensor<B>) -> K::Tensor,
    clear: Option<Clear<B, K>>,
) -> ShardedTensor<B, K> {
    let length = tensor.shape()[dimension];
    let has_zero = clear.is_some();
    let rule = || Box::new(Select { dimension, has_zero }) as _;
    apply(name, (tensor, indices), rule, |(tensor, indices), placed| match clear {
        Some(clear) if !placed.has_all(0, dimension) => {
            let (indices, outside) = localised::<B>(indices, placed.operand_range(0, dimension, length));
            let rows = run(tensor, indices);
            let mut shape = vec![1; rows.rank()];
            shape[dimension] = outside.shape()[0];
            let outside = B::bool_expand(B::bool_reshape(outside, Shape::from(shape)), rows.shape());
            clear(rows, outside)
        }
        _ => run(tensor, indices),
    })
}

/// The same with indices of the tensor's number of dimensions.
pub(super) fn gather<B: CollectiveBackend, K: Kind<B>>(
    name: &'static str,
    dimension: usize,
    tensor: ShardedTensor<B, K>,
    indices: ShardedTensor<B, Int>,
    run: impl FnOnce(K::Tensor, IntTensor<B>) -> K::Tensor,
    clear: Option<Clear<B, K>>,
) -> ShardedTensor<B, K> {
    let length = tensor.shape()[dimension];
    let has_zero = clear.is_some();
    let rule = || Box::new(Gather { dimension, has_zero }) as _;
    apply(name, (tensor, indices), rule, |(tensor, indices), placed| match clear {
        Some(clear) if !placed.has_all(0, dimension) => {
            let (indices, outside) = localised::<B>(indices, placed.operand_range(0, dimension, length));
            clear(run(tensor, indices), outside)
        }
        _ => run(tensor, indices),
    })
}

/// Indices into a range of a dimension, and where they are outside it; those are 0.
pub(super) fn localised<B: CollectiveBackend>(
    indices: IntTensor<B>,
    range: Range<usize>,
) -> (IntTensor<B>, BoolTensor<B>) {
    let bools = get_device_settings::<B>(&indices.device()).bool_dtype;
    let indices = B::int_sub_scalar(indices, (range.start as i64).into());
    let below = B::int_lower_elem(indices.clone(), 0i64.into(), bools);
    let above = B::int_greater_equal_elem(indices.clone(), (range.len() as i64).into(), bools);
    let outside = B::bool_or(below, above);
    (B::int_mask_fill(indices, outside.clone(), 0i64.into()), outside)
}
