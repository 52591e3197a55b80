//! `MatrixParameter`: the whole matrices of a parameter, of which this rank holds parts, and the way there and back.

use std::ops::Range;

use burn::tensor::Tensor;

use crate::collectives::{self, CollectiveError, ProcessGroup, ReduceOp, TensorCall};
use crate::data_parallel::GradientEntry;
use crate::parameters::{Distribution, Factoring, Placement};

/// A parameter of one or several matrices, and this rank's parts of it.
///
/// A rank may hold several parts of one, each a trained parameter by itself under the same name.
#[derive(Clone, Debug)]
pub(super) struct MatrixParameter {
    parts: Vec<Part>,
    view: MatrixView,
}

/// A part of it that this rank holds.
#[derive(Clone, Debug)]
pub(super) struct Part {
    /// Number among the trained parameters.
    pub(super) number: usize,
    placement: Placement,
    distribution: Distribution,
    /// Range in the array of all parts, one after the other.
    pub(super) range: Range<usize>,
}

/// View of the dimensions of a logical parameter as matrices: `[rows, before, fused, after]` is `fused` matrices of
/// `rows` inputs and `before · after` outputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct MatrixView {
    rows: usize,
    before: usize,
    fused: usize,
    after: usize,
}

impl MatrixView {
    /// Returns how a parameter is made of matrices; `None` if it is no matrix on this rank, or its layout does not say
    /// which of its dimensions are the inputs.
    fn of(entry: &GradientEntry) -> Option<Self> {
        if entry.shape.len() != 2 {
            return None;
        }
        let sizes = Factoring::of(&entry.shape, &entry.placement)?.logical();
        Some(Self {
            rows: sizes.rows,
            before: sizes.before,
            fused: sizes.fused,
            after: sizes.after,
        })
    }

    /// Returns the matrices of a whole parameter, `[fused, rows, before · after]`.
    fn matrices(self, whole: Tensor<1>) -> Tensor<3> {
        let Self {
            rows,
            before,
            fused,
            after,
        } = self;
        let whole = whole.reshape([rows, before, fused, after]);
        // A copy of a single matrix would be as it is.
        let apart = if fused == 1 { whole } else { whole.permute([2, 0, 1, 3]) };
        apart.reshape([fused, rows, before * after])
    }

    /// Returns the whole parameter of its matrices: the inverse of [`matrices`](Self::matrices).
    fn whole(self, matrices: Tensor<3>) -> Tensor<1> {
        let Self {
            rows,
            before,
            fused,
            after,
        } = self;
        let whole = match fused {
            1 => matrices.reshape([rows, before, 1, after]),
            fused => matrices.reshape([fused, rows, before, after]).permute([1, 2, 0, 3]),
        };
        whole.reshape([rows * before * fused * after])
    }
}

/// Returns whether a parameter is made of matrices.
pub(super) fn is_matrix(entry: &GradientEntry) -> bool {
    MatrixView::of(entry).is_some()
}

