//! [`LinearPart`]: which elements of a linear layer's parameter a tensor in PyTorch's order has. Pure.

use std::ops::Range;

/// Rows and columns of a block that is transposed at a time, so that both sides stay in the cache.
const BLOCK: usize = 64;

/// Features of a weight, whose columns they are, which a file has as `[features, d_input]`; or of a bias.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LinearPart {
    /// `None` of a bias.
    d_input: Option<usize>,
    /// The sizes of the features' dimensions.
    features: Vec<usize>,
    /// Which of these is cut.
    dimension: usize,
    range: Range<usize>,
}

impl LinearPart {
    /// Returns the part that has a range of one of the features' dimensions.
    pub fn new(d_input: Option<usize>, features: &[usize], dimension: usize, range: Range<usize>) -> Self {
        Self {
            d_input,
            features: features.to_vec(),
            dimension,
            range,
        }
    }

    /// The shape of the tensor.
    pub fn file_shape(&self) -> Vec<usize> {
        [Some(self.num_features()), self.d_input]
            .into_iter()
            .flatten()
            .collect()
    }

    /// Returns as how many equal groups the parameter's features are seen, and which of those of each the tensor has.
    pub fn in_groups(&self) -> (usize, Range<usize>) {
        let inner = self.inner();
        (self.outer(), self.range.start * inner..self.range.end * inner)
    }

    fn num_features(&self) -> usize {
        self.range.len() * self.outer() * self.inner()
    }

    fn outer(&self) -> usize {
        self.features[..self.dimension].iter().product()
    }

    fn inner(&self) -> usize {
        self.features[self.dimension + 1..].iter().product()
    }

    /// The numbers of the tensor's features among those of the parameter.
    pub fn columns(&self) -> impl Iterator<Item = usize> {
        let (inner, length) = (self.inner(), self.features[self.dimension]);
        let range = self.range.start * inner..self.range.end * inner;
        (0..self.outer()).flat_map(move |outer| range.clone().map(move |column| outer * length * inner + column))
    }

    /// Copies the tensor's elements, of `size` bytes each, into the parameter's.
    pub fn put(&self, tensor: &[u8], parameter: &mut [u8], size: usize) {
        self.pairs(|in_tensor, in_parameter| {
            let (from, to) = (in_tensor * size, in_parameter * size);
            parameter[to..to + size].copy_from_slice(&tensor[from..from + size]);
        });
    }

    /// Returns the tensor's elements, of `size` bytes each, out of the parameter's.
    pub fn take(&self, parameter: &[u8], size: usize) -> Vec<u8> {
        let mut tensor = vec![0; self.num_features() * self.d_input.unwrap_or(1) * size];
        self.pairs(|in_tensor, in_parameter| {
            let (from, to) = (in_parameter * size, in_tensor * size);
            tensor[to..to + size].copy_from_slice(&parameter[from..from + size]);
        });
        tensor
    }

    /// Calls `copy` with the number of each element in the tensor and in the parameter.
    fn pairs(&self, mut copy: impl FnMut(usize, usize)) {
        let columns: Vec<usize> = self.columns().collect();
        let (rows, width) = (self.d_input.unwrap_or(1), self.features.iter().product::<usize>());
        for first_row in (0..rows).step_by(BLOCK) {
            for (block, columns) in columns.chunks(BLOCK).enumerate() {
                for (feature, column) in columns.iter().enumerate() {
                    for row in first_row..(first_row + BLOCK).min(rows) {
                        copy((block * BLOCK + feature) * rows + row, row * width + column);
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two groups of two queries, a key and a value, of three elements each.
    const FEATURES: [usize; 3] = [2, 4, 3];

    #[test]
    fn queries_keys_and_values_are_rows_of_three_matrices() {
        let parameter: Vec<u8> = (0..5 * 24).collect();
        let mut found = vec![255; parameter.len()];
        for (range, rows) in [(0..2, 12), (2..3, 6), (3..4, 6)] {
            let part = LinearPart::new(Some(5), &FEATURES, 1, range.clone());
            assert_eq!(part.file_shape(), [rows, 5]);
            let tensor = part.take(&parameter, 1);
            for (index, &value) in tensor.iter().enumerate() {
                let (feature, input) = (index / 5, index % 5);
                let (of_group, element) = (feature / 3, feature % 3);
                let (group, head) = (of_group / range.len(), range.start + of_group % range.len());
                let expected = ((input * 2 + group) * 4 + head) * 3 + element;
                assert_eq!(usize::from(value), expected, "feature {feature}, input {input}");
            }
            part.put(&tensor, &mut found, 1);
        }
        assert_eq!(found, parameter);
    }

    #[test]
    fn elements_keep_their_bytes_in_matrices_larger_than_a_block() {
        let parameter: Vec<u8> = (0..131 * 134 * 2).map(|index: usize| (index * 7 % 251) as u8).collect();
        let mut found = vec![0; parameter.len()];
        for half in 0..2 {
            let part = LinearPart::new(Some(131), &[2, 67], 0, half..half + 1);
            let tensor = part.take(&parameter, 2);
            let (feature, input) = (66, 130);
            let place = 2 * (input * 134 + half * 67 + feature);
            assert_eq!(tensor[2 * (feature * 131 + input)..][..2], parameter[place..][..2]);
            part.put(&tensor, &mut found, 2);
        }
        assert_eq!(found, parameter);
    }

    #[test]
    fn a_bias_is_cut_without_inputs() {
        let part = LinearPart::new(None, &FEATURES, 1, 2..3);
        assert_eq!(part.file_shape(), [6]);
        let parameter: Vec<u8> = (0..24).collect();
        assert_eq!(part.take(&parameter, 1), [6, 7, 8, 18, 19, 20]);
    }
}
