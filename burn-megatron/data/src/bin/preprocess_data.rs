//! `preprocess_data`: text, JSON lines or Parquet columns to Megatron-LM's indexed data sets.

use std::num::{NonZeroU64, NonZeroUsize};
use std::path::PathBuf;
use std::process::ExitCode;
use std::thread;

use anyhow::{Context, bail, ensure};
use burn_megatron_data::preprocess::{
    InputFormat, PreprocessConfig, PreprocessError, PreprocessSummary, SentenceEnds, SplitOn, preprocess,
};
use burn_megatron_data::programs::{
    Bytes, Interrupt, ProgressReport, TokenizerArguments, failed, load_tokenizer, parse,
};
use clap::{ArgAction, Parser, ValueEnum};

/// Turns text into the tokens that training reads: PREFIX_KEY_document.bin and .idx, as Megatron-LM's
/// tools/preprocess_data.py
///
/// Flags are taken with hyphens or underscores; of a repeated one the last counts.
#[derive(Debug, Parser)]
struct Arguments {
    /// Files, folders or globs: .txt, .jsonl, .ndjson, .json, each also with .gz or .zst, and .parquet
    #[arg(long, required = true, num_args = 1.., action = ArgAction::Set, value_name = "PATH")]
    input: Vec<String>,
    /// Path and beginning of the names of the output
    #[arg(long, value_name = "PREFIX")]
    output_prefix: PathBuf,
    /// What all inputs hold, whatever their names
    #[arg(long, value_enum)]
    input_format: Option<Format>,
    /// Where documents end in plain text
    #[arg(long, value_enum, default_value = "file")]
    split_on: Split,
    /// Keys of JSON objects, or columns; each makes a data set
    #[arg(long, num_args = 1.., action = ArgAction::Set, default_value = "text", value_name = "KEY")]
    json_keys: Vec<String>,
    /// Add the end-of-document token to each document
    #[arg(long)]
    append_eod: bool,
    /// Store sentences apart: PREFIX_KEY_sentence.bin and .idx
    #[arg(long)]
    split_sentences: bool,
    /// Keep white space after sentences with them
    #[arg(long)]
    keep_newlines: bool,
    /// Language whose abbreviations end no sentence
    #[arg(long, value_enum, default_value = "english")]
    lang: Language,
    /// Leave out documents that cannot be taken, and count them
    #[arg(long)]
    skip_bad: bool,
    /// Longest document in bytes
    #[arg(long, value_name = "BYTES", default_value_t = PreprocessConfig::MAX_DOCUMENT_BYTES)]
    max_document_bytes: usize,
    /// Threads that encode, one for each processor if not given
    #[arg(long)]
    workers: Option<NonZeroUsize>,
    /// Deal documents out to partitions, one stored after another, as Megatron-LM does
    #[arg(long, default_value = "1")]
    partitions: NonZeroUsize,
    /// Keep the order of documents whatever --partitions is
    #[arg(long)]
    keep_sequential_samples: bool,
    /// Documents between two lines of progress, where there is no terminal
    #[arg(long, value_name = "DOCUMENTS", default_value = "1000")]
    log_interval: NonZeroU64,
    /// Format of the output
    #[arg(long, value_enum, default_value = "mmap")]
    dataset_impl: DatasetImpl,
    #[command(flatten)]
    tokenizer: TokenizerArguments,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Format {
    Text,
    Jsonl,
    Parquet,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Split {
    /// A file is a document
    File,
    /// Blank lines are between documents
    #[value(alias = "blank-lines")]
    BlankLine,
    /// Every line that is not blank is a document
    #[value(alias = "lines")]
    Line,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Language {
    English,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum DatasetImpl {
    /// Memory-mapped .bin and .idx, the only format
    Mmap,
}

impl Arguments {
    fn config(&self) -> anyhow::Result<PreprocessConfig> {
        ensure!(
            self.split_sentences || !self.keep_newlines,
            "--keep-newlines is of no use without --split-sentences"
        );
        let (Language::English, DatasetImpl::Mmap) = (self.lang, self.dataset_impl);
        let ends = if self.keep_newlines {
            SentenceEnds::Kept
        } else {
            SentenceEnds::Trimmed
        };
        Ok(PreprocessConfig {
            format: self.input_format.map(|format| match format {
                Format::Text => InputFormat::Text,
                Format::Jsonl => InputFormat::Jsonl,
                Format::Parquet => InputFormat::Parquet,
            }),
            split_on: match self.split_on {
                Split::File => SplitOn::File,
                Split::BlankLine => SplitOn::BlankLine,
                Split::Line => SplitOn::Line,
            },
            keys: self.json_keys.clone(),
            append_end_of_document: self.append_eod,
            sentences: self.split_sentences.then_some(ends),
            skip_bad: self.skip_bad,
            workers: self
                .workers
                .or(thread::available_parallelism().ok())
                .unwrap_or(NonZeroUsize::MIN),
            partitions: if self.keep_sequential_samples {
                NonZeroUsize::MIN
            } else {
                self.partitions
            },
            max_document_bytes: self.max_document_bytes,
            ..PreprocessConfig::new(self.input.clone(), &self.output_prefix)
        })
    }
}

fn main() -> ExitCode {
    match run(&parse()) {
        Ok(code) => code,
        Err(error) => failed(&error),
    }
}

fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let config = arguments.config()?;
    let tokenizer = load_tokenizer(&arguments.tokenizer)?;
    let interrupt = Interrupt::register().context("cannot catch signals")?;
    let report = ProgressReport::new(arguments.log_interval.get(), interrupt.clone());
    match preprocess(&config, tokenizer.as_ref(), &report) {
        Ok(summary) => {
            print(&summary, &report);
            Ok(ExitCode::SUCCESS)
        }
        Err(PreprocessError::Stopped) => {
            eprintln!("stopped by a signal: no file is left");
            Ok(interrupt.exit_code())
        }
        Err(PreprocessError::Bad(bad)) => bail!("{bad}; --skip-bad leaves such documents out"),
        Err(error) => Err(error.into()),
    }
}

fn print(summary: &PreprocessSummary, report: &ProgressReport) {
    let progress = &summary.progress;
    let speed = report.finish(progress);
    println!(
        "{} files, {} documents, {} of text: {speed}",
        summary.files,
        progress.documents,
        Bytes(progress.text_bytes)
    );
    for (prefix, totals) in &summary.datasets {
        println!(
            "{}: {} documents, {} sequences, {} tokens, {}",
            prefix.display(),
            totals.documents,
            totals.sequences,
            totals.tokens,
            Bytes(totals.bytes)
        );
    }
    if progress.bad_documents > 0 {
        println!(
            "{} bad documents were left out, the first of them:",
            progress.bad_documents
        );
        for bad in &summary.first_bad {
            println!("  {bad}");
        }
    }
}
