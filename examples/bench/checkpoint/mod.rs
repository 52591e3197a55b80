//! Measures saving against the disk, in turn with plain writes of the same size, and saving during training, in turn
//! with training that does not save.
//!
//! ```text
//! cargo run --release --example bench -- checkpoint --directory /data/scratch
//! cargo run --release --example bench -- checkpoint --num-layers 2 --rounds 2 --interval 5   # smaller, sooner
//! ```
//!
//! Data-parallel ranks share out the parameters and moments of a GPT, as a sharded optimizer does, and train it on
//! made-up tokens. Every figure is a JSON line of rank 0; the last two lines have the medians. Machines drift, so a
//! figure is compared with those of its own run.
//!
//! [`job`] is the model and its steps, [`disk`] the plain writes.

mod disk;
mod job;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context as _, ensure};
use burn_megatron::checkpoint::{ArrayPart, CheckpointConfig, CheckpointWriter};
use burn_megatron::collectives::{GroupConfig, ProcessGroup};
use burn_megatron::launch::{self, JoinConfig, Launcher, Prefix, Role, World, report_and_exit};
use burn_megatron::training::memory::keep_freed_memory;
use clap::Args;
use clap::builder::PossibleValuesParser;
use examples::figures::median;
use examples::launching::show_warnings;
use models::gpt::GptPreset;
use serde_json::{Value, json};

use disk::{Noise, Way};
use job::Job;

/// Measure saving against the disk, and during training
#[derive(Args, Debug)]
pub struct Arguments {
    /// The folder, on the disk in question, in which everything is written and removed again [default: one for
    /// temporary files]
    #[arg(long, value_name = "DIR")]
    directory: Option<PathBuf>,
    /// The model
    #[arg(
        long, value_name = "NAME", default_value = "gpt2-124m",
        value_parser = PossibleValuesParser::new(GptPreset::ALL.map(|preset| preset.name))
    )]
    model_size: String,
    /// Layers, for a smaller model [default: those of --model-size]
    #[arg(long, value_name = "N")]
    num_layers: Option<usize>,
    /// Ranks that save together
    #[arg(long, value_name = "N", default_value_t = 2)]
    world_size: usize,
    /// How often everything is measured
    #[arg(long, value_name = "N", default_value_t = 5)]
    rounds: usize,
    /// Steps per asynchronous save; 0 to leave training out
    #[arg(long, value_name = "N", default_value_t = 20)]
    interval: usize,
    /// Tokens per sample
    #[arg(long, value_name = "N", default_value_t = 128)]
    seq_length: usize,
    /// Samples per step on each rank
    #[arg(long, value_name = "N", default_value_t = 1)]
    samples_per_rank: usize,
}

pub fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    keep_freed_memory();
    show_warnings();
    ensure!(
        arguments.rounds > 0 && arguments.world_size > 0,
        "--rounds and --world-size must be at least 1, got {} and {}",
        arguments.rounds,
        arguments.world_size
    );
    let launcher = Launcher::new(arguments.world_size).prefix(Prefix::AllButRankZero);
    match launch::enter(launcher, &JoinConfig::new())? {
        Role::Launched(summary) => Ok(summary.into()),
        Role::Rank(world) => {
            let measured = measure(arguments, &world).map(|()| ExitCode::SUCCESS);
            measured.or_else(|error| report_and_exit(&world, error.as_ref()))
        }
    }
}

/// Measures as one rank.
fn measure(arguments: &Arguments, world: &World) -> anyhow::Result<()> {
    let directory = arguments.directory.clone().unwrap_or_else(std::env::temp_dir);
    let folder = directory.join(format!("bench_checkpoint-{}", world.job_id()));
    let scratch = Scratch(folder.clone());
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let ranks: Vec<usize> = (0..world.world_size()).collect();
    let group = |name: &str| match ranks.len() {
        1 => Ok(ProcessGroup::single()),
        _ => ProcessGroup::connect(world, name, &ranks, &GroupConfig::new()),
    };
    let mut bench = Bench {
        job: Job::new(arguments, world)?,
        writer: CheckpointWriter::new(group("checkpoint")?, folder.join("save"), CheckpointConfig::new())?,
        ranks: group("bench")?,
        folder,
        saves: 0,
    };
    // The optimizer has its moments after the first step.
    bench.job.step()?;
    bench.against_disk(arguments.rounds)?;
    if arguments.interval > 0 {
        bench.beside_training(arguments.rounds, arguments.interval)?;
    }
    bench.ranks.barrier()?;
    drop(scratch);
    Ok(())
}

