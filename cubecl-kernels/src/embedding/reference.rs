//! Embeddings in burn's operations.

use burn::tensor::{Bool, IndexingUpdateOp, Int, Tensor};

use super::{AddRows, TokenRange};
use crate::precision::{compute_type, narrow, widen, zeros};

/// Returns each token's row; zeros for tokens outside the range.
pub fn forward(table: Tensor<2>, tokens: Tensor<1, Int>, range: TokenRange) -> Tensor<2> {
    let ([count], [_, columns]) = (tokens.dims(), table.dims());
    if range.count == 0 || count * columns == 0 {
        return zeros([count, columns], &table.device(), table.dtype());
    }
    let (rows, elsewhere) = localize(tokens, range);
    let elsewhere = elsewhere.unsqueeze_dim::<2>(1).expand([count, columns]);
    table.select(0, rows).mask_fill(elsewhere, 0.0)
}

/// Returns the sums with each token's gradient added to its row.
pub fn add_rows(
    sums: Tensor<1>,
    tokens: Tensor<1, Int>,
    gradient: Tensor<2>,
    &AddRows { offset, range }: &AddRows,
) -> Tensor<1> {
    let [count, columns] = gradient.dims();
    let length = range.count * columns;
    if count * length == 0 {
        return sums;
    }
    let (rows, elsewhere) = localize(tokens, range);
    let elsewhere = elsewhere.unsqueeze_dim::<2>(1).expand([count, columns]);
    let gradient = widen(gradient).mask_fill(elsewhere, 0.0);
    let dtype = sums.dtype();
    let nothing = zeros([range.count, columns], &sums.device(), compute_type(dtype));
    let added = nothing.select_assign(0, rows, gradient, IndexingUpdateOp::Add);
    let place = offset..offset + length;
    let before = widen(sums.clone().slice(place.clone()));
    sums.slice_assign(place, narrow(before + added.reshape([length]), dtype))
}

/// Returns each token's row, 0 for one outside the range, and whether it is outside.
fn localize(tokens: Tensor<1, Int>, range: TokenRange) -> (Tensor<1, Int>, Tensor<1, Bool>) {
    let rows = tokens - range.first as i64;
    let before = rows.clone().lower_elem(0);
    let elsewhere = before.bool_or(rows.clone().greater_equal_elem(range.count as i64));
    (rows.mask_fill(elsewhere.clone(), 0), elsewhere)
}
