//! SwiGLU on the host in f64: what the tests compare with.

/// Returns `silu(gate) ∘ up` of rows `[gate | up]` of `2 * columns` numbers.
pub fn forward(input: &[f64], columns: usize) -> Vec<f64> {
    let rows = input.chunks_exact(2 * columns.max(1));
    rows.flat_map(|row| (0..columns).map(|column| silu(row[column]).0 * row[columns + column]))
        .collect()
}

/// Returns the input's gradient for the output's.
pub fn backward(input: &[f64], gradient: &[f64], columns: usize) -> Vec<f64> {
    let mut result = vec![0.0; input.len()];
    let rows = input
        .chunks_exact(2 * columns.max(1))
        .zip(gradient.chunks_exact(columns.max(1)));
    for (result, (row, gradient)) in result.chunks_exact_mut(2 * columns.max(1)).zip(rows) {
        for column in 0..columns {
            let (value, slope) = silu(row[column]);
            result[column] = gradient[column] * row[columns + column] * slope;
            result[columns + column] = gradient[column] * value;
        }
    }
    result
}

/// `x · sigmoid(x)` and its derivative; their limits at ±∞.
fn silu(x: f64) -> (f64, f64) {
    if x.is_infinite() {
        return (x.max(0.0), if x > 0.0 { 1.0 } else { 0.0 });
    }
    let share = 1.0 / (1.0 + (-x).exp());
    (x * share, share + x * share * (1.0 - share))
}
