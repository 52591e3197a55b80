//! What goes wrong in mid-run: a rank killed, stopped, out of step, a stranger, a bad configuration.
//!
//! Each ends the job on every rank in time, with a message that names the rank. The launcher's own faults are in
//! `launch`.

use std::time::{Duration, Instant};

use anyhow::ensure;
use burn_megatron::collectives::{GroupConfig, ProcessGroup, ReduceOp};
use burn_megatron::context::ParallelContextConfig;
use burn_megatron::flight_recorder::Report;
use burn_megatron::launch::{Environment, JobToken, World};
use burn_megatron::topology::ParallelConfig;
use burn_megatron::training::memory::explain_failed_allocations;
use burn_megatron::training::{RankTime, StragglerReport};
use libtest_mimic::{Failed, Trial};

use super::problem::{self, Variant};
use tests::harness::{Case, Job};

/// The longest time that a job may run after a rank has died.
const END_LIMIT: Duration = Duration::from_secs(10);

pub fn trials() -> Vec<Trial> {
    let fault = |kind: &str| Case::new("parity", "fault").with("kind", kind);
    let training = |kind: &str, tensor: usize| fault(kind).with("tensor", tensor).with("dtype", "f32");
    let mismatch = |kind: &str| Job::new(fault(kind).with("timeout_secs", 20), 2);
    let mut trials = vec![
        first_cause(
            // Silence is reported at three quarters of the timeout: on a busy machine a second or two before the
            // timeout itself.
            Job::new(fault("stopped_rank").with("timeout_secs", 8), 2),
            "stopped_rank_is_the_first_cause_and_silent",
            128 + libc::SIGKILL,
            &[
                ") failed first: killed by signal 9 (SIGKILL) by the launcher (silent: no heartbeat for ",
                " s (stopped, or cut off from the store?)); then rank 0: exit code 75 (because another rank failed)",
                " ends because rank 1 on host ",
                "is silent: no heartbeat for ",
            ],
        ),
        first_cause(
            Job::new(fault("sleeping_rank").with("timeout_secs", 2), 2),
            "sleeping_rank_is_the_first_cause_and_late",
            128 + libc::SIGTERM,
            &[
                ") failed first: killed by signal 15 (SIGTERM) by the launcher (late: its heartbeats arrive, last \
                 collective #1 all_reduce of group world (done); did not come to barrier (call 2) of group world [0, \
                 1]; rank 0 on host ",
                " waited 2 s for it at tests/parity/cases/faults.rs:",
                "still missing: ranks [1]); then rank 0: exit code 75 (because another rank failed)",
                " ends because rank 1 on host ",
            ],
        ),
        first_cause(
            Job::new(fault("stopped_rank_behind_others").with("timeout_secs", 4), 4),
            "stopped_rank_is_the_first_cause_for_those_that_wait_for_others_that_wait_for_it",
            128 + libc::SIGKILL,
            &[
                "[launcher] rank 3 (pid ",
                ") failed first: killed by signal 9 (SIGKILL) by the launcher (silent: no heartbeat for 3.",
                "then ranks 0-2: exit code 75 (because another rank failed)",
            ],
        ),
        first_cause(
            Job::new(fault("sleeping_rank_behind_others").with("timeout_secs", 4), 4),
            "sleeping_rank_is_the_first_cause_for_those_that_wait_for_others_that_wait_for_it",
            128 + libc::SIGTERM,
            &[
                "[launcher] rank 3 (pid ",
                ") failed first: killed by signal 15 (SIGTERM) by the launcher (late: its heartbeats arrive, no \
                 collective yet; did not come to ",
                "of group pair [2, 3]",
                "then ranks 0-2: exit code 75 (because another rank failed)",
            ],
        ),
        flight_record("stopped_rank_is_named_by_the_flight_recorder", "stopped_rank"),
        flight_record("record_of_a_signal_says_who_is_behind", "asked_for_records"),
        Job::new(fault("straggler"), 3).succeeds("slow_rank_is_named_as_the_straggler"),
        first_cause(
            mismatch("other_operation"),
            "rank_out_of_step_is_the_first_cause_and_both_calls_are_told",
            1,
            &[
                " failed: rank 1 of group world [0, 1] called all_gather of 1 f32 (call 0) while rank 0 called \
                 all_reduce sum of 3 f32 (call 0)",
                "[launcher] rank 1 (pid ",
                ") failed first: exit code 1 (its message is above); ",
                "then rank 0: exit code 75 (because another rank failed)",
            ],
        ),
        Job::new(fault("absent_rank").with("timeout_secs", 1), 3)
            .ends_within(Duration::from_secs(20))
            .fails_with("absent_rank_is_named_at_the_rendezvous", &["waiting for rank 1 of 3"]),
        Job::new(fault("late_rank"), 2).succeeds("late_rank_is_waited_for"),
        mismatch("other_length").fails_with(
            "another_length_names_both_ranks_and_lengths",
            &[
                "rank 1 of group world [0, 1] called all_reduce sum of 4 f32",
                "rank 0 called all_reduce sum of 3 f32",
            ],
        ),
        Job::new(fault("wrong_token").with("timeout_secs", 5), 2)
            .ends_within(Duration::from_secs(30))
            .fails_with("wrong_token_is_refused", &["job token"]),
        Job::new(fault("bad_layout"), 3).fails_with(
            "layout_that_does_not_fit_the_world_names_valid_sizes",
            &["the world size must be a multiple", "got 3", "2 and 4"],
        ),
        Job::new(training("not_finite", 2), 2).fails_with(
            "loss_that_is_not_finite_names_step_and_rank",
            &["the loss of step 2 is NaN: the first gradient that is not finite is that of parameter"],
        ),
        Job::new(training("other_samples", 2), 2).fails_with(
            "tensor_rank_with_other_samples_is_named_with_the_step",
            &["rank 1 was given another input than rank 0, at the micro-batches of step 1 (group model)"],
        ),
        printed_once(mismatch("other_operation"), "called all_gather of 1 f32 (call 0)"),
        Job::new(training("panic", 2), 2).fails_with(
            "panicking_rank_ends_the_job_with_its_message",
            &["rank 1", "out of cheese"],
        ),
        first_cause(
            Job::new(fault("out_of_memory"), 2),
            "failed_allocation_is_a_message_and_an_exit_code",
            1,
            &[
                "error: out of memory: 2305843009213693952 bytes cannot be allocated, and ",
                "; the test needs less",
                "[launcher] rank 1 (pid ",
                ") failed first: exit code 1",
            ],
        ),
    ];
    trials.push(first_cause(
        Job::new(fault("killed_in_shared_reduction"), 2),
        "rank_killed_while_it_reduces_shared_memory_is_named_and_harms_no_memory",
        128 + libc::SIGKILL,
        &[
            "killed by signal 9 (SIGKILL)",
            "rank 0: the buffer is lost, the other is whole, the group's memory is unmapped",
        ],
    ));
    for (tensor, ranks, killed) in [(2, 2, 0), (2, 2, 1), (1, 2, 1), (2, 4, 2)] {
        let case = training("killed", tensor).with("victim", killed);
        trials.push(killed_rank(Job::new(case, ranks), tensor, ranks, killed));
    }
    trials
}

