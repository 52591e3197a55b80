//! `ParallelMultiHeadAttention`: burn's `MultiHeadAttention`, each tensor-parallel rank computing its own heads.

use burn::module::Module;
use burn::nn::attention::MultiHeadAttention;
use burn::tensor::{Bool, Device, Tensor};

use super::MhaCache;
use super::heads::{AttentionMasks, Heads, average};
use crate::context::ParameterScope;
use crate::random::{ModuleStep, StepCoordinates};
use crate::tensor_parallel::conversion::{ConversionError, check_drawn, converted_dropout, module_name, named};
use crate::tensor_parallel::region::{Region, TokenPass, rows, samples};
use crate::tensor_parallel::{ColumnParallelLinear, RowParallelLinear};
use crate::topology::check_divides;

/// The input of [`ParallelMultiHeadAttention`], made as burn's `MhaInput` is.
#[derive(Clone, Debug)]
pub struct MhaInput {
    query: Tensor<3>,
    /// `None` in self-attention: what comes in is the query.
    key_value: Option<[Tensor<3>; 2]>,
    masks: AttentionMasks,
    step: Option<StepCoordinates>,
}

impl MhaInput {
    /// Returns the input of self-attention.
    ///
    /// # Shapes
    /// - `tensor`: `[batch, seq, d_model]`, the same on every tensor-parallel rank
    pub fn self_attn(tensor: Tensor<3>) -> Self {
        Self {
            query: tensor,
            key_value: None,
            masks: AttentionMasks::none(),
            step: None,
        }
    }

    /// Returns the input of attention from one sequence to another.
    ///
    /// # Shapes
    /// - `query`: `[batch, queries, d_model]`, the same on every tensor-parallel rank
    /// - `key`, `value`: `[batch, keys, d_model]`, likewise
    pub fn new(query: Tensor<3>, key: Tensor<3>, value: Tensor<3>) -> Self {
        Self {
            key_value: Some([key, value]),
            ..Self::self_attn(query)
        }
    }

    /// Hides the keys where `mask_pad`, `[batch, keys]`, is true; a dimension of 1 is broadcast.
    pub fn mask_pad(mut self, mask_pad: Tensor<2, Bool>) -> Self {
        self.masks.pad = Some(mask_pad);
        self
    }

    /// Hides the keys from the queries where `mask_attn`, `[batch, queries, keys]`, is true; a dimension of 1 is
    /// broadcast.
    pub fn mask_attn(mut self, mask_attn: Tensor<3, Bool>) -> Self {
        self.masks.attn = Some(mask_attn);
        self
    }

    /// Says where the queries are in the run, in place of `ParallelContext::set_step`: `[batch * queries]` tokens.
    pub fn coordinates(mut self, step: StepCoordinates) -> Self {
        self.step = Some(step);
        self
    }

    pub(in crate::tensor_parallel) fn with_masks(self, masks: &AttentionMasks) -> Self {
        Self {
            masks: masks.clone(),
            ..self
        }
    }
}

/// Returns the sources of keys and values: in self-attention that of the queries.
fn key_value_sources<const D: usize>(given: Option<[Tensor<D>; 2]>, query: &Tensor<D>) -> [Tensor<D>; 2] {
    given.unwrap_or_else(|| [query.clone(), query.clone()])
}

/// The output of [`ParallelMultiHeadAttention`].
#[derive(Clone, Debug)]
pub struct MhaOutput {
    /// The attention weights of this rank's heads, `[batch, n_heads / tp, queries, keys]`.
    pub weights: Tensor<4>,
    /// `[batch, queries, d_model]`, the same on every tensor-parallel rank.
    pub context: Tensor<3>,
}

/// burn's multi-head attention, whose heads are shared out over the tensor-parallel group.
///
/// Dropout is applied to the scores before they are masked, as burn does; the step's coordinates determine which
/// elements are dropped: see `ParallelContext::set_step`.
///
/// # Reference
/// Vaswani et al. 2017, arXiv:1706.03762, section 3.2; Shoeybi et al. 2019, arXiv:1909.08053, section 3.
#[derive(Module, Debug)]
pub struct ParallelMultiHeadAttention {
    /// The queries' projection: this rank's heads.
    pub query: ColumnParallelLinear,
    /// The keys' projection.
    pub key: ColumnParallelLinear,
    /// The values' projection.
    pub value: ColumnParallelLinear,
    /// The projection back.
    pub output: RowParallelLinear,
    heads: Heads,
    #[module(skip)]
    region: Region,
    #[module(skip)]
    step: ModuleStep,
}

impl ParallelMultiHeadAttention {
    /// Returns this rank's heads of burn's attention, which every rank holds in full; its parameters are named `query`,
    /// `key`, `value` and `output` in the context's scope.
    ///
    /// `min_float`, `quiet_softmax` and the probability of dropout are the module's own.
    ///
    /// # Errors
    /// When the tensor-parallel size does not divide the heads, the heads do not divide `d_model`, the module has no
    /// values yet, or its dropout is outside `[0, 1)`.
    pub fn from_mha(mha: MultiHeadAttention, scope: &ParameterScope) -> Result<Self, ConversionError> {
        const KIND: &str = "multi-head attention";
        let divided = scope
            .context()
            .config()
            .check_tensor_divides("the number of attention heads", mha.n_heads)
            .and_then(|()| check_divides("d_model", mha.d_model, "n_heads", mha.n_heads));
        divided.map_err(named(scope, KIND))?;
        check_drawn(&mha, scope)?;
        let group = scope.context().tensor_group();
        let n_heads = mha.n_heads / group.size();
        Ok(Self {
            heads: Heads {
                n_heads,
                first_head: group.rank() * n_heads,
                d_k: mha.d_k,
                min_float: mha.min_float,
                quiet_softmax: mha.quiet_softmax,
                dropout: converted_dropout(&mha.dropout, "dropout", KIND, scope)?,
                is_deterministic: scope.context().is_deterministic(),
            },
            query: ColumnParallelLinear::from_linear(mha.query, &scope.scope("query"))?,
            key: ColumnParallelLinear::from_linear(mha.key, &scope.scope("key"))?,
            value: ColumnParallelLinear::from_linear(mha.value, &scope.scope("value"))?,
            output: RowParallelLinear::from_linear(mha.output, &scope.scope("output"))?,
            region: Region::new(scope, KIND),
            step: ModuleStep::new(scope.context().current_step(), module_name(scope, KIND)),
        })
    }

