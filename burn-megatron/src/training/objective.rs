//! Objective of a micro-batch, which is differentiated: the weighted sum of its losses, times a scale.

use std::cell::RefCell;

use burn::tensor::{Device, Tensor, TensorData};

use crate::autodiff::{GradientSlot, leave};
use crate::collectives::as_constant;

/// Makes the root of each micro-batch's graph in a step.
pub(super) struct Objective {
    /// Device of the losses, without autodiff.
    device: Device,
    /// True if the roots' values are looked at.
    has_values: bool,
    /// The losses' gradient where none is masked, of the last scale and number of tokens.
    unmasked: RefCell<Option<(f64, Tensor<1>)>>,
}

impl Objective {
    pub(super) fn new(device: &Device, has_values: bool) -> Self {
        Self {
            device: device.clone().inner(),
            has_values,
            unmasked: RefCell::new(None),
        }
    }

    /// Returns one element whose gradient is that of the sum of losses times their weights times `scale`; without
    /// weights, all are 1.
    ///
    /// The gradient is known without the sum. The value is the sum if values are looked at, and otherwise zero.
    ///
    /// # Shapes
    /// - `losses`: as long as the weights
    pub(super) fn of(&self, losses: Tensor<1>, weights: Option<&[f64]>, scale: f64) -> Tensor<1> {
        if let Some(weights) = weights {
            assert_eq!([weights.len()], losses.dims(), "a weight for each loss");
        }
        let gradient = match weights {
            Some(weights) => {
                let data = TensorData::from(weights).convert_dtype(losses.dtype());
                Tensor::from_data(data, (&self.device, losses.dtype())).mul_scalar(scale)
            }
            None => self.unmasked(&losses, scale),
        };
        if self.has_values {
            let gradient = as_constant(gradient, &losses.device());
            return (losses * gradient).sum();
        }
        let slot = GradientSlot::default();
        slot.put(gradient);
        leave(losses, &slot)
    }

    fn unmasked(&self, losses: &Tensor<1>, scale: f64) -> Tensor<1> {
        let mut unmasked = self.unmasked.borrow_mut();
        let [tokens] = losses.dims();
        if let Some((of_scale, gradient)) = &*unmasked
            && (*of_scale, gradient.dims()) == (scale, [tokens])
        {
            return gradient.clone();
        }
        let gradient = Tensor::full([tokens], scale, (&self.device, losses.dtype()));
        *unmasked = Some((scale, gradient.clone()));
        gradient
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_gradient_is_that_of_the_masked_sum() {
        let device = Device::flex().autodiff();
        for (mask, has_values) in [
            (None, false),
            (None, true),
            (Some([1.0, 0.0, 0.5]), false),
            (Some([1.0, 0.0, 0.5]), true),
        ] {
            let objective = Objective::new(&device, has_values);
            let weights = mask.unwrap_or([1.0; 3]);
            for scale in [0.3, 0.3, 0.7] {
                let input = Tensor::<1>::from_floats([2.0, -1.0, 4.0], &device).require_grad();
                let losses = input.clone() * input.clone();
                let root = objective.of(losses, mask.as_ref().map(|mask| &mask[..]), scale);
                assert_eq!(root.dims(), [1]);
                let found = input.grad(&root.backward()).expect("it is a leaf").into_data();
                let expected: Vec<f32> = [2.0, -1.0, 4.0]
                    .iter()
                    .zip(weights)
                    .map(|(value, weight)| 2.0 * value * ((weight * scale) as f32))
                    .collect();
                let found = found.try_to_vec::<f32>().expect("f32");
                let is_close = |(found, expected): (&f32, &f32)| (found - expected).abs() < 1e-6;
                assert!(
                    found.iter().zip(&expected).all(is_close),
                    "{found:?}, expected {expected:?}"
                );
            }
        }
    }
}
