//! burn's own generator of random numbers, one per process: which ranks draw the same numbers from it.

use burn::tensor::backend::Backend;

use super::RandomStream;
use crate::topology::Coordinates;

/// Gives burn's generator of this process a seed of its own on every data-parallel rank and pipeline stage except the
/// first: those that see other samples or hold other layers.
///
/// Tensor ranks draw the same numbers, and the first rank draws what one rank alone would.
pub(crate) fn separate_generators<B: Backend>(device: &B::Device, seed: u64, rank: Coordinates) {
    if let Some(seed) = generator_seed(seed, rank.data, rank.pipeline) {
        B::seed(device, seed);
    }
}

/// The seed of a data-parallel rank and a stage; `None` for the first of both, whose generator stays as it is.
fn generator_seed(seed: u64, data: usize, stage: usize) -> Option<u64> {
    let name = format!("generator of data-parallel rank {data}, pipeline stage {stage}");
    let [low, high] = RandomStream::new(seed, &name).key();
    ((data, stage) != (0, 0)).then(|| u64::from(high) << 32 | u64::from(low))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn ranks_have_seeds_of_their_own_and_the_first_keeps_its_generator() {
        let seeds: HashSet<Option<u64>> = (0..64).map(|rank| generator_seed(7, rank / 8, rank % 8)).collect();
        assert_eq!(seeds.len(), 64);
        assert_eq!(generator_seed(7, 0, 0), None);
        assert_ne!(generator_seed(7, 1, 0), generator_seed(8, 1, 0));
    }
}
