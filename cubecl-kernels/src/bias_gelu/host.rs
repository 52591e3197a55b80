//! Bias and GELU on the host in f64: what the tests compare with.

/// `√(2/π)`
const SLOPE: f64 = std::f64::consts::FRAC_2_SQRT_PI * std::f64::consts::FRAC_1_SQRT_2;
const CUBE: f64 = 0.044715;

/// Returns `gelu(input + bias)` of rows as long as the bias.
pub fn forward(input: &[f64], bias: &[f64]) -> Vec<f64> {
    let rows = input.chunks_exact(bias.len().max(1));
    rows.flat_map(|row| row.iter().zip(bias).map(|(x, bias)| gelu(x + bias).0))
        .collect()
}

/// Returns the gradients of the input and of the bias for the output's.
pub fn backward(input: &[f64], bias: &[f64], gradient: &[f64]) -> [Vec<f64>; 2] {
    let columns = bias.len();
    let mut of_bias = vec![0.0; columns];
    let terms = input.iter().zip(gradient).enumerate();
    let of_input = terms
        .map(|(index, (x, gradient))| {
            let term = gradient * gelu(x + bias[index % columns]).1;
            of_bias[index % columns] += term;
            term
        })
        .collect();
    [of_input, of_bias]
}

/// `x/2 · (1 + tanh u)` and its derivative; their limits at ±∞.
fn gelu(x: f64) -> (f64, f64) {
    if x.is_infinite() {
        return (x.max(0.0), if x > 0.0 { 1.0 } else { 0.0 });
    }
    let tanh = (SLOPE * (x + CUBE * x.powi(3))).tanh();
    let inner = SLOPE * (1.0 + 3.0 * CUBE * x * x);
    let derivative = 0.5 * (1.0 + tanh) + 0.5 * x * (1.0 - tanh * tanh) * inner;
    (0.5 * x * (1.0 + tanh), derivative)
}