/// Removes a folder when it is dropped, whichever rank is first.
struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

struct Bench {
    job: Job,
    writer: CheckpointWriter,
    ranks: ProcessGroup,
    folder: PathBuf,
    /// The number of the last save, which is its iteration.
    saves: u64,
}

impl Bench {
    /// Saves in turn with plain writes of the same size, through the page cache and past it, by one rank and by all.
    fn against_disk(&mut self, rounds: usize) -> anyhow::Result<()> {
        let bytes: usize = self.job.snapshot()?.iter().map(|part| part.data.len()).sum();
        let mut total = [bytes as i64];
        self.ranks
            .all_reduce(&mut total, burn_megatron::collectives::ReduceOp::Sum)?;
        let total = total[0] as u64;
        let noise = Noise::new(self.ranks.rank() as u64);
        let of_one = if self.ranks.rank() == 0 { total } else { 0 };
        let mut figures: [Vec<f64>; 6] = Default::default();
        for round in 0..rounds {
            // Each comes first in turn: earlier writes may make a disk slow, or memory scarce.
            for turn in 0..5 {
                let number = (round + turn) % 5;
                let (what, seconds, snapshot) = match number {
                    0 => ("cached_one", self.time_plain(Way::Cached, &noise, of_one)?, None),
                    1 => ("cached_all", self.time_plain(Way::Cached, &noise, bytes as u64)?, None),
                    2 => ("direct_one", self.time_plain(Way::Direct, &noise, of_one)?, None),
                    3 => ("direct_all", self.time_plain(Way::Direct, &noise, bytes as u64)?, None),
                    _ => {
                        let (seconds, snapshot) = self.time_save()?;
                        figures[5].push(snapshot);
                        ("save", seconds, Some(snapshot))
                    }
                };
                figures[number].push(seconds);
                self.print(
                    json!({ "round": round + 1, "what": what, "bytes": total, "seconds": seconds,
                    "mb_per_s": total as f64 / seconds / 1e6, "snapshot_seconds": snapshot }),
                );
            }
        }
        let [cached_one, cached_all, direct_one, direct_all, save, snapshot] = figures.map(median);
        let rate = |seconds: f64| total as f64 / seconds / 1e6;
        let fastest = cached_one.min(cached_all).min(direct_one).min(direct_all);
        self.print(json!({
            "medians_of": "saving", "parameters": self.job.num_parameters(), "ranks": self.ranks.size(),
            "rounds": rounds,
            "bytes": total, "cached_one_mb_per_s": rate(cached_one), "cached_all_mb_per_s": rate(cached_all),
            "direct_one_mb_per_s": rate(direct_one), "direct_all_mb_per_s": rate(direct_all),
            "save_mb_per_s": rate(save),
            "save_seconds": save, "snapshot_seconds": snapshot, "ratio_to_fastest": fastest / save,
            "ratio_to_cached_one": cached_one / save, "ratio_to_direct_one": direct_one / save,
        }));
        Ok(())
    }

    /// The time of a save and, in it, of the copy of parameters and moments.
    fn time_save(&mut self) -> anyhow::Result<(f64, f64)> {
        self.settle()?;
        let begun = Instant::now();
        let parts = self.job.snapshot()?;
        let snapshot = begun.elapsed().as_secs_f64();
        self.save(parts)?;
        let seconds = begun.elapsed().as_secs_f64();
        self.remove_saved()?;
        Ok((seconds, snapshot))
    }

