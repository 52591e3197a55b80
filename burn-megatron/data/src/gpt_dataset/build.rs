//! The three arrays that are the order of samples, on all cores, in memory or to a file.

use std::fmt::Write as _;
use std::ops::Range;

use rayon::prelude::*;
use xxhash_rust::xxh3::{xxh3_64, xxh3_128};

use super::GptDatasetConfig;
use super::plan::EpochPlan;
use crate::index_cache::{ArrayLayout, IndexArray, IndexFile, IndexWriter};
use crate::indexed_dataset::TokenDocuments;
use crate::mt19937::Mt19937;
use crate::samples::{SampleError, fits_32_bits};

/// Documents whose lengths are hashed at once; the hash depends on it.
const SURVEY_CHUNK: usize = 1 << 18;
/// Documents of the stream that one thread walks at a time, and how many such pieces are in memory at once.
const WALK_CHUNK: usize = 1 << 16;
const WALK_PIECES: usize = 64;

/// What an order of samples depends on, of the documents.
pub(super) struct Survey {
    pub(super) num_tokens: u64,
    hash_of_lengths: u128,
}

impl Survey {
    /// Looks at the lengths of all documents, without keeping them.
    pub(super) fn of(documents: &dyn TokenDocuments, range: &Range<usize>) -> Result<Self, SampleError> {
        assert!(
            range.end <= documents.num_documents(),
            "documents {range:?} of {} documents",
            documents.num_documents()
        );
        fits_32_bits("number of documents", range.end as u128)?;
        let chunks = range.len().div_ceil(SURVEY_CHUNK);
        let chunk = |chunk: usize| {
            let start = range.start + chunk * SURVEY_CHUNK;
            let lengths = (start..range.end.min(start + SURVEY_CHUNK)).map(|document| length(documents, document));
            let lengths = lengths.collect::<Result<Vec<u32>, _>>()?;
            let tokens = lengths.iter().map(|&length| u64::from(length)).sum::<u64>();
            Ok((tokens, xxh3_64(bytemuck::cast_slice(&lengths))))
        };
        let chunks = (0..chunks).into_par_iter().map(chunk).collect::<Result<Vec<_>, _>>()?;
        let hashes: Vec<u64> = chunks.iter().map(|(_, hash)| *hash).collect();
        Ok(Self {
            num_tokens: chunks.iter().map(|(tokens, _)| tokens).sum(),
            hash_of_lengths: xxh3_128(bytemuck::cast_slice(&hashes)),
        })
    }

    /// Returns everything that the arrays depend on, one a line.
    pub(super) fn description(&self, config: &GptDatasetConfig, range: &Range<usize>) -> String {
        let mut text = String::from("order of the samples of a GPT data set, version 1\n");
        let mut line = |name: &str, value: &dyn std::fmt::Display| {
            writeln!(text, "{name}: {value}").expect("a string takes all");
        };
        line("documents", &format_args!("{}..{}", range.start, range.end));
        line("tokens", &self.num_tokens);
        line("hash of their lengths", &format_args!("{:032x}", self.hash_of_lengths));
        line("sequence length", &config.seq_length);
        match config.num_samples {
            Some(wanted) => line("samples", &wanted),
            None => line("samples", &"one epoch"),
        }
        line("seed", &config.seed);
        line("extra token", &config.extra_token);
        line("drop last partial", &config.drop_last_partial);
        text
    }
}

/// The three arrays of a data set.
pub(super) struct Indices {
    pub(super) documents: IndexArray<u32>,
    pub(super) samples: IndexArray<[u32; 2]>,
    pub(super) shuffle: IndexArray<u32>,
}

impl Indices {
    /// Returns those of a file of this [`layout`].
    pub(super) fn of(file: &IndexFile) -> Self {
        Self {
            documents: file.array(0),
            samples: file.array(1),
            shuffle: file.array(2),
        }
    }
}

