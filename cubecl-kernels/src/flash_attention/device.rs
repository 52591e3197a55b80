//! What every attention kernel is told, and the dropout of weights.

use cubecl::prelude::*;

use crate::cube::dropout::{DroppedRows, dropout_factors, dropout_row};

/// Sizes, and where each tensor's first element lies in its buffer.
#[derive(CubeType, CubeLaunch)]
pub struct Problem {
    /// Queries of a sample.
    pub queries: usize,
    /// Keys of a sample.
    pub keys: usize,
    /// Heads of the queries for each of the keys.
    pub group: usize,
    /// Elements of a head.
    pub d_head: usize,
    /// 1 where a query sees the keys up to its own position alone.
    pub is_causal: u32,
    /// What scores are multiplied by.
    pub scale: f32,
    /// −∞, which not every shader language has a literal for.
    pub nothing: f32,
    pub query_start: usize,
    pub key_start: usize,
    pub value_start: usize,
    pub of_query_start: usize,
    pub of_key_start: usize,
    pub of_value_start: usize,
}

/// What the weights of a query are multiplied by, from the key `first` on, a multiple of their number. The cubes' last
/// dimension is that of samples.
#[cube]
pub fn factors<C: Size>(
    dropped: &DroppedRows,
    problem: &Problem,
    query: usize,
    head: usize,
    first: usize,
) -> Vector<f32, C> {
    // A query behind the last one has no place; nothing of it is used.
    let query = select(query < problem.queries, query, 0usize);
    let row = dropout_row(dropped, CUBE_POS_Z as usize * problem.queries + query, head as u32);
    dropout_factors::<C>(&dropped.dropout, &row, first as u32)
}
