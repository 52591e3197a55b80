//! The norms on the host in f64: what the tests compare with. The sum before a norm is
//! [that of `bias_dropout_add`](crate::bias_dropout_add::host).

use super::NormKind;

/// A norm's parameters; see [`NormParameters`](super::NormParameters).
#[derive(Clone, Debug)]
pub struct HostNorm {
    /// Which norm.
    pub kind: NormKind,
    /// `[d_model]`
    pub weight: Vec<f64>,
    /// `[d_model]`
    pub bias: Option<Vec<f64>>,
    /// Number added to the variance.
    pub epsilon: f64,
}

/// The gradients of a norm.
#[derive(Clone, Debug)]
pub struct HostGradients {
    /// `[rows, d_model]`
    pub input: Vec<f64>,
    /// `[d_model]`
    pub weight: Vec<f64>,
    /// `[d_model]`; also where there is no bias.
    pub bias: Vec<f64>,
}

impl HostNorm {
    /// Returns the norm of each row.
    pub fn forward(&self, input: &[f64]) -> Vec<f64> {
        let row = |row| {
            let [mean, reciprocal] = self.statistics(row);
            let element = move |(column, x): (usize, &f64)| {
                let bias = self.bias.as_ref().map_or(0.0, |bias| bias[column]);
                (x - mean) * reciprocal * self.weight[column] + bias
            };
            row.iter().enumerate().map(element)
        };
        input.chunks_exact(self.weight.len().max(1)).flat_map(row).collect()
    }

    /// Returns the gradients for the output's.
    pub fn backward(&self, input: &[f64], gradient: &[f64]) -> HostGradients {
        let columns = self.weight.len();
        let mut gradients = HostGradients {
            input: vec![0.0; input.len()],
            weight: vec![0.0; columns],
            bias: vec![0.0; columns],
        };
        let rows = input
            .chunks_exact(columns.max(1))
            .zip(gradient.chunks_exact(columns.max(1)));
        let results = gradients.input.chunks_exact_mut(columns.max(1));
        for ((row, gradient), result) in rows.zip(results) {
            let [mean, reciprocal] = self.statistics(row);
            let normal: Vec<f64> = row.iter().map(|x| (x - mean) * reciprocal).collect();
            let weighted: Vec<f64> = gradient.iter().zip(&self.weight).map(|(g, w)| g * w).collect();
            let along = weighted.iter().zip(&normal).map(|(g, n)| g * n).sum::<f64>() / columns as f64;
            let level = match self.kind {
                NormKind::Layer => weighted.iter().sum::<f64>() / columns as f64,
                NormKind::Rms => 0.0,
            };
            for column in 0..columns {
                result[column] = (weighted[column] - level - normal[column] * along) * reciprocal;
                gradients.weight[column] += gradient[column] * normal[column];
                gradients.bias[column] += gradient[column];
            }
        }
        gradients
    }

    /// The mean of a row, 0 for the RMS norm, and the reciprocal of its deviation.
    pub fn statistics(&self, row: &[f64]) -> [f64; 2] {
        let mean = match self.kind {
            NormKind::Layer => row.iter().sum::<f64>() / row.len() as f64,
            NormKind::Rms => 0.0,
        };
        let variance = row.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / row.len() as f64;
        [mean, (variance + self.epsilon).sqrt().recip()]
    }
}
