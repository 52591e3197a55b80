//! What clients of OpenAI's APIs and of Megatron-LM's ask for, of a model with a chat template, special tokens and
//! tokens that are parts of characters: recorded requests, whose answers are those of `generate_samples_gpt`.

use std::fs;
use std::net::Shutdown;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, ensure};
use libtest_mimic::Trial;
use serde_json::{Value, json};
use tempfile::TempDir;
use tests::processes::{isolate, wait_until};
use tests::program::{build, end, start};
use tests::served::{Served, read_all};

use crate::launch::serving::{JSON, LIMIT};

/// A model of `transformers` with 61 tokens and 32 positions, in whose place a tokenizer and a template are put.
const MODEL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/parity/fixtures/gpt2_greedy");
const POSITIONS: usize = 32;
/// The first of the special tokens `<s>`, `</s>`, `<|user|>` and `<|assistant|>`.
const BOS: u32 = 57;
/// A prompt as the template writes it, but for the begin, which the tokenizer adds to prompts.
const PROMPT: &str = "<|user|>ab<|assistant|>";

pub fn trials() -> Vec<Trial> {
    tests::trials![self => [
        clients_get_the_answers_of_generate_samples,
        requests_of_two_lengths_are_refused_and_half_closed_ones_answered,
    ]]
}

/// A folder with `model`.
fn folder() -> anyhow::Result<TempDir> {
    let folder = tempfile::tempdir()?;
    let model = folder.path().join("model");
    fs::create_dir(&model)?;
    for name in ["config.json", "model.safetensors"] {
        fs::copy(Path::new(MODEL).join(name), model.join(name))?;
    }
    let mut vocabulary: Vec<String> = ('a'..='z').chain('A'..='Z').map(String::from).collect();
    vocabulary.extend([" ", "?", "<0xE4>", "<0xBD>", "<0x41>"].map(str::to_owned));
    let special = ["<s>", "</s>", "<|user|>", "<|assistant|>"];
    let added = (BOS..).zip(special).map(|(id, content)| {
        json!({
            "id": id, "content": content, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false,
            "special": true,
        })
    });
    let vocabulary: Value = (vocabulary.into_iter().zip(0..))
        .map(|(text, token)| (text, json!(token)))
        .collect();
    let begin = json!({"SpecialToken": {"id": "<s>", "type_id": 0}});
    let text = |id: &str| json!({"Sequence": {"id": id, "type_id": 0}});
    let tokenizer = json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": added.collect::<Value>(),
        "normalizer": null, "pre_tokenizer": null,
        "post_processor": {
            "type": "TemplateProcessing", "single": [begin, text("A")], "pair": [begin, text("A"), text("B")],
            "special_tokens": {"<s>": {"id": "<s>", "ids": [BOS], "tokens": ["<s>"]}},
        },
        "decoder": {"type": "Sequence", "decoders": [{"type": "ByteFallback"}, {"type": "Fuse"}]},
        "model": {"type": "BPE", "unk_token": "?", "byte_fallback": true, "vocab": vocabulary, "merges": []},
    });
    let template = "{{ bos_token }}{% for message in messages %}<|{{ message.role }}|>{{ message.content }}{% endfor %}\
                    {% if add_generation_prompt %}<|assistant|>{% endif %}";
    let config = json!({"bos_token": "<s>", "eos_token": "</s>", "chat_template": template});
    fs::write(model.join("tokenizer.json"), tokenizer.to_string())?;
    fs::write(model.join("tokenizer_config.json"), config.to_string())?;
    Ok(folder)
}

/// The tokens that `generate_samples_gpt` draws after the prompt.
fn generate(folder: &Path, flags: &str) -> anyhow::Result<Value> {
    let mut command = Command::new(build("generate_samples_gpt")?);
    isolate(&mut command)
        .current_dir(folder)
        .args(["--load", "model", "--dtype", "f64", "--json", "--prompt", PROMPT])
        .args(flags.split_whitespace())
        .env_remove("RUST_LOG");
    let ended = end(start(&mut command)?, LIMIT)?;
    ended.expect_code(0)?;
    Ok(serde_json::from_str(&ended.stdout)?)
}

fn numbers(list: &Value) -> Vec<f64> {
    list.as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_f64)
        .collect()
}

