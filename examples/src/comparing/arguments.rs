//! The command line: `--layouts`, `--output`, and the flags of training with this program's own defaults.

use std::path::PathBuf;

use clap::builder::ArgPredicate;
use clap::{Arg, Args, Command, CommandFactory, FromArgMatches, Parser};

use crate::arguments::{
    AdapterArguments, CheckpointArguments, CommunicationArguments, DataArguments, DeepSpeedArguments, DeviceArguments,
    Dtype, LoggingArguments, ModelArguments, MonitoringArguments, OffloadArguments, OptimizationArguments,
    ParallelArguments, PrecisionArguments, RecomputeArguments, StageArguments, TrainingArguments,
};
use crate::layout::Layout;

/// Defaults that differ from those of `pretrain_gpt`: settings that hide nothing (constant learning rate, dropout), and
/// a model of odd sizes, small enough for seconds per layout. 4 ranks divide the heads, the tokens of a micro-batch and
/// the micro-batches of a step.
const DEFAULTS: [(&str, &str); 16] = [
    // Two stages of two chunks, or four stages, divide them.
    ("num_layers", "4"),
    ("hidden_size", "96"),
    ("num_attention_heads", "4"),
    ("seq_length", "52"),
    // Attention is far from uniform, so that the gradients of queries and keys count.
    ("init_method_std", "0.1"),
    ("hidden_dropout", "0.1"),
    ("attention_dropout", "0.1"),
    ("data_limit", "256KiB"),
    ("micro_batch_size", "3"),
    ("global_batch_size", "12"),
    ("train_iters", "20"),
    ("lr", "1e-3"),
    ("min_lr", "0"),
    ("lr_decay_style", "constant"),
    ("lr_warmup_iters", "0"),
    // Many buckets.
    ("ddp_bucket_size", "50000"),
];

/// The ones of the defaults above that a `--model-size`, or the model of `--load`, replaces.
const SIZES: [&str; 4] = ["num_layers", "hidden_size", "num_attention_heads", "seq_length"];

/// Train the bundled GPT on one rank and in every layout asked for, and compare.
///
/// All runs start from the same bits, see the same samples and drop the same elements, so whatever the layout, they
/// must compute the same: the loss, every gradient and every parameter after every step are compared with those of the
/// one-rank run. Biases and norms start with random values, since zeros hide errors, or as they are in --load.
///
/// The flags of pipeline stages are for the layouts with ppN. Those of recomputation are for every layout, and never
/// for the one-rank run, so that they are put to the test as well: --layouts tp1 tests them on one rank.
///
/// Prints one table, and writes comparison.csv, losses.csv, losses.svg and table.svg to the output folder. Each step's
/// gradients and parameters are in the folder for temporary files (TMPDIR) meanwhile: 16 bytes per parameter, rank and
/// step, of the one-rank run and of one layout at a time.
///
/// Exit code: 0 when parity holds in every layout, 1 when it is broken, 2 when a run could not be made.
#[derive(Parser)]
#[command(name = "compare_sharding")]
pub struct Arguments {
    /// Layouts to compare with one rank: tpN for N tensor-parallel ranks, with sp for sequence parallelism, ppN for N
    /// pipeline stages, with vN for N chunks each, dpN for N data-parallel ranks, or several in one, as in
    /// tp2sp-pp2-dp2
    #[arg(
        long,
        value_name = "LAYOUT,...",
        value_delimiter = ',',
        default_value = "tp2,tp2sp,dp2,tp2dp2"
    )]
    pub layouts: Vec<Layout>,
    /// Begin with the parameters of the latest checkpoint in this folder, or of this checkpoint, in place of new ones
    #[arg(long, value_name = "DIR")]
    pub load: Option<PathBuf>,
    /// Folder for the table and the pictures
    #[arg(long, value_name = "DIR", default_value = "compare_sharding")]
    pub output: PathBuf,
    #[command(flatten)]
    communication: CommunicationArguments,
    #[command(flatten)]
    stages: StageArguments,
    #[command(flatten)]
    model: ModelArguments,
    #[command(flatten)]
    pub precision: PrecisionArguments,
    #[command(flatten)]
    pub device: DeviceArguments,
    #[command(flatten)]
    data: DataArguments,
    #[command(flatten)]
    optimization: OptimizationArguments,
    #[command(flatten)]
    pub worker: WorkerArguments,
}

