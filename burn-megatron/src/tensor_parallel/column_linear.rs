//! `ColumnParallelLinear`: a linear layer whose output features are shared out over the tensor-parallel group, as those
//! of query, key and value, of an MLP's first layer and of an untied output head.

use burn::config::Config;
use burn::module::{Module, Param};
use burn::nn::Linear;
use burn::tensor::{Device, Tensor};

use super::column_cut::{ColumnGroups, ColumnSizes, Cut};
use super::conversion::{ConversionError, check_drawn, named};
use super::linear_init;
use super::low_rank::{AdaptedColumns, AdaptedFeatures, LowRankConfig};
use super::product::{ColumnParallelMatmul, affine};
use crate::collectives::show_input;
use crate::context::{ParallelContext, ParameterScope};
use crate::mappings::gather_from_tensor_region;
use crate::parameters::{ParameterInit, ShardIdentity};
use crate::precision::{assert_dtype, by_rows, is_half};
use crate::random::{ColumnShard, StepCoordinates};
use crate::topology::TopologyError;

/// Configuration of [`ColumnParallelLinear`].
#[derive(Config, Debug)]
pub struct ColumnParallelLinearConfig {
    /// The size of the input features.
    pub d_input: usize,
    /// The size of the output features, over all ranks.
    pub d_output: usize,
    /// Adds a bias.
    #[config(default = true)]
    pub bias: bool,
    /// Gives every rank all output features; otherwise each keeps its own.
    #[config(default = false)]
    pub gather_output: bool,
    /// How many adjacent matrices of equal width the weight holds, each shared out by itself: 3 for a fused
    /// query-key-value projection `[Q | K | V]`.
    #[config(default = 1)]
    pub fused: usize,
    /// Groups of columns of which several ranks share some, where there are fewer groups than ranks: the key and value
    /// heads of grouped queries.
    pub groups: Option<ColumnGroups>,
    /// How the weight starts; burn's default for `Linear` if not given.
    pub weight_init: Option<ParameterInit>,
    /// How the bias starts; burn's default for `Linear` if not given.
    pub bias_init: Option<ParameterInit>,
}

/// Applies `Y = X W + b`, each rank computing its own columns of `Y`.
///
/// # Reference
/// Shoeybi et al. 2019, arXiv:1909.08053, section 3.
#[derive(Module, Debug)]
pub struct ColumnParallelLinear {
    /// `[d_input, d_output / tp]`: this rank's columns.
    pub weight: Param<Tensor<2>>,
    /// `[d_output / tp]`.
    pub bias: Option<Param<Tensor<1>>>,
    /// This rank's further columns, which it shares with others: those above are its own then.
    pub shared: Option<SharedColumns>,
    /// The adapters that are trained in place of the weight, if there are any.
    pub adapters: Option<AdaptedColumns>,
    gather_output: bool,
    shard: ShardIdentity,
    #[module(skip)]
    sizes: ColumnSizes,
    #[module(skip)]
    product: ColumnParallelMatmul,
}

/// The columns of a [`ColumnParallelLinear`] that several ranks hold alike, after those of each.
#[derive(Module, Debug)]
pub struct SharedColumns {
    /// `[d_input, shared]`.
    pub weight: Param<Tensor<2>>,
    /// `[shared]`.
    pub bias: Option<Param<Tensor<1>>>,
}

impl ColumnParallelLinearConfig {
    /// Returns the configuration with the sizes of an existing layer, and the other settings as [`new`](Self::new) has
    /// them.
    pub fn of(linear: &Linear) -> Self {
        let [d_input, d_output] = linear.weight.lazy_shape().dims();
        Self::new(d_input, d_output).with_bias(linear.bias.is_some())
    }

    /// Returns a new layer, initialised by its global name: the same numbers in every layout.
    ///
    /// # Errors
    /// When the tensor-parallel size does not divide the width of each fused matrix, or `fused` does not divide
    /// `d_output`. When it and the number of `groups` do not divide one another.
    ///
    /// # Panics
    /// When the output of several fused matrices, or of groups, is to be gathered: their shards would interleave. When
    /// several matrices have groups.
    pub fn init(&self, device: &Device, scope: &ParameterScope) -> Result<ColumnParallelLinear, TopologyError> {
        let cut = self.cut(scope)?;
        let shard = cut.identity(self.bias, scope);
        let inits = [&self.weight_init, &self.bias_init].map(|init| linear_init(init, self.d_input));
        let weight = {
            let spec = cut.own.weight_spec(inits[0]);
            scope.parameter("weight", [self.d_input, cut.own.width], &spec, device)
        };
        let bias = self.bias.then(|| {
            let spec = cut.own.bias_spec(inits[1]);
            scope.parameter("bias", [cut.own.width], &spec, device)
        });
        let shared = cut.shared.map(|columns| SharedColumns {
            weight: {
                let spec = columns.weight_spec(inits[0]);
                scope.further_part(&weight, [self.d_input, columns.width], &spec, device)
            },
            bias: (bias.as_ref())
                .map(|bias| scope.further_part(bias, [columns.width], &columns.bias_spec(inits[1]), device)),
        });
        Ok(self.layer(weight, bias, shared, shard, scope))
    }

