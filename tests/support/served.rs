//! A running `text_generation_server`: its processes, and clients of it.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use serde_json::Value;
use ureq::http::Response;
use ureq::{Agent, Body};

use crate::processes::{Marked, Process, isolate, variable_of, wait_until};
use crate::program::build;

/// Longest wait for anything, on a busy machine.
const LIMIT: Duration = Duration::from_secs(60);

/// A server on a port of its own. All its processes are killed when it is dropped.
pub struct Served {
    job: Marked,
    folder: PathBuf,
    address: String,
    key: Option<&'static str>,
    agent: Agent,
}

/// What a client got.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub body: Value,
    pub retry_after: Option<String>,
}

impl Served {
    /// Starts a server in a folder, which has `checkpoints`, and waits until it takes requests.
    pub fn start(folder: &Path, flags: &str, key: Option<&'static str>) -> anyhow::Result<Self> {
        let mut command = Command::new(build("text_generation_server")?);
        isolate(&mut command)
            .current_dir(folder)
            .args(["--port", "0"])
            .args(flags.split_whitespace())
            .env_remove("RUST_LOG")
            .env_remove("BURN_MEGATRON_API_KEY")
            .stdout(File::create(folder.join("stdout"))?)
            .stderr(File::create(folder.join("stderr"))?);
        if let Some(key) = key {
            command.env("BURN_MEGATRON_API_KEY", key);
        }
        let mut job = Marked::new(folder.display());
        job.start(&mut command)?;
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .timeout_global(Some(LIMIT));
        let mut served = Self {
            job,
            folder: folder.to_owned(),
            address: String::new(),
            key,
            agent: config.build().into(),
        };
        let address = served.printed(" at http://")?;
        served.address = address.trim().to_owned();
        Ok(served)
    }

    /// What follows some words that the server prints, in the same line.
    fn printed(&mut self, words: &str) -> anyhow::Result<String> {
        let mut found = None;
        wait_until(LIMIT, || {
            let text = self.stderr();
            let place = text.find(words).map(|place| place + words.len());
            let rest = place.and_then(|place| text[place..].split_once('\n'));
            found = rest.map(|(rest, _)| rest.to_owned());
            found.is_some() || self.process().has_ended()
        });
        found.with_context(|| format!("the server does not print {words:?}:\n{}", self.stderr()))
    }

    /// The launcher, or the only rank.
    fn process(&mut self) -> &mut Process {
        &mut self.job.launchers[0]
    }

    pub fn pid_of(&self, rank: usize) -> anyhow::Result<u32> {
        let rank = Some(rank.to_string());
        let mut pids = self.job.processes().into_iter();
        pids.find(|pid| variable_of(*pid, "RANK") == rank)
            .context("no such rank")
    }

    /// The process that a person would signal.
    pub fn pid(&mut self) -> u32 {
        self.process().id()
    }

    /// What it has printed.
    pub fn stderr(&self) -> String {
        fs::read_to_string(self.folder.join("stderr")).unwrap_or_default()
    }

    /// Waits for its end; returns the exit code.
    pub fn end(mut self) -> anyhow::Result<(Option<i32>, String)> {
        let status = self.process().wait_within(LIMIT)?;
        let status = status.with_context(|| format!("the server does not end:\n{}", self.stderr()))?;
        self.job.expect_end_within(LIMIT)?;
        Ok((status.code(), self.stderr()))
    }

    /// Its address and port.
    pub fn address(&self) -> &str {
        &self.address
    }

    fn send(&self, method: &str, path: &str, body: &Value) -> anyhow::Result<Response<Body>> {
        let url = format!("http://{}{path}", self.address);
        let mut request = match method {
            "PUT" => self.agent.put(&url),
            _ => self.agent.post(&url),
        };
        if let Some(key) = self.key {
            request = request.header("Authorization", format!("Bearer {key}"));
        }
        Ok(request
            .header("Content-Type", "application/json")
            .send(body.to_string())?)
    }

    /// Asks Megatron-LM's API.
    pub fn put(&self, body: &Value) -> anyhow::Result<Answer> {
        Answer::of(self.send("PUT", "/api", body)?)
    }

    /// Asks OpenAI's API.
    pub fn complete(&self, body: &Value) -> anyhow::Result<Answer> {
        self.post("/v1/completions", body)
    }

