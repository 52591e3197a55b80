//! The operations on CubeCL's backends: CUDA, Vulkan and others.

use std::ops::Range;

use burn::tensor::{DType, Int, Tensor};
use burn_cubecl::{BoolElement, CubeBackend, CubeRuntime, FloatElement, IntElement};

use crate::KernelBackend;
use crate::accumulate::{self, GradientPlace, GradientSums, VectorSums};
use crate::adamw::{self, AdamWBuffers, AdamWRanges, AdamWStep};
use crate::bias_dropout_add;
use crate::bias_gelu::{self, BiasGeluGradients};
use crate::cross_entropy::{self, Statistics};
use crate::cube::columns::Partials;
use crate::cube::launch::{self, OnCube};
#[cfg(feature = "cublaslt")]
use crate::cublaslt;
use crate::embedding::{self, TokenRange};
use crate::error::{Check, KernelError};
use crate::flash_attention::{
    self, AttentionBackward, AttentionForward, AttentionOptions, AttentionSizes, PackedHeads,
};
use crate::l2_norm::{self, SquaredPart};
#[cfg(feature = "cublaslt")]
use crate::linear::blocks::BlockProduct;
use crate::linear::{self, LinearGradients, LinearInputs, LinearWanted, WeightOrder};
use crate::norm::{self, AddRule, AddendGradients, Addends, NormAdded, NormGradients, NormParameters, NormStatistics};
use crate::paged_attention::{self, PagedCache, PagedOptions, PagedSizes};
use crate::ranges::{self, BufferRange, RangeTarget};
use crate::rotary::launch::CubeAngles;
use crate::rotary::{self, RotaryAngles, RotaryHeads};
use crate::softmax::{self, SoftmaxMask};
use crate::swiglu;
use crate::tape::{float, primitive};

