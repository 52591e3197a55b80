//! The program `text_generation_server`: the text of `generate_samples_gpt` over HTTP from any layout, limits that no
//! client can exceed, its end, and its page in a browser.

mod clients;
mod page;

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use libtest_mimic::Trial;
use serde_json::{Value, json};
use tempfile::TempDir;
use tests::browser::Browser;
use tests::processes::{isolate, send};
use tests::program::{build, end, start};
use tests::served::{Served, read_all};
use tests::training::Training;
use tests::trials::trial_unless;

const LIMIT: Duration = Duration::from_secs(60);
/// More positions than are generated in the time of a test.
const POSITIONS: u64 = 1 << 16;
const KEY: &str = "the key of this test";
const JSON: &str = "Content-Type: application/json\r\n";

pub fn trials() -> Vec<Trial> {
    let mut trials = tests::trials![self => [
        every_layout_serves_the_text_of_generate_samples_whatever_else_is_in_the_batch,
        clients_are_kept_within_the_limits_and_none_holds_up_another,
        a_killed_rank_ends_what_is_pending_with_503_and_then_the_server,
    ]];
    trials.extend(clients::trials());
    let lacks = Browser::installed()
        .is_none()
        .then(|| "there is no chromium in PATH".to_owned());
    let name = "a_person_generates_text_in_a_browser";
    trials.push(trial_unless(lacks, name, page::a_person_generates_text_in_a_browser));
    trials
}

/// A folder with `checkpoints` of a small model.
fn folder() -> anyhow::Result<TempDir> {
    static CHECKPOINT: OnceLock<Result<TempDir, String>> = OnceLock::new();
    let train = || {
        let folder = tempfile::tempdir()?;
        let flags = format!("--dtype f64 --max-position-embeddings {POSITIONS}");
        let training = Training::new(&folder.path().join("run"), 2, &flags)?;
        training.with_path("--save", &folder.path().join("checkpoints")).run()?;
        anyhow::Ok(folder)
    };
    let trained = CHECKPOINT.get_or_init(|| train().map_err(|error| format!("{error:#}")));
    let trained = trained.as_ref().map_err(|error| anyhow::anyhow!(error.clone()))?;
    let folder = tempfile::tempdir()?;
    std::os::unix::fs::symlink(trained.path().join("checkpoints"), folder.path().join("checkpoints"))?;
    Ok(folder)
}

/// The outputs of `generate_samples_gpt`.
fn generate(folder: &Path, flags: &str) -> anyhow::Result<Vec<Value>> {
    fs::write(folder.join("prompts.txt"), "fn ma\nlet é\n")?;
    let mut command = Command::new(build("generate_samples_gpt")?);
    isolate(&mut command)
        .current_dir(folder)
        .args(["--dtype", "f64", "--prompt-file", "prompts.txt", "--json"])
        .args(flags.split_whitespace())
        .env_remove("RUST_LOG");
    let ended = end(start(&mut command)?, LIMIT)?;
    ended.expect_code(0)?;
    let outputs = ended.stdout.lines().map(serde_json::from_str);
    outputs.collect::<Result<_, _>>().with_context(|| ended.stdout.clone())
}

/// The number of segments of an answer's first text.
fn segments_of(answer: &Value) -> usize {
    answer["segments"][0].as_array().map_or(0, Vec::len)
}

/// The texts of an answer's choices.
fn texts(answer: &Value) -> Vec<&str> {
    let choices = answer["choices"].as_array().into_iter().flatten();
    choices.filter_map(|choice| choice["text"].as_str()).collect()
}

