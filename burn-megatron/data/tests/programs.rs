//! The programs as users run them.
#![allow(clippy::unwrap_used)]

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use burn_megatron_data::indexed_dataset::IndexedDataset;
use tempfile::TempDir;

const PREPROCESS: &str = env!("CARGO_BIN_EXE_preprocess_data");
const MERGE: &str = env!("CARGO_BIN_EXE_merge_datasets");
const INSPECT: &str = env!("CARGO_BIN_EXE_inspect_data");

fn run(program: &str, folder: &Path, arguments: &str) -> Output {
    Command::new(program)
        .current_dir(folder)
        .args(arguments.split_whitespace())
        .output()
        .unwrap()
}

/// Runs a program that must succeed, and returns what it printed.
fn printed(program: &str, folder: &Path, arguments: &str) -> String {
    let output = run(program, folder, arguments);
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{arguments}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}

/// Runs a program that must fail, and returns the error.
fn refused(program: &str, folder: &Path, arguments: &str) -> String {
    let output = run(program, folder, arguments);
    assert!(
        !output.status.success(),
        "{arguments}: {}",
        String::from_utf8_lossy(&output.stdout)
    );
    String::from_utf8(output.stderr).unwrap()
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn text_goes_in_and_comes_out() {
    let folder = TempDir::new().unwrap();
    let folder = folder.path();
    fs::write(folder.join("my_corpus.txt"), "Once upon\n\na time").unwrap();
    let line = "--input no.txt --input my_corpus.txt --output_prefix my_data --dataset-impl mmap --append_eod \
        --split-on blank-line --workers 1 --workers=2 --log_interval 1 --keep-sequential-samples --partitions 2";
    let output = printed(PREPROCESS, folder, line);
    assert!(
        output.starts_with("1 files, 2 documents, 15 bytes of text: "),
        "{output}"
    );
    assert!(
        output.contains("my_data_text_document: 2 documents, 2 sequences, 17 tokens, 116 bytes"),
        "{output}"
    );

    let expected = "my_data_text_document\nfiles: .bin 34 bytes, .idx 82 bytes\ntokens: 17 of u16 (code 8)\n\
        documents: 2, of them 0 without tokens\nsequences: 2, with 7 to 10 tokens, 8.5 on average\n\n\
        document 0: 1 sequences, 10 tokens\nOnce\n…\n\ndocument 1: 1 sequences, 7 tokens\na ti\n…\n";
    assert_eq!(
        printed(INSPECT, folder, "my_data_text_document.idx --documents 3 --tokens 4"),
        expected
    );
    let checked = printed(INSPECT, folder, "my_data_text_document --from 1 --documents 1 --check");
    assert!(
        checked.ends_with("the size of the vocabulary\n\ndocument 1: 1 sequences, 7 tokens\na time\n"),
        "{checked}"
    );

    fs::create_dir(folder.join("parts")).unwrap();
    for (name, half) in [("a", "bin"), ("a", "idx"), ("b", "bin"), ("b", "idx")] {
        let from = folder.join(format!("my_data_text_document.{half}"));
        fs::copy(from, folder.join(format!("parts/{name}.{half}"))).unwrap();
    }
    let output = printed(MERGE, folder, "--input parts --output-prefix merged");
    assert!(
        output.starts_with("merged: 2 data sets, 4 documents, 4 sequences, 34 tokens"),
        "{output}"
    );
    fs::remove_file(folder.join("parts/b.idx")).unwrap();
    let error = refused(MERGE, folder, "--input parts --output-prefix merged");
    assert_eq!(
        error,
        "error: parts/b.idx is missing: a data set is a pair of .bin and .idx\n"
    );
}

#[test]
fn errors_say_what_to_do() {
    let folder = TempDir::new().unwrap();
    let folder = folder.path();
    fs::write(folder.join("a.jsonl"), "{\"text\": \"a\"}\nno\n").unwrap();
    let error = refused(PREPROCESS, folder, "--input a.jsonl --output-prefix o");
    assert_eq!(
        error,
        "error: a.jsonl, line 2: column 2: expected ident; --skip-bad leaves such documents out\n"
    );
    let output = printed(PREPROCESS, folder, "--input a.jsonl --output-prefix o --skip_bad");
    assert!(
        output.ends_with(
            "1 bad documents were left out, the first of them:\n  a.jsonl, line 2: column 2: expected ident\n"
        )
    );
    let error = refused(
        PREPROCESS,
        folder,
        "--input a.jsonl --output-prefix o --dataset-impl lazy",
    );
    assert!(error.contains("possible values: mmap"), "{error}");
    fs::write(folder.join("o_text_document.idx"), "short").unwrap();
    let error = refused(INSPECT, folder, "o_text_document");
    assert_eq!(
        error,
        "error: o_text_document.idx: size is 5 bytes, expected the 34 bytes of the header or more\n"
    );
}

/// A file may not grow beyond a limit, as on a disk that is full.
#[test]
fn a_full_disk_leaves_no_file() {
    let folder = TempDir::new().unwrap();
    let folder = folder.path();
    fs::create_dir(folder.join("out")).unwrap();
    // Of the first the tokens do not fit, of the other the index.
    fs::write(folder.join("tokens.txt"), "some words ".repeat(100_000)).unwrap();
    fs::write(folder.join("index.txt"), "a\n".repeat(100_000)).unwrap();
    for (input, full) in [("tokens.txt", "bin"), ("index.txt", "idx")] {
        let flags = format!("--input {input} --output-prefix out/o --split-on line");
        let line = format!("trap '' XFSZ; ulimit -f 1000; exec {PREPROCESS} {flags}");
        let output = Command::new("bash")
            .current_dir(folder)
            .args(["-c", &line])
            .output()
            .unwrap();
        let printed = String::from_utf8(output.stderr).unwrap();
        let error = printed.lines().last().unwrap();
        assert_eq!(output.status.code(), Some(1), "{error}");
        assert!(
            error.starts_with(&format!("error: cannot write out/o_text_document.{full}: ")),
            "{error}"
        );
        assert!(error.ends_with("File too large (os error 27)"), "{error}");
        assert_eq!(error.matches("os error").count(), 1, "{error}");
        assert!(names(&folder.join("out")).is_empty());
    }
}

#[test]
fn signals_leave_no_file() {
    for (signal, code) in [("-INT", 130), ("-TERM", 143)] {
        let folder = TempDir::new().unwrap();
        let folder = folder.path();
        // A pipe that never ends: the program works until it is asked to stop.
        let status = Command::new("mkfifo").arg(folder.join("a.jsonl")).status().unwrap();
        assert!(status.success());
        fs::create_dir(folder.join("out")).unwrap();
        let child = Command::new(PREPROCESS)
            .current_dir(folder)
            .args("--input a.jsonl --output-prefix out/o".split(' '))
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut pipe = File::options().write(true).open(folder.join("a.jsonl")).unwrap();
        let feeder = thread::spawn(move || while pipe.write_all(b"{\"text\": \"some words\"}\n").is_ok() {});
        let start = Instant::now();
        while fs::metadata(folder.join("out/o_text_document.bin.tmp")).map_or(0, |file| file.len()) == 0 {
            assert!(start.elapsed() < Duration::from_secs(60), "nothing is written");
            thread::sleep(Duration::from_millis(20));
        }
        assert!(
            Command::new("kill")
                .arg(signal)
                .arg(child.id().to_string())
                .status()
                .unwrap()
                .success()
        );
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(code));
        assert!(String::from_utf8_lossy(&output.stderr).ends_with("stopped by a signal: no file is left\n"));
        assert!(names(&folder.join("out")).is_empty());
        feeder.join().unwrap();
    }
}