impl MatrixParameter {
    /// Returns the parameters that some of the trained ones are parts of, in their order.
    ///
    /// # Panics
    /// When one is no matrix.
    pub(super) fn of_entries<'e>(entries: impl Iterator<Item = &'e GradientEntry>) -> Vec<Self> {
        let mut names: Vec<&str> = Vec::new();
        let mut parameters: Vec<Self> = Vec::new();
        for entry in entries {
            let position = names.iter().position(|name| *name == entry.name).unwrap_or_else(|| {
                let view = MatrixView::of(entry);
                let view = view.unwrap_or_else(|| panic!("{} of shape {:?} is no matrix", entry.name, entry.shape));
                names.push(&entry.name);
                parameters.push(Self {
                    parts: Vec::new(),
                    view,
                });
                names.len() - 1
            });
            let parameter = &mut parameters[position];
            let start = parameter.local_len();
            parameter.parts.push(Part {
                number: entry.number,
                placement: entry.placement.clone(),
                distribution: entry.distribution,
                range: start..start + entry.placement.local_len(),
            });
        }
        parameters
    }

    /// This rank's parts of it.
    pub(super) fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// The number of elements that this rank holds.
    pub(super) fn local_len(&self) -> usize {
        self.parts.last().map_or(0, |part| part.range.end)
    }

    /// Cost of its direction, about: the multiplications of a product of each matrix with itself. The same on every
    /// rank.
    pub(super) fn cost(&self) -> usize {
        let columns = self.view.before * self.view.after;
        let (short, long) = (self.view.rows.min(columns), self.view.rows.max(columns));
        self.view.fused * short * short * long
    }

    /// Returns the whole matrices, `[matrices, inputs, outputs]`, of this rank's parts, `[local_len]`.
    ///
    /// # Communication
    /// Where tensor ranks hold different parts, one all-reduce of the whole over their group: each adds its parts to
    /// zeros, so that the sum has the bits of the parts.
    pub(super) fn gather(&self, local: Tensor<1>, tensor_group: &ProcessGroup) -> Result<Tensor<3>, CollectiveError> {
        let is_cut = tensor_group.size() > 1 && self.parts.iter().any(|part| part.distribution.is_cut());
        let mut whole: Option<Tensor<1>> = None;
        for part in &self.parts {
            let is_added = !is_cut || part.distribution.is_first_holder(tensor_group.rank());
            let values = slice(&local, part.range.clone());
            // What another rank adds is as long.
            let values = if is_added { values } else { values.zeros_like() };
            let values = embed(values, &part.placement);
            whole = Some(match whole {
                None => values,
                Some(whole) => whole + values,
            });
        }
        let whole = whole.expect("each parameter has a part");
        let whole = if is_cut {
            let call = TensorCall::AllReduce(ReduceOp::Sum);
            collectives::run(whole, call, tensor_group)?
        } else {
            whole
        };
        Ok(self.view.matrices(whole))
    }

    /// Returns this rank's parts, `[local_len]`, of the whole matrices.
    pub(super) fn take(&self, matrices: Tensor<3>) -> Tensor<1> {
        let whole = self.view.whole(matrices);
        let parts = self.parts.iter().map(|part| extract(whole.clone(), &part.placement));
        let mut parts: Vec<Tensor<1>> = parts.collect();
        if parts.len() == 1 {
            parts.remove(0)
        } else {
            Tensor::cat(parts, 0)
        }
    }
}

/// Some adjacent elements; the tensor itself if these are all.
pub(super) fn slice(values: &Tensor<1>, range: Range<usize>) -> Tensor<1> {
    if range == (0..values.dims()[0]) {
        values.clone()
    } else {
        values.clone().slice([range])
    }
}

/// Length of a dimension of the local array without padding.
fn extent(placement: &Placement, dimension: usize) -> usize {
    let logical = placement.logical_shape()[dimension];
    let left = logical.saturating_sub(placement.offset()[dimension]);
    placement.local_shape()[dimension].min(left)
}

/// `[before, length, after]` around a dimension.
fn around(shape: &[usize], dimension: usize) -> [usize; 3] {
    let product = |shape: &[usize]| shape.iter().product::<usize>();
    [
        product(&shape[..dimension]),
        shape[dimension],
        product(&shape[dimension + 1..]),
    ]
}

/// Returns a logical parameter that is zero, `[logical_len]`, but for the elements of a local array, `[local_len]`.
pub(super) fn embed(local: Tensor<1>, placement: &Placement) -> Tensor<1> {
    let [logical, local_array] = common_part(placement);
    moved(local, placement, &local_array, &logical)
}

/// Returns the local array, `[local_len]`, of a logical parameter, `[logical_len]`; its padding is zero.
pub(super) fn extract(whole: Tensor<1>, placement: &Placement) -> Tensor<1> {
    let [logical, local_array] = common_part(placement);
    moved(whole, placement, &logical, &local_array)
}

/// An array, and where in it the elements begin that it shares with another.
struct Window {
    shape: Vec<usize>,
    start: Vec<usize>,
}

/// Window that a logical parameter and its local array share, as each has it.
fn common_part(placement: &Placement) -> [Window; 2] {
    let window = |shape: &[usize], start: &[usize]| Window {
        shape: shape.to_vec(),
        start: start.to_vec(),
    };
    let begin = vec![0; placement.offset().len()];
    [
        window(placement.logical_shape(), placement.offset()),
        window(placement.local_shape(), &begin),
    ]
}

