//! `RowParallelLinear`: a linear layer whose input features are shared out over the tensor-parallel group, as those of
//! the projections back to `d_model`.

use burn::config::Config;
use burn::module::{Module, Param};
use burn::nn::Linear;
use burn::tensor::{Device, Tensor};

use super::conversion::{ConversionError, check_drawn, named};
use super::low_rank::{LowRankAdapter, LowRankConfig};
use super::product::{RowParallelMatmul, affine};
use super::{linear_init, take_shard};
use crate::context::{ParallelContext, ParameterScope, ParameterSpec};
use crate::mappings::{reduce_from_tensor_region, scatter_to_tensor_region};
use crate::parameters::{Distribution, ParameterInit, Placement, ShardIdentity};
use crate::precision::{assert_dtype, by_rows, is_half};
use crate::random::{ColumnShard, StepCoordinates};
use crate::topology::TopologyError;

/// Configuration of [`RowParallelLinear`].
#[derive(Config, Debug)]
pub struct RowParallelLinearConfig {
    /// The size of the input features, over all ranks.
    pub d_input: usize,
    /// The size of the output features.
    pub d_output: usize,
    /// Adds a bias.
    #[config(default = true)]
    pub bias: bool,
    /// Takes the input of a column-parallel layer, each rank holding its own features; otherwise every rank holds all
    /// of them, and the layer takes its own.
    #[config(default = true)]
    pub input_is_parallel: bool,
    /// How the weight starts; burn's default for `Linear` if not given.
    pub weight_init: Option<ParameterInit>,
    /// How the bias starts; burn's default for `Linear` if not given.
    pub bias_init: Option<ParameterInit>,
}

/// Applies `Y = Σ X_i W_i + b`, each rank computing one term of the sum; the bias is added once, after it.
///
/// # Reference
/// Shoeybi et al. 2019, arXiv:1909.08053, section 3.
#[derive(Module, Debug)]
pub struct RowParallelLinear {
    /// `[d_input / tp, d_output]`: this rank's rows.
    pub weight: Param<Tensor<2>>,
    /// `[d_output]`, the same on every rank.
    pub bias: Option<Param<Tensor<1>>>,
    /// The adapter that is trained in place of the weight, if there is one.
    pub adapter: Option<LowRankAdapter>,
    input_is_parallel: bool,
    shard: ShardIdentity,
    #[module(skip)]
    product: RowParallelMatmul,
}

impl RowParallelLinearConfig {
    /// Returns the configuration with the sizes of an existing layer, and the other settings as [`new`](Self::new) has
    /// them.
    pub fn of(linear: &Linear) -> Self {
        let [d_input, d_output] = linear.weight.lazy_shape().dims();
        Self::new(d_input, d_output).with_bias(linear.bias.is_some())
    }

    /// Returns a new layer, initialised by its global name: the same numbers in every layout.
    ///
    /// # Errors
    /// When the tensor-parallel size does not divide `d_input`.
    pub fn init(&self, device: &Device, scope: &ParameterScope) -> Result<RowParallelLinear, TopologyError> {
        let placement = self.cut(scope)?;
        let shard = scope.shard_identity(&[("weight", &placement)]);
        let weight = scope.parameter(
            "weight",
            [self.local_input(scope), self.d_output],
            &ParameterSpec {
                placement,
                distribution: Distribution::Sharded,
                init: linear_init(&self.weight_init, self.d_input),
            },
            device,
        );
        let bias = self.bias.then(|| {
            scope.parameter(
                "bias",
                [self.d_output],
                &ParameterSpec {
                    placement: Placement::whole([self.d_output]),
                    distribution: scope.token_wise_distribution(),
                    init: linear_init(&self.bias_init, self.d_input),
                },
                device,
            )
        });
        Ok(self.layer(weight, bias, shard, scope))
    }

