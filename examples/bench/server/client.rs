//! [`Client`]: asks for a stream, and times its tokens.

use std::io::{BufRead as _, BufReader};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use examples::arguments::ApiKey;
use serde_json::{Value, json};
use ureq::Agent;

#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// From the request to its first token.
    pub first_secs: f64,
    /// From the request to its last token.
    pub last_secs: f64,
    /// Tokens of the output.
    pub tokens: usize,
}

pub struct Client {
    agent: Agent,
    url: String,
    key: Option<String>,
    max_tokens: usize,
}

impl Client {
    /// Returns a client of the server at a URL.
    pub fn new(url: &str, key: Option<&ApiKey>, max_tokens: usize, timeout: Duration) -> Self {
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .timeout_global(Some(timeout));
        Self {
            agent: config.build().into(),
            url: format!("{}/v1/completions", url.trim_end_matches('/')),
            key: key.map(|key| format!("Bearer {}", key.secret())),
            max_tokens,
        }
    }

    /// Asks for the continuation of a prompt, and waits for its last token.
    ///
    /// # Errors
    /// When the server does not answer, refuses, or ends early.
    pub fn ask(&self, prompt: &str, seed: u64) -> anyhow::Result<Timing> {
        let body = json!({
            "prompt": prompt,
            "max_tokens": self.max_tokens,
            "seed": seed,
            "ignore_eos": true,
            "stream": true,
            // An event for each token, also where it has no text yet.
            "logprobs": 0,
            "stream_options": {"include_usage": true},
        });
        let mut request = self.agent.post(&self.url).header("Content-Type", "application/json");
        if let Some(key) = &self.key {
            request = request.header("Authorization", key);
        }
        let begun = Instant::now();
        let mut response = request.send(body.to_string()).with_context(|| self.url.clone())?;
        if response.status() != 200 {
            bail!("{}: {}", response.status(), response.body_mut().read_to_string()?);
        }
        let (mut first, mut last, mut tokens) = (None, None, None);
        for line in BufReader::new(response.into_body().into_reader()).lines() {
            let line = line.context("the stream")?;
            let Some(data) = line.strip_prefix("data: ") else {
                continue;
            };
            if data == "[DONE]" {
                break;
            }
            let event: Value = serde_json::from_str(data).with_context(|| line.clone())?;
            if let Some(usage) = event.get("usage") {
                tokens = usage["completion_tokens"].as_u64();
            } else if event.get("error").is_some() {
                bail!("{data}");
            } else {
                last = Some(begun.elapsed().as_secs_f64());
                first = first.or(last);
            }
        }
        Ok(Timing {
            first_secs: first.context("a stream has a token")?,
            last_secs: last.context("a stream has a token")?,
            tokens: tokens.context("the stream has ended early")? as usize,
        })
    }
}
