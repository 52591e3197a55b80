//! The softmax on the host in f64: what the tests compare with.

/// Returns the probabilities of rows of `keys` scores; `is_masked` says of a row and a key whether the score counts for
/// nothing.
pub fn forward(scores: &[f64], keys: usize, scale: f64, is_masked: impl Fn(usize, usize) -> bool) -> Vec<f64> {
    let mut output = vec![0.0; scores.len()];
    let rows = scores
        .chunks_exact(keys.max(1))
        .zip(output.chunks_exact_mut(keys.max(1)));
    for (row, (scores, output)) in rows.enumerate() {
        let kept: Vec<usize> = (0..keys).filter(|&key| !is_masked(row, key)).collect();
        // Not `f64::max`, which leaves NaN out.
        let larger = |a: f64, b: f64| if a >= b || a.is_nan() { a } else { b };
        let maximum = kept
            .iter()
            .map(|&key| scale * scores[key])
            .fold(f64::NEG_INFINITY, larger);
        if maximum == f64::NEG_INFINITY {
            continue;
        }
        let mut sum = 0.0;
        for &key in &kept {
            output[key] = (scale * scores[key] - maximum).exp();
            sum += output[key];
        }
        for &key in &kept {
            output[key] /= sum;
        }
    }
    output
}

/// Returns the scores' gradient for the probabilities and their gradient.
pub fn backward(output: &[f64], gradient: &[f64], keys: usize, scale: f64) -> Vec<f64> {
    let rows = output.chunks_exact(keys.max(1)).zip(gradient.chunks_exact(keys.max(1)));
    rows.flat_map(|(output, gradient)| {
        let along: f64 = output.iter().zip(gradient).map(|(p, g)| p * g).sum();
        output.iter().zip(gradient).map(move |(p, g)| scale * p * (g - along))
    })
    .collect()
}