fn every_layout_serves_the_text_of_generate_samples_whatever_else_is_in_the_batch() -> anyhow::Result<()> {
    let folder = folder()?;
    let greedy = generate(folder.path(), "--greedy --out-seq-length 12")?;
    let flags = "--temperature 0.9 --top-p 0.9 --seed 7 --out-seq-length 12 --num-samples 2 --log-probs 2";
    let drawn = generate(folder.path(), flags)?;
    let prompts = json!(["fn ma", "let é"]);
    let asked = json!({
        "prompt": prompts, "n": 2, "max_tokens": 12, "temperature": 0.9, "top_p": 0.9, "seed": 7, "logprobs": 2,
    });
    for flags in ["", "--model-parallel-size 2"] {
        let mut served = Served::start(folder.path(), &format!("--dtype f64 --cache-tokens 4000 {flags}"), None)?;
        thread::scope(|scope| -> anyhow::Result<()> {
            // Others, which come and go meanwhile.
            let other = |seed: u64| {
                let request = json!({"prompt": "x", "max_tokens": 5 + 10 * seed, "seed": seed, "ignore_eos": true});
                served.complete(&request)
            };
            let others: Vec<_> = (0..4).map(|seed| scope.spawn(move || other(seed))).collect();
            let answer = served.complete(&asked)?;
            ensure!(answer.status == 200, "{answer:?}");
            for (choice, output) in answer.body["choices"].as_array().context("choices")?.iter().zip(&drawn) {
                ensure!(choice["text"] == output["text"], "{flags}: {choice} {output}");
                let tokens = output["tokens"].as_array().map(Vec::len);
                ensure!(
                    choice["logprobs"]["tokens"].as_array().map(Vec::len) == tokens,
                    "{choice}"
                );
                let pairs = [&choice["logprobs"]["token_logprobs"], &output["log_probs"]];
                let [left, right] = pairs.map(|list| list.as_array().into_iter().flatten().filter_map(Value::as_f64));
                ensure!(
                    left.zip(right).all(|(left, right)| (left - right).abs() < 1e-9),
                    "{choice} {output}"
                );
            }
            ensure!(texts(&answer.body).len() == 4, "{answer:?}");
            for other in others {
                let other = other.join().map_err(|_| anyhow::anyhow!("a client has panicked"))??;
                ensure!(other.status == 200, "{other:?}");
            }
            Ok(())
        })?;
        expect_greedy(&served, &prompts, &greedy)?;
        expect_streamed(&served, &asked)?;
        expect_stopped(&served, &asked)?;
        served.expect_figure("running", 0)?;
        // What runs when it is asked to stop is finished.
        let request = json!({"prompt": "x", "max_tokens": 200, "ignore_eos": true, "stream": true});
        let mut stream = served.stream(&request)?;
        stream.next_event()?;
        send(served.pid(), libc::SIGTERM);
        ensure!(
            stream.rest()?.last().is_some_and(|last| last == "[DONE]"),
            "the stream is cut"
        );
        let (code, stderr) = served.end()?;
        ensure!(code == Some(0), "{code:?}: {stderr}");
    }
    Ok(())
}

fn expect_greedy(served: &Served, prompts: &Value, greedy: &[Value]) -> anyhow::Result<()> {
    let expected: Vec<&str> = greedy.iter().filter_map(|output| output["text"].as_str()).collect();
    let request = json!({"prompt": prompts, "max_tokens": 12, "temperature": 0, "model": "checkpoints", "echo": true});
    let answer = served.complete(&request)?;
    let whole: Vec<String> = (prompts.as_array().into_iter().flatten().zip(&expected))
        .map(|(prompt, text)| format!("{}{text}", prompt.as_str().unwrap_or_default()))
        .collect();
    ensure!(texts(&answer.body) == whole, "{answer:?} {expected:?}");
    let drawn: u64 = greedy
        .iter()
        .filter_map(|output| output["tokens"].as_array())
        .map(|tokens| tokens.len() as u64)
        .sum();
    ensure!(
        answer.body["usage"] == json!({"prompt_tokens": 11, "completion_tokens": drawn, "total_tokens": 11 + drawn})
    );
    let request = json!({"prompts": prompts, "tokens_to_generate": 12, "top_k": 1, "logprobs": true});
    let answer = served.put(&request)?;
    ensure!(answer.body["text"] == json!(whole), "{answer:?}");
    let scores = answer.body["logprobs"][0].as_array().context("log-probabilities")?;
    ensure!(
        scores.iter().all(Value::is_f64) && scores.len() + 1 == segments_of(&answer.body),
        "{answer:?}"
    );
    expect_echoed_scores(served, scores)
}

