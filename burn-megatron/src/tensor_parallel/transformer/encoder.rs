//! `ParallelTransformerEncoder`: burn's `TransformerEncoder`, its layers shared out over the tensor-parallel group.

use burn::module::Module;
use burn::nn::transformer::{TransformerEncoder, TransformerEncoderConfig, TransformerEncoderLayer};
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

/// The names of encoders and their layers in messages.
const KIND: &str = "transformer encoder";
const LAYER_KIND: &str = "transformer encoder layer";

/// The input of [`ParallelTransformerEncoder`], made as burn's `TransformerEncoderInput` is.
#[derive(Clone, Debug)]
pub struct TransformerEncoderInput {
    tensor: Tensor<3>,
    masks: AttentionMasks,
    step: Option<StepCoordinates>,
}

impl TransformerEncoderInput {
    /// Returns an input without masks.
    ///
    /// # Shapes
    /// - `tensor`: `[batch, seq, d_model]`, the same on every tensor-parallel rank
    pub fn new(tensor: Tensor<3>) -> Self {
        Self {
            tensor,
            masks: AttentionMasks::none(),
            step: None,
        }
    }

    /// Hides the tokens where `mask_pad`, `[batch, seq]`, is true; a dimension of 1 is broadcast.
    pub fn mask_pad(mut self, mask_pad: Tensor<2, Bool>) -> Self {
        self.masks.pad = Some(mask_pad);
        self
    }

    /// Hides tokens from tokens where `mask_attn`, `[batch, seq, seq]`, is true; a dimension of 1 is broadcast.
    pub fn mask_attn(mut self, mask_attn: Tensor<3, Bool>) -> Self {
        self.masks.attn = Some(mask_attn);
        self
    }

    /// Says where the tokens are in the run, in place of `ParallelContext::set_step`: `[batch * seq]` tokens.
    pub fn coordinates(mut self, step: StepCoordinates) -> Self {
        self.step = Some(step);
        self
    }
}

/// burn's transformer encoder, each layer shared out over the tensor-parallel group.
///
/// # Reference
/// Vaswani et al. 2017, arXiv:1706.03762, section 3.1; Shoeybi et al. 2019, arXiv:1909.08053, section 3; under sequence
/// parallelism Korthikanti et al. 2022, arXiv:2205.05198, section 4.2.2.
#[derive(Module, Debug)]
pub struct ParallelTransformerEncoder {
    /// The layers; a pipeline stage keeps its own and drops the others.
    pub layers: Vec<ParallelTransformerEncoderLayer>,
    #[module(skip)]
    region: Region,
    #[module(skip)]
    step: ModuleStep,
}

impl ParallelTransformerEncoder {
    /// Returns this rank's shards of burn's encoder, which every rank holds in full; its parameters are named
    /// `layers.0.mha.query.weight` and so on in the context's scope.
    ///
    /// `config` is what the encoder was made with: burn keeps the epsilon of a norm to itself. All other settings are
    /// the encoder's own, `min_float` and the activation included.
    ///
    /// ```
    /// use burn::nn::transformer::{TransformerEncoder, TransformerEncoderConfig};
    /// use burn::tensor::{Device, Tensor};
    /// use burn_megatron::context::ParallelContext;
    /// use burn_megatron::tensor_parallel::{ParallelTransformerEncoder, TransformerEncoderInput};
    ///
    /// # fn main() -> Result<(), burn_megatron::tensor_parallel::ConversionError> {
    /// # let context = ParallelContext::single(1);
    /// let config = TransformerEncoderConfig::new(8, 16, 2, 1);
    /// let encoder: TransformerEncoder = burn_megatron::initialize(config.init(&Device::flex()));
    /// let encoder = ParallelTransformerEncoder::from_encoder(encoder, &config, &context.scope("encoder"))?;
    /// let input = Tensor::ones([2, 3, 8], &Device::flex());
    /// assert_eq!(encoder.forward(TransformerEncoderInput::new(input)).dims(), [2, 3, 8]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Train with [`DistributedDataParallel`](crate::data_parallel::DistributedDataParallel), even without
    /// data-parallel ranks. burn's own `optimizer.step` clips by the norm of this rank's shard, and gets partial sums
    /// as gradients where [`sum_partial_gradients`](crate::data_parallel::sum_partial_gradients) has not added them up;
    /// and only the wrapper refuses burn's own `Dropout` in the layers around the encoder.
    ///
    /// # Errors
    /// When `config` is not that of the encoder, the encoder has been cut or has no values yet, the tensor-parallel
    /// size does not divide the heads or `d_ff`, or an activation or a probability of dropout is not supported.
    pub fn from_encoder(
        encoder: TransformerEncoder,
        config: &TransformerEncoderConfig,
        scope: &ParameterScope,
    ) -> Result<Self, ConversionError> {
        let module = module_name(scope, KIND);
        check_fields!(module, config, encoder: d_model, d_ff, n_heads, dropout, norm_first, quiet_softmax);
        check_field(&module, "n_layers", config.n_layers, encoder.layers.len())?;
        check_drawn(&encoder, scope)?;
        let layers = encoder.layers.into_iter().enumerate().map(|(number, layer)| {
            let scope = scope.scope(format!("layers.{number}"));
            ParallelTransformerEncoderLayer::from_layer(layer, config.layer_norm_eps, &scope)
        });
        Ok(Self {
            layers: layers.collect::<Result<_, _>>()?,
            region: Region::new(scope, KIND),
            step: ModuleStep::new(scope.context().current_step(), module),
        })
    }
}

