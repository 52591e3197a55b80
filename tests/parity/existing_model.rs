//! A burn program and the same on several ranks: how many lines each changes, and that all train to the same losses.
//! With `BURN_MEGATRON_ALL_TESTS=1` they are built as a user builds them, as a crate outside the workspace.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use libtest_mimic::{Failed, Trial};
use program::{end, start};
use similar::{ChangeTag, TextDiff};
use tests::job::lines_of_rank_zero;
use tests::program;
use tests::references::References;
use tests::takes_all;

const BUILD_LIMIT: Duration = Duration::from_secs(3000);
const RUN_LIMIT: Duration = Duration::from_secs(120);
/// Two orders of adding up the same numbers in f32, over forty steps.
const TOLERANCE: f64 = 2e-6;

/// A program, the one that it is a changed copy of, and how many lines it may change.
const VARIANTS: [(&str, &str, usize); 3] = [
    ("data_parallel", "serial", 12),
    ("sharded", "data_parallel", 2),
    ("tensor_parallel", "serial", 13),
];

/// The programs as examples of the workspace, which are built with its tests.
const VARIANTS_IN_THE_WORKSPACE: [&str; 4] = [
    "existing_serial",
    "existing_data_parallel",
    "existing_sharded",
    "existing_tensor_parallel",
];

pub fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    for (name, original, most) in VARIANTS {
        trials.push(Trial::test(
            format!("{name}_changes_few_lines_of_{original}"),
            move || changes_few_lines(name, original, most),
        ));
        trials.push(Trial::test(
            format!("{name}_trains_to_the_losses_of_serial"),
            move || trains_to_the_losses_of_serial(name),
        ));
    }
    trials
}

fn source() -> PathBuf {
    tests::folder().join("../examples/existing_model")
}

fn text_of(name: &str) -> anyhow::Result<String> {
    let path = source().join(format!("src/bin/{name}.rs"));
    let text = std::fs::read_to_string(&path).with_context(|| format!("no {}", path.display()))?;
    // The first line says what the program is.
    text.split_once('\n')
        .map(|(_, code)| code.to_owned())
        .with_context(|| format!("{} has one line", path.display()))
}

fn changes_few_lines(name: &str, original: &str, most: usize) -> Result<(), Failed> {
    let (before, after) = (text_of(original)?, text_of(name)?);
    let changed = changed_lines(&before, &after);
    println!("{name}: {changed} changed lines of {original}");
    if changed > most {
        return Err(format!("{name} changes {changed} lines of {original}, more than {most}").into());
    }
    Ok(())
}

/// The lines that are added, or, where more are removed in a place than added, those that are removed.
fn changed_lines(before: &str, after: &str) -> usize {
    let diff = TextDiff::from_lines(before, after);
    let of_place = |(removed, added): &(usize, usize)| *removed.max(added);
    let (mut changed, mut place) = (0, (0, 0));
    for change in diff.iter_all_changes() {
        match change.tag() {
            ChangeTag::Equal => changed += of_place(&std::mem::take(&mut place)),
            ChangeTag::Delete => place.0 += 1,
            ChangeTag::Insert => place.1 += 1,
        }
    }
    changed + of_place(&place)
}

fn trains_to_the_losses_of_serial(name: &str) -> Result<(), Failed> {
    static SERIAL: References<(), Vec<f64>> = References::new();
    let expected = SERIAL.of((), || losses_of(&program("serial")?))?;
    let losses = losses_of(&program(name)?)?;
    let (Some(first), Some(last)) = (expected.first(), expected.last()) else {
        return Err("serial prints no loss".into());
    };
    if last >= first {
        return Err(format!("serial does not learn: {first} to {last}").into());
    }
    let is_close = |(loss, expected): (&f64, &f64)| (loss - expected).abs() <= TOLERANCE * expected.abs();
    if losses.len() != expected.len() || !losses.iter().zip(&*expected).all(is_close) {
        return Err(format!("{name}: {losses:?}\nserial: {expected:?}").into());
    }
    println!("{name}: last loss {}, serial {last}", losses[losses.len() - 1]);
    Ok(())
}

/// The losses that a program prints on its first rank, step by step.
fn losses_of(program: &Path) -> anyhow::Result<Vec<f64>> {
    let ended = end(start(&mut Command::new(program))?, RUN_LIMIT)?;
    ended.expect_code(0)?;
    let of_line = |line: &str| -> Option<anyhow::Result<f64>> {
        let (step, loss) = line.split_once(" | loss ")?;
        step.starts_with("step ").then(|| Ok(loss.trim().parse()?))
    };
    lines_of_rank_zero(&ended.stdout).filter_map(of_line).collect()
}

fn program(name: &str) -> anyhow::Result<PathBuf> {
    if takes_all() {
        return Ok(built()?.join(name));
    }
    let example = VARIANTS_IN_THE_WORKSPACE.iter().find(|example| example.ends_with(name));
    tests::program::build(example.with_context(|| format!("no example is {name}"))?)
}

/// Builds the crate once, as a crate of its own, and returns the folder of its programs.
fn built() -> anyhow::Result<PathBuf> {
    static BUILT: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let built = BUILT.get_or_init(|| build().map_err(|error| format!("{error:#}")));
    built.clone().map_err(anyhow::Error::msg)
}

fn build() -> anyhow::Result<PathBuf> {
    // target/<profile>/deps/<this test>
    let test = std::env::current_exe()?;
    let target = test.ancestors().nth(3).context("a test is in target/<profile>/deps")?;
    let root = tests::folder().join("..").canonicalize()?;
    let copy = target.join("existing_model");
    std::fs::create_dir_all(copy.join("src/bin"))?;
    let manifest = std::fs::read_to_string(source().join("Cargo.toml"))?;
    let moved = manifest.replace("../..", &root.display().to_string());
    ensure!(moved != manifest, "the manifest names nothing in ../..");
    put(&copy.join("Cargo.toml"), moved.as_bytes())?;
    // The versions that the workspace is tested with, which are here without a network.
    std::fs::copy(root.join("Cargo.lock"), copy.join("Cargo.lock"))?;
    for (name, original, _) in VARIANTS {
        for name in [name, original] {
            let file = format!("src/bin/{name}.rs");
            put(&copy.join(&file), &std::fs::read(source().join(&file))?)?;
        }
    }
    let cargo = std::env::var_os("CARGO").context("cargo runs the tests and sets CARGO")?;
    let mut command = Command::new(cargo);
    command
        .args(["build", "--quiet", "--bins"])
        // What a debugger would read takes time to write and to link.
        .args(["--config", "profile.dev.debug=false"])
        .arg("--manifest-path")
        .arg(copy.join("Cargo.toml"))
        .arg("--target-dir")
        .arg(copy.join("target"));
    let ended = end(start(&mut command)?, BUILD_LIMIT)?;
    ended.expect_code(0)?;
    // The lines that are left must all be needed.
    ensure!(!ended.stderr.contains("warning"), "{}", ended.stderr);
    Ok(copy.join("target/debug"))
}

/// Writes a file unless it has that content: what is not newer is not built again.
fn put(path: &Path, content: &[u8]) -> anyhow::Result<()> {
    if std::fs::read(path).ok().as_deref() != Some(content) {
        std::fs::write(path, content)?;
    }
    Ok(())
}
