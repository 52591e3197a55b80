//! The trials: which cases are played by how many ranks, and how each must end.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;

use cuda_emulator::{Host, environment, library_folder};
use libtest_mimic::{Failed, Trial};
use parking_lot::{Condvar, Mutex};
use tempfile::TempDir;
use tests::processes::send;

use crate::devices::nccl::endings::PAUSED;
use crate::devices::nccl::{ON_GPU, RANKS, chunks, many, memory};
use tests::job::{Ended, Job, expect};

/// The call that somebody does not come to.
const REDUCTION: &str = "all_reduce sum of 42 f32";
/// Lets calls of NCCL return before they are done.
const IN_PROGRESS: &str = "CUDA_EMULATOR_IN_PROGRESS";
/// The most seconds that the load of a kernel waits for what runs on the GPU; 0 lets it not wait.
const WAIT_LIMIT: &str = "CUDA_EMULATOR_WAIT_LIMIT_S";
/// Cases whose kernels are loaded while receives have been posted ahead, or much else runs.
const LOADED_MEANWHILE: &[&str] = &["transfers", "busy", "room"];
/// Trials of what only the emulator shows, next to [`add_emulated`]'s.
const EMULATED: &[&str] = &[
    "chunks_for_which_cublaslt_has_no_kernel_are_multiplied",
    "kernels_that_wait_for_other_ranks_leave_room",
    "ranks_that_see_one_gpu_each_communicate",
];
/// How long the drop of a group may take: for what is on its way, for the ends of communicators, for lanes, and for
/// this machine.
const DROP_LIMIT: f64 = 5.0 + 2.0 + 1.0 + 2.0;
/// Lets NCCL take several ranks on one GPU, from 2.30 on.
const SHARED_GPUS: &str = "NCCL_MULTI_RANK_GPU_ENABLE";
/// What a process that must not find NVIDIA's libraries gets.
const NOWHERE: &str = "/nonexistent";

/// A case's ranks, and what must come of them.
type Body = fn(usize) -> Result<(), Failed>;

/// How much a trial asks of the machine. None of NCCL's runs next to one of another kind.
#[derive(Clone, Copy, PartialEq)]
enum Load {
    /// It has the cores alone, and compiles the kernels, which takes longer than others may wait.
    Computes,
    /// It mostly sleeps, and its own time is measured.
    Sleeps,
    /// It mostly waits for a time limit, and for ranks to be ended after it.
    Waits,
}

/// Who has come, in turn, and who is in.
struct Gate {
    came: usize,
    entered: usize,
    running: Vec<Load>,
}

impl Load {
    /// Runs a trial after those that came before it, when those of other kinds have ended.
    fn run<T>(self, trial: impl FnOnce() -> T) -> T {
        static GATE: Mutex<Gate> = Mutex::new(Gate {
            came: 0,
            entered: 0,
            running: Vec::new(),
        });
        static CHANGED: Condvar = Condvar::new();
        let mut gate = GATE.lock();
        let turn = gate.came;
        gate.came += 1;
        let must_wait = |load: &Load| *load != self || self == Load::Computes;
        CHANGED.wait_while(&mut gate, |gate| {
            gate.entered != turn || gate.running.iter().any(must_wait)
        });
        gate.entered += 1;
        gate.running.push(self);
        drop(gate);
        CHANGED.notify_all();
        let result = catch_unwind(AssertUnwindSafe(trial));
        GATE.lock().running.pop();
        CHANGED.notify_all();
        result.unwrap_or_else(|panic| resume_unwind(panic))
    }
}

/// Makes trials.
struct Trials {
    /// Why nothing can run, if so.
    lacks: Option<String>,
    made: Vec<Trial>,
}

impl Trials {
    fn add(&mut self, load: Load, name: &str, ranks: usize, body: Body) {
        // NCCL takes two on one GPU at most.
        let most = if takes_shared_gpus() { 2 } else { 1 };
        let is_ignored = self.lacks.is_some() || (is_on_gpu() && (ranks > most || EMULATED.contains(&name)));
        let test = move || load.run(|| body(ranks));
        self.made.push(Trial::test(name, test).with_ignored_flag(is_ignored));
    }
}

