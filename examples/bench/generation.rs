//! Measures generation with the cache of keys and values, and without it: tokens per second of a batch, in turn.
//!
//! ```text
//! cargo run --release --example bench -- generation --load checkpoints --batch-sizes 1,16
//! ```
//!
//! Without the cache every token is a request of its own, whose prompt is all tokens before it: each step computes the
//! whole sequences again, in the same kernels. Both are greedy, so that both compute the same text; where rounding
//! decides between two tokens they may part, and what is equal is counted. Machines drift: medians of several rounds.

use std::process::ExitCode;
use std::time::Instant;

use anyhow::ensure;
use burn_megatron::training::memory::keep_freed_memory;
use clap::Args;
use examples::arguments::GeneratorArguments;
use examples::generating::generator::{BatchLimits, GeneratorProgram, Ready};
use examples::generating::{PAGE_TOKENS, run_program};
use examples::run_tokenizer::RunTokenizer;
use models::generation::{GenerationRequest, Generator, SamplingConfig};

use crate::measure::{count, in_turn, ratio};
use crate::table::{Row, table};

/// Measure generation with the cache of keys and values, and without it.
#[derive(Args)]
pub struct Arguments {
    #[command(flatten)]
    generator: GeneratorArguments,
    /// Outputs that are generated together
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_values_t = [1, 16], value_parser = count())]
    batch_sizes: Vec<usize>,
    /// Tokens of each prompt
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = count())]
    prompt_tokens: usize,
    /// Tokens of each output
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = count())]
    out_seq_length: usize,
    /// How often each way is measured
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = count())]
    rounds: usize,
}

pub fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    keep_freed_memory();
    arguments.generator.validate()?;
    arguments.generator.validate_one_model("one generator is measured")?;
    run_program(&arguments.generator, arguments.generator.statement(), &mut &*arguments)
}

impl GeneratorProgram for &Arguments {
    fn limits(&mut self, _tokenizer: &RunTokenizer, max_seq_length: usize) -> anyhow::Result<BatchLimits> {
        let tokens = self.prompt_tokens + self.out_seq_length;
        ensure!(
            tokens <= max_seq_length,
            "--prompt-tokens and --out-seq-length must be at most the model's {max_seq_length} positions together, got \
             {tokens}"
        );
        let max_batch = self.batch_sizes.iter().copied().max().unwrap_or(1);
        Ok(BatchLimits {
            max_batch,
            num_pages: max_batch * tokens.div_ceil(PAGE_TOKENS),
            max_waiting: 0,
        })
    }

    fn run(&mut self, ready: Ready<'_>) -> anyhow::Result<ExitCode> {
        let Arguments {
            prompt_tokens,
            out_seq_length,
            rounds,
            ..
        } = **self;
        println!("prompts of {prompt_tokens} tokens, outputs of {out_seq_length}, medians of {rounds} rounds");
        let mut rows = Vec::new();
        for &batch in &self.batch_sizes {
            let mut texts = [Vec::new(), Vec::new()];
            let measured = in_turn(rounds, 2, |_, way| {
                let vocabulary = ready.generator.tokenizer().vocabulary_size();
                let token = |prompt, place| ((prompt * 7919 + place * 31) % vocabulary) as u32;
                // Prompts that differ.
                let prompt = |prompt| (0..prompt_tokens).map(|place| token(prompt, place)).collect();
                let prompts = (0..batch).map(prompt).collect();
                let begun = Instant::now();
                texts[way] = generate(ready.generator, prompts, out_seq_length, way == 0)?;
                let speed = (batch * out_seq_length) as f64 / begun.elapsed().as_secs_f64();
                Ok(Row::default().number("tokens/s", speed))
            })?;
            let [with, without] = [0, 1].map(|way| Row::median(&measured[way]).value("tokens/s"));
            let pairs = texts[0].iter().zip(&texts[1]);
            rows.push(
                Row::default()
                    .number("batch", batch as f64)
                    .number("tokens/s with the cache", with)
                    .number("without it", without)
                    .number("ratio", ratio(&measured[0], &measured[1], "tokens/s"))
                    .number(
                        "equal outputs",
                        pairs.filter(|(with, without)| with == without).count() as f64,
                    ),
            );
        }
        println!("{}", table(&rows));
        Ok(ExitCode::SUCCESS)
    }
}

/// Continues each text by `count` tokens; returns the texts.
fn generate(
    generator: &mut Generator,
    mut texts: Vec<Vec<u32>>,
    count: usize,
    has_cache: bool,
) -> anyhow::Result<Vec<Vec<u32>>> {
    let greedy = SamplingConfig {
        temperature: 0.0,
        ..SamplingConfig::default()
    };
    let (passes, new_tokens) = if has_cache { (1, count) } else { (count, 1) };
    for _ in 0..passes {
        let mut requests = Vec::with_capacity(texts.len());
        for text in &texts {
            let request = GenerationRequest {
                ignores_end_of_document: true,
                ..GenerationRequest::new(text.clone(), new_tokens, greedy.clone())
            };
            requests.push(generator.submit(request)?);
        }
        while !generator.is_idle() {
            for event in generator.step()? {
                let place = requests.iter().position(|request| *request == event.request);
                texts[place.expect("a request of this batch")].push(event.token);
            }
        }
    }
    Ok(texts)
}
