//! Trains a vocabulary on text files.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use burn_megatron_data::programs::parse;
use burn_megatron_data::tokenizer::TokenizerError;
use burn_megatron_data::tokenizer::train::{TrainConfig, TrainProgress, VocabularyKind, train};
use clap::{ArgAction, Parser};
use indicatif::{ProgressBar, ProgressStyle};

/// Trains a vocabulary on text files: the same files give the same vocabulary.
///
/// Writes vocab.json and merges.txt (bpe, in GPT-2's form), vocab.txt (wordpiece), and for all a tokenizer.json with
/// its tokenizer_config.json.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    /// What the vocabulary is made of: bpe, wordpiece or unigram.
    #[arg(long = "type", default_value = "bpe")]
    kind: VocabularyKind,
    /// Text files, and folders of which every text file is read.
    #[arg(long, required = true, num_args = 1.., action = ArgAction::Set)]
    input: Vec<PathBuf>,
    /// Most tokens, special ones included.
    #[arg(long, default_value_t = 50257)]
    vocab_size: usize,
    /// Folder for the files, which is made if it does not exist.
    #[arg(long, default_value = ".")]
    output_prefix: PathBuf,
    /// Word pieces of text as it is written, instead of lower case without accents.
    #[arg(long)]
    cased: bool,
    /// T5's sentinels <extra_id_0>, <extra_id_1>, … (unigram).
    #[arg(long, default_value_t = 0)]
    num_sentinels: usize,
    /// Shows no progress.
    #[arg(long)]
    quiet: bool,
}

fn main() -> ExitCode {
    match run(&parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<(), TokenizerError> {
    let bar = if arguments.quiet {
        ProgressBar::hidden()
    } else {
        ProgressBar::new(0)
    };
    // The style is a constant: a mistake in it is no reason to stop.
    if let Ok(style) = ProgressStyle::with_template("{msg} [{bar:40}] {bytes}/{total_bytes} {bytes_per_sec} {eta}") {
        bar.set_style(style.progress_chars("=> "));
    }
    bar.set_message("counting words");
    let show = |progress| match progress {
        TrainProgress::Reading { bytes, total } => {
            bar.set_length(total);
            bar.set_position(bytes);
        }
        TrainProgress::Training { words } => {
            if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} {elapsed}") {
                bar.set_style(style);
            }
            bar.set_message(format!("choosing tokens of {words} words"));
            bar.enable_steady_tick(Duration::from_millis(100));
        }
    };
    let start = Instant::now();
    let config = TrainConfig {
        kind: arguments.kind,
        vocab_size: arguments.vocab_size,
        lower_case: !arguments.cased,
        num_sentinels: arguments.num_sentinels,
    };
    let vocabulary = train(&config, &arguments.input, &show)?;
    bar.finish_and_clear();
    let files = vocabulary.save(&arguments.output_prefix)?;
    println!(
        "{} vocabulary of {} tokens in {:.1} s",
        vocabulary.kind(),
        vocabulary.num_tokens(),
        start.elapsed().as_secs_f64()
    );
    if vocabulary.num_tokens() < arguments.vocab_size {
        println!(
            "fewer than the {} asked for: the corpus has no more parts that occur twice",
            arguments.vocab_size
        );
    }
    for file in files {
        println!("{}", file.display());
    }
    Ok(())
}
