//! `SampleMap`: which sentences each sample has, and how many tokens are wanted of it.

use std::fmt::Write as _;
use std::ops::Range;

use rand_mt::Mt64;
use rayon::prelude::*;
use xxhash_rust::xxh3::{xxh3_64, xxh3_128};

use crate::index_cache::{ArrayLayout, IndexArray, IndexCache};
use crate::indexed_dataset::SentenceDocuments;
use crate::mt19937::Mt19937;
use crate::samples::{SampleError, at_least_one, entry, fits_32_bits};

/// A document with a longer sentence, in tokens, gives no sample, unless it is its only one.
const LONG_SENTENCE: usize = 512;
/// Documents that are hashed at once; the hash depends on it.
const SURVEY_CHUNK: usize = 1 << 16;

/// What a map depends on, next to the documents.
#[derive(Debug, Clone)]
pub(super) struct SampleMapConfig {
    /// Tokens of the longest sample, without those that are added to it.
    pub(super) max_length: usize,
    /// Sentences that a sample has at least.
    pub(super) min_sentences: usize,
    /// Share of the samples that are shorter.
    pub(super) short_sequence_probability: f64,
    /// Samples wanted; `None` for those of one epoch.
    pub(super) num_samples: Option<u64>,
    pub(super) seed: u32,
}

/// Of each sample in training order: its first sentence, the one after its last, and the tokens that are wanted of it.
///
/// # Reference
/// Megatron-LM's `build_mapping` in `helpers.cpp`, whose numbers these are.
#[derive(Clone)]
pub(super) struct SampleMap(IndexArray<[u32; 3]>);

impl SampleMap {
    /// Makes the map, in memory or in the cache.
    pub(super) fn new(
        config: &SampleMapConfig,
        documents: &dyn SentenceDocuments,
        range: &Range<usize>,
        cache: Option<&IndexCache>,
    ) -> Result<Self, SampleError> {
        let walk = Walk::new(config, documents, range)?;
        let Some(cache) = cache else {
            return Ok(Self(IndexArray::Owned(walk.shuffled()?)));
        };
        let description = description(config, documents, range);
        // How many samples there are takes a walk over all sentences, so it is kept too; what this process has walked
        // for it, it does not walk again.
        let mut made = None;
        let count = cache.open_or_build("sample-count", &description, &[ArrayLayout::of::<u64>(1)], |writer| {
            let samples = made.insert(walk.shuffled()?);
            writer.write(&[samples.len() as u64])?;
            writer.end_array()
        })?;
        let count = count.array::<u64>(0)[0] as usize;
        let map = cache.open_or_build(
            "sample-map",
            &description,
            &[ArrayLayout::of::<[u32; 3]>(count)],
            |writer| {
                let samples = made.map_or_else(|| walk.shuffled(), Ok)?;
                writer.write(&samples)?;
                writer.end_array()
            },
        )?;
        Ok(Self(map.array(0)))
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns the sentences of a sample, and the tokens that are wanted of it.
    pub(super) fn sample(&self, index: u64) -> Result<(Range<usize>, usize), SampleError> {
        let [start, end, length] = entry(&self.0, index)?.map(|number| number as usize);
        Ok((start..end, length))
    }
}

/// Documents that are read sentence by sentence, as often as samples are wanted.
struct Walk<'a> {
    config: &'a SampleMapConfig,
    documents: &'a dyn SentenceDocuments,
    range: &'a Range<usize>,
    /// One sample in this number is shorter; none with 0.
    short_ratio: u32,
}

impl<'a> Walk<'a> {
    fn new(
        config: &'a SampleMapConfig,
        documents: &'a dyn SentenceDocuments,
        range: &'a Range<usize>,
    ) -> Result<Self, SampleError> {
        assert!(
            range.end <= documents.num_whole_documents(),
            "documents {range:?} of {} documents",
            documents.num_whole_documents()
        );
        let probability = config.short_sequence_probability;
        if !(0.0..=1.0).contains(&probability) {
            return Err(SampleError::Probability {
                name: "share of short samples (--short-seq-prob)",
                rule: "from 0 to 1",
                value: probability,
            });
        }
        at_least_one("number of samples", config.num_samples.unwrap_or(1))?;
        fits_32_bits("number of sentences", documents.sentences().num_documents() as u128)?;
        fits_32_bits("number of tokens of a sample", config.max_length as u128)?;
        let short_ratio = if probability > 0.0 {
            (1.0 / probability).round()
        } else {
            0.0
        };
        Ok(Self {
            config,
            documents,
            range,
            short_ratio: short_ratio as u32,
        })
    }

