//! `ColumnParallelLinear`: a linear layer whose output features are shared out over the tensor-parallel group, as those
//! of query, key and value, of an MLP's first layer and of an untied output head.

use burn::config::Config;
use burn::module::{Module, Param};
use burn::nn::Linear;
use burn::tensor::{Tensor, backend::Backend};

use super::conversion::{ConversionError, check_drawn, named};
use super::product::ColumnParallelMatmul;
use super::{linear_init, take_shard};
use crate::collectives::{CollectiveBackend, show_input};
use crate::context::{ParameterScope, ParameterSpec};
use crate::mappings::gather_from_tensor_region;
use crate::parameters::{Distribution, ParameterInit, Placement, ShardIdentity};
use crate::precision::{assert_dtype, by_rows, is_half};
use crate::random::ColumnShard;
use crate::topology::TopologyError;

/// Configuration of [`ColumnParallelLinear`].
#[derive(Config, Debug)]
pub struct ColumnParallelLinearConfig {
    /// The size of the input features.
    pub d_input: usize,
    /// The size of the output features, over all ranks.
    pub d_output: usize,
    /// Whether a bias is added.
    #[config(default = true)]
    pub bias: bool,
    /// Whether every rank receives all output features; otherwise each keeps its own.
    #[config(default = false)]
    pub gather_output: bool,
    /// How many adjacent matrices of equal width the weight holds, each shared out by itself: 3 for a fused
    /// query-key-value projection `[Q | K | V]`.
    #[config(default = 1)]
    pub fused: usize,
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
pub struct ColumnParallelLinear<B: Backend> {
    /// `[d_input, d_output / tp]`: this rank's columns.
    pub weight: Param<Tensor<B, 2>>,
    /// `[d_output / tp]`.
    pub bias: Option<Param<Tensor<B, 1>>>,
    gather_output: bool,
    shard: ShardIdentity<B>,
    #[module(skip)]
    fused: usize,
    #[module(skip)]
    product: ColumnParallelMatmul,
}

impl ColumnParallelLinearConfig {
    /// Returns the configuration with the sizes of an existing layer, and the other settings as [`new`](Self::new) has
    /// them.
    pub fn of<B: Backend>(linear: &Linear<B>) -> Self {
        let [d_input, d_output] = linear.weight.lazy_shape().dims();
        Self::new(d_input, d_output).with_bias(linear.bias.is_some())
    }

    /// Returns a new layer, initialised by its global name: the same numbers in every layout.
    ///
    /// # Errors
    /// When the tensor-parallel size does not divide the width of each fused matrix, or `fused` does not divide
    /// `d_output`.
    ///
    /// # Panics
    /// When the output of several fused matrices is to be gathered: their shards would interleave.
    pub fn init<B: Backend>(
        &self,
        device: &B::Device,
        scope: &ParameterScope,
    ) -> Result<ColumnParallelLinear<B>, TopologyError> {
        let cut = self.cut(scope)?;
        let shard = cut.identity(self.bias, scope);
        let weight = scope.parameter(
            "weight",
            [self.d_input, cut.width],
            &ParameterSpec {
                placement: cut.weight,
                distribution: Distribution::Sharded,
                init: linear_init(&self.weight_init, self.d_input),
            },
            device,
        );
        let bias = self.bias.then(|| {
            scope.parameter(
                "bias",
                [cut.width],
                &ParameterSpec {
                    placement: cut.bias,
                    distribution: Distribution::Sharded,
                    init: linear_init(&self.bias_init, self.d_input),
                },
                device,
            )
        });
        Ok(self.layer(weight, bias, shard, scope))
    }

    /// Returns this rank's shard of an existing layer, which every rank holds in full, with these settings:
    /// `ColumnParallelLinearConfig::of(&linear).with_gather_output(true).from_linear(linear, &scope)`.
    ///
    /// `bias` and the initialisers of this configuration are not looked at: the layer's own are taken.
    ///
    /// # Errors
    /// As [`init`](Self::init); when the layer has no values yet.
    ///
    /// # Panics
    /// When the layer is not `[d_input, d_output]`.
    pub fn from_linear<B: Backend>(
        &self,
        linear: Linear<B>,
        scope: &ParameterScope,
    ) -> Result<ColumnParallelLinear<B>, ConversionError> {
        assert_eq!(
            linear.weight.lazy_shape().to_vec(),
            [self.d_input, self.d_output],
            "the linear layer's shape against the configured [d_input, d_output]"
        );
        let cut = self
            .cut(&scope.context().root())
            .map_err(named(scope, "column-parallel linear layer"))?;
        check_drawn::<B, _>(&linear, scope)?;
        let shard = cut.identity(linear.bias.is_some(), scope);
        let weight = take_shard(linear.weight, &cut.weight, [self.d_input, cut.width], scope);
        scope.declare_sharded("weight", &weight, cut.weight);
        let bias = linear.bias.map(|bias| {
            let bias = take_shard(bias, &cut.bias, [cut.width], scope);
            scope.declare_sharded("bias", &bias, cut.bias);
            bias
        });
        Ok(self.layer(weight, bias, shard, scope))
    }