    /// Trains `interval` steps without a save and `interval` steps during a save, in turn.
    fn beside_training(&mut self, rounds: usize, interval: usize) -> anyhow::Result<()> {
        let mut figures: [Vec<f64>; 6] = Default::default();
        for round in 1..=rounds {
            self.settle()?;
            let alone = self.steps(interval)?;
            self.settle()?;
            let begun = Instant::now();
            let parts = self.job.snapshot()?;
            self.saves += 1;
            self.writer.save_start(self.saves, parts, Value::Null)?;
            let blocked = begun.elapsed().as_secs_f64();
            let with_save = self.steps(interval)?;
            let waiting = Instant::now();
            self.writer.wait()?;
            let waited = waiting.elapsed().as_secs_f64();
            self.remove_saved()?;
            let total = |steps: &[Step]| steps.iter().map(|step| step.seconds).sum::<f64>();
            let step_alone = median(alone.iter().map(|step| step.seconds).collect());
            let (during, after): (Vec<&Step>, Vec<&Step>) = with_save.iter().partition(|step| step.is_beside_save);
            let seconds = |steps: &[&Step]| steps.iter().map(|step| step.seconds).collect::<Vec<f64>>();
            let all_steps =
                [&alone, &with_save].map(|steps| steps.iter().map(|step| step.seconds).collect::<Vec<f64>>());
            let slow_down = total(&with_save) - total(&alone);
            let cost = (blocked + slow_down + waited) / total(&alone);
            // Without what drifts from one half of the round to the other.
            let excess: f64 = during.iter().map(|step| step.seconds - step_alone).sum();
            let per_save = blocked + waited + excess;
            self.print(json!({
                "round": round, "what": "train", "interval": interval, "step_seconds_alone": step_alone,
                "total_seconds_alone": total(&alone), "total_seconds_with_save": blocked + total(&with_save) + waited,
                "blocked_seconds": blocked, "waited_seconds": waited, "steps_beside_save": during.len(),
                "step_seconds_beside_save": seconds(&during),
                "all_step_seconds": all_steps,
                "step_seconds_after": median(seconds(&after)),
                "seconds_per_save": per_save, "cost": cost,
            }));
            for (list, figure) in
                figures
                    .iter_mut()
                    .zip([step_alone, blocked, slow_down, total(&alone), cost, per_save])
            {
                list.push(figure);
            }
        }
        let [step, blocked, slow_down, total, cost, per_save] = figures.map(median);
        self.print(json!({
            "medians_of": "asynchronous saving", "rounds": rounds, "interval_steps": interval,
            "interval_seconds": total,
            "step_seconds": step, "blocked_seconds": blocked, "slow_down_seconds": slow_down, "cost": cost,
            "seconds_per_save": per_save, "cost_by_save": per_save / total,
        }));
        Ok(())
    }

    /// Returns the time of a plain write of `bytes` bytes by each rank, until all ranks are done.
    fn time_plain(&self, way: Way, noise: &Noise, bytes: u64) -> anyhow::Result<f64> {
        self.settle()?;
        let path = self.folder.join(format!("plain-{}", self.ranks.rank()));
        let begun = Instant::now();
        if bytes > 0 {
            disk::write(&path, way, noise, bytes)?;
        }
        self.ranks.barrier()?;
        let seconds = begun.elapsed().as_secs_f64();
        if bytes > 0 {
            fs::remove_file(&path).with_context(|| format!("cannot remove {}", path.display()))?;
        }
        Ok(seconds)
    }

    fn save(&mut self, parts: Vec<ArrayPart>) -> anyhow::Result<()> {
        self.saves += 1;
        Ok(self.writer.save(self.saves, parts, Value::Null)?)
    }

    fn saved(&self) -> PathBuf {
        self.folder.join("save").join(format!("iter_{:07}", self.saves))
    }

    fn remove_saved(&self) -> anyhow::Result<()> {
        self.ranks.barrier()?;
        if self.ranks.rank() == 0 {
            let saved = self.saved();
            fs::remove_dir_all(&saved).with_context(|| format!("cannot remove {}", saved.display()))?;
        }
        Ok(())
    }

    /// Lets the disk do what it still has to, of files that were removed for one.
    fn settle(&self) -> anyhow::Result<()> {
        self.ranks.barrier()?;
        if self.ranks.rank() == 0 {
            disk::sync(&self.folder)?;
        }
        Ok(self.ranks.barrier()?)
    }

    fn steps(&mut self, count: usize) -> anyhow::Result<Vec<Step>> {
        let saved = self.saved();
        let mut steps = Vec::with_capacity(count);
        for _ in 0..count {
            let is_beside_save = !Path::exists(&saved);
            let begun = Instant::now();
            self.job.step()?;
            steps.push(Step {
                seconds: begun.elapsed().as_secs_f64(),
                is_beside_save,
            });
        }
        Ok(steps)
    }

    fn print(&self, line: Value) {
        if self.ranks.rank() == 0 {
            println!("{line}");
        }
    }
}

/// The time of one step.
#[derive(Clone, Copy, Debug)]
struct Step {
    seconds: f64,
    /// Whether it began before the last save had ended.
    is_beside_save: bool,
}
