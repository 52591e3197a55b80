//! The lessons, run as their first lines say: several ranks print what one rank prints.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::ensure;
use libtest_mimic::Trial;
use tests::job::lines_of_rank_zero;
use tests::program;
use tests::trials::trial;

pub fn trials() -> Vec<Trial> {
    vec![
        trial("01_data_parallel_prints_the_losses_of_one_rank", data_parallel),
        trial("02_tensor_parallel_computes_what_the_layers_did", tensor_parallel),
        trial("03_pipeline_prints_the_losses_of_one_rank", pipeline),
        trial("04_sharded_optimizer_resumes_on_other_ranks", sharded_optimizer),
        trial(
            "05_burn_train_learner_prints_the_metrics_of_one_rank",
            burn_train_learner,
        ),
        trial("06_transformer_encoder_has_one_loss_in_f64", || {
            transformer_encoder("f64", 0.0)
        }),
        trial("06_transformer_encoder_has_one_loss_in_f32", || {
            transformer_encoder("f32", 2e-6)
        }),
        trial("07_any_model_has_one_loss_in_f64", || any_model("f64", 0.0)),
        trial("07_any_model_has_one_loss_in_f32", || any_model("f32", 2e-6)),
        trial("07_any_model_compares_itself_with_one_rank", any_model_compares),
    ]
}

/// Runs a lesson and returns what its first rank printed.
fn print(lesson: &Path, flags: &[&str]) -> anyhow::Result<String> {
    let mut command = Command::new(lesson);
    let ended = program::end(program::start(command.args(flags))?, Duration::from_secs(240))?;
    ended.expect_code(0)?;
    Ok(ended.stdout)
}

/// The first rank's lines with losses.
fn losses(printed: &str) -> String {
    let lines = lines_of_rank_zero(printed).filter(|line| line.starts_with("step "));
    lines.collect::<Vec<_>>().join("\n")
}

fn data_parallel() -> anyhow::Result<()> {
    let lesson = program::build("01_data_parallel")?;
    let one = losses(&print(&lesson, &[])?);
    ensure!(one.lines().count() == 6, "{one}");
    expect_same(&one, &losses(&print(&lesson, &["--world-size", "2"])?))
}

fn tensor_parallel() -> anyhow::Result<()> {
    let lesson = program::build("02_tensor_parallel")?;
    for ranks in ["1", "2", "4"] {
        let printed = print(&lesson, &["--world-size", ranks])?;
        let line = printed.lines().find(|line| line.contains("serial")).unwrap_or_default();
        let difference = numbers(line).last().copied().unwrap_or(f64::NAN);
        ensure!(difference < 1e-6, "{printed}");
        let both: Vec<&str> = line
            .split(&[' ', ','][..])
            .filter(|word| word.starts_with("0."))
            .collect();
        ensure!(
            both.len() >= 2 && (numbers(both[0])[0] - numbers(both[1])[0]).abs() < 1e-6,
            "{printed}"
        );
    }
    Ok(())
}

fn pipeline() -> anyhow::Result<()> {
    let lesson = program::build("03_pipeline")?;
    let one = losses(&print(&lesson, &[])?);
    ensure!(one.lines().count() == 6, "{one}");
    for ranks in ["2", "4"] {
        expect_same(&one, &losses(&print(&lesson, &["--world-size", ranks])?))?;
    }
    Ok(())
}

fn sharded_optimizer() -> anyhow::Result<()> {
    let lesson = program::build("04_sharded_optimizer")?;
    let whole = losses(&print(&lesson, &["--world-size", "2"])?);
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("run").display().to_string();
    let first = losses(&print(&lesson, &["--save", &path])?);
    let rest = losses(&print(&lesson, &["--load", &path, "--world-size", "2"])?);
    ensure!(
        first.lines().count() == 4 && rest.lines().count() == 2,
        "{first}\n{rest}"
    );
    expect_same(&whole, &format!("{first}\n{rest}"))
}

/// Dropout and clipping on, in every layout; the last loss as it is printed, and its allowed relative difference.
fn transformer_encoder(dtype: &str, tolerance: f64) -> anyhow::Result<()> {
    let layouts: [&[&str]; 7] = [
        &[],
        &["--world-size", "2"],
        &["--world-size", "2", "--use-distributed-optimizer"],
        &["--tensor-model-parallel-size", "2"],
        &["--tensor-model-parallel-size", "2", "--sequence-parallel"],
        &["--pipeline-model-parallel-size", "2"],
        &[
            "--world-size",
            "4",
            "--tensor-model-parallel-size",
            "2",
            "--use-distributed-optimizer",
        ],
    ];
    has_one_loss("06_transformer_encoder", &layouts, dtype, tolerance)
}