pub fn trials() -> Vec<Trial> {
    let lacks = match (is_on_gpu(), Host::find()) {
        (true, _) | (false, Ok(_)) => None,
        (false, Err(error)) => Some(error.to_string()),
    };
    if let Some(reason) = &lacks {
        eprintln!("all trials of NCCL are ignored: {reason}");
    }
    let mut trials = Trials {
        lacks,
        made: Vec::new(),
    };
    // Those that compute come first: they also compile the kernels, which takes longer than the others may wait.
    add_operations(&mut trials);
    add_products_and_refusals(&mut trials);
    add_endings(&mut trials);
    trials.made
}

fn add_operations(trials: &mut Trials) {
    for ranks in 1..=3 {
        for (case, body) in [
            ("operations", (|ranks| plays_well("operations", ranks)) as Body),
            ("order", |ranks| plays_well("order", ranks)),
            ("empty", |ranks| plays_well("empty", ranks)),
        ] {
            trials.add(Load::Computes, &format!("{case}_on_{ranks}_ranks"), ranks, body);
        }
    }
    let transfers: Body = |ranks| plays_well("transfers", ranks);
    trials.add(Load::Computes, "transfers_both_ways_on_2_ranks", 2, transfers);
    trials.add(Load::Computes, "transfers_both_ways_on_3_ranks", 3, transfers);
    if is_on_gpu() {
        return;
    }
    add_emulated(trials);
    for (case, body) in [
        ("operations", (|ranks| plays_in_progress("operations", ranks)) as Body),
        ("order", |ranks| plays_in_progress("order", ranks)),
        ("transfers", |ranks| plays_in_progress("transfers", ranks)),
        ("chunks", |ranks| plays_in_progress("chunks", ranks)),
    ] {
        trials.add(Load::Computes, &format!("{case}_of_calls_in_progress"), 3, body);
    }
}

/// What only the emulator shows: it can be slow, and waits where a GPU may.
fn add_emulated(trials: &mut Trials) {
    for (name, ranks, body) in [
        ("a_pipeline_loads_its_kernels_on_2_ranks", 2, pipeline as Body),
        ("a_pipeline_loads_its_kernels_on_3_ranks", 3, pipeline),
        ("a_fast_stage_waits_for_a_slow_one_in_evaluation", 2, |ranks| {
            plays_well("evaluation", ranks)
        }),
        ("groups_of_32_ranks_connect_in_one_round", many::RANKS, |ranks| {
            plays_well("all_groups", ranks)
        }),
        ("a_placed_model_trains_as_on_one_rank", 2, |ranks| {
            plays_well("placed", ranks)
        }),
        ("chunks_are_right_with_slow_calls", 2, |ranks| {
            play("chunks", ranks, &[("CUDA_EMULATOR_NCCL_US", "3000")])?.expect_code(0)
        }),
    ] {
        trials.add(Load::Computes, name, ranks, body);
    }
}

/// A rank that waits for another at the load of a kernel, and the other for it, ends soon, and says so.
fn pipeline(ranks: usize) -> Result<(), Failed> {
    play("pipeline", ranks, &[(WAIT_LIMIT, "60")])?.expect_code(0)
}

