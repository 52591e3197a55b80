//! `Adafactor`: of a matrix's second moment, the means by row and by column.
//!
//! A burn `Optimizer`: works in an `ElementWiseOptimizer`, or in burn's `ModuleOptimizer`, on any module.

use burn::config::Config;
use burn::optim::{LearningRate, Optimizer, RecordState};
use burn::tensor::{Device, Tensor};

use super::factored::{FactoredDirection, MeanSquare, factored_moment, mean, sums_of_squares};
use super::{ElementWise, configured, scaled};
use crate::data_parallel::{FactoredForm, FactoredMoment, FactoredStep, SecondMoment};
use crate::parameters::{Factoring, Placement};

/// Configuration of [`Adafactor`]; defaults are PyTorch's, but for the weight decay.
#[derive(Config, Debug, Copy, PartialEq)]
pub struct AdafactorConfig {
    /// The power of the number of the step that new squares count in the mean of squares, not positive.
    #[config(default = "-0.8")]
    pub beta2_decay: f64,
    /// The smallest root of a mean of squares; the epsilon of the main parameters' type if not given.
    #[config(default = "None")]
    pub eps1: Option<f64>,
    /// The smallest size of a parameter that its steps are in proportion to.
    #[config(default = 1e-3)]
    pub eps2: f64,
    /// The root mean square of a direction above which it is made smaller.
    #[config(default = 1.0)]
    pub clip_threshold: f64,
    /// The share of a parameter that decays in a step of learning rate 1.
    #[config(default = 0.01)]
    pub weight_decay: f64,
}

/// Adafactor, with decoupled weight decay: as Adam without a first moment, with one number for each row and each column
/// of a matrix as its second moment, and steps in proportion to the parameter.
///
/// In step t, with `s = t^τ` (τ is `beta2_decay`) and R and C the means of `G²` by row and by column:
/// `r ← r + s (R − r)`, `c ← c + s (C − c)`, `V = r cᵀ / max(mean(r), ε₁)`; of a vector `V ← V + s (G² − V)`. Then
/// `U = G / max(√V, ε₁)` and `p ← (1 − lr·λ) p − max(ε₂, rms(p)) · min(lr, 1/√t) · U / max(1, rms(U) / d)`, where rms
/// is the root of the mean of squares of all of a parameter's elements, p is that before the decay, and d is
/// `clip_threshold`. The learning rate is a share of the parameter's size: PyTorch's is 0.01.
///
/// A [`ShardedOptimizer`](super::ShardedOptimizer) updates parameters that are cut over tensor-parallel ranks, and
/// pieces of them, by sums over the ranks that hold the others: see [`FactoredForm`]. Nothing is gathered. Each rank
/// has r and c whole, of the parameters that it holds elements of. Fused matrices that their layout tells apart, such
/// as the queries, keys and values of GPT's attention, have an r of their own each; rms is that of the whole parameter.
/// The last two dimensions of a parameter of more than two make matrices.
///
/// Computed by burn's operations, in several passes over the elements.
///
/// # Reference
/// Shazeer and Stern 2018, arXiv:1804.04235, algorithms 4 to 6; as `torch.optim.Adafactor` has it.
#[derive(Clone, Debug)]
pub struct Adafactor {
    config: AdafactorConfig,
    gradient_scale: f64,
}

/// State of Adafactor for a parameter.
#[derive(RecordState, Clone)]
pub struct AdafactorState<const D: usize> {
    /// Updates so far.
    pub time: usize,
    /// The mean of squared gradients.
    pub moment: SecondMoment<D>,
}

configured!(AdafactorConfig => Adafactor);

impl Adafactor {
    /// Returns the numbers of an update; 1 is the first.
    pub(super) fn numbers(&self, learning_rate: LearningRate, time: u64) -> FactoredStep {
        let time = time as f64;
        FactoredStep {
            gradient_scale: self.gradient_scale,
            share: time.powf(self.config.beta2_decay),
            rate: learning_rate.min(1.0 / time.sqrt()),
            keep: 1.0 - learning_rate * self.config.weight_decay,
            eps1: self.config.eps1,
            eps2: self.config.eps2,
            clip_threshold: self.config.clip_threshold,
        }
    }
}

impl ElementWise for Adafactor {
    fn factored_form(&self) -> Option<FactoredForm<Self>> {
        Some(FactoredForm {
            step: Self::numbers,
            moment: |state| state.moment,
            state: |updates, moment| AdafactorState {
                time: updates as usize,
                moment,
            },
        })
    }
}

impl Optimizer for Adafactor {
    type State<const D: usize> = AdafactorState<D>;

