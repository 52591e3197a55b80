//! `LayerCache`: what autoregressive inference keeps of the tokens that a layer has seen.

use burn::tensor::backend::Backend;

use crate::tensor_parallel::{MhaCache, TensorCache};

/// The cache of an encoder's or a decoder's layer, by its parts; those that an encoder's layer lacks stay empty.
#[derive(Clone, Debug)]
pub(super) struct LayerCache<B: Backend> {
    pub self_attn: MhaCache<B>,
    pub cross_attn: MhaCache<B>,
    pub pwff: TensorCache<B, 3>,
    pub norm_1: TensorCache<B, 3>,
    pub norm_2: TensorCache<B, 3>,
    pub norm_3: TensorCache<B, 3>,
}

impl<B: Backend> LayerCache<B> {
    /// Returns an empty cache for each of `n_layers` layers.
    pub fn of_layers(n_layers: usize) -> Vec<Self> {
        let empty = || Self {
            self_attn: MhaCache::autoregressive(),
            cross_attn: MhaCache::autoregressive_cross_attention(),
            pwff: TensorCache::empty(),
            norm_1: TensorCache::empty(),
            norm_2: TensorCache::empty(),
            norm_3: TensorCache::empty(),
        };
        (0..n_layers).map(|_| empty()).collect()
    }
}
