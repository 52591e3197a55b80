//! Attention, `dropout(softmax(scale · Q Kᵀ + bias + mask)) V`, without its weights in memory, forward or backward.
//!
//! The forward pass goes over blocks of keys with a running maximum and sum of each query, and keeps `log Σ exp` of
//! each row of scores; the backward pass computes the weights of a block again from it.

#[cfg(feature = "cubecl")]
mod device;
mod documents;
mod flex;
pub mod host;
mod key_lengths;
#[cfg(feature = "cubecl")]
mod launch;
#[cfg(feature = "cubecl")]
mod matrix;
mod operation;
mod options;
#[cfg(feature = "cubecl")]
mod portable;
mod projections;
mod reference;
mod sizes;

use burn::tensor::{DType, Tensor};

pub use self::documents::Documents;
pub use self::key_lengths::KeyLengths;
pub use self::options::{AttentionMask, AttentionOptions};
use self::projections::Projections;
pub use self::sizes::AttentionSizes;
use crate::error::{Check, KernelError};
use crate::operation::apply;
use crate::precision::compute_type;
use crate::tape::{Kept, inner, keep, record};

/// The largest head.
pub const MAX_HEAD: usize = 256;

/// How many heads a packed tensor holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PackedHeads {
    /// Heads of the queries.
    pub queries: usize,
    /// Heads of the keys, and also of the values; their number divides that of the queries.
    pub keys: usize,
}

impl PackedHeads {
    /// The heads of queries, keys and values together.
    pub fn total(self) -> usize {
        self.queries + 2 * self.keys
    }

    /// The first head and the number of heads of the queries, the keys and the values.
    fn parts(self) -> [(usize, usize); 3] {
        let Self { queries, keys } = self;
        [(0, queries), (queries, keys), (queries + keys, keys)]
    }
}

/// The forward pass.
#[derive(Clone, Debug)]
struct Forward(AttentionOptions);

/// The backward pass.
#[derive(Clone, Debug)]
struct Backward {
    options: AttentionOptions,
    /// True if the gradient of the bias is computed.
    is_bias_wanted: bool,
}

/// The forward pass's inputs and outputs, and the output's gradient.
type BackwardInputs = (
    Projections<Tensor<4>>,
    Option<Tensor<2>>,
    Tensor<4>,
    Tensor<3>,
    Tensor<4>,
);

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
/// When shapes or types do not fit each other, there are other many keys than queries under a causal mask or with
/// documents, these have other tokens than the queries, a window has no keys, there are other many lengths of keys than
/// samples or one is above the number of keys, the dropout has other rows than the queries, or there is more of
/// something than the device's kernels take: in f32, f16 and bf16, no backend with kernels computes the weights as a
/// tensor. In f64 on CubeCL, for which there are no kernels, they are one.
///
/// # Reference
/// Dao 2023, arXiv:2307.08691, algorithms 1 and 2; Ainslie et al. 2023, arXiv:2305.13245.
pub fn flash_attention(
    query: Tensor<4>,
    key: Tensor<4>,
    value: Tensor<4>,
    options: AttentionOptions,
) -> Result<Tensor<4>, KernelError> {
    separate(Check("flash_attention"), [query, key, value], None, options)
}

/// Applies [`flash_attention`] with a bias that is added to the scaled scores, where there is one: a number for each
/// head and distance between key and query.
///
/// `score(h, q, k) = scale · q kᵀ + bias[h, k - q + queries - 1]`. The bias has a gradient where it is tracked: the sum
/// of the scores' gradients over the batch and along the diagonal. T5 gathers the table from its buckets; ALiBi's is
/// constant, `slope · (k - q)`.
///
/// # Shapes
/// - `query`: `[batch, queries, heads, d_head]`
/// - `key`, `value`: `[batch, keys, kv_heads, d_head]`
/// - `bias`: `[heads, queries + keys - 1]`, in f32, or in f64 where the queries are in f64
/// - output: as `query`
///
/// # Errors
/// As [`flash_attention`], and when the bias has another shape or type, or there are no queries and no keys.
///
/// # Reference
/// Raffel et al. 2020, arXiv:1910.10683, section 2.1; Press et al. 2022, arXiv:2108.12409.
pub fn flash_attention_with_bias(
    query: Tensor<4>,
    key: Tensor<4>,
    value: Tensor<4>,
    bias: Option<Tensor<2>>,
    options: AttentionOptions,
) -> Result<Tensor<4>, KernelError> {
    separate(Check("flash_attention_with_bias"), [query, key, value], bias, options)
}