impl ParallelTransformerEncoder {
    /// Applies the layers.
    ///
    /// # Shapes
    /// - input: see [`TransformerEncoderInput`]
    /// - output: `[batch, seq, d_model]`, the same on every tensor-parallel rank
    ///
    /// # Communication
    /// Per layer, forward: two all-reduces of the input's size over the tensor group; under sequence parallelism two
    /// all-gathers and two reduce-scatters. Backward: the same. Under sequence parallelism one all-gather of the output
    /// in addition, and backward one of the input's gradient.
    ///
    /// # Panics
    /// When a collective fails, a mask has another shape, an active dropout does not know its step (see
    /// `ParallelContext::set_step`), or the tensor-parallel size does not divide `batch * seq` under sequence
    /// parallelism.
    pub fn forward(&self, input: TransformerEncoderInput) -> Tensor<3> {
        let dims @ [batch, seq, _] = input.tensor.dims();
        let device = input.tensor.device();
        let drops = self.layers.iter().any(|layer| layer.drops(&device));
        let step = drops.then(|| input.step.unwrap_or_else(|| self.step.take(batch, seq)));
        let pass = self.region.pass(dims, step);
        let hidden = self.region.split(input.tensor);
        let hidden = self
            .layers
            .iter()
            .fold(hidden, |hidden, layer| layer.transform(hidden, &input.masks, &pass));
        self.region.join(hidden, batch)
    }

    /// Applies the layers to the tokens so far, computing what is new: that of the last token.
    ///
    /// For inference: without dropout, and the output is not differentiable.
    ///
    /// # Shapes
    /// - input: see [`TransformerEncoderInput`]: all tokens so far
    /// - output: `[batch, seq, d_model]`, the same on every tensor-parallel rank
    ///
    /// # Communication
    /// Per layer two all-reduces of the new tokens over the tensor group.
    ///
    /// # Panics
    /// When a collective fails, a mask has another shape, or the cache is of an encoder with another number of layers.
    pub fn forward_autoregressive_inference(
        &self,
        input: TransformerEncoderInput,
        cache: &mut TransformerEncoderAutoregressiveCache,
    ) -> Tensor<3> {
        assert_eq!(
            self.layers.len(),
            cache.layers.len(),
            "the encoder's layers against the cache's"
        );
        let layers = self.layers.iter().zip(&mut cache.layers);
        layers.fold(input.tensor, |hidden, (layer, cache)| {
            layer.infer(hidden, &input.masks, cache).detach()
        })
    }

    /// Returns an empty cache for [`forward_autoregressive_inference`](Self::forward_autoregressive_inference).
    pub fn new_autoregressive_cache(&self) -> TransformerEncoderAutoregressiveCache {
        TransformerEncoderAutoregressiveCache {
            layers: LayerCache::of_layers(self.layers.len()),
        }
    }
}