    fn cut(&self, scope: &ParameterScope) -> Result<Cut, TopologyError> {
        assert!(
            !(self.gather_output && self.fused > 1),
            "the output of {} fused matrices cannot be gathered: their shards would interleave",
            self.fused
        );
        let group = scope.context().tensor_group();
        if self.fused == 0 {
            return Err(TopologyError::Zero { name: "fused" });
        }
        let matrix = self.d_output / self.fused;
        crate::topology::check_divides("d_output", self.d_output, "fused", self.fused)?;
        scope.check_tensor_divides("the width of a column-parallel matrix", matrix)?;
        // The dimension before the last counts the fused matrices; each is cut along the last.
        let shard = |shape: &[usize]| {
            Placement::shard(shape, shape.len() - 1, group.rank(), group.size()).with_fused_dimension(shape.len() - 2)
        };
        Ok(Cut {
            width: self.d_output / group.size(),
            weight: shard(&[self.d_input, self.fused, matrix]),
            bias: shard(&[self.fused, matrix]),
        })
    }

    fn layer<B: Backend>(
        &self,
        weight: Param<Tensor<B, 2>>,
        bias: Option<Param<Tensor<B, 1>>>,
        shard: ShardIdentity<B>,
        scope: &ParameterScope,
    ) -> ColumnParallelLinear<B> {
        ColumnParallelLinear {
            weight,
            bias,
            gather_output: self.gather_output,
            fused: self.fused,
            shard,
            product: ColumnParallelMatmul::new(scope.context()),
        }
    }
}

impl<B: Backend> ColumnParallelLinear<B> {
    /// Returns this rank's columns of an existing layer, which every rank holds in full, with the settings of
    /// [`ColumnParallelLinearConfig::of`].
    ///
    /// # Errors
    /// As [`ColumnParallelLinearConfig::from_linear`].
    pub fn from_linear(linear: Linear<B>, scope: &ParameterScope) -> Result<Self, ConversionError> {
        ColumnParallelLinearConfig::of(&linear).from_linear(linear, scope)
    }

    /// Which output features of the whole layer this rank holds, for a [`Dropout`](crate::random::Dropout) of them.
    pub fn column_shard(&self) -> ColumnShard {
        let [_, local] = self.weight.dims();
        let group = &self.product.group;
        ColumnShard::of_fused(
            self.fused,
            local * group.size() / self.fused,
            group.rank(),
            group.size(),
        )
    }
}

/// Where the columns of this rank are.
struct Cut {
    width: usize,
    weight: Placement,
    bias: Placement,
}

impl Cut {
    /// What the layer's record says of its shards.
    fn identity<B: Backend>(&self, has_bias: bool, scope: &ParameterScope) -> ShardIdentity<B> {
        let shards = [("weight", &self.weight), ("bias", &self.bias)];
        scope.shard_identity(&shards[..1 + usize::from(has_bias)])
    }
}

impl<B: CollectiveBackend> ColumnParallelLinear<B> {
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
    pub fn forward<const D: usize>(&self, input: Tensor<B, D>) -> Tensor<B, D> {
        if is_half(self.weight.val().dtype()) && D > 2 {
            return by_rows(input, |rows| self.forward(rows));
        }
        let output = self.product(input, self.bias.as_ref().map(|bias| bias.val()));
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
    pub fn forward_without_bias<const D: usize>(&self, input: Tensor<B, D>) -> (Tensor<B, D>, Option<Tensor<B, 1>>) {
        assert!(
            !self.gather_output,
            "a bias is this rank's part, and a gathered output is whole"
        );
        (self.product(input, None), self.bias.as_ref().map(|bias| bias.val()))
    }

    /// Returns this rank's features of an input that has entered the tensor-parallel region, as several layers share
    /// it: the caller has gathered it or copies its gradient.
    pub(super) fn forward_entered<const D: usize>(&self, input: Tensor<B, D>) -> Tensor<B, D> {
        let weight = self.weight.val();
        assert_dtype("column-parallel linear", "the input", input.dtype(), weight.dtype());
        self.product
            .entered_affine(input, weight, self.bias.as_ref().map(|bias| bias.val()))
    }

    /// This rank's features of all tokens.
    fn product<const D: usize>(&self, input: Tensor<B, D>, bias: Option<Tensor<B, 1>>) -> Tensor<B, D> {
        let weight = self.weight.val();
        assert_dtype("column-parallel linear", "the input", input.dtype(), weight.dtype());
        if !self.product.sequence_parallel {
            let place = || format!("the input of {}, a column-parallel layer", self.shard.layer());
            show_input(place, &input, &self.product.group);
        }
        self.product.affine(input, weight, bias)
    }
}
