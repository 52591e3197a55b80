//! Fused operations for training transformers with burn, forward and backward: attention, softmax, norms, activations,
//! embeddings, rotary positions, cross-entropy, AdamW.
//!
//! Each operation has a folder of its own: the public function with its checks (`mod.rs`), the definition in burn's
//! operations (`reference.rs`), the kernels in CubeCL (`kernel.rs`, `launch.rs`), the form for the CPU (`flex.rs`) and
//! the backward rule (`autodiff.rs`). [`KernelBackend`] says which backend runs which of them: its defaults are the
//! references, so that an empty implementation makes a backend work; that of an autodiff backend differentiates them by
//! burn.
//!
//! The public functions of the operations' modules check shapes and types first; what [`KernelBackend`] runs does not.
//!
//! Numbers of f16, bf16 and f32 are computed with in f32, those of f64 in f64.
#![warn(missing_docs)]

pub mod accumulate;
pub mod adamw;
mod backend;
pub mod bias_dropout_add;
pub mod bias_gelu;
pub mod cross_entropy;
#[cfg(feature = "cubecl")]
pub mod cube;
#[cfg(feature = "cublaslt")]
pub mod cublaslt;
#[cfg(feature = "cuda")]
pub mod cuda;
pub mod embedding;
mod error;
pub mod flash_attention;
mod flex;
mod kernels;
pub mod l2_norm;
pub mod linear;
pub mod norm;
pub mod paged_attention;
pub mod precision;
pub mod random;
pub mod ranges;
pub mod rotary;
pub mod softmax;
mod sums;
pub mod swiglu;
pub mod tape;
mod token_range;

use std::ops::Range;

use burn::tensor::{DType, Int, Tensor, backend::Backend};

use accumulate::{GradientPlace, GradientSums, VectorSums};
use adamw::{AdamWBuffers, AdamWRanges, AdamWStep};
use bias_gelu::BiasGeluGradients;
use cross_entropy::Statistics;
use embedding::TokenRange;
use flash_attention::{AttentionBackward, AttentionForward, AttentionOptions, AttentionSizes, PackedHeads, unpack};
use l2_norm::SquaredPart;
use linear::blocks::BlockProduct;
use linear::{LinearGradients, LinearInputs, LinearWanted, WeightOrder};
use norm::{AddRule, AddendGradients, Addends, NormAdded, NormGradients, NormParameters, NormStatistics};
use paged_attention::{PagedCache, PagedOptions};
use ranges::{BufferRange, RangeTarget};
use rotary::{RotaryAngles, RotaryHeads};
use softmax::SoftmaxMask;

pub use error::KernelError;
pub use kernels::Kernels;

/// A backend on which the operations of this crate run; see the operations' modules for what they compute.
///
/// For each operation there is a differentiable form, and the forward and backward passes that an autodiff backend
/// makes it of; these two run on a backend without autodiff.
pub trait KernelBackend: Backend {
    /// See [`flash_attention_with_bias`](flash_attention::flash_attention_with_bias).
    fn flash_attention(
        inputs: [Tensor<Self, 4>; 3],
        bias: Option<Tensor<Self, 2>>,
        options: AttentionOptions,
    ) -> Tensor<Self, 4> {
        Self::flash_attention_forward(inputs, bias, &options).output
    }

    /// Checks for `operation` that the device's kernels take attention of these sizes, forward and backward.
    ///
    /// # Errors
    /// When there is more of something than they take.
    fn check_attention(
        _device: &Self::Device,
        _operation: &'static str,
        _dtype: DType,
        _sizes: AttentionSizes,
    ) -> Result<(), KernelError> {
        Ok(())
    }

    /// The forward pass, with what the backward pass needs of it.
    fn flash_attention_forward(
        inputs: [Tensor<Self, 4>; 3],
        bias: Option<Tensor<Self, 2>>,
        options: &AttentionOptions,
    ) -> AttentionForward<Self> {
        flash_attention::reference::forward(inputs, bias, options)
    }

    /// The gradients of query, key and value for that of the output, and of the bias where it is wanted.
    fn flash_attention_backward(
        inputs: [Tensor<Self, 4>; 3],
        pass: AttentionBackward<Self>,
        options: &AttentionOptions,
    ) -> ([Tensor<Self, 4>; 3], Option<Tensor<Self, 2>>) {
        flash_attention::reference::backward(inputs, pass, options)
    }

    /// See [`flash_attention_packed_with_bias`](flash_attention::flash_attention_packed_with_bias).
    fn flash_attention_packed(
        packed: Tensor<Self, 4>,
        heads: PackedHeads,
        bias: Option<Tensor<Self, 2>>,
        options: AttentionOptions,
    ) -> Tensor<Self, 4> {
        Self::flash_attention_packed_forward(packed, heads, bias, &options).output
    }