/// OpenAI's scores of a prompt that is echoed are Megatron-LM's, whole or streamed; the first token has none.
fn expect_echoed_scores(served: &Served, scores: &[Value]) -> anyhow::Result<()> {
    let mut request = json!({"prompt": "fn ma", "max_tokens": 12, "temperature": 0, "echo": true, "logprobs": 1});
    let answer = served.complete(&request)?;
    let list = |choice: &Value, name: &str| choice["logprobs"][name].as_array().cloned().unwrap_or_default();
    let is_scored = |found: &[Value], expected: &[Value]| {
        let pairs = found.iter().zip(expected);
        let mut pairs = pairs.map(|(found, expected)| (found.as_f64(), expected.as_f64()));
        let is_near = |pair| matches!(pair, (Some(found), Some(expected)) if f64::abs(found - expected) < 1e-9);
        found.len() == expected.len() && pairs.all(is_near)
    };
    let whole = &answer.body["choices"][0];
    let of_tokens = list(whole, "token_logprobs");
    ensure!(
        of_tokens[0].is_null() && is_scored(&of_tokens[1..], scores),
        "{answer:?} {scores:?}"
    );
    let top = list(whole, "top_logprobs");
    ensure!(
        top[0].is_null() && top[1].as_object().is_some_and(|top| top.len() == 1),
        "{answer:?}"
    );
    ensure!(
        list(whole, "tokens")[..5] == ["f", "n", " ", "m", "a"]
            && list(whole, "text_offset")[..6] == [0, 1, 2, 3, 4, 5],
        "{answer:?}"
    );
    request["stream"] = true.into();
    let first = served.stream(&request)?.next_event()?.context("an event")?;
    let first: Value = serde_json::from_str(&first)?;
    let streamed = list(&first["choices"][0], "token_logprobs");
    ensure!(
        streamed[0].is_null() && is_scored(&streamed[1..], &scores[..5]),
        "{first} {scores:?}"
    );
    Ok(())
}

/// The pieces of a stream, one after the other, are the whole text; the last ones are the usage and the end.
fn expect_streamed(served: &Served, asked: &Value) -> anyhow::Result<()> {
    let whole = served.complete(asked)?;
    let mut asked = asked.clone();
    asked["stream"] = true.into();
    asked["stream_options"] = json!({"include_usage": true});
    let mut events = served.stream(&asked)?.rest()?;
    ensure!(events.pop().is_some_and(|last| last == "[DONE]"), "{events:?}");
    let mut events: Vec<Value> = events
        .iter()
        .map(|event| serde_json::from_str(event))
        .collect::<Result<_, _>>()?;
    ensure!(
        events.pop().is_some_and(|event| event["usage"] == whole.body["usage"]),
        "{events:?}"
    );
    let mut texts = vec![String::new(); 4];
    let mut reasons = vec![Value::Null; 4];
    for event in &events {
        let choice = &event["choices"][0];
        let index = choice["index"].as_u64().context("an index")? as usize;
        ensure!(reasons[index].is_null(), "{events:?}");
        texts[index] += choice["text"].as_str().context("a text")?;
        reasons[index] = choice["finish_reason"].clone();
    }
    for (index, choice) in whole.body["choices"].as_array().context("choices")?.iter().enumerate() {
        ensure!(
            choice["text"] == texts[index] && choice["finish_reason"] == reasons[index],
            "{events:?} {whole:?}"
        );
    }
    Ok(())
}

/// Nothing of a stop sequence is streamed, nor what would come after it.
fn expect_stopped(served: &Served, asked: &Value) -> anyhow::Result<()> {
    let mut asked = asked.clone();
    asked["prompt"] = "x".into();
    asked["n"] = 1.into();
    // Letters alone, each a token: other bytes may come together.
    let letters = (b'a'..=b'z').map(|letter| (letter.to_string(), 100.into()));
    asked["logit_bias"] = Value::Object(letters.collect());
    let answer = served.complete(&asked)?;
    let text = answer.body["choices"][0]["text"].as_str().unwrap_or_default();
    let are_letters = text.bytes().all(|byte| byte.is_ascii_lowercase());
    ensure!(are_letters && text.len() == 12, "12 letters are expected: {answer:?}");
    let stop = text[9..].to_owned();
    let expected = &text[..text.find(&stop).context("the stop sequence")?];
    asked["stop"] = stop.clone().into();
    asked["stream"] = true.into();
    let mut streamed = String::new();
    let mut reason = Value::Null;
    for event in served.stream(&asked)?.rest()?.iter().filter(|event| *event != "[DONE]") {
        let event: Value = serde_json::from_str(event)?;
        streamed += event["choices"][0]["text"].as_str().unwrap_or_default();
        reason = event["choices"][0]["finish_reason"].clone();
    }
    ensure!(
        streamed == expected && reason == "stop",
        "{streamed:?} is streamed and ends by {reason}, {expected:?} before {stop:?} is expected"
    );
    Ok(())
}