fn any_model(dtype: &str, tolerance: f64) -> anyhow::Result<()> {
    let layouts: [&[&str]; 6] = [
        &[],
        &["--data", "2"],
        &["--data", "2", "--fully-sharded"],
        &["--tensor", "2"],
        &["--tensor", "2", "--sequence-parallel"],
        &["--data", "2", "--tensor", "2", "--fully-sharded", "--sequence-parallel"],
    ];
    has_one_loss("07_any_model", &layouts, dtype, tolerance)
}

fn any_model_compares() -> anyhow::Result<()> {
    let lesson = program::build("07_any_model")?;
    let flags = "--data 2 --tensor 2 --fully-sharded --sequence-parallel --dtype f64 --compare";
    let printed = print(&lesson, &flags.split(' ').collect::<Vec<_>>())?;
    ensure!(printed.contains("this layout: as on one rank for 3 steps"), "{printed}");
    Ok(())
}

/// Runs a lesson in several layouts, the first of which is the measure.
fn has_one_loss(lesson: &'static str, layouts: &[&[&str]], dtype: &str, tolerance: f64) -> anyhow::Result<()> {
    let lesson = program::build(lesson)?;
    let mut expected: Option<String> = None;
    for layout in layouts {
        let printed = losses(&print(&lesson, &[layout, ["--dtype", dtype].as_slice()].concat())?);
        println!("{dtype} {layout:?}\n{printed}");
        let loss = |printed: &str| numbers(printed).last().copied().unwrap_or(f64::NAN);
        let steps: Vec<f64> = printed.lines().map(loss).collect();
        ensure!(steps.len() == 4 && steps[3] < steps[0], "it does not learn: {printed}");
        let first = expected.get_or_insert_with(|| printed.clone());
        let (one, other) = (loss(first), loss(&printed));
        ensure!(
            (one - other).abs() <= tolerance * one,
            "{layout:?}:\n{printed}\none rank:\n{first}"
        );
    }
    Ok(())
}

/// On two ranks, on three whose shares differ, and resumed.
fn burn_train_learner() -> anyhow::Result<()> {
    let lesson = program::build("05_burn_train_learner")?;
    let print = |flags: &[&str]| print(&lesson, flags);
    let one = print(&[])?;
    ensure!(one.lines().count() == 8, "four epochs of two kinds:\n{one}");
    let last = one.lines().last().unwrap_or_default();
    let accuracy = numbers(last).last().copied().unwrap_or_default();
    ensure!(accuracy > 60.0, "it does not learn: {last}");
    for ranks in ["2", "3"] {
        expect_same(&one, &print(&["--world-size", ranks])?)?;
    }
    // Resumed after the third epoch, whose checkpoint burn-train has kept, by one rank and by two.
    let resumed = |flags: &[&str]| -> anyhow::Result<String> {
        let folder = tempfile::tempdir()?;
        let path = folder.path().display().to_string();
        print(&["--folder", &path])?;
        print(&[&["--folder", &path, "--resume", "3"], flags].concat())
    };
    let one_resumed = resumed(&[])?;
    // The fourth epoch is logged as such: the lines of the first three, in each split, are those of the first run.
    let first_three = |printed: &str| -> String {
        let lines = printed.lines().enumerate().filter(|(number, _)| number % 4 < 3);
        lines.map(|(_, line)| format!("{line}\n")).collect()
    };
    ensure!(one_resumed.lines().count() == 8, "{one_resumed}");
    expect_same(&first_three(&one), &first_three(&one_resumed))?;
    expect_same(&one_resumed, &resumed(&["--world-size", "2"])?)
}

/// Every number of a line, in order.
fn numbers(line: &str) -> Vec<f64> {
    line.split_whitespace().filter_map(|word| word.parse().ok()).collect()
}

/// Fails unless the lines are the same, up to the last digit of each number, which may have been rounded the other way.
fn expect_same(left: &str, right: &str) -> anyhow::Result<()> {
    let is_same = |(left, right): (&str, &str)| {
        let (a, b) = (numbers(left), numbers(right));
        a.len() == b.len() && a.iter().zip(&b).all(|(a, b)| (a - b).abs() < 1.5e-4)
    };
    ensure!(
        left.lines().count() == right.lines().count() && left.lines().zip(right.lines()).all(is_same),
        "the metrics differ:\n{left}\n{right}"
    );
    Ok(())
}
