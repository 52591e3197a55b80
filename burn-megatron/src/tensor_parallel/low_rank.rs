//! Low-rank adapters of parallel linear layers: small factors that are trained in place of the weight.
//!
//! A layer with an adapter computes `y = x W + (alpha / rank) · (dropout(x) A) B`, in which `W` and the bias stay as
//! they are. Neither a micro-batch's forward nor its backward pass communicates more than without it:
//!
//! - A column-parallel layer's input is whole on every rank once it has entered the region; each rank holds all of `A`
//!   and its own columns of `B`. The gradient of `A` is a part of a sum over the tensor group.
//! - A row-parallel layer's output is a sum over the ranks; each holds its own rows of `A` and all of `B`, and adds its
//!   term before the sum. The gradient of `B` is a part of a sum over the tensor group.
//!
//! These sums are made once per step, of all parameters together, as those of norms under sequence parallelism:
//! `rank · d_input` numbers for each column-parallel adapter, `rank · d_output` for each row-parallel one.
//!
//! # Reference
//! Hu et al. 2021, arXiv:2106.09685, section 4.1.

use std::ops::Range;

use burn::config::Config;
use burn::module::{Module, Param};
use burn::tensor::{Device, Tensor};

use super::column_cut::{ColumnSizes, PartCut};
use super::linear_init;
use super::product::affine;
use crate::context::{ParallelContext, ParameterScope, ParameterSpec};
use crate::parameters::{Distribution, ParameterInit, Placement};
use crate::precision::by_rows;
use crate::random::{ColumnShard, Dropout, DropoutConfig, DropoutSite, StepCoordinates};
use crate::topology::TopologyError;

/// Configuration of low-rank adapters.
#[derive(Config, Debug, PartialEq)]
pub struct LowRankConfig {
    /// The number of columns of `A` and of rows of `B`.
    pub rank: usize,
    /// The factor of the product, times the rank.
    pub alpha: f64,
    /// The probability with which an element of an adapter's input becomes zero.
    #[config(default = 0.0)]
    pub dropout: f64,
}

impl LowRankConfig {
    /// Checks the numbers.
    ///
    /// # Errors
    /// The rank is 0, alpha is not a number above 0, or the dropout probability is outside `[0, 1)`: names it.
    pub fn validate(&self) -> Result<(), TopologyError> {
        let Self { rank, alpha, dropout } = *self;
        if rank == 0 {
            return Err(TopologyError::Zero {
                name: "the rank of low-rank adapters",
            });
        }
        if !(alpha.is_finite() && alpha > 0.0) {
            let what = format!("the alpha of low-rank adapters must be finite and above 0, got {alpha}");
            return Err(TopologyError::Setting(what));
        }
        if !(0.0..1.0).contains(&dropout) {
            let what = format!("the dropout of low-rank adapters must be in [0, 1), got {dropout}");
            return Err(TopologyError::Setting(what));
        }
        Ok(())
    }

    /// Returns the number by which a product of the factors is multiplied: `alpha / rank`.
    pub fn scale(&self) -> f64 {
        self.alpha / self.rank as f64
    }
}

/// Output features of a column-parallel layer that have an adapter of their own, as one of several projections that are
/// one matrix here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdaptedFeatures {
    /// The name of the adapter's parameters, before `.lora_A.weight` and `.lora_B.weight`.
    pub name: String,
    /// The number of equal groups that the layer's output features are seen as.
    pub groups: usize,
    /// The features of each group that are adapted.
    pub features: Range<usize>,
}

/// `(alpha / rank) · (dropout(X) A) B`: the factors that are here.
#[derive(Module, Debug)]
pub struct LowRankAdapter {
    /// `[d_input, rank]`; of a row-parallel layer this rank's rows.
    pub a: Param<Tensor<2>>,
    /// `[rank, d_output]`; of a column-parallel layer this rank's columns.
    pub b: Param<Tensor<2>>,
    dropout: Dropout,
    scale: f64,
}

/// A factor: the shape of what is here of it, and where that is.
type Factor = ([usize; 2], ParameterSpec);

impl LowRankAdapter {
    /// Returns the adapter of a row-parallel layer, which starts as those of [`AdaptedColumns::new`].
    pub(super) fn of_rows(
        name: &str,
        [d_input, d_output]: [usize; 2],
        config: &LowRankConfig,
        device: &Device,
        context: &ParallelContext,
    ) -> Self {
        let (rank, group) = (config.rank, context.tensor_group());
        let a = ParameterSpec {
            placement: Placement::shard(&[d_input, rank], 0, group.rank(), group.size()),
            distribution: Distribution::Sharded,
            init: linear_init(&None, d_input),
        };
        let b = ParameterSpec {
            placement: Placement::whole([rank, d_output]),
            distribution: Distribution::PartialOverTensor,
            init: ParameterInit::Zeros,
        };
        let factors = [([d_input / group.size(), rank], a), ([rank, d_output], b)];
        Self::new(name, factors, config, device, context)
    }

    fn new(
        name: &str,
        [a, b]: [Factor; 2],
        config: &LowRankConfig,
        device: &Device,
        context: &ParallelContext,
    ) -> Self {
        let scope: ParameterScope = context.scope(name);
        let dropout = DropoutConfig::new(config.dropout);
        Self {
            a: scope.parameter("lora_A.weight", a.0, &a.1, device),
            b: scope.parameter("lora_B.weight", b.0, &b.1, device),
            dropout: dropout.init(DropoutSite::named(&format!("{name}.lora_dropout"))),
            scale: config.scale(),
        }
    }
}

