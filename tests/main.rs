//! The tests that need processes of ranks or of programs, each folder a room or several: `cargo test -p tests --test
//! tests`, those of one room with its name in brackets, `-- '[parity]'`.
//!
//! The program starts itself again: as the launcher of a case, as each of its ranks, or as what else a trial needs.

mod architecture;
mod checkpoint;
mod devices;
mod faults;
mod launch;
mod parity;

use std::alloc::System;
use std::process::ExitCode;

use burn_megatron::launch::Environment;
use burn_megatron::training::memory::CountingAllocator;
use checkpoint::resuming;
use devices::nccl;
// For what it has instantiated for each family of models, which is then compiled once.
use examples as _;
use faults::{kill_storm, storm};
use launch::{adapters, families, from_text, generation, imported, launcher, launchers, serving};
use libtest_mimic::{Arguments, Trial};
use parity::{evaluation, existing_model, learner, lessons, sharded_models};
use tests::{harness, job, sharpest};

/// Some cases are about what ranks have allocated.
#[global_allocator]
static ALLOCATOR: CountingAllocator<System> = CountingAllocator(System);

/// A room's name and trials.
type Room = (&'static str, fn() -> Vec<Trial>);

/// The rooms, and how many of their trials run at once.
const PARTS: [(&[Room], usize); 4] = [
    // They mostly wait for limits of seconds, which ranks that start on a full machine would miss.
    (&[("nccl", nccl::trials)], 4),
    (
        &[
            ("launcher", launcher::trials),
            ("launchers", launchers::trials),
            ("fault_storm", || vec![storm::trial()]),
            ("parity", parity::cases::timed),
        ],
        4,
    ),
    // They have threads that spin while they wait for each other.
    (&[("devices", devices::trials)], 2),
    // They compute, and wait now and then.
    (
        &[
            ("parity", parity::cases::trials),
            ("sharded_models", sharded_models::cases::trials),
            ("learner", learner::cases::trials),
            ("lessons", lessons::trials),
            ("evaluation", evaluation::trials),
            ("existing_model", existing_model::trials),
            ("families", families::trials),
            ("generation", generation::trials),
            ("adapters", adapters::trials),
            ("imported", imported::trials),
            ("from_text", from_text::trials),
            ("serving", serving::trials),
            ("checkpoint", checkpoint::trials),
            ("resuming", resuming::trials),
            ("kill_storm", || vec![kill_storm::trial()]),
            ("architecture", architecture::trials),
        ],
        2,
    ),
];

fn main() -> ExitCode {
    if let Some(done) = act() {
        return done;
    }
    match blow() {
        Ok(Some(done)) => done,
        Ok(None) => run(),
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(2)
        }
    }
}

/// Is what a trial has started this program for, if one has.
fn act() -> Option<ExitCode> {
    if let Some(case) = harness::case() {
        let ranks = match case.room.as_str() {
            "learner" => learner::RANKS,
            "sharded_models" => sharded_models::RANKS,
            _ => parity::RANKS,
        };
        return Some(harness::act(&case, ranks));
    }
    if let Some((room, case)) = job::case() {
        let environment = Environment::detect().unwrap_or_else(|error| panic!("{error}"));
        match (room.as_str(), &environment) {
            ("nccl", None) => nccl::ranks::act_as_launcher(),
            ("nccl", Some(environment)) => nccl::ranks::act_as_rank(&case, environment),
            ("checkpoint", None) => checkpoint::ranks::act_as_launcher(),
            ("checkpoint", Some(environment)) => checkpoint::ranks::act_as_rank(&case, environment),
            _ if case.starts_with(launcher::running::PREFIX) => return Some(launcher::running::play(&case)),
            (_, None) => launcher::roles::act_as_launcher(&case),
            (_, Some(environment)) => launcher::roles::act_as_rank(&case, environment),
        }
        return Some(ExitCode::SUCCESS);
    }
    if devices::lost_work::is_asked_for() {
        devices::lost_work::train();
        return Some(ExitCode::SUCCESS);
    }
    storm::play()
}

/// Runs the storm that the first argument names, if flags of a storm follow it.
fn blow() -> anyhow::Result<Option<ExitCode>> {
    match std::env::args().nth(1).as_deref() {
        Some("fault_storm") => storm::blow(),
        Some("kill_storm") => kill_storm::blow(),
        _ => Ok(None),
    }
}

/// Runs the trials.
fn run() -> ExitCode {
    let arguments = Arguments::from_args();
    let mut parts = PARTS.map(|(rooms, at_once)| {
        let mut trials = in_turn(rooms, arguments.filter.as_deref());
        trials.retain(|trial| !arguments.is_filtered_out(trial));
        (trials, at_once)
    });
    let are_all_empty = parts.iter().all(|(trials, _)| trials.is_empty());
    let mut done = ExitCode::SUCCESS;
    for (trials, at_once) in &mut parts {
        if trials.is_empty() && !are_all_empty {
            continue;
        }
        let mut arguments = arguments.clone();
        arguments.test_threads.get_or_insert(*at_once);
        let conclusion = libtest_mimic::run(&arguments, std::mem::take(trials));
        if conclusion.has_failed() {
            done = conclusion.exit_code();
        }
    }
    done
}

/// Returns the trials of rooms, one of each at a time: what one room does alone is done while others wait.
fn in_turn(rooms: &[Room], filter: Option<&str>) -> Vec<Trial> {
    // Some rooms look for programs and devices.
    let may_match = |(room, _): &&Room| {
        let asked = filter.and_then(|filter| filter.strip_prefix('['));
        asked.is_none_or(|asked| asked.starts_with(room) || room.starts_with(asked))
    };
    let of_room = |&(room, trials): &Room| {
        let of_kind = move |trial: Trial| trial.with_kind(room);
        sharpest(trials()).into_iter().map(of_kind)
    };
    let mut rooms: Vec<_> = rooms.iter().filter(may_match).map(of_room).collect();
    let mut trials = Vec::new();
    loop {
        let before = trials.len();
        trials.extend(rooms.iter_mut().filter_map(Iterator::next));
        if trials.len() == before {
            return trials;
        }
    }
}
