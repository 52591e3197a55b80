//! What the launcher and the ranks of each case do.

use std::error::Error;
use std::fs;
use std::path::PathBuf;
use std::thread::sleep;

use burn::tensor::{Bytes, DType};
use burn_megatron::checkpoint::{ArrayPart, Checkpoint, CheckpointConfig, CheckpointError, CheckpointWriter};
use burn_megatron::collectives::{GroupConfig, ProcessGroup, ReduceOp};
use burn_megatron::launch::{Environment, JoinConfig, Launcher, World, install_panic_hook, report_and_exit};
use burn_megatron::parameters::Placement;
use serde_json::json;

use crate::checkpoint::{DIRECTORY, FIRST, LONG, RANKS, arrays, number};
use tests::job::{launch, note};

type Outcome = Result<(), Box<dyn Error>>;

pub fn act_as_launcher() -> ! {
    launch(Launcher::new(number(RANKS)))
}

pub fn act_as_rank(case: &str, environment: &Environment) {
    note(&format!("pid-{}", environment.rank), std::process::id());
    let world = match World::join(environment, &JoinConfig::new().with_all_timeouts(LONG)) {
        Ok(world) => world,
        Err(error) => panic!("{error}"),
    };
    install_panic_hook(&world);
    if let Err(error) = play(case, &world) {
        report_and_exit(&world, &*error);
    }
}

fn play(case: &str, world: &World) -> Outcome {
    match case {
        "save" => save(world),
        "load" => {
            let checkpoint = Checkpoint::latest(directory())?.ok_or("there is a checkpoint")?;
            Ok(arrays::check(&checkpoint, world.rank(), world.world_size())?)
        }
        "background" => save_during_training(world),
        "too_large" => too_large(world),
        "no_space" => no_space(world),
        "disagree" => disagree(world),
        "hold" => {
            let _writer = writer(world)?;
            note(&format!("ready-{}", world.rank()), "");
            sleep(LONG);
            Ok(())
        }
        "refused" => {
            report(world, writer(world).err());
            Ok(())
        }
        "begins_early" => begins_early(world),
        "two_folders" => {
            let directory = directory().join(world.rank().to_string());
            fs::create_dir(&directory)?;
            let parts = arrays::parts(world.rank(), world.world_size(), 20);
            report(world, writer_at(directory, world)?.save(20, parts, json!(null)).err());
            Ok(())
        }
        "not_writable" => {
            // Root may write everywhere.
            // SAFETY: the call takes a number and touches no memory of this process.
            unsafe { libc::setuid(65534) };
            report(world, writer(world).err());
            Ok(())
        }
        "save_for_ever" => save_for_ever(world),
        _ => Err(format!("no case {case:?}").into()),
    }
}

fn directory() -> PathBuf {
    PathBuf::from(std::env::var_os(DIRECTORY).expect("the test sets it"))
}

fn writer(world: &World) -> Result<CheckpointWriter, Box<dyn Error>> {
    writer_at(directory(), world)
}

fn writer_at(directory: PathBuf, world: &World) -> Result<CheckpointWriter, Box<dyn Error>> {
    let ranks: Vec<usize> = (0..world.world_size()).collect();
    let group = ProcessGroup::connect(world, "checkpoint", &ranks, &GroupConfig::new())?;
    let options = CheckpointConfig {
        keep: Some(3),
        layout: json!({ "tensor": world.world_size() }),
        ..CheckpointConfig::new()
    };
    Ok(CheckpointWriter::new(group, directory, options)?)
}

fn save(world: &World) -> Outcome {
    let parts = arrays::parts(world.rank(), world.world_size(), 20);
    // Only the state of rank 0 counts.
    Ok(writer(world)?.save(20, parts, json!({ "of rank": world.rank() }))?)
}

/// Saves four times while the ranks sum numbers in a group of their own.
fn save_during_training(world: &World) -> Outcome {
    let (rank, count) = (world.rank(), world.world_size());
    let ranks: Vec<usize> = (0..count).collect();
    let training = ProcessGroup::connect(world, "training", &ranks, &GroupConfig::new())?;
    let mut writer = writer(world)?;
    for iteration in 1..=4 {
        writer.save_start(iteration, arrays::parts(rank, count, iteration), json!(null))?;
        for _ in 0..50 {
            let mut sum = [1.0_f32; 1000];
            training.all_reduce(&mut sum, ReduceOp::Sum)?;
            if sum != [count as f32; 1000] {
                return Err("the sums of training are wrong".into());
            }
        }
    }
    Ok(writer.wait()?)
}

