//! `pretrain_gpt` with four ranks under every launcher: ours, `mpirun`, `torchrun`, each with the losses of one rank;
//! and its preflight; and on two nodes, in `namespaces`. What is not installed counts as ignored, and says so.

mod namespaces;

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::ensure;
use burn_megatron::checkpoint::Checkpoint;
use libtest_mimic::{Failed, Trial};
use program::{
    Ended, FOUR_RANKS, Started, end, expect_same, flags, is_installed, losses, losses_of_one_rank, pretrain_gpt, start,
};
use tempfile::TempDir;
use tests::processes::{children_of, send, variable_of, wait_until};
use tests::trials::{trial, trial_unless};
use tests::{program, training};

const STEPS: usize = 3;
const LIMIT: Duration = Duration::from_secs(120);
/// For 64 ranks on two cores.
const LONG_LIMIT: Duration = Duration::from_secs(600);

pub fn trials() -> Vec<Trial> {
    let mut trials = vec![
        trial("own_launcher_trains_as_one_rank", || trains_as_one_rank(&[])),
        needs("mpirun", "mpirun_trains_as_one_rank", || trains_as_one_rank(&MPIRUN)),
        needs(
            "mpirun",
            "mpirun_with_other_flags_on_one_rank_names_it",
            other_flags_are_named,
        ),
        needs("torchrun", "torchrun_trains_as_one_rank", || {
            trains_as_one_rank(&["torchrun", "--nproc-per-node", "4", "--no-python"])
        }),
    ];
    trials.extend(tests::trials![self => [
        signal_ends_training_after_a_step_with_its_own_code,
        restarted_job_trains_as_one_that_never_failed,
        preflight_prints_a_table_and_ends,
        dry_run_prints_a_table_and_starts_no_rank,
        a_configuration_of_deepspeed_trains_as_its_flags,
    ]]);
    trials.extend(namespaces::trials());
    // Minutes, for a release.
    let long = tests::trials![self => [
        sixty_four_ranks_train_as_one,
        sixty_four_ranks_end_together_when_one_is_killed,
        sixty_four_ranks_end_together_when_one_is_killed_in_a_save,
    ]];
    trials.extend(long.into_iter().map(|trial| trial.with_ignored_flag(true)));
    trials
}

const MPIRUN: [&str; 5] = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", "4"];

/// A trial that is ignored, aloud, where a program is not installed.
fn needs(program: &str, name: &str, test: impl Fn() -> Result<(), Failed> + Send + 'static) -> Trial {
    let lacks = (!is_installed(program)).then(|| format!("{program} is not in PATH"));
    trial_unless(lacks, name, test)
}

/// Runs four ranks under `launcher`, or by themselves, and compares their losses with those of one rank.
fn trains_as_one_rank(launcher: &[&str]) -> Result<(), Failed> {
    let folder = TempDir::new()?;
    let log = folder.path().join("four.jsonl");
    let program = pretrain_gpt()?;
    let mut command = match launcher.split_first() {
        Some((first, rest)) => {
            let mut command = Command::new(first);
            command.args(rest).arg(&program);
            command
        }
        None => Command::new(&program),
    };
    command.args(flags(STEPS)).args(FOUR_RANKS).arg("--log-jsonl").arg(&log);
    end(start(&mut command)?, LIMIT)?.expect_code(0)?;
    Ok(expect_same(&losses(&log)?, &losses_of_one_rank(STEPS)?)?)
}

fn other_flags_are_named() -> Result<(), Failed> {
    let program = pretrain_gpt()?;
    let mut command = Command::new(MPIRUN[0]);
    command.args(&MPIRUN[1..3]).args(["-n", "3"]).arg(&program);
    command.args(flags(STEPS)).args(FOUR_RANKS);
    command.args([":", "-n", "1"]).arg(&program);
    command.args(flags(STEPS)).args(FOUR_RANKS).args(["--lr", "0.5"]);
    let ended: Ended = end(start(&mut command)?, LIMIT)?;
    if ended.code == Some(0) {
        return Err("mpirun succeeds with different flags".into());
    }
    ended.expect_line(
        "rank 3 has another configuration than rank 0: \"lr: 0.5,\" on rank 3, \"lr: 0.002,\" on rank 0",
    )?;
    Ok(())
}

