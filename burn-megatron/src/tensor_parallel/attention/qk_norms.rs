//! [`QkNorms`]: the norms of query heads and of key heads, before they are turned.

use burn::module::Module;
use burn::tensor::{Device, Tensor};

use crate::context::ParameterScope;
use crate::tensor_parallel::{RmsNorm, RmsNormConfig};

/// RMS norms of each query head and of each key head.
///
/// # Reference
/// Henry et al. 2020, arXiv:2010.04245, section 3; Yang et al. 2025, arXiv:2505.09388, section 2.
#[derive(Module, Debug)]
pub struct QkNorms {
    /// That of queries, `[d_head]`.
    pub query: RmsNorm,
    /// That of keys, `[d_head]`.
    pub key: RmsNorm,
}

impl QkNorms {
    /// Returns the norms of heads of `d_head` elements, declared as `q_norm` and `k_norm` in the scope.
    pub(super) fn new(d_head: usize, epsilon: f64, device: &Device, scope: &ParameterScope) -> Self {
        let config = RmsNormConfig::new(d_head).with_epsilon(epsilon);
        let norm = |name| config.init_of_heads(device, &scope.scope(name));
        Self {
            query: norm("q_norm"),
            key: norm("k_norm"),
        }
    }
}

impl QkNorms {
    /// `[tokens, groups, queries + 2, d_head]`, of each group its query heads, its key head and its value head, to the
    /// same with normed queries and keys.
    pub(super) fn forward(&self, grouped: Tensor<4>) -> Tensor<4> {
        let [_, _, heads, _] = grouped.dims();
        let part = |first: usize, count: usize| grouped.clone().narrow(2, first, count);
        let queries = self.query.forward(part(0, heads - 2));
        let key = self.key.forward(part(heads - 2, 1));
        Tensor::cat(vec![queries, key, part(heads - 1, 1)], 2)
    }
}
