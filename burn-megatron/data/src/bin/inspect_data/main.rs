//! `inspect_data`: what is inside a data set, and the samples of it.

mod samples;

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use burn_megatron_data::indexed_dataset::{IndexedDataset, TokenDocuments, idx_path};
use burn_megatron_data::programs::{Bytes, TokenizerArguments, failed, load_tokenizer, parse};
use burn_megatron_data::tokenizer::{Token, Tokenizer};
use clap::Parser;
use samples::SampleArguments;

/// Prints the sizes of a data set and the text of its first documents or samples
///
/// Flags are taken with hyphens or underscores; of a repeated one the last counts.
#[derive(Debug, Parser)]
struct Arguments {
    /// Path of the data set, with or without .bin or .idx
    prefix: PathBuf,
    /// How many documents to print
    #[arg(long, default_value_t = 3)]
    documents: usize,
    /// The first of them
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    from: usize,
    /// How many tokens of each to print
    #[arg(long, default_value_t = 256)]
    tokens: usize,
    /// Read every token, and check that the vocabulary has it
    #[arg(long)]
    check: bool,
    #[command(flatten)]
    samples: SampleArguments,
    #[command(flatten)]
    tokenizer: TokenizerArguments,
}

fn main() -> ExitCode {
    match run(&parse()) {
        Ok(()) => ExitCode::SUCCESS,
        // Whoever reads the output has seen enough.
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => failed(&error),
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error
        .downcast_ref::<io::Error>()
        .is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let is_half = |extension: &std::ffi::OsStr| extension == "bin" || extension == "idx";
    let prefix = if arguments.prefix.extension().is_some_and(is_half) {
        arguments.prefix.with_extension("")
    } else {
        arguments.prefix.clone()
    };
    if let Some(kind) = arguments.samples.samples {
        let range = arguments.from as u64..arguments.from.saturating_add(arguments.documents) as u64;
        let mut out = io::stdout().lock();
        return samples::print(&mut out, kind, &prefix, &arguments.samples, &arguments.tokenizer, range);
    }
    let tokenizer = load_tokenizer(&arguments.tokenizer)?;
    let dataset = IndexedDataset::open(&prefix)?;
    let mut out = io::stdout().lock();
    print_sizes(&mut out, &dataset)?;
    if arguments.check {
        dataset.check_vocabulary(tokenizer.vocabulary_size())?;
        writeln!(
            out,
            "every token is below {}, the size of the vocabulary",
            tokenizer.vocabulary_size()
        )?;
    }
    let end = arguments
        .from
        .saturating_add(arguments.documents)
        .min(dataset.num_boundaries() - 1);
    for document in arguments.from..end {
        print_document(&mut out, &dataset, document, arguments.tokens, tokenizer.as_ref())?;
    }
    Ok(())
}

fn print_sizes(out: &mut impl Write, dataset: &IndexedDataset) -> anyhow::Result<()> {
    let idx = idx_path(dataset.prefix());
    let idx_bytes = idx
        .metadata()
        .with_context(|| format!("cannot read {}", idx.display()))?
        .len();
    let (mut shortest, mut longest) = (usize::MAX, 0);
    for sequence in 0..dataset.num_sequences() {
        shortest = shortest.min(dataset.document_length(sequence));
        longest = longest.max(dataset.document_length(sequence));
    }
    let documents = dataset.num_boundaries() - 1;
    let empty = (0..documents)
        .filter(|&document| dataset.document_sequences(document).is_empty())
        .count();
    let (element_type, tokens) = (dataset.element_type(), dataset.num_tokens());
    writeln!(out, "{}", dataset.prefix().display())?;
    writeln!(
        out,
        "files: .bin {}, .idx {}",
        Bytes(dataset.bin_bytes() as u64),
        Bytes(idx_bytes)
    )?;
    writeln!(out, "tokens: {tokens} of {element_type} (code {})", element_type.code())?;
    writeln!(out, "documents: {documents}, of them {empty} without tokens")?;
    write!(out, "sequences: {}", dataset.num_sequences())?;
    if dataset.num_sequences() > 0 {
        let mean = tokens as f64 / dataset.num_sequences() as f64;
        write!(out, ", with {shortest} to {longest} tokens, {mean:.1} on average")?;
    }
    writeln!(out)?;
    if !dataset.is_contiguous() {
        writeln!(out, "the sequences do not fill the .bin file one after another")?;
    }
    if dataset.has_modes() {
        writeln!(out, "each sequence has a mode (multimodal)")?;
    }
    Ok(())
}

fn print_document(
    out: &mut impl Write,
    dataset: &IndexedDataset,
    document: usize,
    most: usize,
    tokenizer: &dyn Tokenizer,
) -> io::Result<()> {
    let sequences = dataset.document_sequences(document);
    let length: usize = sequences
        .clone()
        .map(|sequence| dataset.document_length(sequence))
        .sum();
    writeln!(
        out,
        "\ndocument {document}: {} sequences, {length} tokens",
        sequences.len()
    )?;
    let mut left = most;
    for sequence in sequences {
        let length = dataset.document_length(sequence);
        let shown = length.min(left);
        let mut tokens: Vec<Token> = vec![];
        dataset.read(sequence, 0..shown, &mut tokens);
        if tokens
            .iter()
            .all(|&token| (token as usize) < tokenizer.vocabulary_size())
        {
            writeln!(out, "{}", tokenizer.decode(&tokens))?;
        } else {
            writeln!(out, "not of this vocabulary, tokens {tokens:?}")?;
        }
        if shown < length {
            writeln!(out, "…")?;
        }
        left -= shown;
        if left == 0 {
            break;
        }
    }
    Ok(())
}
