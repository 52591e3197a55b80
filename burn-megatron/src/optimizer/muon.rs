//! `Muon`: momentum made orthogonal, matrix by matrix.
//!
//! A burn `Optimizer` of matrices: works in an `ElementWiseOptimizer` on a module that has nothing else.

use burn::config::Config;
use burn::optim::{LearningRate, Optimizer, RecordState};
use burn::tensor::{Device, Tensor};
use serde::{Deserialize, Serialize};

use super::{ElementWise, configured, scaled};
use crate::data_parallel::{MatrixFactors, MatrixForm};

/// Coefficients of each step of the iteration: `X ← aX + b(XXᵀ)X + c(XXᵀ)²X`.
const COEFFICIENTS: [f64; 3] = [3.4445, -4.7750, 2.0315];
/// The smallest norm that a matrix is divided by.
const SMALLEST_NORM: f64 = 1e-7;

/// Configuration of [`Muon`]; the scale is Moonlight's, by which AdamW's learning rate and weight decay serve.
#[derive(Config, Debug, Copy, PartialEq)]
pub struct MuonConfig {
    /// Share of the mean of gradients that is kept in each step.
    #[config(default = 0.95)]
    pub momentum: f64,
    /// True if the direction is made of the gradient and the mean, false if of the mean alone.
    #[config(default = true)]
    pub use_nesterov: bool,
    /// Steps of the Newton–Schulz iteration.
    #[config(default = 5)]
    pub num_ns_steps: usize,
    /// Factor of an orthogonal matrix by its shape.
    #[config(default = "MuonScale::Spectral")]
    pub scale_mode: MuonScale,
    /// Factor in addition to this.
    #[config(default = 0.2)]
    pub extra_scale_factor: f64,
    /// The share of a parameter that decays in a step of learning rate 1.
    #[config(default = 0.01)]
    pub weight_decay: f64,
}

/// Factor of an orthogonal matrix, for a layer from `inputs` to `outputs` numbers: Megatron-LM's
/// `--muon-scale-mode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum MuonScale {
    /// `√max(outputs, inputs)`: with a further factor of 0.2 Moonlight's, elements of the size of AdamW's.
    Spectral,
    /// `√(outputs / inputs)`.
    UnitRmsNorm,
    /// `√max(1, outputs / inputs)`: Jordan's, and the default of PyTorch.
    ShapeScaling,
}

/// Muon: momentum, made nearly orthogonal by a Newton–Schulz iteration, with decoupled weight decay.
///
/// `m ← μ m + (1 − μ) g`, `u = μ m + (1 − μ) g` with Nesterov's momentum and `u = m` without,
/// `p ← (1 − lr·λ) p − lr · s · orthogonal(u)`, where `s` is the [scale](MuonScale) times the extra factor. The
/// iteration runs on `u / max(‖u‖, 1e-7)` in the parameters' main type (f32 or f64; PyTorch's runs in bf16), with the
/// coefficients 3.4445, −4.7750 and 2.0315, which bring singular values near 1 and not to it.
///
/// It is for the matrices of hidden layers; embeddings, heads, norms and biases have another optimizer, such as
/// [`AdamW`](super::AdamW), in another group of a [`ShardedOptimizer`](super::ShardedOptimizer): see
/// [`is_hidden_matrix`](super::is_hidden_matrix). There a matrix may be cut over tensor-parallel ranks, and its
/// gradient over data-parallel ones: see [`MatrixForm`]. Fused matrices that their layout tells apart, such as the
/// queries, keys and values of GPT's attention, are orthogonalised each by itself; those of shared key heads, whose
/// columns are in groups of heads, as the one matrix that they are.
///
/// # Panics
/// In an `ElementWiseOptimizer`, on a parameter that is no matrix.
///
/// # Reference
/// Jordan et al. 2024, <https://kellerjordan.github.io/posts/muon/>; Liu et al. 2025, arXiv:2502.16982, section 2.2.
#[derive(Clone, Debug)]
pub struct Muon {
    config: MuonConfig,
    gradient_scale: f64,
}

/// State of Muon for a parameter.
#[derive(RecordState, Clone)]
pub struct MuonState<const D: usize> {
    /// The running mean of gradients.
    pub gradient_mean: Tensor<D>,
}

configured!(MuonConfig => Muon);

impl MuonScale {
    fn factor(self, inputs: usize, outputs: usize) -> f64 {
        let (inputs, outputs) = (inputs as f64, outputs as f64);
        let square = match self {
            Self::Spectral => outputs.max(inputs),
            Self::UnitRmsNorm => outputs / inputs,
            Self::ShapeScaling => (outputs / inputs).max(1.0),
        };
        square.sqrt()
    }
}

impl Muon {
    /// Returns what the direction is made of, and the new state.
    pub(super) fn momentum<const D: usize>(
        &self,
        gradient: Tensor<D>,
        state: Option<MuonState<D>>,
    ) -> (Tensor<D>, MuonState<D>) {
        let momentum = self.config.momentum;
        let fresh = gradient.mul_scalar(self.gradient_scale * (1.0 - momentum));
        let gradient_mean = match state {
            None => fresh.clone(),
            Some(state) => state.gradient_mean.mul_scalar(momentum) + fresh.clone(),
        };
        let update = if self.config.use_nesterov {
            gradient_mean.clone().mul_scalar(momentum) + fresh
        } else {
            gradient_mean.clone()
        };
        (update, MuonState { gradient_mean })
    }