    /// Returns true if the attention drops scores on this device.
    pub(in crate::tensor_parallel) fn drops(&self, device: &Device) -> bool {
        self.heads.dropout.is_active(device)
    }
}

impl ParallelMultiHeadAttention {
    /// Applies attention, and returns the weights too.
    ///
    /// # Shapes
    /// - input: see [`MhaInput`]
    /// - output: see [`MhaOutput`]
    ///
    /// # Communication
    /// Forward: one all-reduce of the output over the tensor group; under sequence parallelism one reduce-scatter and
    /// one all-gather. Backward: one all-reduce of each different input.
    ///
    /// # Panics
    /// When a collective fails, a mask has another shape, an active dropout does not know its step (see
    /// `ParallelContext::set_step`), or the tensor-parallel size does not divide `batch * queries` under sequence
    /// parallelism.
    pub fn forward(&self, input: MhaInput) -> MhaOutput {
        let dims @ [batch, queries, _] = input.query.dims();
        self.region.check_tokens(dims);
        let step = self.drops(&input.query.device()).then(|| match input.step {
            Some(step) => step,
            None => self.step.take(batch, queries),
        });
        let enter = |tensor| self.region.enter_whole(tensor);
        let (query, key_value) = (enter(input.query), input.key_value.map(|pair| pair.map(enter)));
        let projected = self.project(query, key_value, batch);
        let [query, key, value] = projected.map(|tensor| tensor.swap_dims(1, 2));
        let weights = self.heads.weights(query, key, &input.masks, step.as_ref());
        let attended = average(weights.clone(), value).swap_dims(1, 2);
        let output = self.output.forward(self.joined(attended));
        MhaOutput {
            weights,
            context: self.region.join(output, batch),
        }
    }

    /// Applies attention to the tokens so far, computing what is new: the projections of the last token.
    ///
    /// For inference: without dropout, and the output is not differentiable.
    ///
    /// # Shapes
    /// - input: see [`MhaInput`]: all tokens so far
    /// - output: see [`MhaOutput`]
    ///
    /// # Communication
    /// One all-reduce of the new tokens' output over the tensor group.
    ///
    /// # Panics
    /// When the collective fails, or a mask has another shape.
    pub fn forward_cache(&self, input: MhaInput, cache: &mut MhaCache) -> MhaOutput {
        let [key, value] = key_value_sources(input.key_value, &input.query);
        let project = |layer: &ColumnParallelLinear, tensor: Tensor<3>| {
            let [batch, ..] = tensor.dims();
            let projected = layer.forward_entered(rows(tensor));
            self.heads.by_token(projected, batch).swap_dims(1, 2)
        };
        let query = cache
            .query
            .append(input.query, 2, |tensor| project(&self.query, tensor));
        let key = cache.key(key, |tensor| project(&self.key, tensor));
        let value = cache.value(value, |tensor| project(&self.value, tensor));
        let weights = self.heads.weights(query, key, &input.masks, None);
        let attended = average(weights.clone(), value).swap_dims(1, 2);
        let [batch, seq, heads, d_k] = attended.dims();
        let attended = attended.reshape([batch, seq, heads * d_k]);
        let context = cache.output.append(attended, 1, |tensor| {
            let [batch, ..] = tensor.dims();
            samples(self.output.forward_whole(rows(tensor)), batch)
        });
        MhaOutput {
            weights: weights.detach(),
            context: context.detach(),
        }
    }

    /// Applies attention inside a composite: from tokens that have entered the region, `[batch * seq, d_model]`, to
    /// this rank's tokens, and the last bias, to be added by what comes next. Without keys and values of their own it
    /// is self-attention.
    pub(in crate::tensor_parallel) fn attend(
        &self,
        query: Tensor<2>,
        key_value: Option<[Tensor<2>; 2]>,
        masks: &AttentionMasks,
        pass: &TokenPass,
    ) -> (Tensor<2>, Option<Tensor<1>>) {
        let projected = self.project(query, key_value, pass.batch);
        let attended = self.heads.attend(projected, masks, pass.all());
        self.output.forward_without_bias(self.joined(attended))
    }

    /// `[batch, seq, heads, d_k]` each.
    fn project(&self, query: Tensor<2>, key_value: Option<[Tensor<2>; 2]>, batch: usize) -> [Tensor<4>; 3] {
        let [key, value] = key_value_sources(key_value, &query);
        [(&self.query, query), (&self.key, key), (&self.value, value)]
            .map(|(layer, tensor)| self.heads.by_token(layer.forward_entered(tensor), batch))
    }

    /// `[batch, seq, heads, d_k]` to `[batch * seq, heads * d_k]`.
    fn joined(&self, attended: Tensor<4>) -> Tensor<2> {
        let [batch, seq, heads, d_k] = attended.dims();
        attended.reshape([batch * seq, heads * d_k])
    }
}