/// Ctrl-C and a scheduler's SIGTERM, on one rank without a launcher and on four with one.
fn signal_ends_training_after_a_step_with_its_own_code() -> Result<(), Failed> {
    let folder = TempDir::new()?;
    for (ranks, more) in [(1, &[][..]), (4, &FOUR_RANKS[..])] {
        for (signal, name) in [(libc::SIGINT, "SIGINT"), (libc::SIGTERM, "SIGTERM")] {
            let log = folder.path().join(format!("{ranks}-{name}.jsonl"));
            let mut command = Command::new(pretrain_gpt()?);
            command.args(flags(1_000_000)).args(more).arg("--log-jsonl").arg(&log);
            let started = start(&mut command)?;
            while losses(&log).map_or(0, |losses| losses.len()) < 2 {
                if started.begun.elapsed() > LIMIT {
                    return Err(format!("{ranks} ranks make no two steps").into());
                }
                std::thread::sleep(Duration::from_millis(20));
            }
            send(started.process.id(), signal);
            let ended = end(started, LIMIT)?;
            ended.expect_code(128 + signal)?;
            let said = format!("{}{}", ended.stdout, ended.stderr);
            // The last step is whole: it is in the log.
            let last = losses(&log)?.len();
            let stopped = format!("stopped after step {last}: asked to by {name}");
            if !said.contains(&stopped) || said.contains("failed") {
                return Err(format!("{ranks} ranks, {name}: no {stopped:?} in\n{said}").into());
            }
        }
    }
    Ok(())
}

/// A rank of four is killed; the launcher starts all again, and they continue from the last checkpoint.
fn restarted_job_trains_as_one_that_never_failed() -> Result<(), Failed> {
    const STEPS: usize = 30;
    let folder = TempDir::new()?;
    let log = folder.path().join("four.jsonl");
    let mut command = Command::new(pretrain_gpt()?);
    command.args(flags(STEPS)).args(FOUR_RANKS).arg("--log-jsonl").arg(&log);
    command.args(["--max-restarts", "2", "--save-interval", "1", "--save"]);
    command.arg(folder.path().join("checkpoints"));
    let started = start(&mut command)?;
    let launcher = started.process.id();
    let is_under_way = || losses(&log).is_ok_and(|losses| losses.len() >= 3);
    if !wait_until(LIMIT, is_under_way) {
        return Err("four ranks make no three steps".into());
    }
    let is_rank_one = |pid: &u32| variable_of(*pid, "RANK").as_deref() == Some("1");
    let victim = children_of(launcher).into_iter().find(is_rank_one);
    send(victim.ok_or("rank 1 does not run")?, libc::SIGKILL);
    let ended = end(started, LIMIT)?;
    ended.expect_code(0)?;
    ended.expect_line("[launcher] rank 1 (pid ")?;
    ended.expect_line(" failed first: killed by signal 9 (SIGKILL)")?;
    ended.expect_line("[launcher] restart 1 of at most 2: all ranks start again")?;
    for text in ["restart 1\n", "continuing after step "] {
        if !ended.stdout.contains(text) {
            return Err(format!("no {text:?} in\n{}", ended.stdout).into());
        }
    }
    Ok(expect_same(&losses(&log)?, &losses_of_one_rank(STEPS)?)?)
}