/// Applies [`flash_attention`] to queries, keys and values that are in one tensor, of which no copy is made.
///
/// # Shapes
/// - `packed`: `[batch, seq, heads + 2 * kv_heads, d_head]`: the queries' heads, the keys', the values'
/// - output: `[batch, seq, heads, d_head]`
///
/// # Errors
/// As [`flash_attention`].
pub fn flash_attention_packed(
    packed: Tensor<4>,
    heads: PackedHeads,
    options: AttentionOptions,
) -> Result<Tensor<4>, KernelError> {
    in_one(Check("flash_attention_packed"), packed, heads, None, options)
}

/// Applies [`flash_attention_with_bias`] to queries, keys and values that are in one tensor.
///
/// # Shapes
/// - `packed`: `[batch, seq, heads + 2 * kv_heads, d_head]`: the queries' heads, the keys', the values'
/// - `bias`: `[heads, 2 * seq - 1]`, in f32, or in f64 where the packed tensor is in f64
/// - output: `[batch, seq, heads, d_head]`
///
/// # Errors
/// As [`flash_attention_with_bias`].
pub fn flash_attention_packed_with_bias(
    packed: Tensor<4>,
    heads: PackedHeads,
    bias: Option<Tensor<2>>,
    options: AttentionOptions,
) -> Result<Tensor<4>, KernelError> {
    in_one(Check("flash_attention_packed_with_bias"), packed, heads, bias, options)
}

/// Cuts a packed tensor into queries, keys and values: views, where the backend has them.
pub fn unpack(packed: Tensor<4>, heads: PackedHeads) -> [Tensor<4>; 3] {
    heads
        .parts()
        .map(|(first, count)| packed.clone().narrow(2, first, count))
}

fn separate(
    check: Check,
    inputs: [Tensor<4>; 3],
    bias: Option<Tensor<2>>,
    options: AttentionOptions,
) -> Result<Tensor<4>, KernelError> {
    let [query, key, value] = &inputs;
    let sizes = AttentionSizes::of(query.dims(), key.dims());
    let expected = [sizes.batch, sizes.keys, sizes.kv_heads, sizes.d_head];
    check.float("the query", query.dtype(), &query.device())?;
    check.shape("the key", &key.dims(), &expected)?;
    check.shape("the value", &value.dims(), &expected)?;
    check.same_type("the key", key.dtype(), query.dtype())?;
    check.same_type("the value", value.dtype(), query.dtype())?;
    attend(check, Projections::Separate(inputs), bias, options)
}

fn in_one(
    check: Check,
    packed: Tensor<4>,
    heads: PackedHeads,
    bias: Option<Tensor<2>>,
    options: AttentionOptions,
) -> Result<Tensor<4>, KernelError> {
    let [batch, seq, _, d_head] = packed.dims();
    let expected = [batch, seq, heads.total(), d_head];
    check.float("the packed tensor", packed.dtype(), &packed.device())?;
    check.shape("the packed tensor", &packed.dims(), &expected)?;
    attend(check, Projections::Packed(packed, heads), bias, options)
}

/// Returns the output, as a node that keeps queries, keys, values, the bias, the output and a number for each query and
/// head.
fn attend(
    check: Check,
    inputs: Projections<Tensor<4>>,
    bias: Option<Tensor<2>>,
    options: AttentionOptions,
) -> Result<Tensor<4>, KernelError> {
    let (sizes, dtype) = (inputs.sizes(Tensor::dims), inputs.first().dtype());
    options.check(check, sizes)?;
    check_bias(check, bias.as_ref(), dtype, sizes)?;
    #[cfg(feature = "cubecl")]
    launch::check(&inputs.first().device(), check, dtype, sizes)?;
    let (inside, table) = (inner(&inputs), inner(&bias));
    let (output, log_sum_exp) = apply(&Forward(options.clone()), (inside.clone(), table.clone()));
    let (inside, kept) = (inside.map(keep), keep(output.clone()));
    let parents = (inputs.tensors(), bias);
    Ok(record(parents, output, move |gradient, (_, is_bias_wanted)| {
        let backward = Backward {
            options,
            is_bias_wanted,
        };
        let pass = (inside.map(Kept::get), table, kept.get(), log_sum_exp, gradient);
        let (gradients, of_bias) = apply(&backward, pass);
        (gradients.tensors(), of_bias)
    }))
}

fn check_bias(check: Check, bias: Option<&Tensor<2>>, dtype: DType, sizes: AttentionSizes) -> Result<(), KernelError> {
    let Some(bias) = bias else { return Ok(()) };
    let distances = sizes.distances();
    check.value(
        "the numbers of queries and keys together",
        (sizes.queries + sizes.keys) as f64,
        distances > 0,
        || "at least 1 with a bias".to_owned(),
    )?;
    check.shape("the bias", &bias.dims(), &[sizes.heads, distances])?;
    check.same_type("the bias", bias.dtype(), compute_type(dtype))
}
