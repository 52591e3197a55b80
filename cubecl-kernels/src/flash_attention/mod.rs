//! Attention, `dropout(softmax(scale · Q Kᵀ + mask)) V`, without its weights in memory, forward or backward.
//!
//! The forward pass goes over blocks of keys with a running maximum and sum of each query, and keeps `log Σ exp` of
//! each row of scores; the backward pass computes the weights of a block again from it.

pub(crate) mod autodiff;
#[cfg(feature = "cubecl")]
mod device;
mod documents;
pub(crate) mod flex;
pub mod host;
#[cfg(feature = "cubecl")]
pub(crate) mod launch;
#[cfg(feature = "cubecl")]
mod matrix;
#[cfg(feature = "cubecl")]
mod portable;
pub mod reference;

use std::ops::Range;

use burn::tensor::{Tensor, backend::Backend};

pub use self::documents::Documents;
use self::host::AttentionSizes;
use crate::KernelBackend;
use crate::error::{Check, KernelError};
use crate::random::RowDropout;

/// The largest head.
pub const MAX_HEAD: usize = 256;

/// Which keys a query sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttentionMask {
    /// All.
    Full,
    /// Those up to its own position; the numbers of keys and queries are equal.
    Causal,
}

/// What is done between the products.
#[derive(Clone, Debug)]
pub struct AttentionOptions {
    /// Which keys a query sees.
    pub mask: AttentionMask,
    /// What the products of queries and keys are multiplied by; `1 / √d_head` as a rule.
    pub scale: f64,
    /// The dropout of the weights, its places those of the queries, sample by sample; none outside training.
    pub dropout: Option<RowDropout>,
    /// The documents that the samples consist of; `None` if each sample is one.
    pub documents: Option<Documents>,
    /// Whether the same inputs give the same gradients bit for bit. Otherwise, where it is faster, the parts of a
    /// query's gradient are added in an order that is not the same every time: on matrix units of CUDA.
    pub is_deterministic: bool,
}

/// How many heads a packed tensor holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PackedHeads {
    /// Of the queries.
    pub queries: usize,
    /// Of the keys, and also of the values; divides that of the queries.
    pub keys: usize,
}

impl PackedHeads {
    /// The heads of queries, keys and values together.
    pub fn total(self) -> usize {
        self.queries + 2 * self.keys
    }
}

/// What the forward pass gives.
#[derive(Clone, Debug)]
pub struct AttentionForward<B: Backend> {
    /// `[batch, queries, heads, d_head]`
    pub output: Tensor<B, 4>,
    /// `log Σ exp(scale · q kᵀ)` over the keys that a query sees, `[batch, heads, queries]`, in the type that is
    /// computed in; −∞ where it sees none.
    pub log_sum_exp: Tensor<B, 3>,
}

/// Applies attention: each query's mean of the values, weighted by the softmax of its scaled products with the keys.
///
/// Heads share keys and values in groups where there are fewer of these: head `h` of the queries has key head
/// `h * kv_heads / heads`.
///
/// # Shapes
/// - `query`: `[batch, queries, heads, d_head]`
/// - `key`, `value`: `[batch, keys, kv_heads, d_head]`, of at most [`MAX_HEAD`] elements a head
/// - output: as `query`
///
/// # Errors
/// When shapes or types do not fit each other, there are other many keys than queries under [`AttentionMask::Causal`]
/// or with documents, these have other tokens than the queries, the dropout has other rows than the queries, or there
/// is more of something than the device's kernels take: in f32, f16 and bf16, no backend with kernels computes the
/// weights as a tensor. In f64 on CubeCL, for which there are no kernels, they are one.
///
/// # Reference
/// Dao 2023, arXiv:2307.08691, algorithms 1 and 2; Ainslie et al. 2023, arXiv:2305.13245.
pub fn flash_attention<B: KernelBackend>(
    query: Tensor<B, 4>,
    key: Tensor<B, 4>,
    value: Tensor<B, 4>,
    options: AttentionOptions,
) -> Result<Tensor<B, 4>, KernelError> {
    let check = Check("flash_attention");
    let sizes = AttentionSizes::of(query.dims(), key.dims());
    let expected = [sizes.batch, sizes.keys, sizes.kv_heads, sizes.d_head];
    check.float::<B>("the query", query.dtype(), &query.device())?;
    check.shape("the key", &key.dims(), &expected)?;
    check.shape("the value", &value.dims(), &expected)?;
    check.same_type("the key", key.dtype(), query.dtype())?;
    check.same_type("the value", value.dtype(), query.dtype())?;
    options.check(check, sizes)?;
    B::check_attention(&query.device(), check.0, query.dtype(), sizes)?;
    Ok(B::flash_attention([query, key, value], options))
}

