//! burn's own generator of random numbers, one per process: which ranks draw the same numbers from it.

use burn::tensor::{Device, Distribution, Tensor};

use crate::collectives::CollectiveError;
use crate::context::ParallelContext;
use crate::parameters::read_host;
use crate::random::RandomStream;

/// Gives burn's generator of this process a seed of its own on every data-parallel rank and pipeline stage except the
/// first: those that see other samples or hold other layers.
///
/// It depends on the context's seed and on what the generator draws next, so on the seed that the program has given it;
/// a second call gives another. Tensor ranks draw the same numbers, and the first rank draws what one rank alone would.
///
/// # Communication
/// Except on the first data-parallel rank's first stage, one broadcast of 8 bytes over the tensor group.
///
/// # Errors
/// When that fails.
pub(in crate::data_parallel) fn separate_generators(
    device: &Device,
    context: &ParallelContext,
) -> Result<(), CollectiveError> {
    let rank = context.coordinates();
    if (rank.data, rank.pipeline) == (0, 0) {
        return Ok(());
    }
    let drawn = read_host(Tensor::<1>::random([2], Distribution::Default, device));
    let drawn = drawn
        .iter()
        .fold(0, |all: u64, number| all.rotate_left(31) ^ number.to_bits());
    let mut seed = [generator_seed(context.seed() ^ drawn, rank.data, rank.pipeline) as i64];
    context.tensor_group().broadcast(&mut seed, 0)?;
    device.seed(seed[0] as u64);
    Ok(())
}

/// The seed of a data-parallel rank and a stage.
fn generator_seed(seed: u64, data: usize, stage: usize) -> u64 {
    let name = format!("generator of data-parallel rank {data}, pipeline stage {stage}");
    let [low, high] = RandomStream::new(seed, &name).key();
    u64::from(high) << 32 | u64::from(low)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn ranks_have_seeds_of_their_own() {
        let seeds: HashSet<u64> = (0..64).map(|rank| generator_seed(7, rank / 8, rank % 8)).collect();
        assert_eq!(seeds.len(), 64);
        assert_ne!(generator_seed(7, 1, 0), generator_seed(8, 1, 0));
    }
}
