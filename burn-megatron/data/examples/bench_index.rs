//! How long the order of samples takes to make, and how large it is.
//!
//!     cargo run --release -p burn-megatron-data --example bench_index -- [SAMPLES]
//!
//! `bench_index.py` measures numpy and Megatron-LM's helper on the same documents.

use std::error::Error;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use burn_megatron_data::blended::{BlendSize, BlendedDataset};
use burn_megatron_data::gpt_dataset::{GptDataset, GptDatasetConfig};
use burn_megatron_data::index_cache::IndexCache;
use burn_megatron_data::indexed_dataset::TokenDocuments;
use burn_megatron_data::mt19937::Mt19937;
use burn_megatron_data::samples::Samples;

const SEQ_LENGTH: usize = 1024;

/// Documents of 1 to 2047 tokens, 1024 on average, without the tokens.
struct Lengths(Vec<u32>);

impl Lengths {
    fn new(documents: usize) -> Self {
        let length = |document: usize| (document as u32).wrapping_mul(2_654_435_761) >> 21;
        Self((0..documents).map(|document| length(document).max(1)).collect())
    }
}

impl TokenDocuments for Lengths {
    fn num_documents(&self) -> usize {
        self.0.len()
    }

    fn document_length(&self, document: usize) -> usize {
        self.0[document] as usize
    }

    fn read(&self, document: usize, range: Range<usize>, tokens: &mut Vec<u32>) {
        tokens.extend(range.map(|place| (document + place) as u32));
    }
}

/// Prints seconds and bytes per sample of what `work` makes, and what a billion samples would take.
fn measure<T>(what: &str, samples: u64, bytes_per_sample: f64, work: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let made = work();
    let seconds = start.elapsed().as_secs_f64();
    let billion = seconds / samples as f64 * 1e9;
    println!("{what:<44}{seconds:>10.2} s{bytes_per_sample:>10.1} B/sample{billion:>10.0} s for a billion");
    made
}

fn main() -> Result<(), Box<dyn Error>> {
    let samples: u64 = std::env::args()
        .nth(1)
        .map_or(Ok(100_000_000), |samples| samples.parse())?;
    let count = usize::try_from(samples)?;
    let mut numbers: Vec<u32> = (0..u32::try_from(count)?).collect();
    measure("shuffle", samples, 4.0, || Mt19937::new(1234).shuffle(&mut numbers));
    println!("first: {:?}", &numbers[..count.min(5)]);
    drop(numbers);

    let documents = Arc::new(Lengths::new(count));
    let config = GptDatasetConfig::one_epoch(SEQ_LENGTH);
    let folder = std::env::temp_dir().join(format!("bench_index_{}", std::process::id()));
    let cache = IndexCache::new(&folder);
    let bytes = 16.0;
    let make = |name| {
        let open = || GptDataset::with_cache(&config, documents.clone(), 0..count, &cache);
        measure(name, samples, bytes, open)
    };
    let own = measure("data set, in memory", samples, bytes, || {
        GptDataset::new(&config, documents.clone(), 0..count)
    })?;
    println!("{} samples, {} bytes of index", own.num_samples(), own.index_bytes());
    drop(own);
    make("data set, built and written to the cache")?;
    let dataset = make("data set, checked and mapped by another rank")?;
    let mut tokens = vec![];
    let last = dataset.num_samples() - 1;
    measure("the last sample, read", 1, 0.0, || {
        dataset.read_sample(last, &mut tokens)
    })?;
    let dataset: Arc<dyn Samples> = Arc::new(dataset);
    let weights = vec![0.3, 0.5, 0.2];
    let size = BlendSize::Weighted {
        weights,
        num_samples: dataset.num_samples(),
    };
    measure("blend of three, in memory", samples, 6.0, || {
        BlendedDataset::new(vec![dataset.clone(), dataset.clone(), dataset], &size, None)
    })?;
    std::fs::remove_dir_all(folder)?;
    Ok(())
}