fn clients_are_kept_within_the_limits_and_none_holds_up_another() -> anyhow::Result<()> {
    let folder = folder()?;
    let flags = format!(
        "--dtype f64 --max-batch-size 1 --max-waiting 2 --max-requests 3 --cache-tokens {POSITIONS} \
         --max-prompt-tokens 90 --client-timeout-secs 1 --request-timeout-secs 20 --drain-timeout-secs 0.2"
    );
    let mut served = Served::start(folder.path(), &flags, Some(KEY))?;
    let hanging = Hanging::start(&served)?;
    refuses(&served)?;
    expect_body_limit(&served)?;
    let pages = served.figure("cache_pages")?;
    ensure!(served.figure("free_cache_pages")? == pages, "nothing runs");
    // One runs, two wait.
    let endless = json!({"prompt": "x", "max_tokens": POSITIONS - 1, "ignore_eos": true, "stream": true});
    let mut first = served.stream(&endless)?;
    first.next_event()?;
    ensure!(served.figure("free_cache_pages")? == 0, "the cache is full");
    let many = json!({"prompt": ["x", "y", "z"], "max_tokens": 40});
    (served.complete(&many)?).expect_refusal(429, "3 samples would wait, at most 2 may: this request needs 3 pages")?;
    let second = served.stream(&endless)?;
    let short = json!({"prompt": "x", "max_tokens": 2, "temperature": 0, "stream": true});
    let third = served.stream(&short)?;
    served.expect_figure("waiting", 2)?;
    (served.complete(&short)?).expect_refusal(429, "3 requests are being served already")?;
    // Who leaves frees its place, running or waiting, and the next one gets it.
    drop(first);
    drop(second);
    ensure!(
        third.rest()?.last().is_some_and(|last| last == "[DONE]"),
        "the third is served"
    );
    served.expect_figure("running", 0)?;
    served.expect_figure("free_cache_pages", pages)?;
    let mut whole = endless.clone();
    whole["stream"] = false.into();
    let body = whole.to_string();
    let left = served.connect(&format!(
        "POST /v1/completions HTTP/1.1\r\nHost: a\r\n{JSON}Authorization: Bearer {KEY}\r\nContent-Length: {}\r\n\r\n\
         {body}",
        body.len()
    ))?;
    served.expect_figure("running", 1)?;
    drop(left);
    served.expect_figure("running", 0)?;
    hanging.expect_cut_off()?;
    // What is not finished within the time for it is answered when the server is asked to stop.
    let mut left = served.stream(&endless)?;
    left.next_event()?;
    send(served.pid(), libc::SIGINT);
    let events = left.rest()?;
    let last = events.last().context("an event")?;
    ensure!(last.contains("the server was asked to stop"), "{last}");
    let (code, stderr) = served.end()?;
    ensure!(code == Some(0) && !stderr.contains(KEY), "{code:?}: {stderr}");
    Ok(())
}

/// What is refused, in the shape of each API.
fn refuses(served: &Served) -> anyhow::Result<()> {
    let (status, page) = served.get("/")?;
    ensure!(
        status == 200 && page.contains("</html>") && served.get("/health")?.0 == 200,
        "without a key"
    );
    ensure!(served.get("/v1/models")?.0 == 401 && served.get("/nothing")?.0 == 404);
    for key in ["", "Authorization: Bearer no\r\n", "Authorization: Basic abc\r\n"] {
        for (line, shape) in [
            ("POST /v1/completions", "{\"error\":{\"code\":401,"),
            ("PUT /api", "{\"message\":\""),
        ] {
            let request =
                format!("{line} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{key}{JSON}Content-Length: 2\r\n\r\n{{}}");
            let answer = read_all(served.connect(&request)?);
            ensure!(
                answer.starts_with("HTTP/1.1 401 ") && answer.contains(shape),
                "{answer}"
            );
        }
    }
    for (request, words) in [
        (
            json!({"prompt": "x", "max_tokens": POSITIONS + 1}),
            "a prompt of 1 tokens and an output of up to 65537 do not fit",
        ),
        (
            json!({"prompt": "x".repeat(91)}),
            "the prompt has 91 tokens, at most 90 are allowed",
        ),
        (json!({"prompt": "x", "n": 129}), "from 1 to 128 outputs"),
        (json!({"prompt": [9999]}), "token 9999 is outside the vocabulary"),
        (json!({"prompt": "x", "temperature": -1}), "temperature must be"),
        (
            json!({"prompt": "x", "max_token": 5}),
            "the nearest known name is max_tokens",
        ),
        (json!({"prompt": "x", "suffix": "y"}), "suffix \"y\" cannot be honoured"),
        (json!([null, "x", 5]), "a request must be an object with fields"),
    ] {
        served.complete(&request)?.expect_refusal(400, words)?;
    }
    (served.complete(&json!({"prompt": "x", "model": "other"}))?).expect_refusal(404, "\"checkpoints\" is")?;
    let request = json!({"prompts": ["x"], "beam_width": 3});
    served
        .put(&request)?
        .expect_refusal(400, "beam_width 3 cannot be honoured")
}