/// As [`flash_attention`] of queries, keys and values that are in one tensor, where no copy of them is made.
///
/// # Shapes
/// - `packed`: `[batch, seq, heads + 2 * kv_heads, d_head]`: the queries' heads, the keys', the values'
/// - output: `[batch, seq, heads, d_head]`
///
/// # Errors
/// As [`flash_attention`].
pub fn flash_attention_packed<B: KernelBackend>(
    packed: Tensor<B, 4>,
    heads: PackedHeads,
    options: AttentionOptions,
) -> Result<Tensor<B, 4>, KernelError> {
    let [batch, seq, _, d_head] = packed.dims();
    let expected = [batch, seq, heads.total(), d_head];
    let check = Check("flash_attention_packed");
    check.float::<B>("the packed tensor", packed.dtype(), &packed.device())?;
    check.shape("the packed tensor", &packed.dims(), &expected)?;
    let sizes = AttentionSizes::of_packed(packed.dims(), heads);
    options.check(check, sizes)?;
    B::check_attention(&packed.device(), check.0, packed.dtype(), sizes)?;
    Ok(B::flash_attention_packed(packed, heads, options))
}

/// Cuts a packed tensor into queries, keys and values: views, where the backend has them.
pub fn unpack<B: Backend>(packed: Tensor<B, 4>, heads: PackedHeads) -> [Tensor<B, 4>; 3] {
    let PackedHeads { queries, keys } = heads;
    [(0, queries), (queries, keys), (queries + keys, keys)]
        .map(|(start, length)| packed.clone().narrow(2, start, length))
}

impl AttentionOptions {
    /// The keys that a query sees of `keys`.
    fn keys_seen(&self, sample: usize, query: usize, keys: usize) -> Range<usize> {
        let documents = self.documents.as_ref();
        let [start, end] = documents.map_or([0, keys], |documents| documents.of(sample, query));
        match self.mask {
            AttentionMask::Full => start..end,
            AttentionMask::Causal => start..query + 1,
        }
    }

    fn check(&self, check: Check, sizes: AttentionSizes) -> Result<(), KernelError> {
        let AttentionSizes {
            batch,
            queries,
            keys,
            heads,
            kv_heads,
            d_head,
        } = sizes;
        let is_head = (1..=MAX_HEAD).contains(&d_head);
        check.value("d_head", d_head as f64, is_head, || format!("1 to {MAX_HEAD}"))?;
        let is_group = kv_heads > 0 && heads.is_multiple_of(kv_heads);
        check.value("the number of key heads", kv_heads as f64, is_group, || {
            format!("a divisor of that of the query heads, {heads}")
        })?;
        let is_scale = self.scale.is_finite() && self.scale > 0.0;
        check.value("the scale", self.scale, is_scale, || "finite and above 0".to_owned())?;
        if self.mask == AttentionMask::Causal {
            check.value("the number of keys", keys as f64, queries == keys, || {
                format!("that of the queries under causal attention, {queries}")
            })?;
        }
        if let Some(documents) = &self.documents {
            documents.check(check, sizes)?;
        }
        match &self.dropout {
            Some(dropout) => dropout.check(check.0, batch * queries, heads, keys),
            None => Ok(()),
        }
    }
}