/// What the process run by hand tells the ranks that it starts.
#[derive(Args, Clone, Debug)]
pub struct WorkerArguments {
    /// The layout that this rank is part of
    #[arg(long, hide = true, requires = "worker_folder")]
    pub worker_layout: Option<Layout>,
    /// This rank is the one that the layouts are compared with
    #[arg(long, hide = true, requires = "worker_layout")]
    pub worker_reference: bool,
    /// Where recordings go
    #[arg(long, hide = true)]
    pub worker_folder: Option<PathBuf>,
    /// Tell of every step, for a person who watches
    #[arg(long, hide = true)]
    pub worker_live: bool,
}

impl Arguments {
    /// Parses this process's command line; exits when it is wrong, or asks for help.
    pub fn parse_command_line() -> Self {
        let command = command();
        let parsed = Self::from_arg_matches(&command.clone().get_matches());
        parsed.unwrap_or_else(|error| error.format(&mut command.clone()).exit())
    }

    /// The arguments of the one-rank run that the layouts are compared with: without recomputation, with fused kernels.
    pub fn reference(&self) -> TrainingArguments {
        let training = self.training(&Layout::ONE_RANK);
        TrainingArguments {
            model: ModelArguments {
                recompute: RecomputeArguments::default(),
                ..training.model
            },
            device: DeviceArguments {
                no_fused_kernels: false,
                ..training.device
            },
            ..training
        }
    }

    /// Checks that the flags of pipeline stages have a layout that they are for.
    ///
    /// # Errors
    /// When no layout has stages, with the flags.
    pub fn validate_stages(&self) -> anyhow::Result<()> {
        self.stages.check_layouts(&self.layouts)
    }

    /// Checks that runs in this element type can be compared.
    ///
    /// # Errors
    /// When it has 16 bits, whose rounding hides faults.
    pub fn validate_precision(&self) -> anyhow::Result<()> {
        anyhow::ensure!(
            matches!(self.precision.dtype(), Dtype::F32 | Dtype::F64),
            "layouts are compared in f32 or f64 (--dtype f64 is the sharpest): what 16 bits round away would hide a \
             fault"
        );
        Ok(())
    }

    /// The arguments of a run in one layout.
    pub fn training(&self, layout: &Layout) -> TrainingArguments {
        TrainingArguments {
            parallel: ParallelArguments::of_layout(layout, &self.stages, &self.communication),
            model: self.model.clone(),
            data: self.data.clone(),
            optimization: self.optimization.clone(),
            offload: OffloadArguments::default(),
            precision: self.precision.clone(),
            device: self.device.clone(),
            checkpoints: CheckpointArguments {
                load: self.load.clone(),
                finetune: self.load.is_some(),
                ..CheckpointArguments::default()
            },
            adapters: AdapterArguments::default(),
            // Replicas are compared with the one-rank run after every step, all of them.
            logging: LoggingArguments {
                log_interval: 1,
                profile_step_start: 1,
                ..LoggingArguments::default()
            },
            monitoring: MonitoringArguments::default(),
            deepspeed: DeepSpeedArguments::default(),
        }
    }
}

/// The command with this program's defaults.
fn command() -> Command {
    DEFAULTS.into_iter().fold(Arguments::command(), |command, (id, value)| {
        command.mut_arg(id, |arg| with_default(arg, value))
    })
}

fn with_default(arg: Arg, value: &'static str) -> Arg {
    // Where a flag of `pretrain_gpt` has a default that depends on others, its help says so in words.
    let help = arg.get_help().map(|help| help.to_string()).unwrap_or_default();
    let help = help.split(" [default: ").next().unwrap_or_default().to_owned();
    let replaced_by: &[&str] = match arg.get_id().as_str() {
        id if SIZES.contains(&id) => &["model_size", "load"],
        "train_iters" => &["train_samples"],
        "lr_warmup_iters" => &["train_samples", "lr_warmup_fraction"],
        _ => &[],
    };
    let replaced = replaced_by.iter().map(|id| (*id, ArgPredicate::IsPresent, None));
    arg.help(help).default_value(value).default_value_ifs(replaced)
}

#[cfg(test)]
mod tests {
    use models::layers::LayerRecompute;

    use super::*;