    fn step<const D: usize>(
        &self,
        learning_rate: LearningRate,
        tensor: Tensor<D>,
        gradient: Tensor<D>,
        state: Option<Self::State<D>>,
    ) -> (Tensor<D>, Option<Self::State<D>>) {
        let shape = tensor.dims();
        let count: usize = shape.iter().product();
        let (time, before) = state.map_or((0, None), |state| (state.time, Some(state.moment)));
        let step = self.numbers(learning_rate, time as u64 + 1);
        let flat = gradient.reshape([count]);
        let scaled_gradient = scaled(flat.clone(), step.gradient_scale);
        let factoring = Factoring::of(&shape, &Placement::whole(shape));
        let mean_square = match factoring {
            Some(factoring) => {
                let sums = sums_of_squares(scaled_gradient, &factoring, &(0..count));
                let before = before.map(SecondMoment::into_factored);
                let moment = factored_moment(&sums, &factoring, before, step.share);
                MeanSquare::Factored(Box::new(factoring), moment)
            }
            None => {
                let before = before.map(|moment| moment.into_elements().reshape([count]));
                MeanSquare::Elements(mean(before, scaled_gradient.powi_scalar(2), step.share))
            }
        };
        let direction = FactoredDirection {
            number: 0,
            step,
            mean_square,
            range: 0..count,
        };
        let update = direction.of(flat);
        let factor = step.factor(root_mean_square(tensor.clone()), root_mean_square(update.clone()));
        let moved = scaled(tensor, step.keep) - update.mul_scalar(factor).reshape(shape);
        let state = AdafactorState {
            time: time + 1,
            moment: match direction.mean_square {
                MeanSquare::Factored(_, moment) => SecondMoment::Factored(moment),
                MeanSquare::Elements(moment) => SecondMoment::Elements(moment.reshape(shape)),
            },
        };
        (moved, Some(state))
    }

    fn to_device<const D: usize>(state: Self::State<D>, device: &Device) -> Self::State<D> {
        AdafactorState {
            time: state.time,
            moment: match state.moment {
                SecondMoment::Factored(FactoredMoment { rows, columns }) => SecondMoment::Factored(FactoredMoment {
                    rows: rows.to_device(device),
                    columns: columns.to_device(device),
                }),
                SecondMoment::Elements(moment) => SecondMoment::Elements(moment.to_device(device)),
            },
        }
    }
}

/// The root of the mean of squares, which is waited for.
fn root_mean_square<const D: usize>(tensor: Tensor<D>) -> f64 {
    let mean = tensor.powi_scalar(2).mean().into_data();
    mean.iter::<f64>().next().expect("a mean has one element").sqrt()
}

#[cfg(test)]
mod tests {
    use burn::tensor::{DType, TensorData};

    use super::super::stepped::{assert_near, run};
    use super::*;

    fn tensor<const D: usize>(values: &[f64], shape: [usize; D]) -> Tensor<D> {
        let data = TensorData::new(values.to_vec(), shape);
        Tensor::from_data(data, (&Device::flex(), DType::F64))
    }

    fn values<const D: usize>(tensor: Tensor<D>) -> Vec<f64> {
        tensor.into_data().iter::<f64>().collect()
    }

    /// By hand, from 1 with decay 0.1 of rate 0.1: kept 0.99. Step 1: V = 0.25, U = 1, p = 0.99 − 0.1 = 0.89. Step 2
    /// with the power −1: V = (0.25 + 4) / 2, U = −2 / √2.125, shortened to −1; p = 0.8811 + 0.089 = 0.9701.
    #[test]
    fn steps_as_computed_by_hand() {
        let optimizer = AdafactorConfig::new()
            .with_weight_decay(0.1)
            .with_beta2_decay(-1.0)
            .build();
        let expected = [0.89, 0.9701];
        assert_near(&run(&optimizer, 1.0, &[0.5, -2.0]), &expected);
        let clipped = optimizer.with_gradient_scale(0.5);
        assert_near(&run(&clipped, 1.0, &[1.0, -4.0]), &expected);
    }

    #[test]
    fn what_is_small_moves_by_the_smallest_step() {
        let optimizer = AdafactorConfig::new().with_weight_decay(0.0).build();
        // 1e-3 of the rate 0.1, as far as a direction of 1 goes.
        assert_near(&run(&optimizer, 0.0, &[3.0]), &[-1e-4]);
        assert_near(&run(&optimizer, 0.0, &[0.0]), &[0.0]);
    }

    #[test]
    fn late_steps_are_at_most_the_root_of_their_number() {
        let numbers = AdafactorConfig::new().build().numbers(0.1, 10_000);
        assert_eq!(numbers.rate, 0.01);
        assert_eq!(numbers.keep, 1.0 - 0.1 * 0.01);
    }

