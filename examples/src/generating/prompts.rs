//! [`Prompts`]: the texts to continue, from the flags, a file or the standard input.

use std::collections::VecDeque;
use std::io::{self, BufRead, Write};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread;
use std::time::Duration;

use anyhow::Context as _;
use burn_megatron_data::tokenizer::Tokenizer;

use crate::arguments::SampleArguments;
use crate::terminal;

/// Lines of the standard input that are read ahead.
const LINES_AHEAD: usize = 64;

/// A text to continue.
pub(super) struct NextPrompt {
    /// Its number, from 0: part of the draws' coordinates.
    pub(super) number: u64,
    pub(super) text: String,
}

/// The texts to continue, in order.
pub(super) struct Prompts {
    source: Source,
    next_number: u64,
    /// The most tokens of a prompt, where all are known.
    longest: Option<usize>,
    is_typed: bool,
    /// Whether the sign to type has been printed, and nothing was typed yet.
    is_asked: bool,
}

enum Source {
    Given(VecDeque<NextPrompt>),
    Lines(Receiver<io::Result<String>>),
    Over,
}

impl Prompts {
    /// Returns those that the flags name; else begins to read the standard input.
    pub(super) fn new(samples: &SampleArguments, tokenizer: &dyn Tokenizer) -> anyhow::Result<Self> {
        let given = samples.prompts()?;
        let longest = given.as_ref().map(|prompts| {
            let tokens = prompts.iter().map(|prompt| {
                let mut tokens = Vec::new();
                tokenizer.encode_prompt(prompt, &mut tokens);
                tokens.len().max(1)
            });
            tokens.max().unwrap_or(1)
        });
        let is_typed = given.is_none() && terminal::has_input();
        let source = match given {
            Some(prompts) => Source::Given(numbered(&prompts, 0, 1)),
            None => Source::Lines(read_lines()?),
        };
        Ok(Self {
            source,
            next_number: 0,
            longest,
            is_typed,
            is_asked: false,
        })
    }

    /// Returns those of one replica's share of all texts: every `replicas`th from its own number on.
    pub(super) fn of_replica(texts: &[String], replica: usize, replicas: usize) -> Self {
        Self {
            source: Source::Given(numbered(texts, replica, replicas)),
            next_number: 0,
            longest: None,
            is_typed: false,
            is_asked: false,
        }
    }

    /// The texts that are not taken yet, if all are known.
    pub(super) fn texts(&self) -> Option<Vec<String>> {
        match &self.source {
            Source::Given(prompts) => Some(prompts.iter().map(|prompt| prompt.text.clone()).collect()),
            Source::Lines(_) | Source::Over => None,
        }
    }

    /// The number of samples of all prompts, if it is known.
    pub(super) fn most_samples(&self, samples: &SampleArguments) -> Option<usize> {
        match &self.source {
            Source::Given(prompts) => Some(prompts.len().saturating_mul(samples.num_samples)),
            Source::Lines(_) | Source::Over => None,
        }
    }

    /// The most tokens of a prompt and its output, if they are known.
    pub(super) fn longest(&self, samples: &SampleArguments) -> Option<usize> {
        self.longest?.checked_add(samples.out_seq_length?)
    }

    /// Whether there is one output in all, or one for each text that a person has typed.
    pub(super) fn is_single(&self, samples: &SampleArguments) -> bool {
        self.most_samples(samples) == Some(1) || (self.is_typed && samples.num_samples == 1)
    }

    /// Whether a person types them.
    pub(super) fn is_typed(&self) -> bool {
        self.is_typed
    }

    /// Whether no more come.
    pub(super) fn is_over(&self) -> bool {
        match &self.source {
            Source::Given(prompts) => prompts.is_empty(),
            Source::Lines(_) => false,
            Source::Over => true,
        }
    }

    /// Returns the next one, if there is one within `wait`. A person is asked for it when nothing else is to be done.
    pub(super) fn next(&mut self, wait: Duration, is_idle: bool) -> anyhow::Result<Option<NextPrompt>> {
        let text = match &mut self.source {
            Source::Over => None,
            Source::Given(prompts) => return Ok(prompts.pop_front()),
            Source::Lines(lines) => {
                if self.is_typed && is_idle && !self.is_asked {
                    print!("> ");
                    io::stdout().flush()?;
                    self.is_asked = true;
                }
                match lines.recv_timeout(wait) {
                    Ok(line) => Some(line.context("the standard input")?),
                    Err(RecvTimeoutError::Timeout) => None,
                    Err(RecvTimeoutError::Disconnected) => {
                        self.source = Source::Over;
                        None
                    }
                }
            }
        };
        Ok(text.map(|text| {
            let number = self.next_number;
            self.next_number += 1;
            self.is_asked = false;
            NextPrompt { number, text }
        }))
    }
}

/// The texts from number `first` on, each `step`th.
fn numbered(texts: &[String], first: usize, step: usize) -> VecDeque<NextPrompt> {
    let numbered = (0..).zip(texts).skip(first).step_by(step);
    numbered
        .map(|(number, text)| NextPrompt {
            number,
            text: text.clone(),
        })
        .collect()
}

/// Reads lines on a thread of their own, which ends with the process.
fn read_lines() -> io::Result<Receiver<io::Result<String>>> {
    let (sender, receiver) = sync_channel(LINES_AHEAD);
    let read = move || {
        for line in io::stdin().lock().lines() {
            if sender.send(line).is_err() {
                break;
            }
        }
    };
    thread::Builder::new().name("prompts".to_owned()).spawn(read)?;
    Ok(receiver)
}
