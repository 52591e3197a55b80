//! Measures saving against the disk, in turn with plain writes of the same size, and saving during training, in turn
//! with training that does not save.
//!
//! ```text
//! cargo run --release --example bench -- checkpoint --directory /data/scratch
//! cargo run --release --example bench -- checkpoint --num-layers 2 --rounds 2 --interval 5   # smaller, sooner
//! ```
//!
//! Data-parallel ranks share out the parameters and moments of a GPT, as a sharded optimizer does, and train it on
//! random tokens. Every figure is a JSON line of rank 0; the last two lines have the medians. Machines drift, so a
//! figure is compared with those of its own run.
//!
//! [`job`] is the model and its steps, [`disk`] the plain writes.

mod disk;
mod job;

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::Context as _;
use burn_megatron::checkpoint::{CheckpointConfig, CheckpointWriter};
use burn_megatron::collectives::{GroupConfig, ProcessGroup, ReduceOp};
use burn_megatron::launch::{self, JoinConfig, Launcher, Prefix, Role, World, report_and_exit};
use burn_megatron::training::memory::keep_freed_memory;
use clap::Args;
use clap::builder::PossibleValuesParser;
use examples::figures::median;
use examples::launching::show_warnings;
use models::gpt::GptPreset;
use serde_json::{Value, json};

