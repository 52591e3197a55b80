//! What two checkpoints have in common.

use anyhow::ensure;
use burn_megatron::checkpoint::Checkpoint;
use burn_megatron::parameters::Placement;

/// Fails unless the arrays of one checkpoint whose names `is_compared` takes have the same type and bits in another;
/// returns how many there are.
pub fn expect_same(
    first: &Checkpoint,
    other: &Checkpoint,
    is_compared: impl Fn(&str) -> bool,
) -> anyhow::Result<usize> {
    let mut count = 0;
    for array in first.arrays().iter().filter(|array| is_compared(&array.name)) {
        let whole = Placement::whole(array.shape.clone());
        let [first, other] = [first, other].map(|from| from.read(&array.name, &whole, 0..array.num_elements()));
        let (first, other) = (first?, other?);
        ensure!(
            (first.dtype, &first.bytes[..]) == (other.dtype, &other.bytes[..]),
            "{} has other bits",
            array.name
        );
        count += 1;
    }
    Ok(count)
}