/// The arrays of a file: document index, sample index, shuffle index.
pub(super) fn layout(plan: &EpochPlan) -> [ArrayLayout; 3] {
    [
        ArrayLayout::of::<u32>(plan.num_documents),
        ArrayLayout::of::<[u32; 2]>(plan.num_samples),
        ArrayLayout::of::<u32>(plan.num_samples),
    ]
}

/// Makes the arrays in memory.
pub(super) fn in_memory(
    config: &GptDatasetConfig,
    documents: &dyn TokenDocuments,
    range: &Range<usize>,
    plan: &EpochPlan,
) -> Result<Indices, SampleError> {
    // One generator, in this order: first the documents, then the samples.
    let mut generator = Mt19937::new(config.seed);
    let document_index = shuffled_documents(plan, range, &mut generator);
    let walk = || {
        let lengths = lengths(documents, range)?;
        let stream = Stream::new(&document_index, &lengths, range.start);
        let mut starts = Vec::with_capacity(plan.num_samples);
        stream.sample_starts(config.seq_length, plan.num_samples, |some| {
            starts.extend_from_slice(some);
            Ok(())
        })?;
        Ok(starts)
    };
    let (starts, shuffle) = rayon::join(walk, move || shuffled_samples(plan, &mut generator));
    Ok(Indices {
        samples: IndexArray::Owned(starts?),
        shuffle: IndexArray::Owned(shuffle),
        documents: IndexArray::Owned(document_index),
    })
}

/// Makes the arrays one after the other, without having all in memory at once.
pub(super) fn to_file(
    config: &GptDatasetConfig,
    documents: &dyn TokenDocuments,
    range: &Range<usize>,
    plan: &EpochPlan,
    writer: &mut IndexWriter,
) -> Result<(), SampleError> {
    let mut generator = Mt19937::new(config.seed);
    let document_index = shuffled_documents(plan, range, &mut generator);
    let walk = || {
        writer.write(&document_index)?;
        writer.end_array()?;
        let lengths = lengths(documents, range)?;
        let stream = Stream::new(&document_index, &lengths, range.start);
        stream.sample_starts(config.seq_length, plan.num_samples, |starts| writer.write(starts))?;
        writer.end_array()
    };
    let (walked, shuffle) = rayon::join(walk, move || shuffled_samples(plan, &mut generator));
    walked?;
    drop(document_index);
    writer.write(&shuffle)?;
    writer.end_array()
}

fn length(documents: &dyn TokenDocuments, document: usize) -> Result<u32, SampleError> {
    let length = documents.document_length(document);
    u32::try_from(length)
        .map_err(|_| SampleError::setting("tokens of a document", format!("at most {}", u32::MAX), length))
}

fn lengths(documents: &dyn TokenDocuments, range: &Range<usize>) -> Result<Vec<u32>, SampleError> {
    range
        .clone()
        .into_par_iter()
        .map(|document| length(documents, document))
        .collect()
}

/// Returns the documents of all epochs in reading order.
fn shuffled_documents(plan: &EpochPlan, range: &Range<usize>, generator: &mut Mt19937) -> Vec<u32> {
    let mut documents = Vec::with_capacity(plan.num_documents);
    for _ in 0..plan.num_epochs {
        documents.extend(range.start as u32..range.end as u32);
    }
    match plan.samples_before_last {
        None => generator.shuffle(&mut documents),
        Some(_) => {
            let (first, last) = documents.split_at_mut(plan.num_documents - range.len());
            generator.shuffle(first);
            generator.shuffle(last);
        }
    }
    documents
}

/// Returns the order of the samples.
fn shuffled_samples(plan: &EpochPlan, generator: &mut Mt19937) -> Vec<u32> {
    let mut samples: Vec<u32> = (0..plan.num_samples as u32).collect();
    match plan.samples_before_last {
        None => generator.shuffle(&mut samples),
        Some(before_last) => {
            let (first, last) = samples.split_at_mut(before_last);
            generator.shuffle(first);
            generator.shuffle(last);
        }
    }
    samples
}