    /// Returns this rank's shard of an existing layer, which every rank holds in full, with these settings:
    /// `ColumnParallelLinearConfig::of(&linear).with_gather_output(true).from_linear(linear, &scope)`.
    ///
    /// `bias` and the initialisers of this configuration are not looked at: the layer's own are taken.
    ///
    /// # Errors
    /// The errors of [`init`](Self::init); when the layer has no values yet.
    ///
    /// # Panics
    /// When the layer is not `[d_input, d_output]`.
    pub fn from_linear(&self, linear: Linear, scope: &ParameterScope) -> Result<ColumnParallelLinear, ConversionError> {
        assert_eq!(
            linear.weight.lazy_shape().to_vec(),
            [self.d_input, self.d_output],
            "the linear layer's shape against the configured [d_input, d_output]"
        );
        let cut = self
            .cut(&scope.context().root())
            .map_err(named(scope, "column-parallel linear layer"))?;
        check_drawn(&linear, scope)?;
        let shard = cut.identity(linear.bias.is_some(), scope);
        let weight = cut.own.take_weight(&linear.weight, scope);
        scope.declare_sharded("weight", &weight, cut.own.weight.clone());
        let bias = linear.bias.as_ref().map(|whole| {
            let bias = cut.own.take_bias(whole, scope);
            scope.declare_sharded("bias", &bias, cut.own.bias.clone());
            bias
        });
        let shared = cut.shared.map(|columns| SharedColumns {
            weight: {
                let part = columns.take_weight(&linear.weight, scope);
                scope.declare_further_part(&weight, &part, columns.weight.clone(), columns.distribution);
                part
            },
            bias: linear.bias.as_ref().zip(bias.as_ref()).map(|(whole, bias)| {
                let part = columns.take_bias(whole, scope);
                scope.declare_further_part(bias, &part, columns.bias.clone(), columns.distribution);
                part
            }),
        });
        Ok(self.layer(weight, bias, shared, shard, scope))
    }

    fn cut(&self, scope: &ParameterScope) -> Result<Cut, TopologyError> {
        assert!(
            !(self.gather_output && (self.fused > 1 || self.groups.is_some())),
            "the output of {} fused matrices or groups of columns cannot be gathered: their shards would interleave",
            self.fused
        );
        self.sizes().cut(scope)
    }

    fn sizes(&self) -> ColumnSizes {
        ColumnSizes {
            d_input: self.d_input,
            d_output: self.d_output,
            fused: self.fused,
            groups: self.groups,
        }
    }

    fn layer(
        &self,
        weight: Param<Tensor<2>>,
        bias: Option<Param<Tensor<1>>>,
        shared: Option<SharedColumns>,
        shard: ShardIdentity,
        scope: &ParameterScope,
    ) -> ColumnParallelLinear {
        ColumnParallelLinear {
            weight,
            bias,
            shared,
            gather_output: self.gather_output,
            adapters: None,
            sizes: self.sizes(),
            shard,
            product: ColumnParallelMatmul::new(scope.context()),
        }
    }
}

impl ColumnParallelLinear {
    /// Returns this rank's columns of an existing layer, which every rank holds in full, with the settings of
    /// [`ColumnParallelLinearConfig::of`].
    ///
    /// # Errors
    /// The errors of [`ColumnParallelLinearConfig::from_linear`].
    pub fn from_linear(linear: Linear, scope: &ParameterScope) -> Result<Self, ConversionError> {
        ColumnParallelLinearConfig::of(&linear).from_linear(linear, scope)
    }

    /// Which output features of the whole layer this rank holds, for a [`Dropout`](crate::random::Dropout) of them.
    ///
    /// # Panics
    /// When it shares some with other ranks.
    pub fn column_shard(&self) -> ColumnShard {
        assert!(
            self.shared.is_none(),
            "columns that ranks share are in no shard of their own"
        );
        let (ColumnSizes { d_output, fused, .. }, group) = (self.sizes, &self.product.group);
        ColumnShard::of_fused(fused, d_output / fused, group.rank(), group.size())
    }

    /// The size of the input features.
    pub fn d_input(&self) -> usize {
        self.sizes.d_input
    }

    /// The size of the output features, over all ranks.
    pub fn d_output(&self) -> usize {
        self.sizes.d_output
    }

    /// The name of the layer: the scope of its parameters.
    pub fn name(&self) -> &str {
        self.shard.layer()
    }

    /// Returns the layer with low-rank adapters of its output features, or of some, each by itself; their parameters
    /// are declared in the whole model's scope, by the names in `features`. What is trained of the layer's own
    /// parameters stays so: see burn's `no_grad`.
    ///
    /// # Errors
    /// When some of `features` overlap, or are no part of the layer that the ranks can share out.
    pub fn with_adapters(
        self,
        features: &[AdaptedFeatures],
        config: &LowRankConfig,
        device: &Device,
        context: &ParallelContext,
    ) -> Result<Self, TopologyError> {
        let shared = self.shared.as_ref().map_or(0, |shared| shared.weight.dims()[1]);
        let width = self.weight.dims()[1] + shared;
        let adapters = AdaptedColumns::new(&self.sizes, width, features, config, device, context)?;
        Ok(Self {
            adapters: Some(adapters),
            ..self
        })
    }
}