/// The results that [`ParallelTransformerEncoder::forward_autoregressive_inference`] keeps of the tokens so far.
#[derive(Clone, Debug)]
pub struct TransformerEncoderAutoregressiveCache {
    layers: Vec<LayerCache>,
}

/// A layer of [`ParallelTransformerEncoder`].
#[derive(Module, Debug)]
pub struct ParallelTransformerEncoderLayer {
    /// The attention.
    pub mha: ParallelMultiHeadAttention,
    /// The feed-forward part.
    pub pwff: ParallelPositionWiseFeedForward,
    /// The norm around the feed-forward part.
    pub norm_1: LayerNorm,
    /// The norm around the attention.
    pub norm_2: LayerNorm,
    attention_dropout: Dropout,
    feed_forward_dropout: Dropout,
    norm_first: bool,
    #[module(skip)]
    region: Region,
}

impl ParallelTransformerEncoderLayer {
    fn from_layer(
        layer: TransformerEncoderLayer,
        epsilon: f64,
        scope: &ParameterScope,
    ) -> Result<Self, ConversionError> {
        let dropout = |site| converted_dropout(&layer.dropout, site, LAYER_KIND, scope);
        Ok(Self {
            attention_dropout: dropout("attention_dropout")?,
            feed_forward_dropout: dropout("feed_forward_dropout")?,
            mha: ParallelMultiHeadAttention::from_mha(layer.mha, &scope.scope("mha"))?,
            pwff: ParallelPositionWiseFeedForward::from_pwff(layer.pwff, &scope.scope("pwff"))?,
            norm_1: convert_norm(layer.norm_1, epsilon, &scope.scope("norm_1"))?,
            norm_2: convert_norm(layer.norm_2, epsilon, &scope.scope("norm_2"))?,
            norm_first: layer.norm_first,
            region: Region::new(scope, LAYER_KIND),
        })
    }

    fn drops(&self, device: &Device) -> bool {
        let own = [&self.attention_dropout, &self.feed_forward_dropout];
        own.iter().any(|dropout| dropout.is_active(device)) || self.mha.drops(device) || self.pwff.drops(device)
    }
}

impl ParallelTransformerEncoderLayer {
    /// This rank's tokens to this rank's tokens.
    fn transform(&self, input: Tensor<2>, masks: &AttentionMasks, pass: &TokenPass) -> Tensor<2> {
        let norm_first = NormFirst(self.norm_first);
        let sum = |residual, output, dropout| add(residual, output, dropout, pass.local());
        let normal = norm_first.before(&input, |tensor| self.norm_2.forward(tensor));
        let attended = self.mha.attend(self.region.enter(normal), None, masks, pass);
        let hidden = sum(input, attended, &self.attention_dropout);
        let [hidden, normal] = norm_first.between(hidden, |tensor| self.norm_1.forward(tensor));
        let output = sum(hidden, self.pwff.transform(normal, pass), &self.feed_forward_dropout);
        norm_first.after(output, |tensor| self.norm_2.forward(tensor))
    }

    /// All tokens so far to all tokens so far, without dropout.
    fn infer(&self, input: Tensor<3>, masks: &AttentionMasks, cache: &mut LayerCache) -> Tensor<3> {
        let norm_first = NormFirst(self.norm_first);
        let norm_1 = |tensor| cache.norm_1.append(tensor, 1, |tensor| self.norm_1.forward(tensor));
        let mut norm_2 = |tensor| cache.norm_2.append(tensor, 1, |tensor| self.norm_2.forward(tensor));
        let normal = norm_first.before(&input, &mut norm_2);
        let attention = MhaInput::self_attn(normal).with_masks(masks);
        let hidden = input + self.mha.forward_cache(attention, &mut cache.self_attn).context;
        let [hidden, normal] = norm_first.between(hidden, norm_1);
        let output = hidden + cache.pwff.append(normal, 1, |tensor| self.pwff.infer(tensor));
        norm_first.after(output, norm_2)
    }
}
