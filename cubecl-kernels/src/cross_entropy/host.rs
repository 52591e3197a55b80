//! The cross-entropy of a vocabulary's shards on the host in f64: what the tests compare with.
//!
//! A target of another shard is any number outside `0..valid`.

use std::ops::Range;

/// What one shard, or all of them together, knows of each row.
#[derive(Clone, Debug, PartialEq)]
pub struct Statistics {
    /// The largest logit; −∞ where the shard has no valid column.
    pub maximum: Vec<f64>,
    /// `Σ exp(x − maximum)`; 0 where every logit is −∞, and where there is none.
    pub sum: Vec<f64>,
    /// The target's logit; 0 where the target is in another shard.
    pub target: Vec<f64>,
}

/// A shard's logits: rows of `columns` numbers, of which the first `valid` count.
#[derive(Clone, Copy, Debug)]
pub struct Shard<'a> {
    /// All rows, one after the other.
    pub logits: &'a [f64],
    /// How long a row is.
    pub columns: usize,
    /// How much of a row counts.
    pub valid: usize,
}

impl Shard<'_> {
    /// Returns each row's statistics; there is a row for every target.
    pub fn statistics(&self, targets: &[i64]) -> Statistics {
        let rows = (0..targets.len()).map(|row| self.row(row));
        let maximum: Vec<f64> = rows
            .clone()
            .map(|row| row.iter().copied().fold(f64::NEG_INFINITY, f64::max))
            .collect();
        let sum = |(row, &maximum): (&[f64], &f64)| {
            if maximum == f64::NEG_INFINITY {
                0.0
            } else {
                row.iter().map(|x| (x - maximum).exp()).sum()
            }
        };
        Statistics {
            sum: rows.clone().zip(&maximum).map(sum).collect(),
            target: rows.zip(targets).map(|(row, &target)| target_of(row, target)).collect(),
            maximum,
        }
    }

    /// Returns the logits' gradient for that of the rows' losses and the statistics of all shards.
    pub fn backward(&self, targets: &[i64], whole: &Statistics, gradient: &[f64]) -> Vec<f64> {
        let mut result = vec![0.0; self.logits.len()];
        for (row, &target) in targets.iter().enumerate() {
            for (column, x) in self.row(row).iter().enumerate() {
                let one_hot = if column as i64 == target { 1.0 } else { 0.0 };
                let share = (x - whole.maximum[row]).exp() / whole.sum[row];
                result[row * self.columns + column] = (share - one_hot) * gradient[row];
            }
        }
        result
    }

    /// A row's valid columns.
    fn row(&self, row: usize) -> &[f64] {
        let Range { start, end } = row * self.columns..row * self.columns + self.valid;
        &self.logits[start..end]
    }
}

impl Statistics {
    /// Each row's loss, where these are the statistics of all shards.
    pub fn losses(&self) -> Vec<f64> {
        let rows = 0..self.sum.len();
        rows.map(|row| self.sum[row].ln() - (self.target[row] - self.maximum[row]))
            .collect()
    }
}

/// Returns the statistics of all shards together.
pub fn combine(shards: &[Statistics]) -> Statistics {
    let rows = 0..shards.first().map_or(0, |shard| shard.maximum.len());
    let maximum = |row: usize| {
        let maxima = shards.iter().map(|shard| shard.maximum[row]);
        maxima.fold(f64::NEG_INFINITY, f64::max)
    };
    let sum = |row: usize| {
        let present = shards.iter().filter(|shard| shard.sum[row] > 0.0);
        present
            .map(|shard| shard.sum[row] * (shard.maximum[row] - maximum(row)).exp())
            .sum()
    };
    let target = |row: usize| shards.iter().map(|shard| shard.target[row]).sum();
    Statistics {
        maximum: rows.clone().map(maximum).collect(),
        sum: rows.clone().map(sum).collect(),
        target: rows.map(target).collect(),
    }
}

fn target_of(row: &[f64], target: i64) -> f64 {
    let column = usize::try_from(target).ok();
    column.and_then(|column| row.get(column)).copied().unwrap_or(0.0)
}