fn expect_near(found: &[f64], expected: &[f64]) -> anyhow::Result<()> {
    let is_near = found
        .iter()
        .zip(expected)
        .all(|(found, expected)| (found - expected).abs() < 1e-9);
    ensure!(found.len() == expected.len() && is_near, "{found:?} {expected:?}");
    Ok(())
}

fn clients_get_the_answers_of_generate_samples() -> anyhow::Result<()> {
    let folder = folder()?;
    let flags = "--temperature 0.9 --seed 5 --out-seq-length 9 --log-probs 3";
    let drawn = generate(folder.path(), flags)?;
    let served = Served::start(folder.path(), "--load model --dtype f64 --model-parallel-size 2", None)?;
    expect_chat(&served, &drawn)?;
    expect_prompts_scored(&served)?;
    expect_tokens_told_apart(&served)?;
    expect_options(&served)?;
    for path in ["/v1/models/model", "/v1/models/", "/version", "/health/"] {
        ensure!(served.get(path)?.0 == 200, "{path}");
    }
    ensure!(served.get("/v1/models/other")?.0 == 404);
    // Each field once, however often it comes.
    for field in ["something_of_a_client", "something_of_a_client", "another_thing"] {
        let answer = served.complete(&json!({"prompt": "a", "max_tokens": 1, field: 5}))?;
        ensure!(answer.status == 200, "{answer:?}");
    }
    ensure!(
        wait_until(LIMIT, || served
            .stderr()
            .contains("the field another_thing is not known")),
        "{}",
        served.stderr()
    );
    let said = served
        .stderr()
        .matches("the field something_of_a_client is not known")
        .count();
    ensure!(said == 1, "{}", served.stderr());
    Ok(())
}

/// A conversation is continued as its text is; streamed, and with a message that is continued.
fn expect_chat(served: &Served, drawn: &Value) -> anyhow::Result<()> {
    let messages = json!([{"role": "user", "content": [{"type": "text", "text": "ab"}]}]);
    let mut request = json!({
        "messages": messages, "temperature": 0.9, "seed": 5, "max_completion_tokens": 9, "logprobs": true,
        "top_logprobs": 3, "model": "model",
    });
    let whole = served.chat(&request)?;
    let choice = &whole.body["choices"][0];
    ensure!(
        choice["message"]["content"] == drawn["text"] && choice["message"]["role"] == "assistant",
        "{whole:?} {drawn}"
    );
    let content = choice["logprobs"]["content"].as_array().context("log-probabilities")?;
    let found: Vec<f64> = content.iter().filter_map(|token| token["logprob"].as_f64()).collect();
    expect_near(&found, &numbers(&drawn["log_probs"]))?;
    ensure!(
        content
            .iter()
            .all(|token| token["top_logprobs"].as_array().map(Vec::len) == Some(3))
    );
    // One begin of a text: that of the template.
    let usage = json!({"prompt_tokens": 5, "completion_tokens": found.len(), "total_tokens": 5 + found.len()});
    ensure!(
        whole.body["usage"] == usage && whole.body["object"] == "chat.completion",
        "{whole:?}"
    );
    // The same tokens as a prompt.
    let tokens = json!([BOS, 59, 0, 1, 60]);
    let completed = json!({"prompt": tokens, "temperature": 0.9, "seed": 5, "max_tokens": 9, "logprobs": 3});
    let completed = served.complete(&completed)?;
    expect_near(
        &numbers(&completed.body["choices"][0]["logprobs"]["token_logprobs"]),
        &found,
    )?;

    request["stream"] = true.into();
    request["stream_options"] = json!({"include_usage": true, "continuous_usage_stats": true});
    let mut events = served.stream_of("/v1/chat/completions", &request)?.rest()?;
    ensure!(events.pop().is_some_and(|last| last == "[DONE]"), "{events:?}");
    let events: Vec<Value> = events
        .iter()
        .map(|event| serde_json::from_str(event))
        .collect::<Result<_, _>>()?;
    let (last, pieces) = events.split_last().context("events")?;
    ensure!(last["usage"] == usage && last["choices"] == json!([]), "{last}");
    ensure!(pieces[0]["usage"]["completion_tokens"] == 1 && pieces[0]["object"] == "chat.completion.chunk");
    ensure!(pieces[0]["choices"][0]["delta"]["role"] == "assistant", "{pieces:?}");
    let texts = pieces
        .iter()
        .filter_map(|piece| piece["choices"][0]["delta"]["content"].as_str());
    ensure!(texts.collect::<String>() == choice["message"]["content"], "{pieces:?}");
    let end = pieces.last().map(|piece| &piece["choices"][0]["finish_reason"]);
    ensure!(end == Some(&choice["finish_reason"]), "{pieces:?}");

    let prefixed = json!({
        "messages": [{"role": "user", "content": "ab"}, {"role": "assistant", "content": "c"}], "temperature": 0,
        "max_tokens": 4, "continue_final_message": true, "n": 2,
    });
    let prefixed = served.chat(&prefixed)?;
    let greedy = json!({"prompt": [BOS, 59, 0, 1, 60, 2], "temperature": 0, "max_tokens": 4});
    let greedy = served.complete(&greedy)?;
    let choices = prefixed.body["choices"].as_array().context("choices")?;
    ensure!(choices.len() == 2, "{prefixed:?}");
    for choice in choices {
        ensure!(
            choice["message"]["content"] == greedy.body["choices"][0]["text"],
            "{prefixed:?} {greedy:?}"
        );
    }
    let none = json!({"messages": []});
    served
        .chat(&none)?
        .expect_refusal(400, "messages must have one message at least")
}

