//! Weights that add up to 1, to the last bit as numpy divides them.

/// Returns the weights, divided by their sum.
///
/// # Reference
/// numpy's `w / numpy.sum(w)`, by which Megatron-LM normalises: the sum is made of pairs of halves, and where blends
/// tie, its last bit decides.
pub fn normalized(weights: &[f64]) -> Vec<f64> {
    let sum = pairwise_sum(weights);
    weights.iter().map(|weight| weight / sum).collect()
}

/// Adds in numpy's order: up to 7 numbers one after the other, up to 128 in eight columns, more in two halves.
fn pairwise_sum(values: &[f64]) -> f64 {
    let n = values.len();
    if n < 8 {
        return values.iter().fold(0.0, |sum, value| sum + value);
    }
    if n > 128 {
        let half = n / 2 - n / 2 % 8;
        return pairwise_sum(&values[..half]) + pairwise_sum(&values[half..]);
    }
    let (rows, rest) = values.as_chunks::<8>();
    let mut columns = rows[0];
    for row in &rows[1..] {
        for (column, value) in columns.iter_mut().zip(row) {
            *column += value;
        }
    }
    let [a, b, c, d, e, f, g, h] = columns;
    let sum = ((a + b) + (c + d)) + ((e + f) + (g + h));
    rest.iter().fold(sum, |sum, value| sum + value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_numpys_to_the_last_bit() {
        // `numpy.sum(1 / (numpy.arange(n) * 3.7 + 1.1)).hex()` of numpy 2.4.6.
        for (n, bits) in NUMPY {
            let values: Vec<f64> = (0..n).map(|i| 1.0 / (i as f64 * 3.7 + 1.1)).collect();
            assert_eq!(pairwise_sum(&values).to_bits(), bits, "{n} numbers");
        }
    }

    const NUMPY: [(usize, u64); 14] = [
        (1, 0x3fed1745d1745d17),
        (2, 0x3ff1e0f83e0f83e1),
        (3, 0x3ff3c2da1ff165c3),
        (7, 0x3ff794f930ce69a8),
        (8, 0x3ff82cad56bb7324),
        (9, 0x3ff8b218e8a91ac0),
        (15, 0x3ffaf15dffa2a536),
        (20, 0x3ffc3387e6e71cbe),
        (100, 0x40019911eb3cda7b),
        (128, 0x400221f492750baa),
        (129, 0x4002264508ab4c45),
        (150, 0x400279dfae44ec72),
        (300, 0x4003f9e9e775e08b),
        (1000, 0x40069497307c71bc),
    ];

    #[test]
    fn one_weight_is_all() {
        assert_eq!(normalized(&[0.3]), [1.0]);
        assert_eq!(normalized(&[30.0, 70.0]), [0.3, 0.7]);
    }
}
