//! `ParallelTransformerDecoder`: burn's `TransformerDecoder`, its layers shared out over the tensor-parallel group.

use burn::module::Module;
use burn::nn::transformer::{TransformerDecoder, TransformerDecoderConfig, TransformerDecoderLayer};
use burn::tensor::{Bool, Device, Tensor};

use super::ParallelPositionWiseFeedForward;
use super::cache::LayerCache;
use super::residual::{NormFirst, add, convert_norm};
use crate::context::ParameterScope;
use crate::random::{Dropout, ModuleStep, StepCoordinates};
use crate::tensor_parallel::attention::{AttentionMasks, ParallelMultiHeadAttention};
use crate::tensor_parallel::conversion::{
    ConversionError, check_drawn, check_field, check_fields, converted_dropout, module_name,
};
use crate::tensor_parallel::region::{Region, TokenPass};
use crate::tensor_parallel::{LayerNorm, MhaInput};

/// The names of decoders and their layers in messages.
const KIND: &str = "transformer decoder";
const LAYER_KIND: &str = "transformer decoder layer";

/// The input of [`ParallelTransformerDecoder`], made as burn's `TransformerDecoderInput` is: a dimension of 1 of a mask
/// is broadcast.
#[derive(Clone, Debug)]
pub struct TransformerDecoderInput {
    target: Tensor<3>,
    memory: Tensor<3>,
    target_masks: AttentionMasks,
    memory_masks: AttentionMasks,
    step: Option<StepCoordinates>,
}

impl TransformerDecoderInput {
    /// Returns an input without masks.
    ///
    /// # Shapes
    /// - `target`: `[batch, seq, d_model]`, the same on every tensor-parallel rank
    /// - `memory`: `[batch, memory_seq, d_model]`, likewise
    pub fn new(target: Tensor<3>, memory: Tensor<3>) -> Self {
        Self {
            target,
            memory,
            target_masks: AttentionMasks::none(),
            memory_masks: AttentionMasks::none(),
            step: None,
        }
    }

    /// Hides the memory's tokens where `mask_pad`, `[batch, memory_seq]`, is true.
    pub fn memory_mask_pad(mut self, mask_pad: Tensor<2, Bool>) -> Self {
        self.memory_masks.pad = Some(mask_pad);
        self
    }

    /// Hides the memory's tokens from the target's where `mask_attn`, `[batch, seq, memory_seq]`, is true.
    pub fn memory_mask_attn(mut self, mask_attn: Tensor<3, Bool>) -> Self {
        self.memory_masks.attn = Some(mask_attn);
        self
    }

    /// Hides the target's tokens where `mask_pad`, `[batch, seq]`, is true.
    pub fn target_mask_pad(mut self, mask_pad: Tensor<2, Bool>) -> Self {
        self.target_masks.pad = Some(mask_pad);
        self
    }

    /// Hides the target's tokens from each other where `mask_attn`, `[batch, seq, seq]`, is true.
    pub fn target_mask_attn(mut self, mask_attn: Tensor<3, Bool>) -> Self {
        self.target_masks.attn = Some(mask_attn);
        self
    }

    /// Says where the target's tokens are in the run, in place of `ParallelContext::set_step`: `[batch * seq]`
    /// tokens.
    pub fn coordinates(mut self, step: StepCoordinates) -> Self {
        self.step = Some(step);
        self
    }
}

/// burn's transformer decoder, each layer shared out over the tensor-parallel group.
///
/// # Reference
/// Vaswani et al. 2017, arXiv:1706.03762, section 3.1; Shoeybi et al. 2019, arXiv:1909.08053, section 3; under sequence
/// parallelism Korthikanti et al. 2022, arXiv:2205.05198, section 4.2.2.
#[derive(Module, Debug)]
pub struct ParallelTransformerDecoder {
    /// The layers.
    pub layers: Vec<ParallelTransformerDecoderLayer>,
    #[module(skip)]
    region: Region,
    #[module(skip)]
    step: ModuleStep,
}

impl ParallelTransformerDecoder {
    /// Returns this rank's shards of burn's decoder, which every rank holds in full; its parameters are named
    /// `layers.0.self_attn.query.weight` and so on in the context's scope.
    ///
    /// `config` is what the decoder was made with: burn keeps the epsilon of a norm to itself. All other settings are
    /// the decoder's own, `min_float` and the activation included.
    ///
    /// # Errors
    /// The errors of [`ParallelTransformerEncoder::from_encoder`](super::ParallelTransformerEncoder::from_encoder).
    pub fn from_decoder(
        decoder: TransformerDecoder,
        config: &TransformerDecoderConfig,
        scope: &ParameterScope,
    ) -> Result<Self, ConversionError> {
        let module = module_name(scope, KIND);
        check_fields!(module, config, decoder: d_model, d_ff, n_heads, dropout, norm_first, quiet_softmax);
        check_field(&module, "n_layers", config.n_layers, decoder.layers.len())?;
        check_drawn(&decoder, scope)?;
        let layers = decoder.layers.into_iter().enumerate().map(|(number, layer)| {
            let scope = scope.scope(format!("layers.{number}"));
            ParallelTransformerDecoderLayer::from_layer(layer, config.layer_norm_eps, &scope)
        });
        Ok(Self {
            layers: layers.collect::<Result<_, _>>()?,
            region: Region::new(scope, KIND),
            step: ModuleStep::new(scope.context().current_step(), module),
        })
    }
}