    /// The forward pass of the packed form, with what the backward pass needs of it.
    fn flash_attention_packed_forward(
        packed: Tensor<Self, 4>,
        heads: PackedHeads,
        bias: Option<Tensor<Self, 2>>,
        options: &AttentionOptions,
    ) -> AttentionForward<Self> {
        Self::flash_attention_forward(unpack(packed, heads), bias, options)
    }

    /// The gradient of the packed tensor, and of the bias where it is wanted.
    fn flash_attention_packed_backward(
        packed: Tensor<Self, 4>,
        heads: PackedHeads,
        pass: AttentionBackward<Self>,
        options: &AttentionOptions,
    ) -> (Tensor<Self, 4>, Option<Tensor<Self, 2>>) {
        let (gradients, of_bias) = Self::flash_attention_backward(unpack(packed, heads), pass, options);
        (Tensor::cat(gradients.to_vec(), 2), of_bias)
    }

    /// See [`paged_attention_with_options`](paged_attention::paged_attention_with_options).
    fn paged_attention(
        query: Tensor<Self, 4>,
        cache: PagedCache<Self>,
        options: PagedOptions<Self>,
    ) -> Tensor<Self, 4> {
        paged_attention::reference::forward(query, cache, options)
    }

    /// `a · b + bias`, of matrices of one type that the device computes with.
    fn multiply(a: Tensor<Self, 2>, b: Tensor<Self, 2>, bias: Option<Tensor<Self, 1>>) -> Tensor<Self, 2> {
        linear::product::multiply(a, b, bias)
    }

    /// Adds `a · b` to its place among sums of the type that gradients are added up in, or writes it there when it is
    /// the first; `place.parameter` is without effect.
    fn add_product(
        sums: Tensor<Self, 1>,
        a: Tensor<Self, 2>,
        b: Tensor<Self, 2>,
        place: GradientPlace,
    ) -> Tensor<Self, 1> {
        linear::product::add_multiplied(sums, a, b, place)
    }

    /// Whether [`multiply`](Self::multiply) is a library's, of which burn's fusion knows nothing; and so
    /// [`add_product`](Self::add_product).
    fn multiplies_in_library() -> bool {
        false
    }

    /// See [`linear()`](linear::linear) and [`linear_transposed`](linear::linear_transposed).
    fn affine(inputs: LinearInputs<Self>) -> Tensor<Self, 2> {
        linear::reference::forward(inputs)
    }

    /// As [`affine`](Self::affine), of some rows of the input, written to some rows of an output, which is returned.
    ///
    /// # Panics
    /// When the rows are not there, or their numbers differ.
    fn affine_blocks(product: BlockProduct<Self>) -> Tensor<Self, 2> {
        product.check();
        linear::blocks::one_by_one(product)
    }

    /// The gradients that are wanted for that of the output.
    fn affine_backward(
        input: Tensor<Self, 2>,
        weight: Tensor<Self, 2>,
        order: WeightOrder,
        gradient: Tensor<Self, 2>,
        wanted: LinearWanted,
    ) -> LinearGradients<Self> {
        linear::reference::backward(input, weight, order, gradient, wanted)
    }

    /// See [`scaled_masked_softmax`](softmax::scaled_masked_softmax).
    fn scaled_masked_softmax(scores: Tensor<Self, 4>, mask: SoftmaxMask<Self>, scale: f64) -> Tensor<Self, 4> {
        softmax::reference::forward(scores, mask, scale)
    }

    /// The gradient of the scores, for the output and its gradient.
    fn scaled_masked_softmax_backward(
        output: Tensor<Self, 4>,
        gradient: Tensor<Self, 4>,
        scale: f64,
    ) -> Tensor<Self, 4> {
        softmax::reference::backward(output, gradient, scale)
    }

    /// See [`layer_norm`](norm::layer_norm) and [`rms_norm`](norm::rms_norm).
    fn norm(input: Tensor<Self, 2>, parameters: NormParameters<Self>) -> Tensor<Self, 2> {
        Self::norm_forward(input, &parameters).0
    }

    /// The forward pass, with the rows' statistics.
    fn norm_forward(
        input: Tensor<Self, 2>,
        parameters: &NormParameters<Self>,
    ) -> (Tensor<Self, 2>, NormStatistics<Self>) {
        norm::reference::forward(input, parameters)
    }

    /// The gradients for that of the output.
    fn norm_backward(
        input: Tensor<Self, 2>,
        parameters: &NormParameters<Self>,
        statistics: NormStatistics<Self>,
        gradient: Tensor<Self, 2>,
    ) -> NormGradients<Self> {
        norm::reference::backward(input, parameters, statistics, gradient)
    }