/// Types that there are no kernels for run the references.
impl<R, F, I, BT> KernelBackend for CubeBackend<R, F, I, BT>
where
    R: CubeRuntime,
    F: FloatElement,
    I: IntElement,
    BT: BoolElement,
{
    #[cfg(feature = "cublaslt")]
    fn multiply(a: Tensor<Self, 2>, b: Tensor<Self, 2>, bias: Option<Tensor<Self, 1>>) -> Tensor<Self, 2> {
        cublaslt::multiply_or_burn(a, b, bias)
    }

    #[cfg(feature = "cublaslt")]
    fn add_product(
        sums: Tensor<Self, 1>,
        a: Tensor<Self, 2>,
        b: Tensor<Self, 2>,
        place: GradientPlace,
    ) -> Tensor<Self, 1> {
        cublaslt::add_product(sums, a, b, place)
    }

    #[cfg(feature = "cublaslt")]
    fn multiplies_in_library() -> bool {
        cublaslt::is_enabled::<R>()
    }

    #[cfg(feature = "cublaslt")]
    fn affine_blocks(product: BlockProduct<Self>) -> Tensor<Self, 2> {
        product.check();
        cublaslt::multiply_blocks(product)
    }

    fn affine(inputs: LinearInputs<Self>) -> Tensor<Self, 2> {
        linear::launch::forward(inputs)
    }

    fn affine_backward(
        input: Tensor<Self, 2>,
        weight: Tensor<Self, 2>,
        order: WeightOrder,
        gradient: Tensor<Self, 2>,
        wanted: LinearWanted,
    ) -> LinearGradients<Self> {
        linear::launch::backward(input, weight, order, gradient, wanted)
    }

    fn bias_dropout_add(addends: Addends<Self>) -> Tensor<Self, 2> {
        if !runs(&addends.input) {
            return bias_dropout_add::reference::forward(addends);
        }
        let inputs = [addends.input, addends.residual].map(primitive);
        let bias = addends.bias.map(primitive);
        float(bias_dropout_add::launch::forward(
            inputs,
            bias,
            addends.dropout.as_ref(),
        ))
    }

    fn bias_dropout_add_backward(gradient: Tensor<Self, 2>, addends: &AddRule) -> AddendGradients<Self> {
        if !runs(&gradient) {
            return bias_dropout_add::reference::backward(gradient, addends);
        }
        let of_sum = primitive(gradient.clone());
        let (input, partials) = bias_dropout_add::launch::backward(of_sum, addends.has_bias, addends.dropout.as_ref());
        let bias = partials.map(|partials| sum_of_one(partials, gradient.dtype()));
        AddendGradients {
            input: float(input),
            bias,
            residual: gradient,
        }
    }

    fn bias_dropout_add_backward_into(
        gradient: Tensor<Self, 2>,
        addends: &AddRule,
        to: VectorSums<Self>,
    ) -> (Tensor<Self, 2>, GradientSums<Self>) {
        if !runs(&gradient) || !takes_columns(&to) {
            return bias_dropout_add::backward_into(gradient, addends, to);
        }
        let of_sum = primitive(gradient);
        let (input, partials) = bias_dropout_add::launch::backward(of_sum, addends.has_bias, addends.dropout.as_ref());
        let partials = partials.expect("a sum with a bias");
        (float(input), added(partials, to))
    }

    fn bias_gelu(input: Tensor<Self, 2>, bias: Tensor<Self, 1>) -> Tensor<Self, 2> {
        if !runs(&input) {
            return bias_gelu::reference::forward(input, bias);
        }
        float(bias_gelu::launch::forward(primitive(input), primitive(bias)))
    }

    fn bias_gelu_backward(
        input: Tensor<Self, 2>,
        bias: Tensor<Self, 1>,
        gradient: Tensor<Self, 2>,
    ) -> BiasGeluGradients<Self> {
        if !runs(&input) {
            return bias_gelu::reference::backward(input, bias, gradient);
        }
        let dtype = input.dtype();
        let (input, partials) = bias_gelu::launch::backward(primitive(input), primitive(bias), primitive(gradient));
        BiasGeluGradients {
            input: float(input),
            bias: sum_of_one(partials, dtype),
        }
    }

    fn bias_gelu_backward_into(
        input: Tensor<Self, 2>,
        bias: Tensor<Self, 1>,
        gradient: Tensor<Self, 2>,
        to: VectorSums<Self>,
    ) -> (Tensor<Self, 2>, GradientSums<Self>) {
        if !runs(&input) || !takes_columns(&to) {
            return bias_gelu::backward_into(input, bias, gradient, to);
        }
        let (input, partials) = bias_gelu::launch::backward(primitive(input), primitive(bias), primitive(gradient));
        (float(input), added(partials, to))
    }

    fn swiglu(input: Tensor<Self, 2>) -> Tensor<Self, 2> {
        if !runs(&input) {
            return swiglu::reference::forward(input);
        }
        float(swiglu::launch::forward(primitive(input)))
    }

    fn swiglu_backward(input: Tensor<Self, 2>, gradient: Tensor<Self, 2>) -> Tensor<Self, 2> {
        if !runs(&input) {
            return swiglu::reference::backward(input, gradient);
        }
        float(swiglu::launch::backward(primitive(input), primitive(gradient)))
    }

    fn rotary(input: Tensor<Self, 4>, angles: Option<RotaryAngles<Self>>) -> Tensor<Self, 3> {
        let on_device = angles.clone().map(cube_angles);
        if !runs(&input) || !on_device.as_ref().is_none_or(CubeAngles::is_read) {
            return rotary::reference::forward(input, angles);
        }
        float(rotary::launch::forward(primitive(input), on_device))
    }

    fn rotary_backward(
        gradient: Tensor<Self, 3>,
        heads: RotaryHeads,
        angles: Option<RotaryAngles<Self>>,
    ) -> Tensor<Self, 4> {
        let on_device = angles.clone().map(cube_angles);
        if !runs(&gradient) || !on_device.as_ref().is_none_or(CubeAngles::is_read) {
            return rotary::reference::backward(gradient, heads, angles);
        }
        float(rotary::launch::backward(primitive(gradient), heads, on_device))
    }

    fn cross_entropy_statistics(
        logits: Tensor<Self, 2>,
        targets: Tensor<Self, 1, Int>,
        valid: usize,
    ) -> Statistics<Self> {
        if !runs_with(&logits, &targets) {
            return cross_entropy::reference::statistics(logits, targets, valid);
        }
        let statistics = cross_entropy::launch::statistics(primitive(logits), targets.into_primitive(), valid);
        let [maximum, sum, target] = statistics.map(float);
        Statistics { maximum, sum, target }
    }

    fn cross_entropy_backward(
        logits: Tensor<Self, 2>,
        targets: Tensor<Self, 1, Int>,
        valid: usize,
        whole: Statistics<Self>,
        gradient: Tensor<Self, 1>,
    ) -> Tensor<Self, 2> {
        if !runs_with(&logits, &targets) {
            return cross_entropy::reference::backward(logits, targets, valid, whole, gradient);
        }
        let (logits, targets, gradient) = (primitive(logits), targets.into_primitive(), primitive(gradient));
        let whole = [whole.maximum, whole.sum].map(primitive);
        float(cross_entropy::launch::backward(logits, targets, valid, whole, gradient))
    }

    fn embedding_rows(table: Tensor<Self, 2>, tokens: Tensor<Self, 1, Int>, range: TokenRange) -> Tensor<Self, 2> {
        if !runs_with(&table, &tokens) {
            return embedding::reference::forward(table, tokens, range);
        }
        float(embedding::launch::rows(
            primitive(table),
            tokens.into_primitive(),
            range,
        ))
    }

    fn add_rows(
        sums: Tensor<Self, 1>,
        offset: usize,
        tokens: Tensor<Self, 1, Int>,
        gradient: Tensor<Self, 2>,
        range: TokenRange,
    ) -> Tensor<Self, 1> {
        if !runs_with(&sums, &tokens) || !is_supported(&gradient) {
            return embedding::reference::add_rows(sums, offset, tokens, gradient, range);
        }
        let (sums, tokens, gradient) = (primitive(sums), tokens.into_primitive(), primitive(gradient));
        float(embedding::launch::add_rows(sums, offset, tokens, gradient, range))
    }

    fn accumulate(sums: GradientSums<Self>, gradient: Tensor<Self, 1>, place: GradientPlace) -> GradientSums<Self> {
        if sums.sums.dtype() != DType::F32 || !is_supported(&gradient) {
            return accumulate::reference::add(sums, gradient, place);
        }
        let both = [sums.sums, sums.non_finite].map(primitive);
        let [sums, non_finite] = accumulate::launch::add(both, primitive(gradient), place).map(float);
        GradientSums { sums, non_finite }
    }

    fn adamw(
        buffers: AdamWBuffers<Self>,
        gradient: Tensor<Self, 1>,
        step: &AdamWStep,
        copy: Option<DType>,
    ) -> (AdamWBuffers<Self>, Option<Tensor<Self, 1>>) {
        let (buffers, gradient) = (buffers.into_array().map(primitive), primitive(gradient));
        if !adamw::launch::runs(&buffers[0], &gradient, copy) {
            let buffers = AdamWBuffers::from_array(buffers.map(float));
            return adamw::reference::step(buffers, float(gradient), step, copy);
        }
        let (buffers, copy) = adamw::launch::step(buffers, gradient, step, copy);
        (AdamWBuffers::from_array(buffers.map(float)), copy.map(float))
    }

    fn adamw_ranges(
        buffers: AdamWBuffers<Self>,
        gradient: Tensor<Self, 1>,
        steps: &[AdamWRanges],
        copy: DType,
    ) -> (AdamWBuffers<Self>, Tensor<Self, 1>) {
        let (buffers, gradient) = (buffers.into_array().map(primitive), primitive(gradient));
        if !adamw::launch::runs(&buffers[0], &gradient, Some(copy)) {
            let buffers = AdamWBuffers::from_array(buffers.map(float));
            return adamw::reference::step_ranges(buffers, float(gradient), steps, copy);
        }
        let (buffers, copy) = adamw::launch::step_ranges(buffers, gradient, steps, copy);
        (AdamWBuffers::from_array(buffers.map(float)), float(copy))
    }

    fn gather_ranges(buffers: Vec<Tensor<Self, 1>>, ranges: &[BufferRange]) -> Tensor<Self, 1> {
        if !is_supported(&buffers[0]) {
            return ranges::reference::gather(buffers, ranges);
        }
        let buffers = buffers.into_iter().map(primitive).collect();
        float(ranges::launch::gather(buffers, ranges))
    }

    fn scatter_ranges(buffer: Tensor<Self, 1>, values: Tensor<Self, 1>, targets: &[RangeTarget]) -> Tensor<Self, 1> {
        if !is_supported(&buffer) {
            return ranges::reference::scatter(buffer, values, targets);
        }
        float(ranges::launch::scatter(primitive(buffer), primitive(values), targets))
    }

    fn clear_ranges(buffer: Tensor<Self, 1>, ranges: &[Range<usize>]) -> Tensor<Self, 1> {
        if !is_supported(&buffer) {
            return ranges::reference::clear(buffer, ranges);
        }
        float(ranges::launch::clear(primitive(buffer), ranges))
    }

    fn sums_of_squares(buffers: Vec<Tensor<Self, 1>>, parts: &[SquaredPart], sums: usize) -> Tensor<Self, 1> {
        if !is_supported(&buffers[0]) {
            return l2_norm::reference::sums_of_squares(buffers, parts, sums);
        }
        let buffers = buffers.into_iter().map(primitive).collect();
        float(l2_norm::launch::sums_of_squares(buffers, parts, sums))
    }

    fn check_attention(
        device: &Self::Device,
        operation: &'static str,
        dtype: DType,
        sizes: AttentionSizes,
    ) -> Result<(), KernelError> {
        flash_attention::launch::check(&R::client(device), Check(operation), dtype, sizes)
    }

    fn flash_attention_forward(
        inputs: [Tensor<Self, 4>; 3],
        bias: Option<Tensor<Self, 2>>,
        options: &AttentionOptions,
    ) -> AttentionForward<Self> {
        flash_attention::launch::separate_forward(inputs, bias, options)
    }

    fn flash_attention_backward(
        inputs: [Tensor<Self, 4>; 3],
        pass: AttentionBackward<Self>,
        options: &AttentionOptions,
    ) -> ([Tensor<Self, 4>; 3], Option<Tensor<Self, 2>>) {
        flash_attention::launch::separate_backward(inputs, pass, options)
    }

    fn flash_attention_packed_forward(
        packed: Tensor<Self, 4>,
        heads: PackedHeads,
        bias: Option<Tensor<Self, 2>>,
        options: &AttentionOptions,
    ) -> AttentionForward<Self> {
        flash_attention::launch::packed_forward(packed, heads, bias, options)
    }

    fn flash_attention_packed_backward(
        packed: Tensor<Self, 4>,
        heads: PackedHeads,
        pass: AttentionBackward<Self>,
        options: &AttentionOptions,
    ) -> (Tensor<Self, 4>, Option<Tensor<Self, 2>>) {
        flash_attention::launch::packed_backward(packed, heads, pass, options)
    }

    fn paged_attention(
        query: Tensor<Self, 4>,
        cache: PagedCache<Self>,
        options: PagedOptions<Self>,
    ) -> Tensor<Self, 4> {
        let sizes = PagedSizes::of(&query, &cache);
        let inputs = paged_attention::launch::Inputs {
            tensors: [query.clone(), cache.keys.clone(), cache.values.clone()].map(primitive),
            block_table: cache.block_table.clone().into_primitive(),
            lengths: cache.lengths.clone().into_primitive(),
            slopes: options.slopes.clone().map(primitive),
        };
        if !paged_attention::launch::runs(&inputs, sizes) {
            return paged_attention::reference::forward(query, cache, options);
        }
        let scores = paged_attention::launch::Scores {
            scale: options.scale,
            window: options.window,
        };
        float(paged_attention::launch::forward(inputs, sizes, scores))
    }

    fn scaled_masked_softmax(scores: Tensor<Self, 4>, mask: SoftmaxMask<Self>, scale: f64) -> Tensor<Self, 4> {
        softmax::launch::forward(scores, mask, scale)
    }

    fn scaled_masked_softmax_backward(
        output: Tensor<Self, 4>,
        gradient: Tensor<Self, 4>,
        scale: f64,
    ) -> Tensor<Self, 4> {
        softmax::launch::backward(output, gradient, scale)
    }

    fn norm_forward(
        input: Tensor<Self, 2>,
        parameters: &NormParameters<Self>,
    ) -> (Tensor<Self, 2>, NormStatistics<Self>) {
        norm::launch::forward(input, parameters)
    }

    fn norm_backward(
        input: Tensor<Self, 2>,
        parameters: &NormParameters<Self>,
        statistics: NormStatistics<Self>,
        gradient: Tensor<Self, 2>,
    ) -> NormGradients<Self> {
        norm::launch::backward(input, parameters, statistics, gradient)
    }

    fn add_norm_forward(
        addends: Addends<Self>,
        parameters: &NormParameters<Self>,
    ) -> ([Tensor<Self, 2>; 2], NormStatistics<Self>) {
        norm::launch::add_forward(addends, parameters)
    }

    fn add_norm_backward(
        hidden: Tensor<Self, 2>,
        parameters: &NormParameters<Self>,
        statistics: NormStatistics<Self>,
        gradients: [Option<Tensor<Self, 2>>; 2],
        addends: &AddRule,
    ) -> (AddendGradients<Self>, NormGradients<Self>) {
        norm::launch::add_backward(hidden, parameters, statistics, gradients, addends)
    }

    fn norm_backward_into(
        hidden: Tensor<Self, 2>,
        parameters: &NormParameters<Self>,
        statistics: NormStatistics<Self>,
        gradients: [Option<Tensor<Self, 2>>; 2],
        addends: Option<&AddRule>,
        to: VectorSums<Self>,
    ) -> NormAdded<Self> {
        match gradients {
            [of_hidden, Some(of_output)] if runs(&hidden) && takes_columns(&to) => {
                let rows =
                    norm::launch::rows_backward(hidden, parameters, statistics, [of_hidden, Some(of_output)], addends);
                NormAdded {
                    input: rows.input,
                    addend: rows.addend,
                    sums: added(rows.partials, to),
                }
            }
            gradients => norm::backward_into(hidden, parameters, statistics, gradients, addends, to),
        }
    }
}