/// The files of rank 1 are limited; then no longer.
fn too_large(world: &World) -> Outcome {
    let (rank, count) = (world.rank(), world.world_size());
    let mut writer = writer(world)?;
    writer.save(10, arrays::parts(rank, count, 10), json!(null))?;
    let limit = |bytes: libc::rlim_t| {
        let mut limits = libc::rlimit {
            rlim_cur: 0,
            rlim_max: 0,
        };
        // SAFETY: both calls read or fill the structure, which lives until they return; a signal that is ignored runs
        // no code.
        let done = unsafe {
            libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
            libc::getrlimit(libc::RLIMIT_FSIZE, &raw mut limits);
            limits.rlim_cur = bytes.min(limits.rlim_max);
            libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limits)
        };
        assert_eq!(done, 0, "the limit cannot be set");
    };
    if rank == 1 {
        limit(100_000);
    }
    let parts = |iteration| {
        let mut parts = arrays::parts(rank, count, iteration);
        parts.push(arrays::large_part(rank, count, 10 << 20));
        parts
    };
    report(world, writer.save(20, parts(20), json!(null)).err());
    writer.save_start(20, parts(20), json!(null))?;
    report(world, writer.wait().err());
    limit(libc::RLIM_INFINITY);
    Ok(writer.save(30, parts(30), json!(null))?)
}

/// The folder has room for 4 MiB.
fn no_space(world: &World) -> Outcome {
    let (rank, count) = (world.rank(), world.world_size());
    let mut writer = writer(world)?;
    writer.save(10, arrays::parts(rank, count, 10), json!(null))?;
    let parts = || {
        let mut parts = arrays::parts(rank, count, 20);
        parts.push(arrays::large_part(rank, count, 3 << 20));
        parts
    };
    report(world, writer.save(20, parts(), json!(null)).err());
    // The outcome of this save is not asked for: the last save is still made.
    writer.save_start(20, parts(), json!(null))?;
    Ok(writer.save(30, arrays::parts(rank, count, 30), json!(null))?)
}

/// A run that begins at the beginning, in a folder that has a later checkpoint.
fn begins_early(world: &World) -> Outcome {
    let (rank, count) = (world.rank(), world.world_size());
    let mut writer = writer(world)?;
    writer.save(40, arrays::parts(rank, count, 40), json!(null))?;
    report(world, writer.begin_at(0).err());
    Ok(())
}

/// Arrays on which ranks 0 and 1 do not agree, each in a save of its own.
fn disagree(world: &World) -> Outcome {
    let rank = world.rank();
    let mut writer = writer(world)?;
    let part = |placement: Placement, dtype: DType| {
        let data = Bytes::from_bytes_vec(vec![0; placement.local_len() * dtype.size()]);
        ArrayPart::whole("model.array", placement, dtype, data)
    };
    let saves = [
        part(Placement::whole([4, 2]), DType::F32),
        part(Placement::shard(&[4, 2], 0, rank, 4), DType::F32),
        part(Placement::shard(&[4 + 4 * rank, 2], 0, rank, 2), DType::F32),
        part(Placement::shard(&[4, 2], 0, rank, 2), [DType::F32, DType::F64][rank]),
    ];
    for part in saves {
        report(world, writer.save(20, vec![part], json!(null)).err());
    }
    match writer.save(20 + rank as u64, Vec::new(), json!(null)) {
        // Each rank names the iteration that it wanted to save.
        Err(CheckpointError::Save { cause, .. }) => report(world, Some(cause)),
        other => report(world, other.err()),
    }
    Ok(())
}

/// Saves every iteration from the first on, each three times, and says so after each save.
fn save_for_ever(world: &World) -> Outcome {
    let (rank, count) = (world.rank(), world.world_size());
    let first = number(FIRST) as u64;
    let mut writer = writer(world)?;
    for iteration in first.. {
        for _ in 0..3 {
            let parts = arrays::parts(rank, count, iteration);
            writer.save(iteration, parts, json!({ "first": first }))?;
            if rank == 0 {
                note("saved", iteration);
            }
            note(&format!("ready-{rank}"), "");
        }
    }
    Ok(())
}

/// Prints what this rank was refused, in a line of its own.
fn report(world: &World, error: Option<impl std::fmt::Display>) {
    let error = error.map_or_else(|| "nothing".to_owned(), |error| error.to_string());
    println!("rank {} is refused: {error}", world.rank());
}