/// Tensor 2, pipeline 4, data 8, all over the tree of TCP connections.
fn sixty_four_ranks(steps: usize, log: &Path, is_one: bool) -> anyhow::Result<Command> {
    let flags = format!(
        "--num-layers 4 --hidden-size 32 --num-attention-heads 2 --seq-length 16 --micro-batch-size 1 \
         --global-batch-size 16 --eval-iters 0 --train-iters {steps} --dtype f64 --lr-decay-style constant"
    );
    let mut command = Command::new(pretrain_gpt()?);
    command
        .args(flags.split_whitespace())
        .arg("--data-path")
        .arg(program::training_text());
    command.arg("--log-jsonl").arg(log);
    if !is_one {
        let layout = "--world-size 64 --tensor-model-parallel-size 2 --pipeline-model-parallel-size 4";
        command.args(layout.split_whitespace());
        command.env("BURN_MEGATRON_ENGINE", "tcp");
    }
    Ok(command)
}

fn sixty_four_ranks_train_as_one() -> Result<(), Failed> {
    let folder = TempDir::new()?;
    let mut all = vec![];
    for (name, is_one) in [("one", true), ("many", false)] {
        let log = folder.path().join(name);
        end(start(&mut sixty_four_ranks(3, &log, is_one)?)?, LONG_LIMIT)?.expect_code(0)?;
        all.push(losses(&log)?);
    }
    Ok(expect_same(&all[0], &all[1])?)
}

fn sixty_four_ranks_end_together_when_one_is_killed() -> Result<(), Failed> {
    let folder = TempDir::new()?;
    let log = folder.path().join("log");
    let started = start(&mut sixty_four_ranks(1_000_000, &log, false)?)?;
    if !wait_until(LONG_LIMIT, || losses(&log).is_ok_and(|losses| losses.len() >= 2)) {
        return Err("64 ranks make no two steps".into());
    }
    kill_one_of_sixty_four(started)
}

/// A save is under way; the one before it stays whole, and one rank continues from it.
fn sixty_four_ranks_end_together_when_one_is_killed_in_a_save() -> Result<(), Failed> {
    let folder = TempDir::new()?;
    let (log, save) = (folder.path().join("log"), folder.path().join("save"));
    let mut command = sixty_four_ranks(1_000_000, &log, false)?;
    let started = start(command.args(["--save-interval", "1", "--save"]).arg(&save))?;
    // The first is whole, and the next under way.
    let has_both = || {
        let names = training::names(&save);
        ["iter_", ".iter_"]
            .iter()
            .all(|beginning| names.iter().any(|name| name.starts_with(beginning)))
    };
    if !wait_until(LONG_LIMIT, has_both) {
        return Err("64 ranks do not save twice".into());
    }
    kill_one_of_sixty_four(started)?;
    let last = Checkpoint::latest(&save)?.ok_or("no checkpoint is left")?;
    last.verify()?;
    let step = last.iteration();
    let log = folder.path().join("one");
    let mut command = sixty_four_ranks(1_000_000, &log, true)?;
    // A step is taken in any case.
    command
        .args(["--exit-duration-in-mins", "0.000001", "--load"])
        .arg(&save);
    let ended = end(start(&mut command)?, LONG_LIMIT)?;
    ended.expect_code(0)?;
    if !ended.stdout.contains(&format!("continuing after step {step}")) {
        return Err(format!("not after step {step}:\n{}", ended.stdout).into());
    }
    Ok(())
}

/// The launcher names the rank that is killed, and what the 63 others say because of it are a few lines.
fn kill_one_of_sixty_four(started: Started) -> Result<(), Failed> {
    const VICTIM: &str = "37";
    let is_victim = |pid: &u32| variable_of(*pid, "RANK").as_deref() == Some(VICTIM);
    let victim = children_of(started.process.id()).into_iter().find(is_victim);
    let victim = victim.ok_or("the victim does not run")?;
    let killed = Instant::now();
    send(victim, libc::SIGKILL);
    let ended = end(started, LONG_LIMIT)?;
    if killed.elapsed() > Duration::from_secs(15) {
        return Err(format!("the ranks end after {:?}", killed.elapsed()).into());
    }
    ended.expect_code(128 + libc::SIGKILL)?;
    let first =
        format!("[launcher] rank {VICTIM} (pid {victim}) failed first: killed by signal 9 (SIGKILL); then ranks");
    let line = ended.expect_line(&first)?;
    if line.len() > 400 || ended.stderr.lines().count() > 24 {
        return Err(format!("that many words:\n{}", ended.stderr).into());
    }
    Ok(())
}

