//! [`plan`]: which sequences are computed together.

/// Sequences that are computed together, each padded at its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Batch {
    /// Their numbers.
    pub(super) sequences: Vec<usize>,
    /// The rows of the batch: theirs, and empty ones after them.
    pub(super) rows: usize,
    /// The tokens of each row, padding included.
    pub(super) seq_length: usize,
}

/// What a batch must be.
#[derive(Clone, Copy, Debug)]
pub(super) struct BatchLimits {
    /// The most tokens, padding included, if it has more than one sequence.
    pub(super) tokens: usize,
    /// The positions of the model.
    pub(super) positions: usize,
    /// What divides the number of tokens: the ranks that share them.
    pub(super) multiple: usize,
}

/// Returns batches of sequences of about the same length, the longest first. They do not depend on how many replicas of
/// the model share them.
pub(super) fn plan(lengths: &[usize], limits: &BatchLimits) -> Vec<Batch> {
    let mut order: Vec<usize> = (0..lengths.len()).collect();
    order.sort_by_key(|number| std::cmp::Reverse(lengths[*number]));
    let mut batches = Vec::new();
    let mut rest = order.as_slice();
    while let Some(first) = rest.first() {
        let seq_length = padded_length(lengths[*first], limits);
        let count = (limits.tokens / seq_length).clamp(1, rest.len());
        let (own, others) = rest.split_at(count);
        rest = others;
        batches.push(Batch {
            sequences: own.to_vec(),
            rows: rows(count, seq_length, limits.multiple),
            seq_length,
        });
    }
    batches
}

/// The length of the rows: a multiple of what must divide the tokens, if the model has the positions.
fn padded_length(longest: usize, limits: &BatchLimits) -> usize {
    let padded = longest.next_multiple_of(limits.multiple);
    if padded <= limits.positions { padded } else { longest }
}

fn rows(sequences: usize, seq_length: usize, multiple: usize) -> usize {
    let mut rows = sequences;
    while !(rows * seq_length).is_multiple_of(multiple) {
        rows += 1;
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(sequences: &[usize], rows: usize, seq_length: usize) -> Batch {
        Batch {
            sequences: sequences.to_vec(),
            rows,
            seq_length,
        }
    }

    #[test]
    fn batches_have_sequences_of_about_the_same_length_and_few_enough_tokens() {
        let limits = BatchLimits {
            tokens: 12,
            positions: 20,
            multiple: 1,
        };
        let batches = plan(&[3, 20, 4, 5, 4, 1], &limits);
        assert_eq!(
            batches,
            [batch(&[1], 1, 20), batch(&[3, 2], 2, 5), batch(&[4, 0, 5], 3, 4),]
        );
        assert!(plan(&[], &limits).is_empty());
    }

    #[test]
    fn ranks_that_share_the_tokens_divide_them() {
        let limits = BatchLimits {
            tokens: 14,
            positions: 7,
            multiple: 4,
        };
        // 8 positions are too many for a row of 7, so there are four rows; one of 3 has one more token.
        assert_eq!(plan(&[7, 7, 3], &limits), [batch(&[0, 1], 4, 7), batch(&[2], 1, 4)]);
    }
}