    /// Returns the scaled orthogonal matrices next to some, `[matrices, inputs, outputs]`.
    pub(super) fn direction(&self, matrices: Tensor<3>) -> Tensor<3> {
        let [_, inputs, outputs] = matrices.dims();
        let scale = self.config.scale_mode.factor(inputs, outputs) * self.config.extra_scale_factor;
        orthogonal(matrices, self.config.num_ns_steps).mul_scalar(scale)
    }

    pub(super) fn factors(&self, learning_rate: LearningRate) -> MatrixFactors {
        MatrixFactors {
            keep: 1.0 - learning_rate * self.config.weight_decay,
            rate: learning_rate,
        }
    }
}

/// Returns matrices of the same singular vectors, whose singular values are near 1: steps of a Newton–Schulz iteration.
fn orthogonal(matrices: Tensor<3>, num_steps: usize) -> Tensor<3> {
    let [_, rows, columns] = matrices.dims();
    // The products are of the smaller size.
    let is_tall = rows > columns;
    let matrices = if is_tall { matrices.transpose() } else { matrices };
    let norms = matrices.clone().powi_scalar(2).sum_dim(2).sum_dim(1).sqrt();
    let mut matrices = matrices / norms.clamp_min(SMALLEST_NORM);
    let [a, b, c] = COEFFICIENTS;
    for _ in 0..num_steps {
        let gram = matrices.clone().matmul(matrices.clone().transpose());
        let polynomial = gram.clone().mul_scalar(b) + gram.clone().matmul(gram).mul_scalar(c);
        matrices = matrices.clone().mul_scalar(a) + polynomial.matmul(matrices);
    }
    if is_tall { matrices.transpose() } else { matrices }
}

/// Whole matrices only, as [`matrix_form`](ElementWise::matrix_form) says.
impl ElementWise for Muon {
    fn matrix_form(&self) -> Option<MatrixForm<Self>> {
        Some(MatrixForm {
            momentum: Self::momentum,
            direction: Self::direction,
            factors: Self::factors,
        })
    }
}

impl Optimizer for Muon {
    type State<const D: usize> = MuonState<D>;

    fn step<const D: usize>(
        &self,
        learning_rate: LearningRate,
        tensor: Tensor<D>,
        gradient: Tensor<D>,
        state: Option<Self::State<D>>,
    ) -> (Tensor<D>, Option<Self::State<D>>) {
        let shape = tensor.dims();
        let [inputs, outputs] = shape[..] else {
            panic!(
                "Muon updates matrices, got a parameter of shape {shape:?}: give it another optimizer, \
                 in a group of its own"
            );
        };
        let (update, state) = self.momentum(gradient, state);
        let direction = self.direction(update.reshape([1, inputs, outputs])).reshape(shape);
        let MatrixFactors { keep, rate } = self.factors(learning_rate);
        (scaled(tensor, keep) - direction.mul_scalar(rate), Some(state))
    }

    fn to_device<const D: usize>(state: Self::State<D>, device: &Device) -> Self::State<D> {
        MuonState {
            gradient_mean: state.gradient_mean.to_device(device),
        }
    }
}

#[cfg(test)]
mod tests {
    use burn::tensor::{Distribution, FloatDType};

    use super::*;

    type Matrices = Tensor<3>;

    fn random(shape: [usize; 3]) -> Matrices {
        let matrices = Matrices::random(shape, Distribution::Normal(0.0, 1.0), &Device::flex());
        matrices.cast(FloatDType::F64)
    }

    #[test]
    fn singular_values_come_near_1() {
        for [rows, columns] in [[3, 8], [8, 3], [1, 5]] {
            let matrices = orthogonal(random([4, rows, columns]), 5);
            let wide = if rows > columns { matrices.transpose() } else { matrices };
            // The squares add up to those of the singular values, which the iteration leaves in 0.68 to 1.13.
            let size = rows.min(columns) as f64;
            let mean = wide.powi_scalar(2).sum_dim(2).sum_dim(1).div_scalar(size);
            for value in mean.into_data().iter::<f64>() {
                assert!((0.4..1.3).contains(&value), "{value} for {rows} by {columns}");
            }
        }
    }

    #[test]
    fn a_matrix_on_its_side_has_its_direction_on_its_side() {
        let matrices = random([2, 3, 5]);
        let sideways = orthogonal(matrices.clone().transpose(), 5).transpose();
        let difference = (orthogonal(matrices, 5) - sideways).abs().max();
        assert_eq!(difference.into_data().iter::<f64>().next(), Some(0.0));
    }

    #[test]
    fn a_gradient_of_zero_has_no_direction() {
        let zeros = orthogonal(random([1, 3, 3]).mul_scalar(0.0), 5);
        assert!(zeros.into_data().iter::<f64>().all(|value| value == 0.0));
    }

    #[test]
    fn scales_are_those_of_the_shape() {
        for (scale, wide, tall) in [
            (MuonScale::Spectral, 4.0, 4.0),
            (MuonScale::UnitRmsNorm, 2.0, 0.5),
            (MuonScale::ShapeScaling, 2.0, 1.0),
        ] {
            assert_eq!([scale.factor(4, 16), scale.factor(16, 4)], [wide, tall], "{scale:?}");
        }
    }

    #[test]
    #[should_panic(expected = "Muon updates matrices, got a parameter of shape [3]")]
    fn a_vector_is_refused_by_its_shape() {
        let vector = || Tensor::<1>::ones([3], &Device::flex());
        MuonConfig::new().build().step(0.1, vector(), vector(), None);
    }
}