    /// Returns this rank's shard of an existing layer, which every rank holds in full, with these settings:
    /// `RowParallelLinearConfig::of(&linear).with_input_is_parallel(false).from_linear(linear, &scope)`.
    ///
    /// `bias` and the initialisers of this configuration are not looked at: the layer's own are taken.
    ///
    /// # Errors
    /// The errors of [`init`](Self::init); when the layer has no values yet.
    ///
    /// # Panics
    /// When the layer is not `[d_input, d_output]`.
    pub fn from_linear(&self, linear: Linear, scope: &ParameterScope) -> Result<RowParallelLinear, ConversionError> {
        assert_eq!(
            linear.weight.lazy_shape().to_vec(),
            [self.d_input, self.d_output],
            "the linear layer's shape against the configured [d_input, d_output]"
        );
        let placement = self
            .cut(&scope.context().root())
            .map_err(named(scope, "row-parallel linear layer"))?;
        check_drawn(&linear, scope)?;
        let shard = scope.shard_identity(&[("weight", &placement)]);
        let shape = [self.local_input(scope), self.d_output];
        let weight = take_shard(&linear.weight, &placement, shape, scope);
        scope.declare_sharded("weight", &weight, placement);
        if let Some(bias) = &linear.bias {
            scope.context().registry().mark_converted(bias.id);
            scope.declare_token_wise("bias", bias);
        }
        Ok(self.layer(weight, linear.bias, shard, scope))
    }

    fn cut(&self, scope: &ParameterScope) -> Result<Placement, TopologyError> {
        let group = scope.context().tensor_group();
        scope.check_tensor_divides("the input width of a row-parallel matrix", self.d_input)?;
        let shape = [self.d_input, self.d_output];
        Ok(Placement::shard(&shape, 0, group.rank(), group.size()))
    }

    fn local_input(&self, scope: &ParameterScope) -> usize {
        self.d_input / scope.context().tensor_group().size()
    }

    fn layer(
        &self,
        weight: Param<Tensor<2>>,
        bias: Option<Param<Tensor<1>>>,
        shard: ShardIdentity,
        scope: &ParameterScope,
    ) -> RowParallelLinear {
        RowParallelLinear {
            weight,
            bias,
            adapter: None,
            input_is_parallel: self.input_is_parallel,
            shard,
            product: RowParallelMatmul::new(scope.context()),
        }
    }
}

impl RowParallelLinear {
    /// Returns this rank's rows of an existing layer, which every rank holds in full, with the settings of
    /// [`RowParallelLinearConfig::of`].
    ///
    /// # Errors
    /// The errors of [`RowParallelLinearConfig::from_linear`].
    pub fn from_linear(linear: Linear, scope: &ParameterScope) -> Result<Self, ConversionError> {
        RowParallelLinearConfig::of(&linear).from_linear(linear, scope)
    }

    /// The name of the layer: the scope of its parameters.
    pub fn name(&self) -> &str {
        self.shard.layer()
    }

    /// Returns the layer with a low-rank adapter, whose parameters are declared in the whole model's scope by `name`.
    /// What is trained of the layer's own parameters stays so: see burn's `no_grad`.
    pub fn with_adapter(self, name: &str, config: &LowRankConfig, device: &Device, context: &ParallelContext) -> Self {
        let [local, d_output] = self.weight.dims();
        let sizes = [local * self.product.group.size(), d_output];
        let adapter = LowRankAdapter::of_rows(name, sizes, config, device, context);
        Self {
            adapter: Some(adapter),
            ..self
        }
    }
}

impl RowParallelLinear {
    /// Returns the same layer for whole activations on every tensor-parallel rank, without sequence parallelism. For
    /// inference: parameters stay declared as they are.
    pub fn with_whole_tokens(self) -> Self {
        Self {
            product: self.product.with_whole_tokens(),
            ..self
        }
    }

    /// Applies the layer.
    ///
    /// # Shapes
    /// - `input`: `[..., d_input / tp]`, this rank's features; `[..., d_input]` if the input is not parallel
    /// - output: `[..., d_output]`, the same on every tensor-parallel rank; under sequence parallelism
    ///   `[tokens / tp, ..., d_output]`, this rank's tokens
    ///
    /// # Communication
    /// Forward: one all-reduce of the output over the tensor group; under sequence parallelism one reduce-scatter.
    /// Backward: none; under sequence parallelism one all-gather. In chunks, where the context says so
    /// (`ParallelContext::with_tensor_overlap`): each chunk is reduce-scattered while the next is multiplied, and in
    /// the backward pass multiplied while the next is gathered. If the input is not parallel, one more all-gather, of
    /// its gradient.
    ///
    /// # Panics
    /// When a collective fails, the tensor-parallel size does not divide the tokens under sequence parallelism, or the
    /// input is not of the parameters' type.
    pub fn forward<const D: usize>(&self, input: Tensor<D>) -> Tensor<D> {
        self.forward_at(input, None)
    }

