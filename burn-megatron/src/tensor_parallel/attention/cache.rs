//! What autoregressive inference keeps of the tokens that it has seen: `TensorCache` and `MhaCache`.

use burn::tensor::Tensor;

/// What a layer has given for the tokens so far; empty before the first call.
#[derive(Clone, Debug)]
pub struct TensorCache<const D: usize> {
    value: Option<Tensor<D>>,
}

impl<const D: usize> TensorCache<D> {
    /// Returns an empty cache.
    pub fn empty() -> Self {
        Self { value: None }
    }

    /// Returns what `layer` gives for all tokens of `input`, `[batch, seq, d_model]`, computed for the last token only
    /// once there is something; `dimension` is that of the tokens in the layer's output.
    pub(in crate::tensor_parallel) fn append(
        &mut self,
        input: Tensor<3>,
        dimension: usize,
        layer: impl Fn(Tensor<3>) -> Tensor<D>,
    ) -> Tensor<D> {
        let value = match self.value.take() {
            None => layer(input),
            Some(before) => {
                let [_, seq, _] = input.dims();
                let last = layer(input.narrow(1, seq - 1, 1));
                Tensor::cat(vec![before, last], dimension)
            }
        };
        self.value = Some(value.clone());
        value
    }

    /// Returns what `layer` gave for the first input: that of a memory that stays.
    fn keep(&mut self, input: Tensor<3>, layer: impl Fn(Tensor<3>) -> Tensor<D>) -> Tensor<D> {
        let value = self.value.take().unwrap_or_else(|| layer(input));
        self.value = Some(value.clone());
        value
    }
}

/// What [`ParallelMultiHeadAttention::forward_cache`](super::ParallelMultiHeadAttention::forward_cache) keeps of the
/// tokens so far: this rank's heads.
#[derive(Clone, Debug)]
pub struct MhaCache {
    pub(super) query: TensorCache<4>,
    key: TensorCache<4>,
    value: TensorCache<4>,
    pub(super) output: TensorCache<3>,
    memory: Memory,
}

/// Where keys and values come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Memory {
    /// From the tokens so far: one more in each call.
    Growing,
    /// From a memory that stays the same.
    Fixed,
}

impl MhaCache {
    /// Returns an empty cache for self-attention.
    pub fn autoregressive() -> Self {
        Self::empty(Memory::Growing)
    }

    /// Returns an empty cache for cross-attention to a memory that stays the same.
    pub fn autoregressive_cross_attention() -> Self {
        Self::empty(Memory::Fixed)
    }

    fn empty(memory: Memory) -> Self {
        Self {
            query: TensorCache::empty(),
            key: TensorCache::empty(),
            value: TensorCache::empty(),
            output: TensorCache::empty(),
            memory,
        }
    }

    pub(super) fn key(&mut self, input: Tensor<3>, layer: impl Fn(Tensor<3>) -> Tensor<4>) -> Tensor<4> {
        Self::memory(self.memory, &mut self.key, input, layer)
    }

    pub(super) fn value(&mut self, input: Tensor<3>, layer: impl Fn(Tensor<3>) -> Tensor<4>) -> Tensor<4> {
        Self::memory(self.memory, &mut self.value, input, layer)
    }

    fn memory(
        memory: Memory,
        cache: &mut TensorCache<4>,
        input: Tensor<3>,
        layer: impl Fn(Tensor<3>) -> Tensor<4>,
    ) -> Tensor<4> {
        match memory {
            Memory::Growing => cache.append(input, 2, layer),
            Memory::Fixed => cache.keep(input, layer),
        }
    }
}
