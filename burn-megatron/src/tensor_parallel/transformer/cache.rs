//! `LayerCache`: what autoregressive inference keeps of the tokens that a layer has seen.

use crate::tensor_parallel::{MhaCache, TensorCache};

/// The cache of an encoder's or a decoder's layer, by its parts; those that an encoder's layer lacks stay empty.
#[derive(Clone, Debug)]
pub(super) struct LayerCache {
    pub self_attn: MhaCache,
    pub cross_attn: MhaCache,
    pub pwff: TensorCache<3>,
    pub norm_1: TensorCache<3>,
    pub norm_2: TensorCache<3>,
    pub norm_3: TensorCache<3>,
}

impl LayerCache {
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