impl ParallelTransformerDecoder {
    /// Applies the layers.
    ///
    /// # Shapes
    /// - input: see [`TransformerDecoderInput`]
    /// - output: `[batch, seq, d_model]`, the same on every tensor-parallel rank
    ///
    /// # Communication
    /// Per layer, forward: three all-reduces of the target's size over the tensor group; under sequence parallelism
    /// three all-gathers and three reduce-scatters. Backward: the same, and one all-reduce of the memory's size for all
    /// layers. Under sequence parallelism one all-gather of the output in addition, and backward one of the target's
    /// gradient.
    ///
    /// # Panics
    /// When a collective fails, a mask has another shape, an active dropout does not know its step (see
    /// `ParallelContext::set_step`), or the tensor-parallel size does not divide `batch * seq` under sequence
    /// parallelism.
    pub fn forward(&self, input: TransformerDecoderInput) -> Tensor<3> {
        let dims @ [batch, seq, _] = input.target.dims();
        let device = input.target.device();
        let drops = self.layers.iter().any(|layer| layer.drops(&device));
        let step = drops.then(|| input.step.unwrap_or_else(|| self.step.take(batch, seq)));
        let pass = self.region.pass(dims, step);
        let target = self.region.split(input.target);
        // All layers share the memory's entry, so that its gradient is summed over the ranks once.
        let memory = self.region.enter_whole(input.memory);
        let masks = [&input.target_masks, &input.memory_masks];
        let target = self
            .layers
            .iter()
            .fold(target, |target, layer| layer.transform(target, &memory, masks, &pass));
        self.region.join(target, batch)
    }

    /// Applies the layers to the target's tokens so far, computing what is new: that of the last token. The memory must
    /// be the same in every call.
    ///
    /// For inference: without dropout, and the output is not differentiable.
    ///
    /// # Shapes
    /// - input: see [`TransformerDecoderInput`]: all of the target's tokens so far
    /// - output: `[batch, seq, d_model]`, the same on every tensor-parallel rank
    ///
    /// # Communication
    /// Per layer three all-reduces of the new tokens over the tensor group.
    ///
    /// # Panics
    /// When a collective fails, a mask has another shape, or the cache is of a decoder with another number of layers.
    pub fn forward_autoregressive_inference(
        &self,
        input: TransformerDecoderInput,
        cache: &mut TransformerDecoderAutoregressiveCache,
    ) -> Tensor<3> {
        assert_eq!(
            self.layers.len(),
            cache.layers.len(),
            "the decoder's layers against the cache's"
        );
        let masks = [&input.target_masks, &input.memory_masks];
        let layers = self.layers.iter().zip(&mut cache.layers);
        layers.fold(input.target, |target, (layer, cache)| {
            layer.infer(target, &input.memory, masks, cache).detach()
        })
    }

    /// Returns an empty cache for [`forward_autoregressive_inference`](Self::forward_autoregressive_inference).
    pub fn new_autoregressive_cache(&self) -> TransformerDecoderAutoregressiveCache {
        TransformerDecoderAutoregressiveCache {
            layers: LayerCache::of_layers(self.layers.len()),
        }
    }
}

/// The results that [`ParallelTransformerDecoder::forward_autoregressive_inference`] keeps of the tokens so far.
#[derive(Clone, Debug)]
pub struct TransformerDecoderAutoregressiveCache {
    layers: Vec<LayerCache>,
}

/// A layer of [`ParallelTransformerDecoder`].
#[derive(Module, Debug)]
pub struct ParallelTransformerDecoderLayer {
    /// The attention to the memory.
    pub cross_attn: ParallelMultiHeadAttention,
    /// The attention to the target.
    pub self_attn: ParallelMultiHeadAttention,
    /// The feed-forward part.
    pub pwff: ParallelPositionWiseFeedForward,
    /// The norm around the attention to the memory.
    pub norm_1: LayerNorm,
    /// The norm around the feed-forward part.
    pub norm_2: LayerNorm,
    /// The norm around the attention to the target.
    pub norm_3: LayerNorm,
    self_dropout: Dropout,
    cross_dropout: Dropout,
    feed_forward_dropout: Dropout,
    norm_first: bool,
    #[module(skip)]
    region: Region,
}