/// A prompt alone is scored, also one that fills all positions, as it is with a token after it.
fn expect_prompts_scored(served: &Served) -> anyhow::Result<()> {
    let text = "ab".repeat(POSITIONS / 2);
    let ask = |max_tokens: usize, stream: bool| {
        json!({
            "prompt": text, "add_special_tokens": false, "max_tokens": max_tokens, "echo": true, "logprobs": 1,
            "temperature": 0, "stream": stream,
        })
    };
    let alone = served.complete(&ask(0, false))?;
    let more = served.complete(&ask(1, false))?;
    let [choice, longer] = [&alone, &more].map(|answer| &answer.body["choices"][0]);
    ensure!(
        choice["text"] == text && choice["finish_reason"] == "length",
        "{alone:?}"
    );
    ensure!(alone.body["usage"]["completion_tokens"] == 0, "{alone:?}");
    let scores = numbers(&choice["logprobs"]["token_logprobs"]);
    ensure!(scores.len() == POSITIONS - 1 && choice["logprobs"]["token_logprobs"][0].is_null());
    expect_near(
        &scores,
        &numbers(&longer["logprobs"]["token_logprobs"])[..POSITIONS - 1],
    )?;
    let streamed = served.stream(&ask(0, true))?.rest()?;
    let [piece, _] = &streamed[..] else {
        anyhow::bail!("{streamed:?}");
    };
    let piece: Value = serde_json::from_str(piece)?;
    ensure!(piece["choices"][0] == *choice, "{piece} {choice}");
    // Megatron-LM's API, with one begin of a text.
    let request = json!({"prompts": ["abc"], "tokens_to_generate": 0, "logprobs": true});
    let answer = served.put(&request)?;
    let request = json!({"prompt": "abc", "max_tokens": 1, "echo": true, "logprobs": 0});
    let scores = served.complete(&request)?;
    ensure!(answer.body["text"] == json!(["abc"]), "{answer:?}");
    ensure!(answer.body["segments"] == json!([["<s>", "a", "b", "c"]]), "{answer:?}");
    let expected = numbers(&scores.body["choices"][0]["logprobs"]["token_logprobs"]);
    expect_near(&numbers(&answer.body["logprobs"][0]), &expected[..3])?;
    let request = json!({"prompts": ["abc"], "tokens_to_generate": 0});
    served
        .put(&request)?
        .expect_refusal(400, "tokens_to_generate 0 needs logprobs true")
}

/// Of tokens that are parts of characters, special, or of one text, each has a name of its own.
fn expect_tokens_told_apart(served: &Served) -> anyhow::Result<()> {
    let request = json!({
        "prompt": [26, 54, 55, 56, 58], "max_tokens": 0, "echo": true, "logprobs": 20, "temperature": 0,
    });
    let answer = served.complete(&request)?;
    let logprobs = &answer.body["choices"][0]["logprobs"];
    ensure!(
        logprobs["tokens"] == json!(["A", "bytes:\\xe4", "bytes:\\xbd", "A", "</s>"]),
        "{answer:?}"
    );
    for top in logprobs["top_logprobs"].as_array().context("lists")?.iter().skip(1) {
        ensure!(top.as_object().map(serde_json::Map::len) == Some(20), "{top}");
    }
    Ok(())
}