    /// Applies the layer to the tokens of a step: adapters with dropout must know where these are. Otherwise as
    /// [`forward`](Self::forward).
    pub fn forward_at<const D: usize>(&self, input: Tensor<D>, step: Option<&StepCoordinates>) -> Tensor<D> {
        if is_half(self.weight.val().dtype()) && D > 2 {
            return by_rows(input, |rows| self.forward_at(rows, step));
        }
        if self.product.group.size() == 1 {
            let bias = self.bias.as_ref().map(|bias| bias.val());
            return self.term(self.check(input), bias, step);
        }
        match self.forward_without_bias_at(input, step) {
            (output, Some(bias)) => output + bias.unsqueeze(),
            (output, None) => output,
        }
    }

    /// Applies the layer without its bias, and returns the bias, for an operation that adds it.
    ///
    /// Shapes, communication and panics are those of [`forward`](Self::forward); in 16 bits the input is of two
    /// dimensions.
    pub fn forward_without_bias<const D: usize>(&self, input: Tensor<D>) -> (Tensor<D>, Option<Tensor<1>>) {
        self.forward_without_bias_at(input, None)
    }

    /// Applies the layer [without its bias](Self::forward_without_bias) to the tokens of a step.
    pub fn forward_without_bias_at<const D: usize>(
        &self,
        input: Tensor<D>,
        step: Option<&StepCoordinates>,
    ) -> (Tensor<D>, Option<Tensor<1>>) {
        let input = self.check(input);
        let input = if self.input_is_parallel {
            input
        } else {
            scatter_to_tensor_region(input, D - 1, &self.product.group)
        };
        let bias = self.bias.as_ref().map(|bias| bias.val());
        let output = match &self.adapter {
            None => self.product.summed(input, self.weight.val()),
            Some(_) => self.product.sum(self.term(input, None, step)),
        };
        (output, bias)
    }

    /// Applies this layer and another one to an input each and adds up their outputs, with one collective for both. The
    /// biases are returned, this layer's first, for an operation that adds them. The tokens are those of `step`, if it
    /// is given: adapters with dropout must know it.
    ///
    /// # Shapes
    /// - inputs: `[tokens, d_input / tp]` of each layer, this rank's features
    /// - output: as of [`forward`](Self::forward)
    ///
    /// # Communication
    /// The collective of one layer; of two where the context overlaps it in chunks and neither has an adapter.
    ///
    /// # Panics
    /// The panics of [`forward`](Self::forward); when a layer's input is not parallel.
    pub fn forward_with(
        &self,
        input: Tensor<2>,
        other: &Self,
        other_input: Tensor<2>,
        step: Option<&StepCoordinates>,
    ) -> (Tensor<2>, [Option<Tensor<1>>; 2]) {
        assert!(
            self.input_is_parallel && other.input_is_parallel,
            "inputs of which each rank has its own features"
        );
        let (input, other_input) = (self.check(input), other.check(other_input));
        let sum = if self.adapter.is_some() || other.adapter.is_some() {
            let terms = self.term(input, None, step) + other.term(other_input, None, step);
            self.product.sum(terms)
        } else {
            let factors = [(input, self.weight.val()), (other_input, other.weight.val())];
            self.product.summed_with(factors)
        };
        let bias = |layer: &Self| layer.bias.as_ref().map(|bias| bias.val());
        (sum, [bias(self), bias(other)])
    }

    /// Applies the layer to this rank's features and gives every rank all tokens, also under sequence parallelism.
    ///
    /// For inference: the gradient of the bias would not be the part that it has been declared as.
    pub(super) fn forward_whole<const D: usize>(&self, input: Tensor<D>) -> Tensor<D> {
        let partial = self.term(self.check(input), None, None);
        let output = reduce_from_tensor_region(partial, &self.product.group);
        match &self.bias {
            Some(bias) => output + bias.val().unsqueeze(),
            None => output,
        }
    }

    /// This rank's term of the sum, with what the adapter adds to it.
    fn term<const D: usize>(
        &self,
        input: Tensor<D>,
        bias: Option<Tensor<1>>,
        step: Option<&StepCoordinates>,
    ) -> Tensor<D> {
        let weight = self.weight.val();
        let Some(adapter) = &self.adapter else {
            return affine(input, weight, bias);
        };
        let group = &self.product.group;
        let shard = ColumnShard::new(weight.dims()[0] * group.size(), group.rank(), group.size());
        let added = by_rows(input.clone(), |rows| adapter.forward(rows, &shard, step));
        affine(input, weight, bias) + added
    }

    fn check<const D: usize>(&self, input: Tensor<D>) -> Tensor<D> {
        assert_dtype(
            "row-parallel linear",
            "the input",
            input.dtype(),
            self.weight.val().dtype(),
        );
        input
    }
}