    #[test]
    fn a_matrix_keeps_the_means_of_its_rows_and_columns() {
        let optimizer = AdafactorConfig::new().build();
        let gradient = tensor(&[1.0, 2.0, 3.0, 0.0, 1.0, 4.0], [2, 3]);
        let (moved, state) = optimizer.step(0.1, tensor(&[1.0; 6], [2, 3]), gradient, None);
        let moment = state.expect("it has one").moment.into_factored();
        assert_near(&values(moment.rows), &[14.0 / 3.0, 17.0 / 3.0]);
        assert_near(&values(moment.columns), &[0.5, 2.5, 12.5]);
        // Of U = G / √(r c / mean(r)), the first: 1 / √(14/3 · 0.5 / (31/6)) = √(31/14); shortened by the size of U.
        let direction = |g: f64, row: f64, column: f64| g / (row / 3.0 * column / (31.0 / 6.0)).sqrt();
        let all = [
            direction(1.0, 14.0, 0.5),
            direction(2.0, 14.0, 2.5),
            direction(3.0, 14.0, 12.5),
            0.0,
            direction(1.0, 17.0, 2.5),
            direction(4.0, 17.0, 12.5),
        ];
        let size = (all.iter().map(|u| u * u).sum::<f64>() / 6.0).sqrt().max(1.0);
        let expected = all.map(|u| 0.999 - 0.1 * u / size);
        assert_near(&values(moved), &expected);
    }

    /// By torch.optim.Adafactor of torch 2.15.0 in f64, with lr 0.5 and weight decay 0.1.
    #[test]
    fn steps_are_those_of_pytorch() {
        let optimizer = AdafactorConfig::new().with_weight_decay(0.1).build();
        let (mut matrix, mut of_matrix) = (tensor(&[0.5, -1.0, 2.0, 0.25, 1e-3, -0.75], [2, 3]), None);
        let (mut vector, mut of_vector) = (tensor(&[0.5, -2.0], [2]), None);
        let steps = [
            (
                [1.0, -0.5, 0.25, 2.0, 0.0, -1.0],
                [1e-3, -4.0],
                [
                    0.061243127256009736,
                    -0.024811506386707788,
                    1.6756088304250767,
                    -0.18647463040850784,
                    0.00095,
                    -0.25263494660993413,
                ],
                [-0.2538689868556625, -1.1711310131443375],
            ),
            (
                [0.5, 0.5, -3.0, 1e-9, 2.0, 1.0],
                [-2.0, 1.0],
                [
                    -0.08806370655593534,
                    -0.16167955005407897,
                    2.123169635192125,
                    -0.1771508992088883,
                    -0.6050143165291305,
                    -0.4342637016312237,
                ],
                [0.31786561428598775, -1.268480724300297],
            ),
            (
                [0.0, 0.25, 1.0, -1.5, 0.5, 0.125],
                [0.5, 0.0],
                [
                    -0.08366052122813858,
                    -0.2820978543168138,
                    1.6917749189286053,
                    0.4831449719833062,
                    -0.8314479493401731,
                    -0.4531543923427668,
                ],
                [0.10981148189654831, -1.205056688085282],
            ),
        ];
        for (gradient, of_bias, expected, expected_of_bias) in steps {
            (matrix, of_matrix) = optimizer.step(0.5, matrix, tensor(&gradient, [2, 3]), of_matrix);
            (vector, of_vector) = optimizer.step(0.5, vector, tensor(&of_bias, [2]), of_vector);
            assert_near(&values(matrix.clone()), &expected);
            assert_near(&values(vector.clone()), &expected_of_bias);
        }
        let moment = of_matrix.expect("it has one").moment.into_factored();
        assert_near(&values(moment.rows), &[1.319498806847646, 1.3227930218769668]);
        let columns = [1.131385950721406, 0.8096850252496114, 2.0223667671159022];
        assert_near(&values(moment.columns), &columns);
    }

    #[test]
    fn matrices_of_one_parameter_are_apart_but_for_their_size() {
        let optimizer = AdafactorConfig::new().build();
        let gradients: Vec<f64> = (0..12).map(|index| f64::from(index % 5) - 1.5).collect();
        let (_, state) = optimizer.step(0.1, tensor(&[1.0; 12], [2, 2, 3]), tensor(&gradients, [2, 2, 3]), None);
        let both = state.expect("it has one").moment.into_factored();
        let each = [0..6, 6..12].map(|range| {
            let gradient = tensor(&gradients[range], [2, 3]);
            let (_, state) = optimizer.step(0.1, tensor(&[1.0; 6], [2, 3]), gradient, None);
            state.expect("it has one").moment.into_factored()
        });
        let joined = |part: fn(FactoredMoment) -> Tensor<1>| -> Vec<f64> {
            each.iter().flat_map(|moment| values(part(moment.clone()))).collect()
        };
        assert_eq!(values(both.rows.clone()), joined(|moment| moment.rows));
        assert_eq!(values(both.columns), joined(|moment| moment.columns));
    }
}