/// Bias, stop tokens and the best of several change the answer as they should.
fn expect_options(served: &Served) -> anyhow::Result<()> {
    let greedy = |more: Value| {
        let mut request = json!({"prompt": "ab", "max_tokens": 3, "temperature": 0, "logprobs": 1});
        request.as_object_mut().into_iter().for_each(|fields| {
            fields.extend(more.as_object().cloned().unwrap_or_default());
        });
        served.complete(&request)
    };
    let biased = greedy(json!({"logit_bias": {"3": 100}}))?;
    ensure!(
        biased.body["choices"][0]["text"] == "ddd",
        "not \"ddd\", of the biased token: {biased:?}"
    );
    let penalized = greedy(json!({"logit_bias": {"3": 100, "4": 99}, "presence_penalty": 2, "ignore_eos": true}))?;
    ensure!(penalized.body["choices"][0]["text"] != "ddd", "{penalized:?}");
    let stopped = greedy(json!({"logit_bias": {"3": 100}, "stop_token_ids": [3]}))?;
    let choice = &stopped.body["choices"][0];
    ensure!(choice["text"] == "" && choice["finish_reason"] == "stop", "{stopped:?}");
    // Of one seed, the best of four is one of the four.
    let four = greedy(json!({"temperature": 1, "seed": 3, "n": 4}))?;
    let best = greedy(json!({"temperature": 1, "seed": 3, "best_of": 4}))?;
    let mean = |choice: &Value| {
        let logs = numbers(&choice["logprobs"]["token_logprobs"]);
        logs.iter().sum::<f64>() / logs.len() as f64
    };
    let means = four.body["choices"].as_array().into_iter().flatten().map(mean);
    let highest = means.fold(f64::NEG_INFINITY, f64::max);
    let choices = best.body["choices"].as_array().context("choices")?;
    ensure!(
        choices.len() == 1 && (mean(&choices[0]) - highest).abs() < 1e-12,
        "{best:?} {four:?}"
    );
    Ok(())
}

fn requests_of_two_lengths_are_refused_and_half_closed_ones_answered() -> anyhow::Result<()> {
    let folder = folder()?;
    let served = Served::start(folder.path(), "--load model --dtype f64", None)?;
    let head = format!("POST /v1/completions HTTP/1.1\r\nHost: a\r\n{JSON}");
    let body = r#"{"prompt": "a", "max_tokens": 3}"#;
    let chunks = format!("{:x}\r\n{body}\r\n0\r\n\r\n", body.len());
    let (length, chunked) = (
        format!("Content-Length: {}\r\n", chunks.len()),
        "Transfer-Encoding: chunked\r\n",
    );
    for lengths in [format!("{length}{chunked}"), format!("{chunked}{length}")] {
        // What would be a request of its own is none.
        let request = format!("{head}{lengths}\r\n{chunks}GET /health HTTP/1.1\r\nHost: a\r\n\r\n");
        let answer = read_all(served.connect(&request)?);
        ensure!(
            answer.starts_with("HTTP/1.1 400 ") && answer.contains("this one has both"),
            "not refused: {answer}"
        );
        ensure!(answer.matches("HTTP/1.1 ").count() == 1, "{answer}");
    }
    for lengths in [
        format!("Content-Length: {}\r\n\r\n{body}", body.len()),
        format!("{chunked}\r\n{chunks}"),
    ] {
        let stream = served.connect(&format!("{head}{lengths}"))?;
        stream.shutdown(Shutdown::Write)?;
        let answer = read_all(stream);
        ensure!(
            answer.starts_with("HTTP/1.1 200 ") && answer.contains("finish_reason"),
            "{answer}"
        );
    }
    // Half of a body is none.
    let stream = served.connect(&format!("{head}Content-Length: 90\r\n\r\n{body}"))?;
    stream.shutdown(Shutdown::Write)?;
    ensure!(!read_all(stream).contains(" 200 "));
    Ok(())
}
