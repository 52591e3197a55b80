//! Sizes of the axes of a grid of ranks.

/// The positive multiples of `divisor` on either side of `value`, as text.
pub(crate) fn nearest_multiples(value: usize, divisor: usize) -> String {
    let below = value / divisor * divisor;
    let above = below.saturating_add(divisor);
    if below == 0 {
        above.to_string()
    } else {
        format!("{below} and {above}")
    }
}