fn add_products_and_refusals(trials: &mut Trials) {
    let products: Body = |ranks| plays_well("products", ranks);
    let chunks: Body = |ranks| plays_well("chunks", ranks);
    for (name, ranks, body) in [
        ("gradients_are_added_up_as_products_on_1_rank", 1, products),
        ("gradients_are_added_up_as_products_on_2_ranks", 2, products),
        ("chunks_are_multiplied_where_they_belong_on_2_ranks", 2, chunks),
        ("chunks_are_multiplied_where_they_belong_on_3_ranks", 3, chunks),
        ("chunks_for_which_cublaslt_has_no_kernel_are_multiplied", 2, |ranks| {
            // Of two chunks of three rows, of nine columns of 16 bits, one begins at such an address.
            let ended = play("chunks", ranks, &[("CUDA_EMULATOR_CUBLASLT_ALIGNMENT", "4")])?;
            ended.expect_code(0)?;
            ended.expect_line("cuBLASLt has no kernel for ")
        }),
        ("ranks_that_multiply_in_other_ways_are_named", 3, |ranks| {
            plays_well("other_products", ranks)
        }),
        ("ranks_on_one_gpu_are_refused", 2, ranks_on_one_gpu),
        ("ranks_on_one_gpu_communicate_where_nccl_takes_them", 2, |ranks| {
            let shared = [(SHARED_GPUS, "1"), ("NCCL_MAX_CTAS", "4")];
            let (_libraries, job) = start_on(1, "operations", ranks, &shared)?;
            job.end()?.expect_code(0)
        }),
        ("ranks_that_see_one_gpu_each_communicate", 2, |ranks| {
            plays_well("one_visible", ranks)
        }),
        (
            "nccl_connects_over_the_interface_that_was_asked_for",
            2,
            interface_is_passed_on,
        ),
    ] {
        trials.add(Load::Computes, name, ranks, body);
    }
    // A driver, and with it perhaps NCCL, in the system's folders would be found.
    if !is_on_gpu() && !std::fs::exists("/dev/nvidiactl").unwrap_or(false) {
        trials.add(Load::Computes, "a_missing_library_is_named", 2, missing_library);
    }
}

fn add_endings(trials: &mut Trials) {
    if !is_on_gpu() {
        for (name, ranks, body) in [
            (
                "memory_does_not_depend_on_how_slow_nccl_is",
                2,
                (|ranks: usize| play("slow", ranks, &[("CUDA_EMULATOR_NCCL_US", memory::SLOW)])?.expect_code(0))
                    as Body,
            ),
            ("a_forward_pass_begins_while_parameters_are_gathered", 2, |ranks| {
                play("gather", ranks, &[("CUDA_EMULATOR_NCCL_US", memory::SLOW)])?.expect_code(0)
            }),
            ("chunks_are_communicated_while_others_are_multiplied", 2, |ranks| {
                let slow = ["CUDA_EMULATOR_NCCL_US", "CUDA_EMULATOR_CUBLASLT_US"];
                play("slow_chunks", ranks, &slow.map(|name| (name, chunks::SLOW)))?.expect_code(0)
            }),
        ] {
            trials.add(Load::Sleeps, name, ranks, body);
        }
    }
    // NVIDIA's NCCL takes two on one GPU.
    let ranks = if is_on_gpu() { 2 } else { 3 };
    for (name, ranks, body) in [
        ("a_killed_rank_is_named", ranks, killed_rank_is_named as Body),
        ("a_group_with_a_call_in_nccl_is_dropped_soon", 2, drop_in_a_call),
    ] {
        trials.add(Load::Sleeps, name, ranks, body);
    }
    for (name, ranks, body) in [
        (
            "a_late_rank_is_named_by_all",
            3,
            (|ranks| rank_is_late("late", 2, ranks, REDUCTION)) as Body,
        ),
        ("a_rank_that_never_connects_is_named_by_all", ranks, |ranks| {
            rank_is_late("absent", 1, ranks, REDUCTION)
        }),
        ("a_rank_whose_gpu_is_late_is_named_by_all", 3, |ranks| {
            rank_is_late("busy", 0, ranks, REDUCTION)
        }),
        ("a_rank_that_does_not_receive_is_named", 2, |ranks| {
            rank_is_late("never_received", 1, ranks, "send of 385 f32 to rank 1 (call 0)")
        }),
        ("calls_that_do_not_fit_are_a_timeout_that_says_so", 2, calls_do_not_fit),
        ("a_message_that_is_never_sent_is_a_timeout", 2, message_is_never_sent),
        ("a_receive_ahead_of_its_time_is_not_late", 2, |ranks| {
            plays_well("ahead", ranks)
        }),
        ("kernels_that_wait_for_other_ranks_leave_room", 2, kernels_leave_room),
        ("a_rank_that_leaves_is_named_over_shared_memory", 3, |ranks| {
            rank_leaves(ranks, "shared-memory")
        }),
        ("a_rank_that_leaves_is_named_over_tcp", 3, |ranks| {
            rank_leaves(ranks, "tcp")
        }),
    ] {
        trials.add(Load::Waits, name, ranks, body);
    }
}