impl ColumnParallelLinear {
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
    /// - `input`: `[..., d_input]`, the same on every tensor-parallel rank; under sequence parallelism
    ///   `[tokens / tp, ..., d_input]`, this rank's tokens
    /// - output: `[..., d_output / tp]`, this rank's features of all tokens; `[..., d_output]` if gathered
    ///
    /// # Communication
    /// Forward: none; under sequence parallelism one all-gather of the input over the tensor group. Backward: one
    /// all-reduce of the input's size, while the gradient of the weight is computed; under sequence parallelism one
    /// reduce-scatter instead, and another all-gather of the input while its gradient is computed. Where the context
    /// does not overlap them (`ParallelContext::with_overlap_tensor_reduce`), the gathered input is kept, and the
    /// others are waited for. Where it does so in chunks (`ParallelContext::with_tensor_overlap`), each chunk of the
    /// input is multiplied in the forward pass while the next is gathered. If the output is gathered, one more
    /// all-gather, of the output, in the forward pass.
    ///
    /// # Panics
    /// When a collective fails, or the input is not of the parameters' type.
    pub fn forward<const D: usize>(&self, input: Tensor<D>) -> Tensor<D> {
        self.forward_at(input, None)
    }

    /// Applies the layer to the tokens of a step: adapters with dropout must know where these are. Otherwise as
    /// [`forward`](Self::forward).
    pub fn forward_at<const D: usize>(&self, input: Tensor<D>, step: Option<&StepCoordinates>) -> Tensor<D> {
        if is_half(self.weight.val().dtype()) && D > 2 {
            return by_rows(input, |rows| self.forward_at(rows, step));
        }
        let output = self.product(input, self.local_bias(), step);
        if self.gather_output {
            gather_from_tensor_region(output, D - 1, &self.product.group)
        } else {
            output
        }
    }

    /// Applies the layer without its bias, and returns this rank's part of the bias, for an operation that adds it.
    ///
    /// Shapes, communication and panics are those of [`forward`](Self::forward); in 16 bits the input is of two
    /// dimensions.
    ///
    /// # Panics
    /// Also when the layer gathers its output.
    pub fn forward_without_bias<const D: usize>(&self, input: Tensor<D>) -> (Tensor<D>, Option<Tensor<1>>) {
        self.forward_without_bias_at(input, None)
    }

    /// Applies the layer [without its bias](Self::forward_without_bias) to the tokens of a step.
    pub fn forward_without_bias_at<const D: usize>(
        &self,
        input: Tensor<D>,
        step: Option<&StepCoordinates>,
    ) -> (Tensor<D>, Option<Tensor<1>>) {
        assert!(
            !self.gather_output,
            "a bias is this rank's part, and a gathered output is whole"
        );
        (self.product(input, None, step), self.local_bias())
    }

    /// Returns this rank's features of an input that has entered the tensor-parallel region, as several layers share
    /// it: the caller has gathered it or copies its gradient.
    pub(super) fn forward_entered<const D: usize>(&self, input: Tensor<D>) -> Tensor<D> {
        let weight = self.local_weight();
        assert_dtype("column-parallel linear", "the input", input.dtype(), weight.dtype());
        match &self.adapters {
            None => affine(input, weight, self.local_bias()),
            Some(adapters) => {
                let added = adapters.forward(input.clone(), None);
                affine(input, weight, self.local_bias()) + added
            }
        }
    }

    /// All columns of this rank, `[d_input, columns]`: its own and, after them, those that it shares.
    fn local_weight(&self) -> Tensor<2> {
        let own = self.weight.val();
        match &self.shared {
            Some(shared) => Tensor::cat(vec![own, shared.weight.val()], 1),
            None => own,
        }
    }

    /// The bias of all columns of this rank, if there is one.
    fn local_bias(&self) -> Option<Tensor<1>> {
        let own = self.bias.as_ref()?.val();
        match self.shared.as_ref().and_then(|shared| shared.bias.as_ref()) {
            Some(shared) => Some(Tensor::cat(vec![own, shared.val()], 0)),
            None => Some(own),
        }
    }

    /// This rank's features of all tokens.
    fn product<const D: usize>(
        &self,
        input: Tensor<D>,
        bias: Option<Tensor<1>>,
        step: Option<&StepCoordinates>,
    ) -> Tensor<D> {
        let weight = self.local_weight();
        assert_dtype("column-parallel linear", "the input", input.dtype(), weight.dtype());
        if !self.product.sequence_parallel {
            let place = || format!("the input of {}, a column-parallel layer", self.shard.layer());
            show_input(place, &input, &self.product.group);
        }
        let Some(adapters) = &self.adapters else {
            return self.product.affine(input, weight, bias);
        };
        let entered = self.product.entered(input);
        let added = adapters.forward(entered.clone(), step);
        affine(entered, weight, bias) + added
    }
}