/// Documents in reading order, and how long each is.
pub(super) struct Stream<'a> {
    document_index: &'a [u32],
    lengths: &'a [u32],
    /// Document of the first length.
    first: u32,
}

impl<'a> Stream<'a> {
    pub(super) fn new(document_index: &'a [u32], lengths: &'a [u32], first: usize) -> Self {
        let first = first as u32;
        Self {
            document_index,
            lengths,
            first,
        }
    }

    /// Passes on where every sample's first token is, in stream order.
    ///
    /// Sample i starts at token i · s of the stream, which is the last token of the sample before. If that ends a
    /// document, the sample starts at `length − 1` of this document, not at 0 of the next.
    ///
    /// # Panics
    /// If the stream is shorter than the samples.
    pub(super) fn sample_starts(
        &self,
        seq_length: usize,
        num_samples: usize,
        mut pass_on: impl FnMut(&[[u32; 2]]) -> Result<(), SampleError>,
    ) -> Result<(), SampleError> {
        let cut = Cut {
            seq_length: seq_length as u64,
            num_samples: num_samples as u64,
        };
        let mut found = 0;
        let mut end_in_stream = 0;
        for (turn, pieces) in self.document_index.chunks(WALK_CHUNK * WALK_PIECES).enumerate() {
            let lengths: Vec<Vec<u32>> = pieces.par_chunks(WALK_CHUNK).map(|piece| self.lengths(piece)).collect();
            let mut pieces: Vec<Piece> = lengths.iter().map(|lengths| Piece::new(lengths)).collect();
            for (number, piece) in pieces.iter_mut().enumerate() {
                piece.position = ((turn * WALK_PIECES + number) * WALK_CHUNK) as u32;
                piece.start_in_stream = end_in_stream;
                end_in_stream += piece.num_tokens;
            }
            let starts: Vec<Vec<[u32; 2]>> = pieces.par_iter().map(|piece| cut.starts(piece)).collect();
            for starts in starts {
                found += starts.len();
                pass_on(&starts)?;
            }
        }
        assert_eq!(found, num_samples, "starts of all samples");
        Ok(())
    }

    fn lengths(&self, documents: &[u32]) -> Vec<u32> {
        let length = |document: &u32| self.lengths[(document - self.first) as usize];
        documents.iter().map(length).collect()
    }
}

/// Some documents of the stream.
struct Piece<'a> {
    lengths: &'a [u32],
    num_tokens: u64,
    /// Place of the first in the document index.
    position: u32,
    start_in_stream: u64,
}

impl<'a> Piece<'a> {
    fn new(lengths: &'a [u32]) -> Self {
        Self {
            lengths,
            num_tokens: lengths.iter().map(|&length| u64::from(length)).sum(),
            position: 0,
            start_in_stream: 0,
        }
    }
}

/// How the stream is cut.
struct Cut {
    seq_length: u64,
    num_samples: u64,
}

impl Cut {
    /// Returns where the samples start that start in a piece.
    fn starts(&self, piece: &Piece) -> Vec<[u32; 2]> {
        let first_at = |token: u64| token.div_ceil(self.seq_length).min(self.num_samples);
        let first = first_at(piece.start_in_stream);
        let end = first_at(piece.start_in_stream + piece.num_tokens);
        let num_starts = (end - first) as usize;
        let mut starts = Vec::with_capacity(num_starts);
        // First token of the next sample, in the piece. After the last sample there is none, and the product may be
        // large.
        let mut next = first
            .saturating_mul(self.seq_length)
            .saturating_sub(piece.start_in_stream);
        let mut before = 0;
        for (position, &length) in (piece.position..).zip(piece.lengths) {
            let after = before + u64::from(length);
            while next < after && starts.len() < num_starts {
                starts.push([position, (next - before) as u32]);
                next = next.saturating_add(self.seq_length);
            }
            before = after;
        }
        starts
    }
}