    /// Returns the samples of whole epochs, in training order.
    fn shuffled(&self) -> Result<Vec<[u32; 3]>, SampleError> {
        let mut samples = vec![];
        self.each(|sample| samples.push(sample))?;
        let mut generator = Mt64::new(u64::from(self.config.seed) + 1);
        for last in (1..samples.len()).rev() {
            let drawn = generator.next_u64() % (last as u64 + 1);
            samples.swap(last, drawn as usize);
        }
        Ok(samples)
    }

    /// Passes on the samples of whole epochs, in the order of the documents.
    fn each(&self, mut pass_on: impl FnMut([u32; 3])) -> Result<(), SampleError> {
        let mut generator = Mt19937::new(self.config.seed);
        let mut found = 0_u64;
        loop {
            let before = found;
            for document in self.range.clone() {
                self.document(document, &mut generator, &mut |sample| {
                    found += 1;
                    pass_on(sample);
                });
            }
            if found == before {
                return Err(self.no_samples());
            }
            fits_32_bits("number of samples", found.into())?;
            if self.config.num_samples.is_none_or(|wanted| found >= wanted) {
                return Ok(());
            }
        }
    }

    /// Passes on the samples of a document: it is cut where a sample has enough tokens and sentences, and more than one
    /// sentence is left for the next.
    fn document(&self, document: usize, generator: &mut Mt19937, pass_on: &mut impl FnMut([u32; 3])) {
        let sentences = self.documents.document_sentences(document);
        if sentences.len() < self.config.min_sentences.max(1) || self.has_long_sentence(&sentences) {
            return;
        }
        let lengths = self.documents.sentences();
        let mut target = self.target_length(generator);
        let (mut start, mut length) = (sentences.start, 0);
        for sentence in sentences.clone() {
            length += lengths.document_length(sentence);
            let left = sentences.end - sentence - 1;
            let is_full = length >= target as usize && sentence + 1 - start >= self.config.min_sentences;
            if left == 0 || (is_full && left > 1) {
                pass_on([start as u32, sentence as u32 + 1, target]);
                target = self.target_length(generator);
                (start, length) = (sentence + 1, 0);
            }
        }
    }

    fn has_long_sentence(&self, sentences: &Range<usize>) -> bool {
        let lengths = self.documents.sentences();
        let is_long = |sentence| lengths.document_length(sentence) > LONG_SENTENCE;
        sentences.len() > 1 && sentences.clone().any(is_long)
    }

    fn target_length(&self, generator: &mut Mt19937) -> u32 {
        let max_length = self.config.max_length as u32;
        if self.short_ratio == 0 {
            return max_length;
        }
        let drawn = generator.next_u32();
        if drawn.is_multiple_of(self.short_ratio) {
            2 + drawn % (max_length - 1)
        } else {
            max_length
        }
    }

    fn no_samples(&self) -> SampleError {
        let sentences = |document| self.documents.document_sentences(document);
        let min_sentences = self.config.min_sentences.max(1);
        let enough = self
            .range
            .clone()
            .filter(|&document| sentences(document).len() >= min_sentences);
        SampleError::NoMaskedSamples {
            documents: self.range.len(),
            min_sentences,
            enough: enough.count(),
            long_sentence: LONG_SENTENCE,
        }
    }
}

/// Returns everything that the map depends on, one a line.
fn description(config: &SampleMapConfig, documents: &dyn SentenceDocuments, range: &Range<usize>) -> String {
    let lengths = documents.sentences();
    let chunk = |chunk: usize| {
        let start = range.start + chunk * SURVEY_CHUNK;
        let mut numbers = vec![];
        for document in start..range.end.min(start + SURVEY_CHUNK) {
            let sentences = documents.document_sentences(document);
            numbers.push(sentences.len() as u64);
            numbers.extend(sentences.map(|sentence| lengths.document_length(sentence) as u64));
        }
        xxh3_64(bytemuck::cast_slice(&numbers))
    };
    let chunks = range.len().div_ceil(SURVEY_CHUNK);
    let hashes: Vec<u64> = (0..chunks).into_par_iter().map(chunk).collect();
    let first = (!range.is_empty()).then(|| documents.document_sentences(range.start).start);
    let mut text = String::from("sentences of the samples of a masked data set, version 1\n");
    let mut line = |name: &str, value: &dyn std::fmt::Display| {
        writeln!(text, "{name}: {value}").expect("a string takes all");
    };
    line("documents", &format_args!("{}..{}", range.start, range.end));
    line("first sentence", &first.unwrap_or_default());
    line(
        "hash of the lengths of sentences",
        &format_args!("{:032x}", xxh3_128(bytemuck::cast_slice(&hashes))),
    );
    line("longest sample", &config.max_length);
    line("fewest sentences", &config.min_sentences);
    line("probability of short samples", &config.short_sequence_probability);
    match config.num_samples {
        Some(wanted) => line("samples", &wanted),
        None => line("samples", &"one epoch"),
    }
    line("seed", &config.seed);
    text
}