    /// See [`norm_of_stream`](norm::norm_of_stream).
    fn norm_of_stream(stream: Tensor<Self, 2>, parameters: NormParameters<Self>) -> [Tensor<Self, 2>; 2] {
        let output = Self::norm(stream.clone(), parameters);
        [stream, output]
    }

    /// See [`add_norm`](norm::add_norm).
    fn add_norm(addends: Addends<Self>, parameters: NormParameters<Self>) -> [Tensor<Self, 2>; 2] {
        Self::add_norm_forward(addends, &parameters).0
    }

    /// The sum and its norm, with the rows' statistics.
    fn add_norm_forward(
        addends: Addends<Self>,
        parameters: &NormParameters<Self>,
    ) -> ([Tensor<Self, 2>; 2], NormStatistics<Self>) {
        norm::reference::add_forward(addends, parameters)
    }

    /// The gradients of addends and norm, for those of the sum and of its norm where they have one.
    fn add_norm_backward(
        hidden: Tensor<Self, 2>,
        parameters: &NormParameters<Self>,
        statistics: NormStatistics<Self>,
        gradients: [Option<Tensor<Self, 2>>; 2],
        addends: &AddRule,
    ) -> (AddendGradients<Self>, NormGradients<Self>) {
        norm::reference::add_backward(hidden, parameters, statistics, gradients, addends)
    }

    /// The gradients of a norm's input and, with the rule of the sum before it, of its addends, for those of the sum
    /// and of the norm where they have one; a norm alone has no sum's. The gradients of the norm's weight and bias and
    /// of the addend's bias, in this order where there are these, are added to sums instead of being returned.
    fn norm_backward_into(
        hidden: Tensor<Self, 2>,
        parameters: &NormParameters<Self>,
        statistics: NormStatistics<Self>,
        gradients: [Option<Tensor<Self, 2>>; 2],
        addends: Option<&AddRule>,
        to: VectorSums<Self>,
    ) -> NormAdded<Self> {
        norm::backward_into(hidden, parameters, statistics, gradients, addends, to)
    }

    /// See [`bias_dropout_add()`](bias_dropout_add::bias_dropout_add).
    fn bias_dropout_add(addends: Addends<Self>) -> Tensor<Self, 2> {
        bias_dropout_add::reference::forward(addends)
    }

    /// The gradients of the addends for that of the sum.
    fn bias_dropout_add_backward(gradient: Tensor<Self, 2>, addends: &AddRule) -> AddendGradients<Self> {
        bias_dropout_add::reference::backward(gradient, addends)
    }

    /// As [`bias_dropout_add_backward`](Self::bias_dropout_add_backward) of a sum with a bias, whose gradient is added
    /// to sums. Returns the input's, and these.
    fn bias_dropout_add_backward_into(
        gradient: Tensor<Self, 2>,
        addends: &AddRule,
        to: VectorSums<Self>,
    ) -> (Tensor<Self, 2>, GradientSums<Self>) {
        bias_dropout_add::backward_into(gradient, addends, to)
    }

    /// See [`bias_gelu()`](bias_gelu::bias_gelu).
    fn bias_gelu(input: Tensor<Self, 2>, bias: Tensor<Self, 1>) -> Tensor<Self, 2> {
        bias_gelu::reference::forward(input, bias)
    }

    /// The gradients for that of the output.
    fn bias_gelu_backward(
        input: Tensor<Self, 2>,
        bias: Tensor<Self, 1>,
        gradient: Tensor<Self, 2>,
    ) -> BiasGeluGradients<Self> {
        bias_gelu::reference::backward(input, bias, gradient)
    }

    /// As [`bias_gelu_backward`](Self::bias_gelu_backward), with the bias' gradient added to sums. Returns the input's,
    /// and these.
    fn bias_gelu_backward_into(
        input: Tensor<Self, 2>,
        bias: Tensor<Self, 1>,
        gradient: Tensor<Self, 2>,
        to: VectorSums<Self>,
    ) -> (Tensor<Self, 2>, GradientSums<Self>) {
        bias_gelu::backward_into(input, bias, gradient, to)
    }

    /// See [`swiglu()`](swiglu::swiglu).
    fn swiglu(input: Tensor<Self, 2>) -> Tensor<Self, 2> {
        swiglu::reference::forward(input)
    }

    /// The gradient of the input for that of the output.
    fn swiglu_backward(input: Tensor<Self, 2>, gradient: Tensor<Self, 2>) -> Tensor<Self, 2> {
        swiglu::reference::backward(input, gradient)
    }

    /// See [`rotary()`](rotary::rotary).
    fn rotary(input: Tensor<Self, 4>, angles: Option<RotaryAngles<Self>>) -> Tensor<Self, 3> {
        rotary::reference::forward(input, angles)
    }