impl ParallelTransformerDecoderLayer {
    fn from_layer(
        layer: TransformerDecoderLayer,
        epsilon: f64,
        scope: &ParameterScope,
    ) -> Result<Self, ConversionError> {
        let dropout = |site| converted_dropout(&layer.dropout, site, LAYER_KIND, scope);
        Ok(Self {
            self_dropout: dropout("self_dropout")?,
            cross_dropout: dropout("cross_dropout")?,
            feed_forward_dropout: dropout("feed_forward_dropout")?,
            cross_attn: ParallelMultiHeadAttention::from_mha(layer.cross_attn, &scope.scope("cross_attn"))?,
            self_attn: ParallelMultiHeadAttention::from_mha(layer.self_attn, &scope.scope("self_attn"))?,
            pwff: ParallelPositionWiseFeedForward::from_pwff(layer.pwff, &scope.scope("pwff"))?,
            norm_1: convert_norm(layer.norm_1, epsilon, &scope.scope("norm_1"))?,
            norm_2: convert_norm(layer.norm_2, epsilon, &scope.scope("norm_2"))?,
            norm_3: convert_norm(layer.norm_3, epsilon, &scope.scope("norm_3"))?,
            norm_first: layer.norm_first,
            region: Region::new(scope, LAYER_KIND),
        })
    }

    fn drops(&self, device: &Device) -> bool {
        let own = [&self.self_dropout, &self.cross_dropout, &self.feed_forward_dropout];
        let attentions = [&self.self_attn, &self.cross_attn];
        own.iter().any(|dropout| dropout.is_active(device))
            || attentions.iter().any(|attention| attention.drops(device))
            || self.pwff.drops(device)
    }
}

impl ParallelTransformerDecoderLayer {
    /// This rank's tokens of the target to the same, with a memory that has entered the region.
    fn transform(
        &self,
        input: Tensor<2>,
        memory: &Tensor<2>,
        [target_masks, memory_masks]: [&AttentionMasks; 2],
        pass: &TokenPass,
    ) -> Tensor<2> {
        let norm_first = NormFirst(self.norm_first);
        let sum = |residual, output, dropout| add(residual, output, dropout, pass.local());
        let normal = norm_first.before(&input, |tensor| self.norm_3.forward(tensor));
        let attended = self
            .self_attn
            .attend(self.region.enter(normal), None, target_masks, pass);
        let hidden = sum(input, attended, &self.self_dropout);
        let [hidden, normal] = norm_first.between(hidden, |tensor| self.norm_1.forward(tensor));
        let memory = Some([memory.clone(), memory.clone()]);
        let attended = self
            .cross_attn
            .attend(self.region.enter(normal), memory, memory_masks, pass);
        let hidden = sum(hidden, attended, &self.cross_dropout);
        let [hidden, normal] = norm_first.between(hidden, |tensor| self.norm_2.forward(tensor));
        let output = sum(hidden, self.pwff.transform(normal, pass), &self.feed_forward_dropout);
        norm_first.after(output, |tensor| self.norm_3.forward(tensor))
    }

    /// All of the target's tokens so far to the same, without dropout.
    fn infer(
        &self,
        input: Tensor<3>,
        memory: &Tensor<3>,
        [target_masks, memory_masks]: [&AttentionMasks; 2],
        cache: &mut LayerCache,
    ) -> Tensor<3> {
        let norm_first = NormFirst(self.norm_first);
        let norm_1 = |tensor| cache.norm_1.append(tensor, 1, |tensor| self.norm_1.forward(tensor));
        let norm_2 = |tensor| cache.norm_2.append(tensor, 1, |tensor| self.norm_2.forward(tensor));
        let mut norm_3 = |tensor| cache.norm_3.append(tensor, 1, |tensor| self.norm_3.forward(tensor));
        let normal = norm_first.before(&input, &mut norm_3);
        let attention = MhaInput::self_attn(normal).with_masks(target_masks);
        let hidden = input + self.self_attn.forward_cache(attention, &mut cache.self_attn).context;
        let [hidden, normal] = norm_first.between(hidden, norm_1);
        let attention = MhaInput::new(normal, memory.clone(), memory.clone()).with_masks(memory_masks);
        let hidden = hidden + self.cross_attn.forward_cache(attention, &mut cache.cross_attn).context;
        let [hidden, normal] = norm_first.between(hidden, norm_2);
        let output = hidden + cache.pwff.append(normal, 1, |tensor| self.pwff.infer(tensor));
        norm_first.after(output, norm_3)
    }
}