fn takes_shared_gpus() -> bool {
    std::env::var(SHARED_GPUS).is_ok_and(|value| value == "1")
}

fn is_on_gpu() -> bool {
    std::env::var(ON_GPU).is_ok_and(|value| value == "1")
}

/// Starts the ranks of a case on `gpus` GPUs.
fn start(
    case: &str,
    ranks: usize,
    gpus: usize,
    libraries: Option<&Path>,
    more: &[(&str, &str)],
) -> Result<Job, Failed> {
    let (ranks, gpus) = (ranks.to_string(), gpus.to_string());
    let mut variables = vec![
        (RANKS, ranks.as_str()),
        ("CUDA_EMULATOR_DEVICES", &gpus),
        // A wait between streams that is missing shows as old or poisoned numbers.
        ("CUDA_EMULATOR_JITTER_US", "300"),
    ];
    let paths = libraries.map(environment);
    let paths = paths.iter().flatten();
    variables.extend(paths.filter_map(|(name, value)| Some((*name, value.to_str()?))));
    if LOADED_MEANWHILE.contains(&case) {
        variables.push((WAIT_LIMIT, "0"));
    }
    variables.extend(more);
    Ok(Job::start_with("nccl", case, &variables)?)
}

fn play(case: &str, ranks: usize, more: &[(&str, &str)]) -> Result<Ended, Failed> {
    let (_libraries, job) = start_on(ranks, case, ranks, more)?;
    job.end()
}

/// Starts the ranks of a case on GPUs of the emulator, whose libraries stay as long as their folder, or of NVIDIA.
fn start_on(gpus: usize, case: &str, ranks: usize, more: &[(&str, &str)]) -> Result<(Option<TempDir>, Job), Failed> {
    let folder = if is_on_gpu() { None } else { Some(library_folder()?) };
    let job = start(case, ranks, gpus, folder.as_ref().map(|folder| folder.path()), more)?;
    Ok((folder, job))
}

fn plays_well(case: &str, ranks: usize) -> Result<(), Failed> {
    let ended = play(case, ranks, &[])?;
    ended.expect_code(0)?;
    // One line for each communicator of each rank, with what it is.
    let communicators = match (case, ranks) {
        // To and from each neighbour.
        ("transfers", 2) => 4,
        ("transfers", _) => 12,
        ("operations" | "order", _) => ranks,
        ("all_groups", _) => many::COMMUNICATORS,
        _ => return Ok(()),
    };
    let lines = ended.stdout.lines().filter(|line| line.contains(PAUSED));
    let whole = lines.filter(|line| {
        ["version=", "ranks=", "rank=", "device="]
            .iter()
            .all(|field| line.contains(field))
    });
    expect(whole.count() == communicators, &ended.stdout)
}

/// The same where NCCL's calls return before they are done.
fn plays_in_progress(case: &str, ranks: usize) -> Result<(), Failed> {
    play(case, ranks, &[(IN_PROGRESS, "1")])?.expect_code(0)
}

fn killed_rank_is_named(ranks: usize) -> Result<(), Failed> {
    let (_libraries, job) = start_on(ranks, "for_ever", ranks, &[])?;
    job.wait_until_ready(ranks)?;
    send(job.pid("pid-1")?, libc::SIGKILL);
    let ended = job.end()?;
    expect(!ended.status.success(), "the job fails")?;
    ended.expect_line("rank 1")?;
    // The calls of the other ranks have ended, and each rank names the cause.
    for rank in (0..ranks).filter(|&rank| rank != 1) {
        let line = ended.line_of(rank)?;
        expect(
            line.contains("because rank 1 on host ") && line.contains("all_reduce sum of 42 f32"),
            line,
        )?;
    }
    Ok(())
}

