//! [`Projections`]: queries, keys and values, each in a tensor of its own or all in one.

use burn::backend::DispatchTensor;
use burn::tensor::Tensor;

use super::{AttentionSizes, PackedHeads, unpack};
use crate::operation::{Spec, Tensors};

/// Queries, keys and values, or something for each of their tensors.
#[derive(Clone, Debug)]
pub(super) enum Projections<T> {
    /// Tensors of `[batch, queries, heads, d_head]`, and twice of `[batch, keys, kv_heads, d_head]`.
    Separate([T; 3]),
    /// Tensor of `[batch, seq, heads + 2 * kv_heads, d_head]`.
    Packed(T, PackedHeads),
}

impl<T> Projections<T> {
    /// Returns the tensor that has the queries.
    pub fn first(&self) -> &T {
        match self {
            Self::Separate([query, ..]) => query,
            Self::Packed(packed, _) => packed,
        }
    }

    /// Returns the sizes of an attention of tensors that have these dimensions.
    pub fn sizes(&self, dims: impl Fn(&T) -> [usize; 4]) -> AttentionSizes {
        match self {
            Self::Separate([query, key, _]) => AttentionSizes::of(dims(query), dims(key)),
            Self::Packed(packed, heads) => AttentionSizes::of_packed(dims(packed), *heads),
        }
    }

    pub fn by_ref(&self) -> Projections<&T> {
        match self {
            Self::Separate(tensors) => Projections::Separate(tensors.each_ref()),
            Self::Packed(packed, heads) => Projections::Packed(packed, *heads),
        }
    }

    pub fn map<U>(self, mut each: impl FnMut(T) -> U) -> Projections<U> {
        match self {
            Self::Separate(tensors) => Projections::Separate(tensors.map(each)),
            Self::Packed(packed, heads) => Projections::Packed(each(packed), heads),
        }
    }

    /// Returns the heads of the tensor that all are in.
    pub fn packed_heads(&self) -> Option<PackedHeads> {
        match self {
            Self::Separate(_) => None,
            Self::Packed(_, heads) => Some(*heads),
        }
    }

    /// Returns what there is for each tensor, in order.
    pub fn tensors(self) -> [Option<T>; 3] {
        match self {
            Self::Separate(tensors) => tensors.map(Some),
            Self::Packed(packed, _) => [Some(packed), None, None],
        }
    }
}

impl Projections<Spec> {
    /// Returns the names of the dimensions of these and of the output, of the sums of exponentials, and of the bias,
    /// for ranks that have parts of the samples and heads. Heads that share keys, or are in one tensor, stay together.
    pub fn names(&self) -> [&'static str; 3] {
        match self {
            Self::Separate([(query, _), (key, _), _]) if query[2] == key[2] => ["b.h.", "bh.", "h."],
            _ => ["b...", "b..", ".."],
        }
    }
}

impl Projections<Tensor<4>> {
    /// Returns queries, keys and values.
    pub fn unpack(self) -> [Tensor<4>; 3] {
        match self {
            Self::Separate(tensors) => tensors,
            Self::Packed(packed, heads) => unpack(packed, heads),
        }
    }
}

impl Tensors for Projections<Tensor<4>> {
    type Of<T: Send + Sync> = Projections<T>;

    fn into_dispatch(self) -> Projections<DispatchTensor> {
        self.map(Tensor::into_dispatch)
    }

    fn from_dispatch(tensors: Projections<DispatchTensor>) -> Self {
        tensors.map(Tensor::from_dispatch)
    }

    fn map<T: Send + Sync, U: Send + Sync>(of: Projections<T>, each: &mut impl FnMut(T) -> U) -> Projections<U> {
        of.map(each)
    }

    fn by_ref<T: Send + Sync>(of: &Projections<T>) -> Projections<&T> {
        of.by_ref()
    }
}
