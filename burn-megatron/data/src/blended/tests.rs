//! Tests of `blended`: shares, order, limits; Megatron-LM's own order is in `tests/sample_order.rs`.

use super::*;
use crate::weights::normalized;
use proptest::prelude::*;

/// Samples of two tokens: the data set's name and the sample's number.
struct Named {
    name: u32,
    num_samples: u64,
    seq_length: usize,
}

impl Samples for Named {
    fn num_samples(&self) -> u64 {
        self.num_samples
    }

    fn seq_length(&self) -> usize {
        self.seq_length
    }

    fn sample_length(&self) -> usize {
        self.seq_length + 1
    }

    fn read_sample(&self, index: u64, tokens: &mut Vec<u32>) -> Result<usize, SampleError> {
        tokens.extend([self.name, index as u32]);
        Ok(2)
    }
}

fn datasets(sizes: &[u64]) -> Vec<Arc<dyn Samples>> {
    let dataset = |(name, &num_samples)| -> Arc<dyn Samples> {
        Arc::new(Named {
            name,
            num_samples,
            seq_length: 1,
        })
    };
    (0..).zip(sizes).map(dataset).collect()
}

fn weighted(weights: &[f64], num_samples: u64) -> BlendSize {
    BlendSize::Weighted {
        weights: weights.to_vec(),
        num_samples,
    }
}

fn sources(blend: &BlendedDataset) -> Vec<(usize, u64)> {
    (0..blend.num_samples())
        .map(|index| blend.source(index).unwrap())
        .collect()
}

#[test]
fn samples_are_read_from_their_data_sets() {
    let blend = BlendedDataset::new(datasets(&[10, 10]), &weighted(&[1.0, 3.0], 8), None).unwrap();
    let mut tokens = vec![];
    for index in 0..8 {
        assert_eq!(blend.read_sample(index, &mut tokens).unwrap(), 2);
    }
    assert_eq!(blend.order(), [10, 10]);
    assert_eq!(tokens, [1, 0, 0, 0, 1, 1, 1, 2, 0, 1, 1, 3, 1, 4, 1, 5]);
    let message = blend.read_sample(8, &mut tokens).unwrap_err().to_string();
    assert_eq!(message, "sample 8 requested from a data set of 8 samples");
}

#[test]
fn sizes_are_megatrons() {
    let weights = normalized(&[0.3, 0.7]);
    assert_eq!(blend_sizes(&weights, 1001), [301, 701]);
    assert_eq!(dataset_sizes(&weights, 1001), [303, 705]);
    assert_eq!(dataset_sizes(&[1e-9, 1.0], 1000), [2, 1005]);
}

#[test]
fn a_blend_that_takes_too_much_of_a_data_set_is_an_error() {
    let error = BlendedDataset::new(datasets(&[10, 3]), &weighted(&[1.0, 1.0], 8), None).unwrap_err();
    let message = error.to_string();
    assert!(
        message.starts_with("the blend takes 4 samples of data set 1, which has 3"),
        "{message}"
    );
}

#[test]
fn impossible_blends_are_errors() {
    let message = |sizes: &[u64], size| {
        BlendedDataset::new(datasets(sizes), &size, None)
            .unwrap_err()
            .to_string()
    };
    assert!(message(&[], BlendSize::Everything).contains("from 1 to 32768, got 0"));
    assert!(message(&[0], BlendSize::Everything).contains("must be at least 1, got 0"));
    assert!(message(&[u64::MAX, 5], BlendSize::Everything).contains("at most 4294967295"));
    assert!(message(&[5], weighted(&[1.0], 1 << 32)).contains("at most 4294967295, got 4294967296"));
    assert!(message(&[5, 5], weighted(&[1.0], 2)).contains("number of weights must be 2"));
    assert!(message(&[5, 5], weighted(&[1.0, f64::NAN], 2)).contains("\"NaN\" at place 3"));
    assert!(message(&[5, 5], weighted(&[1e308, 1e308], 2)).contains("is not a finite weight"));
    let mut mixed = datasets(&[5]);
    mixed.push(Arc::new(Named {
        name: 1,
        num_samples: 5,
        seq_length: 2,
    }));
    let error = BlendedDataset::new(mixed, &BlendSize::Everything, None).unwrap_err();
    let rule = "sample length must be 2, as in the blend's first data set, got 3";
    assert_eq!(error.to_string(), rule);
}

#[test]
fn a_mapped_blend_is_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let cache = IndexCache::new(folder.path());
    let sizes = weighted(&[0.2, 0.5, 0.3], 200_000);
    let new = |cache| BlendedDataset::new(datasets(&[200_000; 3]), &sizes, cache).unwrap();
    let own = new(None);
    for _ in 0..2 {
        assert!(sources(&new(Some(&cache))) == sources(&own));
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2);
}

proptest! {
    #[test]
    fn every_data_set_has_its_share_at_any_time(
        weights in prop::collection::vec(0.01f64..10.0, 1..6),
        num_samples in 1u64..300,
    ) {
        let enough = vec![num_samples; weights.len()];
        let blend = BlendedDataset::new(datasets(&enough), &weighted(&weights, num_samples), None).unwrap();
        let shares = normalized(&weights);
        let mut counts = vec![0; weights.len()];
        for (i, (dataset, sample)) in sources(&blend).into_iter().enumerate() {
            prop_assert_eq!(sample, counts[dataset]);
            counts[dataset] += 1;
            for (share, &count) in shares.iter().zip(&counts) {
                prop_assert!((share * (i + 1) as f64 - count as f64).abs() <= weights.len() as f64);
            }
        }
        prop_assert!(blend_sizes(&shares, num_samples).iter().sum::<u64>() >= num_samples);
    }

    #[test]
    fn everything_is_everything_once(sizes in prop::collection::vec(0u64..100, 1..6)) {
        prop_assume!(sizes.iter().sum::<u64>() > 0);
        let blend = BlendedDataset::new(datasets(&sizes), &BlendSize::Everything, None).unwrap();
        let mut all = sources(&blend);
        all.sort();
        let expected: Vec<_> = (0..sizes.len())
            .flat_map(|dataset| (0..sizes[dataset]).map(move |sample| (dataset, sample)))
            .collect();
        prop_assert_eq!(all, expected);
    }
}