/// Returns the array `to`, flat, of zeros and of what it shares with `from`, whose `values` are given, flat.
fn moved(values: Tensor<1>, placement: &Placement, from: &Window, to: &Window) -> Tensor<1> {
    let extents: Vec<usize> = (0..to.shape.len())
        .map(|dimension| extent(placement, dimension))
        .collect();
    if extents.contains(&0) {
        let length: usize = to.shape.iter().product();
        return Tensor::zeros([length], (&values.device(), values.dtype()));
    }
    let (mut shape, mut values) = (from.shape.clone(), values);
    for (dimension, extent) in extents.into_iter().enumerate() {
        let [before, length, after] = around(&shape, dimension);
        let (fresh, zeros) = (to.shape[dimension], to.start[dimension]);
        if extent != length || extent != fresh {
            let own = values.reshape([before, length, after]);
            let own = own.narrow(1, from.start[dimension], extent);
            values = with_zeros(own, [(zeros, true), (fresh - zeros - extent, false)]);
            shape[dimension] = fresh;
        }
    }
    values
}

/// Returns values, flat, with zeros before or after them along dimension 1: how many, and whether before.
fn with_zeros<const N: usize>(values: Tensor<3>, zeros: [(usize, bool); N]) -> Tensor<1> {
    let ([before, _, after], device, dtype) = (values.dims(), values.device(), values.dtype());
    let joined = zeros.into_iter().fold(values, |values, (count, is_before)| {
        if count == 0 {
            return values;
        }
        let zeros = Tensor::zeros([before, count, after], (&device, dtype));
        let parts = if is_before {
            vec![zeros, values]
        } else {
            vec![values, zeros]
        };
        Tensor::cat(parts, 1)
    });
    let length = joined.shape().num_elements();
    joined.reshape([length])
}

#[cfg(test)]
mod tests {
    use burn::tensor::Device;
    use proptest::prelude::*;

    use super::*;

    fn numbers(count: usize) -> Tensor<1> {
        let values: Vec<f32> = (1..=count).map(|number| number as f32).collect();
        Tensor::from_floats(&values[..], &Device::flex())
    }

    fn values(tensor: Tensor<1>) -> Vec<f32> {
        tensor.into_data().try_to_vec().expect("f32")
    }

    proptest! {
        #[test]
        fn boxes_go_where_their_runs_say_and_come_back(
            logical in [1usize..5, 1usize..5, 1usize..5], offset in [0usize..5, 0usize..5, 0usize..5],
            local in [1usize..5, 1usize..5, 1usize..5],
        ) {
            let placement = Placement::new(logical, offset, local);
            let (here, whole) = (numbers(placement.local_len()), numbers(placement.logical_len()));
            let mut embedded = vec![0.0; placement.logical_len()];
            let mut extracted = vec![0.0; placement.local_len()];
            for run in placement.runs() {
                for index in 0..run.length {
                    embedded[run.logical + index] = (run.local + index + 1) as f32;
                    extracted[run.local + index] = (run.logical + index + 1) as f32;
                }
            }
            prop_assert_eq!(values(embed(here, &placement)), embedded);
            prop_assert_eq!(values(extract(whole, &placement)), extracted);
        }

        #[test]
        fn matrices_are_put_together_again(
            rows in 1usize..4, before in 1usize..3, fused in 1usize..4, after in 1usize..4,
        ) {
            let view = MatrixView { rows, before, fused, after };
            let whole = numbers(rows * before * fused * after);
            let matrices = view.matrices(whole.clone());
            prop_assert_eq!(matrices.dims(), [fused, rows, before * after]);
            prop_assert_eq!(values(view.whole(matrices)), values(whole));
        }
    }

    #[test]
    fn fused_matrices_are_taken_apart() {
        // Two rows of three matrices of two columns.
        let view = MatrixView {
            rows: 2,
            before: 1,
            fused: 3,
            after: 2,
        };
        let matrices = view.matrices(numbers(12));
        let second = matrices.narrow(0, 1, 1).reshape([4]);
        assert_eq!(values(second), [3.0, 4.0, 9.0, 10.0]);
    }
}