use crate::measure::{count, in_turn};
use crate::table::Row;
use disk::Way;
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
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = count())]
    world_size: usize,
    /// How often everything is measured
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = count())]
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
    let launcher = Launcher::new(arguments.world_size).prefix(Prefix::AllButRankZero);
    match launch::enter(launcher, &JoinConfig::new())? {
        Role::Launched(summary) => Ok(summary.into()),
        Role::Rank(world) => {
            let measured = measure(arguments, &world).map(|()| ExitCode::SUCCESS);
            measured.or_else(|error| report_and_exit(&world, error.as_ref()))
        }
    }
}

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
        let own: usize = self.job.snapshot()?.iter().map(|part| part.data.len()).sum();
        let mut total = [own as i64];
        self.ranks.all_reduce(&mut total, ReduceOp::Sum)?;
        let (own, total) = (own as u64, total[0] as u64);
        let of_one = if self.ranks.rank() == 0 { total } else { 0 };
        let rate = |seconds: f64| total as f64 / seconds / 1e6;
        let noise = disk::noise()?;
        let ways = [
            ("cached_one", Some((Way::Cached, of_one))),
            ("cached_all", Some((Way::Cached, own))),
            ("direct_one", Some((Way::Direct, of_one))),
            ("direct_all", Some((Way::Direct, own))),
            ("save", None),
        ];
        // Each comes first in turn: earlier writes may make a disk slow, or memory scarce.
        let measured = in_turn(rounds, ways.len(), |round, number| {
            let (what, way) = ways[number];
            let (seconds, snapshot) = match way {
                Some((way, bytes)) => (self.time_plain(way, &noise, bytes)?, f64::NAN),
                None => self.time_save()?,
            };
            let row = Row::default().number("round", round as f64).text("what", what);
            let row = row.number("bytes", total as f64).number("seconds", seconds);
            let row = row.number("mb_per_s", rate(seconds)).seconds("snapshot", snapshot);
            self.print(&row.json());
            Ok(row)
        })?;
        let medians: Vec<Row> = measured.iter().map(|rounds| Row::median(rounds)).collect();
        let [cached_one, _, direct_one, _, save] = [0, 1, 2, 3, 4].map(|way: usize| medians[way].value("seconds"));
        let plain = medians[..4].iter().map(|way| way.value("seconds"));
        let fastest = plain.fold(f64::INFINITY, f64::min);
        let mut row = Row::default()
            .text("medians_of", "saving")
            .number("parameters", self.job.num_parameters() as f64)
            .number("ranks", self.ranks.size() as f64)
            .number("rounds", rounds as f64)
            .number("bytes", total as f64);
        for ((what, _), median) in ways.iter().zip(&medians) {
            row = row.number(&format!("{what}_mb_per_s"), rate(median.value("seconds")));
        }
        let row = row
            .seconds("save", save)
            .seconds("snapshot", medians[4].value("snapshot"))
            .number("ratio_to_fastest", fastest / save)
            .number("ratio_to_cached_one", cached_one / save)
            .number("ratio_to_direct_one", direct_one / save);
        self.print(&row.json());
        Ok(())
    }

    /// Returns the time of a save and, in it, of the copy of parameters and moments.
    fn time_save(&mut self) -> anyhow::Result<(f64, f64)> {
        self.settle()?;
        let begun = Instant::now();
        let parts = self.job.snapshot()?;
        let snapshot = begun.elapsed().as_secs_f64();
        self.saves += 1;
        self.writer.save(self.saves, parts, Value::Null)?;
        let seconds = begun.elapsed().as_secs_f64();
        self.remove_saved()?;
        Ok((seconds, snapshot))
    }

    /// Trains `interval` steps without a save and `interval` steps during a save, in turn.
    fn beside_training(&mut self, rounds: usize, interval: usize) -> anyhow::Result<()> {
        let mut rows = Vec::new();
        for round in 1..=rounds {
            self.settle()?;
            let (alone, _) = self.steps(interval)?;
            self.settle()?;
            let begun = Instant::now();
            let parts = self.job.snapshot()?;
            self.saves += 1;
            self.writer.save_start(self.saves, parts, Value::Null)?;
            let blocked = begun.elapsed().as_secs_f64();
            let (with_save, num_during) = self.steps(interval)?;
            let waiting = Instant::now();
            self.writer.wait()?;
            let waited = waiting.elapsed().as_secs_f64();
            self.remove_saved()?;
            let [total_alone, total_with] = [&alone, &with_save].map(|steps| steps.iter().sum::<f64>());
            let (during, after) = with_save.split_at(num_during);
            let step_alone = median(alone.clone());
            let slow_down = total_with - total_alone;
            // Without what drifts from one half of the round to the other.
            let excess: f64 = during.iter().map(|seconds| seconds - step_alone).sum();
            let row = Row::default()
                .number("step_seconds_alone", step_alone)
                .number("total_seconds_alone", total_alone)
                .number("total_seconds_with_save", blocked + total_with + waited)
                .seconds("blocked", blocked)
                .seconds("slow_down", slow_down)
                .seconds("waited", waited)
                .number("steps_beside_save", num_during as f64)
                .number("step_seconds_after", median(after.to_vec()))
                .number("seconds_per_save", blocked + waited + excess)
                .number("cost", (blocked + slow_down + waited) / total_alone);
            let mut line = row.json();
            line["round"] = json!(round);
            line["what"] = json!("train");
            line["interval"] = json!(interval);
            line["step_seconds_beside_save"] = json!(during);
            line["all_step_seconds"] = json!([alone, with_save]);
            self.print(&line);
            rows.push(row);
        }
        let median = Row::median(&rows);
        let of = |name: &str| median.value(name);
        self.print(&json!({
            "medians_of": "asynchronous saving", "rounds": rounds, "interval_steps": interval,
            "interval_seconds": of("total_seconds_alone"), "step_seconds": of("step_seconds_alone"),
            "blocked_seconds": of("blocked"), "slow_down_seconds": of("slow_down"), "cost": of("cost"),
            "seconds_per_save": of("seconds_per_save"),
            "cost_by_save": of("seconds_per_save") / of("total_seconds_alone"),
        }));
        Ok(())
    }

    /// Returns the time of a plain write of `bytes` bytes by each rank, until all ranks are done.
    fn time_plain(&self, way: Way, noise: &[u8], bytes: u64) -> anyhow::Result<f64> {
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

    /// Trains some steps; returns their seconds, and how many began before the last save had ended.
    fn steps(&mut self, count: usize) -> anyhow::Result<(Vec<f64>, usize)> {
        let saved = self.saved();
        let (mut seconds, mut num_during) = (Vec::with_capacity(count), 0);
        for _ in 0..count {
            num_during += usize::from(!saved.exists());
            let begun = Instant::now();
            self.job.step()?;
            seconds.push(begun.elapsed().as_secs_f64());
        }
        Ok((seconds, num_during))
    }

    fn print(&self, line: &Value) {
        if self.ranks.rank() == 0 {
            println!("{line}");
        }
    }
}