    /// The gradient of the input for that of the output.
    fn rotary_backward(
        gradient: Tensor<Self, 3>,
        heads: RotaryHeads,
        angles: Option<RotaryAngles<Self>>,
    ) -> Tensor<Self, 4> {
        rotary::reference::backward(gradient, heads, angles)
    }

    /// See [`cross_entropy()`](cross_entropy::cross_entropy).
    fn cross_entropy(
        logits: Tensor<Self, 2>,
        targets: Tensor<Self, 1, Int>,
        valid: usize,
        combine: impl FnOnce(Statistics<Self>) -> Statistics<Self>,
    ) -> Tensor<Self, 1> {
        combine(Self::cross_entropy_statistics(logits, targets, valid)).losses()
    }

    /// Each row's statistics.
    fn cross_entropy_statistics(
        logits: Tensor<Self, 2>,
        targets: Tensor<Self, 1, Int>,
        valid: usize,
    ) -> Statistics<Self> {
        cross_entropy::reference::statistics(logits, targets, valid)
    }

    /// Returns the gradient of the logits for those of the losses and the statistics of all shards, written over the
    /// logits if nothing else holds them.
    fn cross_entropy_backward(
        logits: Tensor<Self, 2>,
        targets: Tensor<Self, 1, Int>,
        valid: usize,
        whole: Statistics<Self>,
        gradient: Tensor<Self, 1>,
    ) -> Tensor<Self, 2> {
        cross_entropy::reference::backward(logits, targets, valid, whole, gradient)
    }

    /// See [`embedding()`](embedding::embedding).
    fn embedding_rows(table: Tensor<Self, 2>, tokens: Tensor<Self, 1, Int>, range: TokenRange) -> Tensor<Self, 2> {
        embedding::reference::forward(table, tokens, range)
    }

    /// See [`add_rows`](embedding::add_rows).
    fn add_rows(
        sums: Tensor<Self, 1>,
        offset: usize,
        tokens: Tensor<Self, 1, Int>,
        gradient: Tensor<Self, 2>,
        range: TokenRange,
    ) -> Tensor<Self, 1> {
        embedding::reference::add_rows(sums, offset, tokens, gradient, range)
    }

    /// See [`accumulate()`](accumulate::accumulate).
    fn accumulate(sums: GradientSums<Self>, gradient: Tensor<Self, 1>, place: GradientPlace) -> GradientSums<Self> {
        accumulate::reference::add(sums, gradient, place)
    }

    /// See [`adamw()`](adamw::adamw).
    fn adamw(
        buffers: AdamWBuffers<Self>,
        gradient: Tensor<Self, 1>,
        step: &AdamWStep,
        copy: Option<DType>,
    ) -> (AdamWBuffers<Self>, Option<Tensor<Self, 1>>) {
        adamw::reference::step(buffers, gradient, step, copy)
    }

    /// See [`adamw_elements`](adamw::adamw_elements).
    fn adamw_elements<const D: usize>(
        tensors: [Tensor<Self, D>; 3],
        gradient: Tensor<Self, D>,
        step: &AdamWStep,
    ) -> [Tensor<Self, D>; 3] {
        adamw::as_buffers(tensors, gradient, step)
    }

    /// See [`adamw_ranges`](adamw::adamw_ranges).
    fn adamw_ranges(
        buffers: AdamWBuffers<Self>,
        gradient: Tensor<Self, 1>,
        steps: &[AdamWRanges],
        copy: DType,
    ) -> (AdamWBuffers<Self>, Tensor<Self, 1>) {
        adamw::reference::step_ranges(buffers, gradient, steps, copy)
    }

    /// See [`gather_ranges`](ranges::gather_ranges).
    fn gather_ranges(buffers: Vec<Tensor<Self, 1>>, ranges: &[BufferRange]) -> Tensor<Self, 1> {
        ranges::reference::gather(buffers, ranges)
    }

    /// See [`scatter_ranges`](ranges::scatter_ranges).
    fn scatter_ranges(buffer: Tensor<Self, 1>, values: Tensor<Self, 1>, targets: &[RangeTarget]) -> Tensor<Self, 1> {
        ranges::reference::scatter(buffer, values, targets)
    }

    /// See [`clear_ranges`](ranges::clear_ranges).
    fn clear_ranges(buffer: Tensor<Self, 1>, ranges: &[Range<usize>]) -> Tensor<Self, 1> {
        ranges::reference::clear(buffer, ranges)
    }

    /// See [`sums_of_squares`](l2_norm::sums_of_squares).
    fn sums_of_squares(buffers: Vec<Tensor<Self, 1>>, parts: &[SquaredPart], sums: usize) -> Tensor<Self, 1> {
        l2_norm::reference::sums_of_squares(buffers, parts, sums)
    }
}
