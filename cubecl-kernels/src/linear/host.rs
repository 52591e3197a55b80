//! The product on the host in f64: what the tests compare with.

use super::WeightOrder;

/// The sizes of a product; its matrices are contiguous.
#[derive(Clone, Copy, Debug)]
pub struct LinearSizes {
    /// Rows of the input.
    pub rows: usize,
    /// Columns of the input.
    pub d_input: usize,
    /// Columns of the output.
    pub d_output: usize,
    /// The order of the weight's dimensions.
    pub order: WeightOrder,
}

impl LinearSizes {
    /// Returns the index of the weight from an input to an output.
    fn weight(self, input: usize, output: usize) -> usize {
        match self.order {
            WeightOrder::InputFirst => input * self.d_output + output,
            WeightOrder::OutputFirst => output * self.d_input + input,
        }
    }

    /// Calls a function for each product, with the places of its input, weight and output.
    fn each(self, mut function: impl FnMut(usize, usize, usize)) {
        for row in 0..self.rows {
            for output in 0..self.d_output {
                for input in 0..self.d_input {
                    let place = self.weight(input, output);
                    function(row * self.d_input + input, place, row * self.d_output + output);
                }
            }
        }
    }
}

/// Returns `input · weight + bias`.
pub fn forward(sizes: LinearSizes, input: &[f64], weight: &[f64], bias: Option<&[f64]>) -> Vec<f64> {
    let mut output: Vec<f64> = match bias {
        Some(bias) => bias.repeat(sizes.rows),
        None => vec![0.0; sizes.rows * sizes.d_output],
    };
    sizes.each(|x, w, y| output[y] += input[x] * weight[w]);
    output
}

/// Returns the gradients of input, weight and bias for the output's.
pub fn backward(sizes: LinearSizes, input: &[f64], weight: &[f64], gradient: &[f64]) -> [Vec<f64>; 3] {
    let (mut of_input, mut of_weight) = (vec![0.0; input.len()], vec![0.0; weight.len()]);
    sizes.each(|x, w, y| {
        of_input[x] += gradient[y] * weight[w];
        of_weight[w] += gradient[y] * input[x];
    });
    let mut of_bias = vec![0.0; sizes.d_output];
    for (index, gradient) in gradient.iter().enumerate() {
        of_bias[index % sizes.d_output] += gradient;
    }
    [of_input, of_weight, of_bias]
}
