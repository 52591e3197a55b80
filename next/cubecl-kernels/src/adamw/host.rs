//! AdamW on the host in f64: what the tests compare with.

use super::AdamWStep;

/// The main parameters and their moments.
#[derive(Clone, Debug, PartialEq)]
pub struct Buffers {
    /// The main parameters.
    pub parameter: Vec<f64>,
    /// The mean of the gradients.
    pub moment_1: Vec<f64>,
    /// The mean of their squares.
    pub moment_2: Vec<f64>,
}

impl Buffers {
    /// Updates everything once.
    pub fn step(&mut self, gradient: &[f64], step: &AdamWStep) {
        let [correction_1, correction_2] = step.corrections();
        for (index, gradient) in gradient.iter().enumerate() {
            let gradient = gradient * step.gradient_scale;
            let (m, v) = (&mut self.moment_1[index], &mut self.moment_2[index]);
            *m = step.beta_1 * *m + (1.0 - step.beta_1) * gradient;
            *v = step.beta_2 * *v + (1.0 - step.beta_2) * gradient * gradient;
            let update = *m / correction_1 / ((*v / correction_2).sqrt() + step.epsilon);
            let parameter = &mut self.parameter[index];
            *parameter -= step.learning_rate * (step.weight_decay * *parameter + update);
        }
    }
}
