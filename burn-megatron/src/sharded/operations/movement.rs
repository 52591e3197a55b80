//! Operations that move elements, of any kind of tensor.

use burn_backend::{Shape, Slice};

use super::super::apply::Placed;

/// burn's operations that move elements, of tensors of one kind.
macro_rules! moving {
    (
        $tensor:ty;
        $repeat:ident, $swap:ident, $transpose:ident, $permute:ident, $flip:ident,
        $reshape:ident, $expand:ident, $slice:ident, $assign:ident, $cat:ident, $unfold:ident
    ) => {
        fn $repeat(tensor: $tensor, dim: usize, times: usize) -> $tensor {
            let (mut to, dimensions) = (tensor.shape().to_vec(), vec![dim]);
            to[dim] *= times;
            let rule = || Box::new(Touch { dimensions, to }) as _;
            apply(stringify!($repeat), tensor, rule, |tensor, _| {
                B::$repeat(tensor, dim, times)
            })
        }

        fn $swap(tensor: $tensor, dim1: usize, dim2: usize) -> $tensor {
            let rank = tensor.rank();
            let rule = || Box::new(Permute::swap(rank, dim1, dim2)) as _;
            apply(stringify!($swap), tensor, rule, |tensor, _| {
                B::$swap(tensor, dim1, dim2)
            })
        }

        fn $transpose(tensor: $tensor) -> $tensor {
            let rank = tensor.rank();
            let rule = || Box::new(Permute::swap(rank, rank - 2, rank - 1)) as _;
            apply(stringify!($transpose), tensor, rule, |tensor, _| {
                B::$transpose(tensor)
            })
        }

        fn $permute(tensor: $tensor, axes: &[usize]) -> $tensor {
            let rule = || Box::new(Permute { from: axes.to_vec() }) as _;
            apply(stringify!($permute), tensor, rule, |tensor, _| {
                B::$permute(tensor, axes)
            })
        }

        fn $flip(tensor: $tensor, axes: &[usize]) -> $tensor {
            let (to, dimensions) = (tensor.shape().to_vec(), axes.to_vec());
            let rule = || Box::new(Touch { dimensions, to }) as _;
            apply(stringify!($flip), tensor, rule, |tensor, _| {
                B::$flip(tensor, axes)
            })
        }

        fn $reshape(tensor: $tensor, shape: Shape) -> $tensor {
            let rule = || Box::new(Reshape { to: shape.to_vec() }) as _;
            apply(stringify!($reshape), tensor, rule, |tensor, placed| {
                B::$reshape(tensor, placed.result_shape(0, &shape))
            })
        }

        fn $expand(tensor: $tensor, shape: Shape) -> $tensor {
            let rule = || Box::new(Expand { to: shape.to_vec() }) as _;
            apply(stringify!($expand), tensor, rule, |tensor, placed| {
                B::$expand(tensor, placed.result_shape(0, &shape))
            })
        }

        fn $slice(tensor: $tensor, slices: &[Slice]) -> $tensor {
            let shape = tensor.shape();
            let rule = || {
                let dimensions = touched(slices, &shape);
                let to = SliceOps::slice(shape, slices)
                    .expect("burn has checked the slices")
                    .to_vec();
                Box::new(Touch { dimensions, to }) as _
            };
            apply(stringify!($slice), tensor, rule, |tensor, placed| {
                let slices = local_slices(slices, &tensor.shape(), placed);
                B::$slice(tensor, &slices)
            })
        }

        fn $assign(tensor: $tensor, slices: &[Slice], value: $tensor) -> $tensor {
            let dimensions = touched(slices, &tensor.shape());
            let rule = || Box::new(Assign { dimensions }) as _;
            apply(
                stringify!($assign),
                (tensor, value),
                rule,
                |(tensor, value), placed| {
                    let slices = local_slices(slices, &tensor.shape(), placed);
                    B::$assign(tensor, &slices, value)
                },
            )
        }

        fn $cat(tensors: Vec<$tensor>, dimension: usize) -> $tensor {
            let rule = || Box::new(Concatenate { dimension }) as _;
            apply(stringify!($cat), tensors, rule, |tensors, _| {
                B::$cat(tensors, dimension)
            })
        }

        /// Windows of a dimension, as a new last dimension.
        fn $unfold(tensor: $tensor, dim: usize, size: usize, step: usize) -> $tensor {
            let (mut to, dimensions) = (tensor.shape().to_vec(), vec![dim]);
            to[dim] = if to[dim] < size {
                0
            } else {
                (to[dim] - size) / step + 1
            };
            to.push(size);
            let rule = || Box::new(Touch { dimensions, to }) as _;
            apply(stringify!($unfold), tensor, rule, |tensor, _| {
                B::$unfold(tensor, dim, size, step)
            })
        }
    };
}
pub(super) use moving;

/// The dimensions of which slices do not take everything in order.
pub(super) fn touched(slices: &[Slice], shape: &Shape) -> Vec<usize> {
    let is_whole = |dimension: &usize| {
        let (slice, length) = (&slices[*dimension], shape[*dimension]);
        slice.step == 1 && slice.to_range(length) == (0..length)
    };
    (0..slices.len()).filter(|dimension| !is_whole(dimension)).collect()
}

/// The slices of this rank's part: all that it has of a dimension that is cut.
pub(super) fn local_slices(slices: &[Slice], part: &Shape, placed: &Placed) -> Vec<Slice> {
    let of_part = |(dimension, slice): (usize, &Slice)| {
        if placed.has_all(0, dimension) {
            *slice
        } else {
            (0..part[dimension]).into()
        }
    };
    slices.iter().enumerate().map(of_part).collect()
}