fn dry_run_prints_a_table_and_starts_no_rank() -> Result<(), Failed> {
    let mut command = Command::new(pretrain_gpt()?);
    // No machine holds it.
    command.args([
        "--dry-run",
        "--model-size",
        "gpt3-1008.0b",
        "--bf16",
        "--world-size",
        "512",
    ]);
    command.args([
        "--tensor-model-parallel-size",
        "8",
        "--pipeline-model-parallel-size",
        "64",
    ]);
    command.args(["--micro-batch-size", "1", "--global-batch-size", "64"]);
    let ended = end(start(&mut command)?, LIMIT)?;
    ended.expect_code(0)?;
    for text in [
        "gpt of 100",
        "512 ranks: tensor 8",
        "* ZeRO stage 0, no_shard",
        "not with pipeline stages",
    ] {
        if !ended.stdout.contains(text) {
            return Err(format!("no {text:?} in\n{}", ended.stdout).into());
        }
    }
    if ended.stdout.contains("step 1") {
        return Err(format!("a rank was started:\n{}", ended.stdout).into());
    }
    Ok(())
}

/// Four ranks with a JSON file, and with the same flags by hand: the same bits, and one report of what became of it.
fn a_configuration_of_deepspeed_trains_as_its_flags() -> Result<(), Failed> {
    let folder = TempDir::new()?;
    let file = folder.path().join("ds.json");
    std::fs::write(
        &file,
        r#"{"train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 1, "gradient_clipping": 0.25,
            "optimizer": {"type": "AdamW", "params": {"lr": 0.01, "betas": [0.8, 0.9], "weight_decay": 0.05}},
            "scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 2, "warmup_type": "linear"}}}"#,
    )?;
    let file = file.display().to_string();
    let by_hand =
        "--clip-grad 0.25 --lr 0.01 --adam-beta1 0.8 --adam-beta2 0.9 --weight-decay 0.05 --lr-warmup-iters 2";
    let by_hand: Vec<&str> = by_hand.split(' ').collect();
    let mut runs = vec![];
    for (name, more) in [
        ("file", &["--use-deepspeed", "--deepspeed_config", file.as_str()][..]),
        ("flags", &by_hand[..]),
    ] {
        let log = folder.path().join(name);
        let mut command = Command::new(pretrain_gpt()?);
        command
            .args(flags(STEPS))
            .args(FOUR_RANKS)
            .args(more)
            .arg("--log-jsonl")
            .arg(&log);
        let ended = end(start(&mut command)?, LIMIT)?;
        ended.expect_code(0)?;
        runs.push((losses(&log)?, ended.stdout.matches("no code of DeepSpeed runs").count()));
    }
    let [(of_file, 1), (of_flags, 0)] = &runs[..] else {
        return Err(format!("losses, and how often the report is printed: {runs:?}").into());
    };
    if of_file != of_flags {
        return Err(format!("the losses differ: {of_file:?} and {of_flags:?}").into());
    }
    Ok(())
}

fn preflight_prints_a_table_and_ends() -> Result<(), Failed> {
    let mut command = Command::new(pretrain_gpt()?);
    command.args(flags(STEPS)).args(FOUR_RANKS).arg("--preflight");
    let ended = end(start(&mut command)?, LIMIT)?;
    ended.expect_code(0)?;
    let has = |text: &str| -> anyhow::Result<()> {
        ensure!(ended.stdout.contains(text), "no {text:?} in\n{}", ended.stdout);
        Ok(())
    };
    has("4 ranks agree on version, configuration and data")?;
    has("tensor    [2, 3]")?;
    has("data      [1, 3]")?;
    ended
        .stdout
        .lines()
        .filter(|line| line.contains(" µs"))
        .count()
        .eq(&7)
        .then_some(())
        .ok_or_else(|| format!("not 7 groups:\n{}", ended.stdout).into())
}
