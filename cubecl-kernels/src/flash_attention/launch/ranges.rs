//! The table of which keys queries see, and which queries see keys.

use cubecl::client::Client;
use cubecl::prelude::*;

use crate::cube::tables::{Owner, Table};
use crate::flash_attention::device::KeyRangesLaunch;
use crate::flash_attention::{AttentionMask, AttentionOptions, AttentionSizes};

/// The table as an argument of a kernel; it is brought to the device if it is not there.
pub(super) fn ranges_argument(client: &Client, options: &AttentionOptions, sizes: AttentionSizes) -> KeyRangesLaunch {
    let AttentionSizes {
        batch, queries, keys, ..
    } = sizes;
    let owners = [
        options
            .documents
            .as_ref()
            .map(|documents| Owner::of(documents.bounds())),
        options.key_lengths.as_ref().map(|lengths| Owner::of(lengths.all())),
    ];
    let owners: Vec<Owner> = owners.into_iter().flatten().collect();
    // Under a window alone, all samples are alike.
    let samples = if owners.is_empty() { 1 } else { batch };
    let mask = match options.mask {
        AttentionMask::Full => [0, 0],
        AttentionMask::Causal => [1, 0],
        AttentionMask::CausalWindow(window) => [2, window],
    };
    let table = Table {
        owners,
        form: vec![mask[0], mask[1], samples, queries, keys],
    };
    let handle = table.on_device(client, || {
        let samples = (0..samples).flat_map(|sample| words(options, sample, [queries, keys]));
        samples.collect()
    });
    let row = 2 * (queries + keys);
    // SAFETY: the buffer holds two words for each query and each key of each sample.
    let bounds = unsafe { BufferArg::from_raw_parts(handle, samples * row) };
    KeyRangesLaunch::new(bounds, if samples == batch { row } else { 0 })
}

/// A sample's words: of each query the first key that it sees and the one after its last, then of each key the first
/// query that sees it and the one after its last.
fn words(options: &AttentionOptions, sample: usize, [queries, keys]: [usize; 2]) -> Vec<u32> {
    let of_queries: Vec<_> = (0..queries)
        .map(|query| options.keys_seen(sample, query, keys))
        .collect();
    let mut words = Vec::with_capacity(2 * (queries + keys));
    words.extend(of_queries.iter().flat_map(|seen| [seen.start as u32, seen.end as u32]));
    // Neither end decreases: the queries that see a key are between those that end before it and those that begin
    // after it.
    let (mut from, mut to) = (0, 0);
    for key in 0..keys {
        while from < queries && of_queries[from].end <= key {
            from += 1;
        }
        while to < queries && of_queries[to].start <= key {
            to += 1;
        }
        words.extend([from as u32, to as u32]);
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flash_attention::{Documents, KeyLengths};

    #[test]
    fn a_key_is_seen_by_the_queries_that_see_it() {
        let lengths = [vec![2, 1, 0, 5], vec![8]];
        let documents = || Documents::from_lengths(8, &lengths).expect("of whole samples");
        let masks = [AttentionMask::Full, AttentionMask::Causal].into_iter();
        for mask in masks.chain((1..10).map(AttentionMask::CausalWindow)) {
            for (documents, key_lengths) in [
                (None, None),
                (Some(documents()), None),
                (None, Some(KeyLengths::new([0, 5]))),
                (Some(documents()), Some(KeyLengths::new([6, 8]))),
            ] {
                let options = AttentionOptions {
                    mask,
                    scale: 1.0,
                    dropout: None,
                    documents,
                    key_lengths,
                    is_deterministic: false,
                };
                for sample in 0..2 {
                    let words = words(&options, sample, [8, 8]);
                    let (of_queries, of_keys) = words.split_at(16);
                    let is_in = |bounds: &[u32], number: usize| (bounds[0]..bounds[1]).contains(&(number as u32));
                    for (query, of_query) in of_queries.chunks_exact(2).enumerate() {
                        for (key, of_key) in of_keys.chunks_exact(2).enumerate() {
                            let is_seen = options.keys_seen(sample, query, 8).contains(&key);
                            assert_eq!(is_in(of_query, key), is_seen, "{options:?}: {query} sees {key}");
                            assert_eq!(is_in(of_key, query), is_seen, "{options:?}: {key} seen by {query}");
                        }
                    }
                    for pairs in [of_queries, of_keys].map(|bounds| bounds.windows(3)) {
                        assert!(
                            pairs.into_iter().all(|pair| pair[0] <= pair[2]),
                            "{options:?}: {words:?}"
                        );
                    }
                }
            }
        }
    }
}