#[test]
fn a_killed_run_leaves_nothing_that_looks_whole() {
    let folder = TempDir::new().unwrap();
    let folder = folder.path();
    fs::write(folder.join("a.txt"), "words ".repeat(2_000_000)).unwrap();
    printed(PREPROCESS, folder, "--input a.txt --output-prefix o");
    let before = fs::read(folder.join("o_text_document.bin")).unwrap();
    for milliseconds in [5, 20, 60] {
        let line = "--input a.txt --output-prefix o --append-eod";
        let mut child = Command::new(PREPROCESS)
            .current_dir(folder)
            .args(line.split(' '))
            .spawn()
            .unwrap();
        thread::sleep(Duration::from_millis(milliseconds));
        child.kill().unwrap();
        child.wait().unwrap();
        // Both files of the first run, or of the second, or no index.
        match IndexedDataset::open(folder.join("o_text_document")) {
            Ok(dataset) => assert!(dataset.is_contiguous()),
            Err(error) => assert!(!folder.join("o_text_document.idx").exists(), "{error}"),
        }
    }
    printed(PREPROCESS, folder, "--input a.txt --output-prefix o");
    assert!(fs::read(folder.join("o_text_document.bin")).unwrap() == before);
    assert_eq!(names(folder), ["a.txt", "o_text_document.bin", "o_text_document.idx"]);
}

#[test]
fn samples_are_printed_as_models_see_them() {
    let folder = TempDir::new().unwrap();
    let folder = folder.path();
    let text = "It was the best of times. It was the worst of times. It was the age of wisdom.";
    fs::write(folder.join("books.txt"), text).unwrap();
    printed(
        PREPROCESS,
        folder,
        "--input books.txt --output-prefix books --split-sentences",
    );
    let bert = printed(INSPECT, folder, "books_text_sentence --samples bert");
    for part in ["samples of an epoch: 1", "sample 0", "[CLS]", "[SEP]", "targets: "] {
        assert!(bert.contains(part), "{bert}");
    }
    let t5 = printed(
        INSPECT,
        folder,
        "books_text_sentence.idx --samples t5 --seq-length 100 --decoder-seq-length 50",
    );
    assert!(
        t5.contains("encoder: ") && t5.contains("decoder: [CLS]<0>") && t5.contains("targets: <0>"),
        "{t5}"
    );
    let line = r#"{"messages": [{"role": "user", "content": "Hi?"}, {"role": "assistant", "content": "Yes."}]}"#;
    fs::write(folder.join("chats.jsonl"), line).unwrap();
    let chat = printed(INSPECT, folder, "chats.jsonl --samples chat");
    assert!(
        chat.contains("1 conversations as 1 texts, of them 0 cut; 0 without answers left out"),
        "{chat}"
    );
    assert!(chat.contains("targets that count: Yes.<|im_end|>"), "{chat}");
    let error = refused(INSPECT, folder, "books_text_sentence --samples bert --seq-length 4");
    assert!(
        error.contains("sequence length (--seq-length) must be at least 5"),
        "{error}"
    );
}