/// One rank does not come, and no rank names another one, which only waits for it.
fn rank_is_late(case: &str, late: usize, ranks: usize, call: &str) -> Result<(), Failed> {
    let ended = play(case, ranks, &[])?;
    expect(!ended.status.success(), "the job fails")?;
    let said = |rank: usize, what: &str| {
        let beginning = format!("rank {rank} {what}");
        let line = ended.stdout.lines().find(|line| line.contains(&beginning));
        line.ok_or_else(|| {
            format!(
                "rank {rank} does not say that it {what}:\n{}\n{}",
                ended.stdout, ended.stderr
            )
        })
    };
    let mut lines = vec![said(late, "hears that rank ")?];
    for rank in (0..ranks).filter(|&rank| rank != late) {
        lines.push(ended.line_of(rank)?);
        let stops = said(rank, "stops: ")?;
        let is_told =
            stops.contains("timed out after 10 s") || stops.contains(&format!("because rank {late} on host "));
        expect(is_told && stops.contains(call), stops)?;
    }
    for line in lines {
        let names = |rank: usize| ["because", "that"].map(|word| line.contains(&format!("{word} rank {rank} ")));
        for rank in 0..ranks {
            expect(names(rank).contains(&true) == (rank == late), line)?;
        }
        expect(line.contains("did not come to ") || line.contains("is late: "), line)?;
    }
    // The launcher's own summary has the whole text.
    let first = ended.line(") failed first: ")?;
    expect(first.contains("did not come to "), first)?;
    expect(first.contains(&format!("] rank {late} (pid ")), first)
}

fn calls_do_not_fit(ranks: usize) -> Result<(), Failed> {
    let ended = play("mismatch", ranks, &[])?;
    expect(!ended.status.success(), "the job fails")?;
    let line = ended.line("it waits itself, and for ranks that wait: the calls of these ranks may not fit together")?;
    let names_both = ["all_reduce sum of 10 f32", "all_reduce sum of 12 f32"];
    expect(names_both.iter().all(|call| line.contains(call)), line)
}

fn message_is_never_sent(ranks: usize) -> Result<(), Failed> {
    let ended = play("never_sent", ranks, &[])?;
    let line = ended.stdout.lines().find(|line| line.contains("rank 0 stops: "));
    let line = line.ok_or_else(|| format!("rank 0 does not time out:\n{}", ended.stderr))?;
    expect(
        line.contains("recv of 385 f32 from rank 1 (call 1)") && line.contains("timed out after 10 s"),
        line,
    )?;
    expect(line.contains("still missing: ranks [1]"), line)?;
    expect(
        ended.stdout.contains("rank 1 hears that rank 1 on host "),
        &ended.stdout,
    )
}

/// With the blocks that NCCL takes by itself receives that are posted ahead leave none to a reduction, and two of
/// these none to each other.
fn kernels_leave_room(ranks: usize) -> Result<(), Failed> {
    play("room", ranks, &[])?.expect_code(0)?;
    let sizes = [("NCCL_MAX_CTAS", "32"), ("CUDA_EMULATOR_MULTIPROCESSORS", "40")];
    for (more, room) in [(sizes[0], 108), (sizes[1], 40)] {
        let ended = play("room", ranks, &[more])?;
        expect(!ended.status.success(), "the job fails")?;
        let said = format!("{}{}", ended.stdout, ended.stderr);
        let is_late = ["waited 10 s for it", "timed out after 10 s"]
            .iter()
            .any(|late| said.contains(late));
        expect(is_late, &said)?;
        let warning = format!("multiprocessors at once, and the GPU has {room}");
        expect(said.contains(&warning), &said)?;
    }
    Ok(())
}

