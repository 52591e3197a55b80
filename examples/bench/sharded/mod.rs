//! Measures a plain burn model that is placed by a plan, against the same model without, and against the layers of
//! `burn_megatron::tensor_parallel`.
//!
//! ```text
//! cargo run --release --example bench -- sharded
//! cargo run --release --example bench -- sharded --layouts tp2,tp2sp --rounds 20 --json
//! cargo run --release --example bench -- sharded --models fused,fused-placed,fused-wrapped
//! ```
//!
//! On one rank: `PlainGpt` on `Flex`, on `Sharded<Flex>` without a mesh and with a mesh of one rank, and the
//! bundled GPT. In each layout of two ranks: `PlainGpt` by plan, the same in `DistributedDataParallel`, and the bundled
//! GPT, of burn's operations and of fused ones; and `FusedGpt`, a model of fused operations, by plan. All have the same
//! sizes, tokens and AdamW. The ranks have one model of each kind and take a step of each in turn; machines drift, so a
//! step is compared with that of the reference in the same round. Medians are printed, and that of the ratios of the
//! first rank's processor time, which other work on the machine changes less.
//!
//! Memory is measured before that, with one model at a time: the most bytes that were allocated in its second step.
//!
//! [`job`] is what a rank does, [`subject`] the models.

mod job;
mod plain;
mod subject;

use anyhow::{Context as _, ensure};
use burn_megatron::launch::{JoinConfig, Launcher};
use burn_megatron::training::memory::keep_freed_memory;
use clap::{Args, ValueEnum};
use examples::launching::{refuse_launcher, run_own_rank};

use crate::measure::count;
use crate::ranks;
use crate::sizes::{Sizes, random_samples};
use crate::table::{Row, table};
use subject::Kind;

/// Measure a model that a plan makes parallel
#[derive(Args)]
pub struct Arguments {
    /// Layouts to measure
    #[arg(
        long,
        value_enum,
        value_name = "LAYOUT,...",
        value_delimiter = ',',
        default_value = "one,tp2,tp2sp,dp2,fsdp2"
    )]
    layouts: Vec<Layout>,
    /// Models to measure in each layout that has them [default: all]; the first of a layout's is its reference
    #[arg(long, value_enum, value_name = "MODEL,...", value_delimiter = ',')]
    models: Vec<Kind>,
    /// Rounds, each a step of every model
    #[arg(long, value_name = "N", default_value_t = 15, value_parser = count())]
    rounds: usize,
    /// Print a JSON object per row instead of the table
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    problem: Problem,
}

/// Sizes of the model and of a step.
#[derive(Args, Clone, Debug)]
struct Problem {
    #[command(flatten)]
    sizes: Sizes,
    /// Samples per step, over all ranks
    #[arg(long, value_name = "N", default_value_t = 4)]
    global_batch_size: usize,
}

impl Problem {
    /// Returns the random samples of a step.
    fn samples(&self, step: usize) -> Vec<i32> {
        let Sizes {
            seq_length, vocab_size, ..
        } = self.sizes;
        random_samples(step as u64, self.global_batch_size, seq_length, vocab_size)
    }
}

/// Layouts of the ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Layout {
    /// One rank
    One,
    /// Two tensor-parallel ranks
    Tp2,
    /// The same with sequence parallelism
    Tp2sp,
    /// Two data-parallel ranks
    Dp2,
    /// The same with parameters, gradients and moments cut; with explicit layers only the moments are
    Fsdp2,
}

impl Layout {
    fn world_size(self) -> usize {
        if self == Layout::One { 1 } else { 2 }
    }

    fn tensor_parallel_size(self) -> usize {
        if matches!(self, Layout::Tp2 | Layout::Tp2sp) {
            2
        } else {
            1
        }
    }

    /// Returns the models that are measured; the first is the reference.
    ///
    /// # Errors
    /// When the flags leave none.
    fn kinds(self, arguments: &Arguments) -> anyhow::Result<Vec<Kind>> {
        let all = match self {
            // The last tells what of a difference in the other layouts is the model's.
            Layout::One => [
                Kind::Plain,
                Kind::Unplaced,
                Kind::Placed,
                Kind::Explicit,
                Kind::Fused,
                Kind::FusedPlaced,
            ],
            _ => [
                Kind::Explicit,
                Kind::Placed,
                Kind::Wrapped,
                Kind::Fused,
                Kind::FusedPlaced,
                Kind::FusedWrapped,
            ],
        };
        let models = &arguments.models;
        let mut kinds = all.to_vec();
        kinds.retain(|kind| models.is_empty() || models.contains(kind));
        ensure!(
            !kinds.is_empty(),
            "no model of {models:?} is measured in this layout, which has {all:?}"
        );
        Ok(kinds)
    }
}

/// Runs every layout and prints its rows; or measures as a rank of one.
pub fn run(arguments: &Arguments) -> anyhow::Result<()> {
    keep_freed_memory();
    if let Some((layout, log)) = ranks::part() {
        let layout = Layout::from_str(&layout, false).map_err(anyhow::Error::msg)?;
        return run_own_rank(ranks::PART, &JoinConfig::default(), |world| {
            job::run(world, layout, arguments, &log)
        });
    }
    refuse_launcher("bench sharded")?;
    if !arguments.json {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        println!("medians of {} rounds on {cores} cores", arguments.rounds);
    }
    for &layout in &arguments.layouts {
        layout.kinds(arguments)?;
        let name = layout.to_possible_value().context("no layout is hidden")?;
        let rows: Vec<Row> = ranks::launch(Launcher::new(layout.world_size()), name.get_name())?;
        if arguments.json {
            rows.iter().for_each(|row| println!("{}", row.json()));
        } else {
            println!("{}", table(&rows));
        }
    }
    Ok(())
}