    fn parse(line: &str) -> Arguments {
        let matches = command().try_get_matches_from(line.split(' ')).expect(line);
        Arguments::from_arg_matches(&matches).expect(line)
    }

    #[test]
    fn the_command_line_is_consistent() {
        command().debug_assert();
    }

    #[test]
    fn every_layout_of_up_to_four_ranks_fits_the_defaults() {
        let arguments = parse(
            "compare_sharding --layouts tp2,tp2sp,tp4,tp4sp,dp2,dp4,tp2dp2,tp2spdp2,tp4spdp4,pp2,pp4,pp2v2,tp2sppp2dp2",
        );
        assert_eq!(arguments.layouts.len(), 13);
        for layout in &arguments.layouts {
            arguments.training(layout).validate().expect("fits");
        }
    }

    #[test]
    fn one_rank_is_compared_with_without_recomputation() {
        for flags in ["full", "full --recompute-method block --recompute-num-layers 3"] {
            let arguments = parse(&format!(
                "compare_sharding --layouts tp1 --recompute-granularity {flags}"
            ));
            let recomputes = |training: TrainingArguments| {
                training.validate().expect("fits");
                let model = training.model.config(None, 257).expect("a family");
                model.layer_recompute() != LayerRecompute::Nothing
            };
            assert!(!recomputes(arguments.reference()), "{flags}");
            assert!(recomputes(arguments.training(&arguments.layouts[0])), "{flags}");
        }
    }

    #[test]
    fn flags_of_stages_without_stages_are_refused() {
        let validate = |line: &str| {
            let arguments = parse(&format!("compare_sharding {line}"));
            arguments.validate_stages().map_err(|error| error.to_string())
        };
        assert_eq!(validate("--layouts tp2,dp2"), Ok(()));
        assert_eq!(validate("--layouts tp2,pp2 --pipeline-schedule gpipe"), Ok(()));
        for flag in [
            "--pipeline-schedule gpipe",
            "--microbatch-group-size-per-virtual-pipeline-stage 2",
            "--pipeline-model-parallel-layout Et|tL",
            "--decoder-first-pipeline-num-layers 1",
            "--decoder-last-pipeline-num-layers 1",
        ] {
            let error = validate(&format!("--layouts tp2,dp2 {flag}")).unwrap_err();
            let name = flag.split(' ').next().unwrap_or_default();
            assert!(
                error.starts_with(name) && error.ends_with("got --layouts tp2,dp2"),
                "{error}"
            );
        }
    }

    #[test]
    fn a_preset_replaces_the_default_sizes() {
        let arguments = parse("compare_sharding --model-size gpt2-124m --num-layers 2");
        let sizes = |arguments: &Arguments| {
            let model = arguments
                .training(&Layout::ONE_RANK)
                .model
                .config(None, 257)
                .expect("a family");
            (model.n_layers(), model.d_model(), model.max_seq_length())
        };
        assert_eq!(sizes(&arguments), (2, 768, 1024));
        assert_eq!(sizes(&parse("compare_sharding")), (4, 96, 52));
    }

    #[test]
    fn samples_replace_the_default_steps() {
        let num_steps = |flags: &str| {
            let arguments = parse(&format!("compare_sharding --layouts dp2{flags}"));
            let training = arguments.training(&arguments.layouts[0]);
            training.validate().expect("fits");
            training.optimization.num_steps().expect("fits")
        };
        assert_eq!(num_steps(""), 20);
        assert_eq!(num_steps(" --train-samples 36"), 3);
        assert_eq!(num_steps(" --train-samples 42"), 3);
        // One step of 6, then three full ones.
        assert_eq!(num_steps(" --train-samples 42 --rampup-batch-size 6 6 6"), 4);
        assert_eq!(num_steps(" --lr-warmup-fraction 0.5"), 20);
    }

    #[test]
    fn layouts_that_do_not_fit_are_refused_with_neighbours() {
        let arguments = parse("compare_sharding --layouts tp3,dp5");
        let messages = arguments.layouts.iter().map(|layout| {
            let error = arguments.training(layout).validate().expect_err("does not fit");
            error.to_string()
        });
        let messages: Vec<String> = messages.collect();
        assert!(messages[0].contains("nearest valid values are 3 and 6"), "{messages:?}");
        assert!(messages[1].contains("nearest valid sizes are 15"), "{messages:?}");
    }
}