fn rank_leaves(ranks: usize, engine: &str) -> Result<(), Failed> {
    let ended = play("leaves", ranks, &[("BURN_MEGATRON_ENGINE", engine)])?;
    expect(!ended.status.success(), "the job fails")?;
    expect(
        ended.stdout.contains("rank 1 hears that rank 1 on host "),
        &ended.stdout,
    )?;
    let is_told = |line: &&str| line.contains("rank 1 gave the group up: it was dropped there");
    expect(ended.stdout.lines().any(|line| is_told(&line)), &ended.stdout)?;
    for rank in (0..ranks).filter(|&rank| rank != 1) {
        let line = ended.line_of(rank)?;
        expect(line.contains("because rank 1 on host "), line)?;
        let waits = format!("rank {rank} waits for ");
        let seconds = ended.stdout.lines().find_map(|line| line.split_once(&waits));
        let seconds = seconds.and_then(|(_, rest)| rest.split(' ').next()?.parse::<u64>().ok());
        expect(seconds.is_some_and(|seconds| seconds < 20), &ended.stdout)?;
    }
    Ok(())
}

fn drop_in_a_call(ranks: usize) -> Result<(), Failed> {
    let ended = play("drop", ranks, &[(IN_PROGRESS, "1")])?;
    ended.expect_code(0)?;
    for line in ["rank 0 is in its call", "rank 1 has not received"] {
        expect(ended.stdout.contains(line), &ended.stdout)?;
    }
    let drops = ended
        .stdout
        .lines()
        .find_map(|line| line.split_once("rank 0 drops its group in "));
    let seconds = drops.and_then(|(_, rest)| rest.split(' ').next()?.parse::<f64>().ok());
    expect(seconds.is_some_and(|seconds| seconds < DROP_LIMIT), &ended.stdout)
}

fn ranks_on_one_gpu(ranks: usize) -> Result<(), Failed> {
    let (_libraries, job) = start_on(1, "shared_gpu", ranks, &[(SHARED_GPUS, "0")])?;
    let ended = job.end()?;
    ended.expect_code(0)?;
    for rank in 0..ranks {
        let line = format!("rank {rank} is refused: ranks 0 and 1 compute on the same GPU, GPU-");
        expect(ended.stdout.contains(&line), &ended.stdout)?;
    }
    // Without that check NCCL refuses them itself.
    let refused = ended.stdout.matches("NCCL cannot connect").count();
    expect(refused == ranks, &ended.stdout)
}

/// Variables for NCCL and CUDA are set, unless they are.
fn interface_is_passed_on(ranks: usize) -> Result<(), Failed> {
    let asked = ("BURN_MEGATRON_INTERFACE", "127.0.0.0/8");
    for (more, expected) in [(&[asked][..], "=lo"), (&[asked, ("NCCL_SOCKET_IFNAME", "ib0")], "ib0")] {
        let ended = play("interface", ranks, more)?;
        ended.expect_code(0)?;
        for rank in 0..ranks {
            let connections = std::env::var("CUDA_DEVICE_MAX_CONNECTIONS").unwrap_or_else(|_| "32".to_owned());
            for line in [
                format!("connects over Ok({expected:?})"),
                r#"has NCCL_RUNTIME_CONNECT=Ok("0")"#.to_owned(),
                format!("has CUDA_DEVICE_MAX_CONNECTIONS=Ok({connections:?})"),
            ] {
                expect(ended.stdout.contains(&format!("rank {rank} {line}")), &ended.stdout)?;
            }
        }
    }
    Ok(())
}

fn missing_library(ranks: usize) -> Result<(), Failed> {
    let folder = library_folder()?;
    for name in ["libnccl.so", "libnccl.so.2"] {
        std::fs::remove_file(folder.path().join(name))?;
    }
    let ended = start("missing", ranks, ranks, Some(folder.path()), &[])?.end()?;
    ended.expect_code(0)?;
    let refused = ended
        .stdout
        .matches("no NCCL, over which GPUs communicate: none of libnccl.so.2, libnccl.so")
        .count();
    expect(refused == ranks, &ended.stdout)?;
    // One rank that lacks it stops all.
    let job = Job::start_with("nccl", "missing", &[(RANKS, "2"), ("LD_LIBRARY_PATH", NOWHERE)])?;
    expect(
        job.end()?.stdout.contains("no CUDA driver"),
        "without a driver it says so",
    )?;
    Ok(())
}
