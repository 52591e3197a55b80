//! [`Printer`]: outputs on the terminal, the first that is not complete as it comes, the others after it.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::Arc;
use std::time::Instant;

use burn_megatron_data::tokenizer::Tokenizer;
use models::generation::FinishReason;
use serde_json::json;

use super::replicas::SampleToken;
use crate::arguments::SampleArguments;

/// Another token that is closer than this may be chosen in another layout, in f32.
const CLOSE: f64 = 1e-5;

/// An output that is not printed completely.
struct Output {
    number: u64,
    sample: usize,
    prompt: String,
    text: String,
    /// Bytes of the text that are printed.
    printed: usize,
    is_begun: bool,
    events: Vec<SampleToken>,
    finished: Option<FinishReason>,
}

/// Prints outputs in the order of their prompts.
pub(super) struct Printer {
    outputs: VecDeque<Output>,
    tokenizer: Arc<dyn Tokenizer>,
    num_samples: usize,
    has_log_probs: bool,
    is_json: bool,
    is_single: bool,
    begun: Option<Instant>,
    /// All tokens that were drawn, and those for which the choice was close.
    num_tokens: [usize; 2],
}

impl Printer {
    pub(super) fn new(samples: &SampleArguments, tokenizer: Arc<dyn Tokenizer>, is_single: bool) -> Self {
        Self {
            outputs: VecDeque::new(),
            tokenizer,
            num_samples: samples.num_samples,
            has_log_probs: samples.log_probs.is_some(),
            is_json: samples.json,
            is_single,
            begun: None,
            num_tokens: [0; 2],
        }
    }

    /// Makes room for the outputs of a prompt.
    pub(super) fn begin(&mut self, number: u64, prompt: &str) -> io::Result<()> {
        self.begun.get_or_insert_with(Instant::now);
        self.outputs.extend((0..self.num_samples).map(|sample| Output {
            number,
            sample,
            prompt: prompt.to_owned(),
            text: String::new(),
            printed: 0,
            is_begun: false,
            events: Vec::new(),
            finished: None,
        }));
        self.print()
    }

    /// Takes what a step has given, and prints what is its turn.
    pub(super) fn take(&mut self, events: Vec<SampleToken>) -> io::Result<()> {
        for event in events {
            self.num_tokens[0] += 1;
            self.num_tokens[1] += usize::from(event.margin() < CLOSE);
            let is_its = |output: &&mut Output| (output.number, output.sample) == (event.number, event.sample);
            let Some(output) = self.outputs.iter_mut().find(is_its) else {
                continue;
            };
            output.text += &event.text;
            output.finished = event.finished;
            output.events.push(event);
        }
        self.print()
    }

    fn print(&mut self) -> io::Result<()> {
        let mut stdout = io::stdout().lock();
        while let Some(output) = self.outputs.front_mut() {
            if !self.is_json {
                if !output.is_begun {
                    output.is_begun = true;
                    if !self.is_single {
                        writeln!(stdout, "--- prompt {}, sample {}", output.number + 1, output.sample + 1)?;
                    }
                    write!(stdout, "{}", output.prompt)?;
                }
                write!(stdout, "{}", &output.text[output.printed..])?;
                output.printed = output.text.len();
            }
            if output.finished.is_none() {
                break;
            }
            if self.is_json {
                writeln!(stdout, "{}", as_json(output, self.has_log_probs))?;
            } else {
                writeln!(stdout)?;
                if self.has_log_probs {
                    print_log_probabilities(output, &*self.tokenizer, &mut stdout)?;
                }
            }
            self.outputs.pop_front();
        }
        stdout.flush()
    }

    /// Says how much was generated, and how fast.
    pub(super) fn finish(&mut self) -> io::Result<()> {
        if self.outputs.front().is_some_and(|output| output.is_begun) {
            println!();
        }
        let ([tokens, close], Some(begun)) = (self.num_tokens, self.begun) else {
            return Ok(());
        };
        let seconds = begun.elapsed().as_secs_f64();
        let mut stderr = io::stderr().lock();
        write!(
            stderr,
            "{tokens} tokens in {seconds:.2} s: {:.1} tokens/s",
            tokens as f64 / seconds
        )?;
        if close > 0 {
            write!(stderr, ", {close} of them closer than {CLOSE:.0e} to another token")?;
        }
        writeln!(stderr)
    }
}

fn as_json(output: &Output, has_log_probs: bool) -> serde_json::Value {
    let events = &output.events;
    let mut value = json!({
        "prompt": output.prompt,
        "sample": output.sample,
        "text": output.text,
        "tokens": events.iter().map(|event| event.token).collect::<Vec<_>>(),
        "finish_reason": output.finished,
    });
    if has_log_probs {
        value["log_probs"] = events.iter().map(|event| event.log_probability).collect();
        value["top_log_probs"] = events.iter().map(|event| json!(event.top)).collect();
    }
    value
}

fn print_log_probabilities(output: &Output, tokenizer: &dyn Tokenizer, stdout: &mut impl Write) -> io::Result<()> {
    let shown = |token: u32| format!("{token} {:?}", tokenizer.token_text(token));
    for event in &output.events {
        write!(stdout, "{:10.5}  {}", event.log_probability, shown(event.token))?;
        for (token, log_probability) in &event.top {
            write!(stdout, "  | {log_probability:.5} {}", shown(*token))?;
        }
        writeln!(stdout)?;
    }
    Ok(())
}
