//! Where in the global batch the tokens that a rank holds are, and in which step.

use std::sync::Arc;

use cubecl_kernels::random::RowPlace;

/// One token's place: which sample of the whole run, and where in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenPlace {
    /// The sample's number, counted over the whole run.
    pub sample: u64,
    /// The token's position in its sample.
    pub position: u32,
}

/// The place of each token (row) of an activation. An explicit list: nothing computes it from an offset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenMap {
    places: Arc<[TokenPlace]>,
    /// The same as the kernels take it, shared by all sites, so that a device is given it once.
    rows: Arc<[RowPlace]>,
}

impl TokenMap {
    /// Returns the map of whole samples laid one after the other, `seq_length` tokens each.
    pub fn of_samples(samples: &[u64], seq_length: usize) -> Self {
        let places = samples
            .iter()
            .flat_map(|&sample| (0..seq_length as u32).map(move |position| TokenPlace { sample, position }))
            .collect();
        Self::new(places)
    }

    fn new(places: Arc<[TokenPlace]>) -> Self {
        let rows = places.iter().map(|place| RowPlace {
            position: place.position,
            // Wraps after 2^32, where a mask would come a second time.
            sample: place.sample as u32,
        });
        Self {
            rows: rows.collect(),
            places,
        }
    }

    /// Returns the map of the `index`-th of `count` equal contiguous shards of the tokens.
    ///
    /// # Panics
    /// When `count` does not divide the number of tokens, or `index` is not below `count`.
    pub fn shard(&self, index: usize, count: usize) -> Self {
        assert!(
            index < count && self.places.len().is_multiple_of(count),
            "shard {index} of {count} of {} tokens",
            self.places.len()
        );
        let length = self.places.len() / count;
        Self::new(self.places[index * length..(index + 1) * length].into())
    }

    /// The places, one per token.
    pub fn places(&self) -> &[TokenPlace] {
        &self.places
    }

    /// The places as the kernels take them.
    pub(super) fn rows(&self) -> Arc<[RowPlace]> {
        self.rows.clone()
    }
}

/// What dropout needs to know of a step in addition to its own site: seed, iteration, and the tokens at hand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepCoordinates {
    /// The seed of the run's dropout.
    pub seed: u64,
    /// The optimiser step.
    pub iteration: u64,
    /// The tokens of the activation.
    pub tokens: TokenMap,
}

impl StepCoordinates {
    /// Returns the same step seen by one of `count` sequence-parallel ranks.
    ///
    /// # Panics
    /// As [`TokenMap::shard`].
    pub fn shard(&self, index: usize, count: usize) -> Self {
        Self {
            tokens: self.tokens.shard(index, count),
            ..self.clone()
        }
    }
}