/// A trial that passes when the launcher's exit code and messages name one rank as the first cause.
pub fn first_cause(job: Job, name: &'static str, code: i32, messages: &'static [&'static str]) -> Trial {
    Trial::test(name, move || -> Result<(), Failed> {
        let end = job.ends_within(2 * END_LIMIT).run()?;
        end.expect(messages)?;
        if end.code != code {
            return Err(format!("exit code {}, not {code}\n{}", end.code, end.output).into());
        }
        Ok(())
    })
}

/// A trial in which all of launcher and ranks print these words of a failure's text once.
fn printed_once(job: Job, words: &'static str) -> Trial {
    Trial::test("text_of_a_failure_is_printed_once", move || -> Result<(), Failed> {
        let end = job.ends_within(2 * END_LIMIT).run()?;
        match end.output.matches(words).count() {
            1 => Ok(()),
            count => Err(format!("{words:?} is there {count} times\n{}", end.output).into()),
        }
    })
}

/// A trial in which rank 1 does not come to the barrier that rank 0 waits in, and the flight records say so.
fn flight_record(name: &'static str, kind: &'static str) -> Trial {
    Trial::test(name, move || -> Result<(), Failed> {
        let folder = tempfile::tempdir()?;
        let case = Case::new("parity", "fault")
            .with("kind", kind)
            .with("timeout_secs", 2)
            .with("records", folder.path().display());
        let end = Job::new(case, 2).ends_within(2 * END_LIMIT).run()?;
        let report = Report::read(folder.path())?;
        let late = report
            .late
            .first()
            .ok_or_else(|| format!("no rank is late\n{}", end.output))?;
        let facts = [
            (report.culprits == [1], "rank 1 is the culprit"),
            (
                report.late.len() == 1 && late.waiting.iter().eq([0]),
                "rank 0 waits for it",
            ),
            (late.awaited.operation == "barrier", "in a barrier"),
            (late.awaited.sequence == Some(2), "with its number"),
            (
                late.awaited.called_at.starts_with("tests/parity/cases/faults.rs:"),
                "and its line",
            ),
            (
                late.late[0].has_record == (kind == "asked_for_records"),
                "a stopped rank writes nothing",
            ),
        ];
        for (holds, fact) in facts {
            if !holds {
                return Err(format!("not so: {fact}\n{report}\n{}", end.output).into());
            }
        }
        Ok(())
    })
}

/// A trial in which a training rank kills itself: the launcher names it, everybody ends, nothing is left.
fn killed_rank(job: Job, tensor: usize, ranks: usize, killed: usize) -> Trial {
    let name = format!("killed_rank_{killed}_of_{ranks}_ends_training_at_tensor_size_{tensor}");
    Trial::test(name, move || -> Result<(), Failed> {
        let end = job.ends_within(3 * END_LIMIT).run()?;
        let first = format!("rank {killed} (pid ");
        let facts = [
            (
                end.code == 128 + libc::SIGKILL,
                "the launcher's exit code is the signal's",
            ),
            (end.output.contains(&first), "the launcher names the rank"),
            (end.output.contains("killed by signal 9 (SIGKILL)"), "and how it ended"),
            (end.duration < END_LIMIT, "the job ends in time"),
            (!anything_left(&end.output), "no process is left"),
        ];
        for (holds, fact) in facts {
            if !holds {
                return Err(format!("not so: {fact} ({:?})\n{}", end.duration, end.output).into());
            }
        }
        Ok(())
    })
}

/// Whether a process whose number the ranks printed is still there.
fn anything_left(output: &str) -> bool {
    output
        .lines()
        .filter_map(|line| line.split_once("my pid is ")?.1.trim().parse::<i32>().ok())
        // SAFETY: signal 0 only asks whether the process exists.
        .any(|pid| unsafe { libc::kill(pid, 0) } == 0)
}

/// What a rank does before it joins.
pub fn before_join(case: &Case) -> anyhow::Result<()> {
    let rank = std::env::var("RANK").unwrap_or_default();
    match (case.setting::<String>("kind").as_deref(), rank.as_str()) {
        (Ok("late_rank"), "1") => std::thread::sleep(Duration::from_millis(1500)),
        (Ok("absent_rank"), "1") => std::thread::sleep(Duration::from_secs(8)),
        _ => {}
    }
    Ok(())
}

/// Changes who a rank believes to be.
pub fn change_environment(case: &Case, environment: &mut Environment) {
    if matches!(case.setting::<String>("kind").as_deref(), Ok("wrong_token")) && environment.rank == 1 {
        environment.job_token = Some(JobToken::from_text("not the token of this job"));
    }
}

pub fn run(case: &Case, world: &World) -> anyhow::Result<()> {
    let kind: String = case.setting("kind")?;
    let group = || {
        let ranks: Vec<usize> = (0..world.world_size()).collect();
        ProcessGroup::connect(world, "world", &ranks, &GroupConfig::new())
    };
    match kind.as_str() {
        "straggler" => {
            let context = ParallelContextConfig::new(ParallelConfig::new())
                .with_seed(problem::SEED)
                .init(world)?;
            let (before, started) = (context.time_blocked(), Instant::now());
            for _ in 0..5 {
                std::thread::sleep(Duration::from_millis(if world.rank() == 1 { 80 } else { 20 }));
                let pending = context.data_group().all_reduce_start(vec![1.0f32; 10], ReduceOp::Sum);
                context.world_group().barrier()?;
                pending.wait()?;
            }
            let waiting = context.time_blocked() - before;
            let compute = started.elapsed().saturating_sub(waiting);
            let report = StragglerReport::gather(RankTime { compute, waiting }, 0.5, context.world_group())?;
            ensure!(report.slowest() == Some(1), "{report}");
            let waited = |rank: usize| report.ranks()[rank].waiting;
            ensure!(
                waited(0) > Duration::from_millis(200) && waited(2) > Duration::from_millis(200),
                "{report}"
            );
        }
        "asked_for_records" => {
            let group = group()?;
            group.barrier()?;
            group.all_reduce(&mut [1.0f32; 3], ReduceOp::Sum)?;
            if world.rank() == 1 {
                // While rank 0 waits below, both are asked.
                std::thread::sleep(Duration::from_millis(300));
                for pid in [
                    world.store().wait("pid", world.timeout())?,
                    std::process::id().to_le_bytes().to_vec(),
                ] {
                    let pid = i32::from_le_bytes(pid.try_into().unwrap_or_default());
                    // SAFETY: asks rank 0 and this process, which both handle the signal.
                    unsafe { libc::kill(pid, libc::SIGUSR1) };
                }
                std::thread::sleep(Duration::from_millis(300));
                world.leave();
                std::process::exit(0);
            }
            world.store().set("pid", &std::process::id().to_le_bytes())?;
            // Ends before rank 1 is missed: a failure would replace the record that the signal asked for.
            let here = world.clone();
            let end = std::thread::spawn(move || {
                std::thread::sleep(Duration::from_millis(1200));
                here.leave();
                std::process::exit(0)
            });
            group.barrier()?;
            drop(end);
        }
        "out_of_memory" => {
            if world.rank() == 1 {
                explain_failed_allocations("the test needs less".to_owned());
                std::hint::black_box(vec![0u8; 1 << 61]);
            }
            group()?.barrier()?;
        }
        "stopped_rank" | "sleeping_rank" => {
            let group = group()?;
            if kind == "sleeping_rank" || case.setting::<String>("records").is_ok() {
                group.barrier()?;
                group.all_reduce(&mut [1.0f32; 3], ReduceOp::Sum)?;
            }
            if world.rank() == 1 {
                hang(&kind);
            }
            group.barrier()?;
        }
        // Each rank waits for the next one; the last hangs. The first begins to wait before the others, and so is the
        // first whose time is over.
        "stopped_rank_behind_others" | "sleeping_rank_behind_others" => {
            let last = world.world_size() - 1;
            let pair = |first: usize| ProcessGroup::connect(world, "pair", &[first, first + 1], &GroupConfig::new());
            let below = (world.rank() > 0).then(|| pair(world.rank() - 1)).transpose()?;
            let above = (world.rank() < last).then(|| pair(world.rank())).transpose()?;
            std::thread::sleep(Duration::from_millis(500) * world.rank() as u32);
            match above {
                Some(above) => above.barrier()?,
                None => hang(&kind),
            }
            below.map_or(Ok(()), |below| below.barrier())?;
        }
        "other_operation" => {
            let group = group()?;
            match world.rank() {
                1 => group.all_gather(&[1.0f32], &mut [0.0; 2])?,
                _ => group.all_reduce(&mut [1.0f32; 3], ReduceOp::Sum)?,
            }
        }
        "killed_in_shared_reduction" => killed_in_shared_reduction(world, group()?)?,
        "other_length" => {
            let mut buffer = vec![1.0f32; 3 + world.rank()];
            group()?.all_reduce(&mut buffer, ReduceOp::Sum)?;
        }
        "late_rank" => group()?.barrier()?,
        "bad_layout" => {
            let config = ParallelConfig {
                tensor_parallel_size: 2,
                ..ParallelConfig::default()
            };
            config.init(world)?;
        }
        "killed" | "not_finite" | "panic" | "other_samples" => train(case, world, &kind)?,
        // The rendezvous has failed before this.
        other => anyhow::bail!("rank {} got as far as {other}", world.rank()),
    }
    Ok(())
}

/// Rank 1 dies while both reduce a buffer whose pages are yet to be mapped, which takes some tenths of a second.
fn killed_in_shared_reduction(world: &World, group: ProcessGroup) -> anyhow::Result<()> {
    const LENGTH: usize = 64 << 20;
    let mut other = group.allocate::<f32>(100_000)?;
    other.fill(1.0);
    group.all_reduce_shared(&mut other, ReduceOp::Sum)?;
    let mut buffer = group.allocate::<f32>(LENGTH)?;
    group.barrier()?;
    if world.rank() == 1 {
        let pending = group.all_reduce_shared_start(buffer, ReduceOp::Sum);
        std::thread::sleep(Duration::from_millis(20));
        ensure!(!pending.is_done(), "too late to die in the call");
        // SAFETY: kills this very process.
        unsafe { libc::raise(libc::SIGKILL) };
        return Ok(());
    }
    let result = group.all_reduce_shared(&mut buffer, ReduceOp::Sum);
    let Err(error) = result else {
        anyhow::bail!("the reduction completed without rank 1");
    };
    ensure!(buffer.is_empty(), "{buffer:?} is not lost: {error}");
    drop(group);
    ensure!(other.iter().all(|&value| value == 2.0), "the other buffer has changed");
    drop(other);
    let maps = std::fs::read_to_string("/proc/self/maps")?;
    ensure!(!maps.contains("burn-megatron-buffer"), "memory is left");
    println!("rank 0: the buffer is lost, the other is whole, the group's memory is unmapped");
    Err(error.into())
}

/// Stops this process, or only this thread, so that its heartbeats continue.
fn hang(kind: &str) {
    if kind.starts_with("sleeping") {
        std::thread::sleep(Duration::from_secs(30))
    } else {
        // SAFETY: stops this very process.
        unsafe { libc::raise(libc::SIGSTOP) };
    }
}

/// Trains until the fault, which is in step 2 or 3, and no further than step 50.
fn train(case: &Case, world: &World, kind: &str) -> anyhow::Result<()> {
    println!("my pid is {}", std::process::id());
    let config = ParallelConfig {
        tensor_parallel_size: case.setting("tensor")?,
        ..ParallelConfig::default()
    };
    let victim = case.setting::<usize>("victim").unwrap_or(1);
    let context = ParallelContextConfig::new(config)
        .with_seed(problem::SEED)
        .init(world)?;
    let variant = Variant::USUAL;
    let mut trainer = problem::trainer(variant, 50, &problem::Stages::one_chunk(), &context)?;
    let data = context.coordinates().data;
    let data_size = context.grid().data_parallel_size();
    for step in 0..50 {
        let other = match kind {
            "other_samples" => world.rank() as u64,
            _ => 0,
        };
        let mut micro_batches = problem::micro_batches(step + other, data, data_size);
        if let ("not_finite", 1, Some(mask)) = (kind, step, &mut micro_batches[0].loss_mask) {
            mask[0] = f32::NAN;
        }
        if step == 2 && world.rank() == victim {
            match kind {
                // SAFETY: kills this very process.
                "killed" => drop(unsafe { libc::raise(libc::SIGKILL) }),
                "panic" => panic!("out of cheese"),
                _ => {}
            }
        }
        trainer.step(&micro_batches)?;
    }
    ensure!(kind.is_empty(), "training continued after the fault");
    Ok(())
}