/// Returns whether kernels add up the columns of partial sums in such sums.
fn takes_columns<R: CubeRuntime, B: OnCube<R>>(to: &VectorSums<B>) -> bool {
    to.sums.sums.dtype() == DType::F32
}

/// Adds the sums of vectors' columns to their places.
fn added<R: CubeRuntime, B: OnCube<R>>(partials: Partials<R>, to: VectorSums<B>) -> GradientSums<B> {
    let both = [to.sums.sums, to.sums.non_finite].map(primitive);
    let [sums, non_finite] = partials.add_to(both, &to.places).map(float);
    GradientSums { sums, non_finite }
}

/// The sums of the columns of the only vector.
fn sum_of_one<R: CubeRuntime, B: OnCube<R>>(partials: Partials<R>, dtype: DType) -> Tensor<B, 1> {
    let mut sums = partials.sum(dtype).into_iter();
    float(sums.next().expect("there is a vector"))
}

/// The angles as the kernels take them.
fn cube_angles<R: CubeRuntime, B: OnCube<R>>(angles: RotaryAngles<B>) -> CubeAngles<R> {
    CubeAngles {
        cosine: primitive(angles.cosine),
        sine: primitive(angles.sine),
        positions: angles.positions.into_primitive(),
        layout: angles.layout,
    }
}

/// Returns whether the kernels run for tensors of this type.
fn is_supported<R: CubeRuntime, B: OnCube<R>, const D: usize>(tensor: &Tensor<B, D>) -> bool {
    let tensor = primitive(tensor.clone());
    launch::is_supported(&tensor.client, tensor.dtype)
}

/// Returns whether the kernels read such numbers, and such whole numbers next to them.
fn runs_with<R: CubeRuntime, B: OnCube<R>, const D: usize>(
    tensor: &Tensor<B, D>,
    integers: &Tensor<B, 1, Int>,
) -> bool {
    is_supported(tensor) && launch::is_integer(integers.dtype())
}

/// Returns whether the kernels run for this tensor, which has elements then.
fn runs<R: CubeRuntime, B: OnCube<R>, const D: usize>(tensor: &Tensor<B, D>) -> bool {
    launch::runs(&primitive(tensor.clone()))
}
