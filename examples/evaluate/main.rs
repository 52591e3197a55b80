//! Evaluates a trained model without training it further: perplexity, last words, multiple choice.
//!
//! ```text
//! cargo run --release --example evaluate -- --task wikitext --data wiki.test.tokens
//! cargo run --release --example evaluate -- --task lambada --data lambada.jsonl --model-parallel-size 2 --json
//! cargo run --release --example evaluate -- --task multiple-choice --data arc.jsonl --load gpt2 --world-size 2
//! ```

use std::process::ExitCode;

use burn_megatron::training::memory::{CountingAllocator, keep_freed_memory};
use clap::Parser;
use examples::arguments::{EvaluationArguments, parse};
use examples::evaluating::evaluate;
use examples::launching::exit_code;

#[global_allocator]
static ALLOCATOR: CountingAllocator<std::alloc::System> = CountingAllocator(std::alloc::System);

/// Evaluate a trained model, without examples and without training it further.
///
/// Figures come under the names of the program that defines them. wikitext: Megatron-LM's loss, perplexity and
/// word-level perplexity over overlapping windows, and lm-evaluation-harness's word_perplexity, byte_perplexity and
/// bits_per_byte of pages that begin with the token that ends documents. lambada: the accuracy and perplexity of the
/// last word by lm-evaluation-harness, and the accuracy by Megatron-LM. multiple-choice: acc and acc_norm by
/// lm-evaluation-harness.
///
/// Takes checkpoints of any layout, and Hugging Face's folders. With more than one rank, this program starts itself
/// once per rank, or joins the ranks that torchrun, Slurm or Open MPI started; ranks beyond those of one model share
/// the sequences. Flags may be written with underscores, and of a repeated flag the last one counts.
#[derive(Parser)]
struct Arguments {
    #[command(flatten)]
    evaluation: EvaluationArguments,
}

fn main() -> ExitCode {
    keep_freed_memory();
    let Arguments { evaluation } = parse();
    exit_code(evaluate(&evaluation), 2)
}