/// A body of 100 MB is refused before it is there, with its length or without.
fn expect_body_limit(served: &Served) -> anyhow::Result<()> {
    const BODY: usize = 100_000_000;
    for framing in [
        format!("Content-Length: {BODY}"),
        "Transfer-Encoding: chunked".to_owned(),
    ] {
        let head = format!(
            "POST /v1/completions HTTP/1.1\r\nHost: a\r\n{JSON}Authorization: Bearer {KEY}\r\n{framing}\r\n\r\n"
        );
        let mut stream = served.connect(&head)?;
        stream.set_write_timeout(Some(Duration::from_secs(5)))?;
        let piece = [&b"10000\r\n"[..], &[b' '; 1 << 16], b"\r\n"].concat();
        let sent = (0..BODY / piece.len())
            .take_while(|_| stream.write_all(&piece).is_ok())
            .count();
        let answer = read_all(stream);
        ensure!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
        ensure!(answer.contains("at most 1048576 bytes are allowed"), "{answer}");
        ensure!(sent * piece.len() < BODY / 2, "{sent} pieces are read");
    }
    Ok(())
}

/// Clients that do not send what they have begun.
struct Hanging {
    begun: Instant,
    connections: Vec<std::net::TcpStream>,
}

impl Hanging {
    fn start(served: &Served) -> anyhow::Result<Self> {
        let half = format!(
            "POST /v1/completions HTTP/1.1\r\nHost: a\r\n{JSON}Authorization: Bearer {KEY}\r\n\
             Content-Length: 9\r\n\r\n{{\"pr"
        );
        let connections = ["", "POST /v1/comp", &half].map(|bytes| served.connect(bytes));
        Ok(Self {
            begun: Instant::now(),
            connections: connections.into_iter().collect::<Result<_, _>>()?,
        })
    }

    fn expect_cut_off(self) -> anyhow::Result<()> {
        let answers: Vec<String> = self.connections.into_iter().map(read_all).collect();
        ensure!(
            answers[2].starts_with("HTTP/1.1 408 ") && answers[2].contains("within 1 s"),
            "{answers:?}"
        );
        ensure!(!answers[..2].concat().contains(" 200 "), "{answers:?}");
        ensure!(self.begun.elapsed() < LIMIT, "after {:?}", self.begun.elapsed());
        Ok(())
    }
}

fn a_killed_rank_ends_what_is_pending_with_503_and_then_the_server() -> anyhow::Result<()> {
    let folder = folder()?;
    let served = Served::start(
        folder.path(),
        "--dtype f64 --model-parallel-size 2 --cache-tokens 140000",
        None,
    )?;
    let endless = json!({"prompt": "x", "max_tokens": POSITIONS - 1, "ignore_eos": true});
    let mut streamed = endless.clone();
    streamed["stream"] = true.into();
    let mut stream = served.stream(&streamed)?;
    stream.next_event()?;
    let pid = served.pid_of(1)?;
    let answer = thread::scope(|scope| {
        let pending = scope.spawn(|| served.complete(&endless));
        served.expect_figure("running", 2)?;
        send(pid, libc::SIGKILL);
        pending.join().map_err(|_| anyhow::anyhow!("a client has panicked"))?
    })?;
    answer.expect_refusal(503, "the model cannot compute any more")?;
    let events = stream.rest()?;
    let last = events.last().context("an event")?;
    ensure!(last.contains("the model cannot compute any more"), "{last}");
    let (code, stderr) = served.end()?;
    ensure!(code == Some(137), "{code:?}: {stderr}");
    let line = format!("[launcher] rank 1 (pid {pid}) failed first: killed by signal 9 (SIGKILL)");
    ensure!(stderr.contains(&line), "{stderr}");
    Ok(())
}