    /// Asks OpenAI's chat API.
    pub fn chat(&self, body: &Value) -> anyhow::Result<Answer> {
        self.post("/v1/chat/completions", body)
    }

    pub fn post(&self, path: &str, body: &Value) -> anyhow::Result<Answer> {
        Answer::of(self.send("POST", path, body)?)
    }

    /// Asks OpenAI's API for a stream, which must be given.
    pub fn stream(&self, body: &Value) -> anyhow::Result<Stream> {
        self.stream_of("/v1/completions", body)
    }

    /// Asks for a stream, which must be given.
    pub fn stream_of(&self, path: &str, body: &Value) -> anyhow::Result<Stream> {
        let mut response = self.send("POST", path, body)?;
        if response.status() != 200 {
            bail!("{}: {}", response.status(), response.body_mut().read_to_string()?);
        }
        let reader = response.into_body().into_with_config().limit(u64::MAX).reader();
        Ok(Stream(BufReader::new(Box::new(reader))))
    }

    /// Asks for something without the key.
    pub fn get(&self, path: &str) -> anyhow::Result<(u16, String)> {
        let mut response = self.agent.get(format!("http://{}{path}", self.address)).call()?;
        Ok((response.status().as_u16(), response.body_mut().read_to_string()?))
    }

    /// A figure of `/health`.
    pub fn figure(&self, name: &str) -> anyhow::Result<u64> {
        let (_, text) = self.get("/health")?;
        let health: Value = serde_json::from_str(&text)?;
        health[name].as_u64().with_context(|| format!("{name} in {text}"))
    }

    /// Waits until a figure of `/health` has a value.
    pub fn expect_figure(&self, name: &str, value: u64) -> anyhow::Result<()> {
        let is_so = || self.figure(name).is_ok_and(|found| found == value);
        ensure!(wait_until(LIMIT, is_so), "{name} stays {:?}", self.figure(name));
        Ok(())
    }

    /// Connects, and sends bytes.
    pub fn connect(&self, bytes: &str) -> anyhow::Result<TcpStream> {
        let mut stream = TcpStream::connect(&self.address)?;
        stream.set_read_timeout(Some(LIMIT))?;
        stream.write_all(bytes.as_bytes())?;
        Ok(stream)
    }
}

impl Answer {
    fn of(mut response: Response<Body>) -> anyhow::Result<Self> {
        let text = response.body_mut().read_to_string()?;
        let retry_after = response.headers().get("Retry-After");
        Ok(Self {
            status: response.status().as_u16(),
            retry_after: retry_after.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned()),
            body: serde_json::from_str(&text).with_context(|| format!("no JSON: {text}"))?,
        })
    }

    /// Fails unless it is a refusal, in the words of OpenAI's API or of Megatron-LM's, that contain `words`.
    pub fn expect_refusal(&self, status: u16, words: &str) -> anyhow::Result<()> {
        let message = self.body["error"]["message"].as_str().or(self.body["message"].as_str());
        ensure!(
            self.status == status && message.is_some_and(|message| message.contains(words)),
            "{status} {words}: {self:?}"
        );
        ensure!((status == 429) == self.retry_after.is_some(), "{self:?}");
        Ok(())
    }
}

/// The events of a stream. Dropped, it leaves.
pub struct Stream(BufReader<Box<dyn std::io::Read + Send>>);

impl Stream {
    /// The next event; `None` at the end of the stream.
    pub fn next_event(&mut self) -> anyhow::Result<Option<String>> {
        let mut line = String::new();
        while self.0.read_line(&mut line)? > 0 {
            if let Some(data) = line.trim_end().strip_prefix("data: ") {
                return Ok(Some(data.to_owned()));
            }
            line.clear();
        }
        Ok(None)
    }

    /// The rest of the events.
    pub fn rest(mut self) -> anyhow::Result<Vec<String>> {
        let mut events = Vec::new();
        while let Some(event) = self.next_event()? {
            events.push(event);
        }
        Ok(events)
    }
}

/// What comes from a connection until it ends.
pub fn read_all(mut stream: TcpStream) -> String {
    let mut bytes = Vec::new();
    // A connection that is reset has ended as well.
    let _ = stream.read_to_end(&mut bytes);
    String::from_utf8_lossy(&bytes).into_owned()
}
