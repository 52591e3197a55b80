//! Embeddings on the host in f64: what the tests compare with.

use super::TokenRange;

/// Returns each token's row of a table of `columns` columns; zeros for tokens outside the range.
pub fn embedding(table: &[f64], columns: usize, tokens: &[i64], range: TokenRange) -> Vec<f64> {
    let row = |&token: &i64| match range.row(token) {
        Some(row) => table[row * columns..][..columns].to_vec(),
        None => vec![0.0; columns],
    };
    tokens.iter().flat_map(row).collect()
}

/// Adds the gradient's rows to those of their tokens, `sums` being those of the range.
pub fn add_rows(sums: &mut [f64], columns: usize, tokens: &[i64], gradient: &[f64], range: TokenRange) {
    for (index, &token) in tokens.iter().enumerate() {
        if let Some(row) = range.row(token) {
            let sums = &mut sums[row * columns..][..columns];
            for (sum, gradient) in sums.iter_mut().zip(&gradient[index * columns..]) {
                *sum += gradient;
            }
        }
    }
}