impl LowRankAdapter {
    /// Returns what is added to the layer's output: `[tokens, d_input]`, the columns `shard` of the layer's input, to
    /// `[tokens, d_output]`.
    ///
    /// # Panics
    /// When elements are to be dropped, and `step` does not say where the tokens are.
    pub(super) fn forward(&self, input: Tensor<2>, shard: &ColumnShard, step: Option<&StepCoordinates>) -> Tensor<2> {
        let dropped = if self.dropout.is_active(&input.device()) {
            let step = step.expect("the step of a layer whose adapter has dropout, which `forward_at` takes");
            self.dropout.forward_columns(input, step, shard)
        } else {
            input
        };
        let low = affine(dropped, self.a.val(), None).mul_scalar(self.scale);
        affine(low, self.b.val(), None)
    }
}

/// The adapters of a column-parallel layer: of all its output features, or of some.
#[derive(Module, Debug)]
pub struct AdaptedColumns {
    /// In the order of their features.
    pub adapters: Vec<LowRankAdapter>,
    /// Of each, where its features are in each group.
    #[module(skip)]
    places: Vec<Range<usize>>,
    /// The number of groups of this rank's features.
    groups: usize,
    /// The features of each.
    group_width: usize,
}

impl AdaptedColumns {
    /// Returns new adapters of `features` of a layer of these sizes, of which this rank has `width` columns. `A` starts
    /// with even numbers over ±√(1 / d_input), drawn by its name, and `B` with zeros: the layer gives what it gave.
    ///
    /// # Errors
    /// When the features of one are no part of the layer that the ranks can share out.
    pub(super) fn new(
        sizes: &ColumnSizes,
        width: usize,
        features: &[AdaptedFeatures],
        config: &LowRankConfig,
        device: &Device,
        context: &ParallelContext,
    ) -> Result<Self, TopologyError> {
        let mut parts = Vec::with_capacity(features.len());
        for AdaptedFeatures { name, groups, features } in features {
            let cut = sizes.part(*groups, features, config.rank, context.tensor_group());
            let cut = cut.ok_or_else(|| {
                TopologyError::Setting(format!(
                    "{name}: features {features:?} of each of {groups} groups cannot have an adapter of their own"
                ))
            })?;
            parts.push((cut, name));
        }
        parts.sort_by_key(|(cut, _)| cut.place.start);
        let groups = parts.first().map_or(1, |(cut, _)| cut.groups);
        for pair in parts.windows(2) {
            let [(first, name), (second, other)] = pair else {
                unreachable!("windows of two")
            };
            if first.groups != second.groups || first.place.end > second.place.start {
                let what = format!("adapters {name} and {other} are of the same features of a layer");
                return Err(TopologyError::Setting(what));
            }
        }
        let adapter = |(cut, name): &(PartCut, &String)| {
            let a = ParameterSpec {
                placement: Placement::whole([sizes.d_input, config.rank]),
                distribution: Distribution::PartialOverTensor,
                init: linear_init(&None, sizes.d_input),
            };
            let b = ParameterSpec {
                placement: cut.placement.clone(),
                distribution: cut.distribution,
                init: ParameterInit::Zeros,
            };
            let factors = [
                ([sizes.d_input, config.rank], a),
                ([config.rank, cut.groups * cut.place.len()], b),
            ];
            LowRankAdapter::new(name, factors, config, device, context)
        };
        Ok(Self {
            adapters: parts.iter().map(adapter).collect(),
            places: parts.iter().map(|(cut, _)| cut.place.clone()).collect(),
            groups,
            group_width: width / groups,
        })
    }
}

impl AdaptedColumns {
    /// Returns what is added to the layer's output: `[..., d_input]`, all tokens, to `[..., columns]`.
    pub(super) fn forward<const D: usize>(&self, input: Tensor<D>, step: Option<&StepCoordinates>) -> Tensor<D> {
        by_rows(input, |rows| self.of_rows(rows, step))
    }

    fn of_rows(&self, rows: Tensor<2>, step: Option<&StepCoordinates>) -> Tensor<2> {
        let [tokens, d_input] = rows.dims();
        let all = ColumnShard::new(d_input, 0, 1);
        let (device, dtype) = (rows.device(), rows.dtype());
        let nothing = |width| Tensor::zeros([tokens, self.groups, width], (&device, dtype));
        // [tokens, groups, features]
        let mut pieces: Vec<Tensor<3>> = Vec::new();
        let mut end = 0;
        for (adapter, place) in self.adapters.iter().zip(&self.places) {
            if end < place.start {
                pieces.push(nothing(place.start - end));
            }
            let added = adapter.forward(rows.clone(), &all, step);
            pieces.push(added.reshape([tokens, self.groups, place.len()]));
            end = place.end;
        }
        if end < self.group_width {
            pieces.push(nothing(self.group_width - end));
        }
        let joined = match pieces.len() {
            1 => pieces.remove(0),
            _ => Tensor::cat(pieces, 2),
        };
        joined.reshape([tokens, self.groups * self.group_width])
    }
}
