//! Flags of where the optimizer's state, the parameters and activations are, by the names of DeepSpeed and Megatron-LM.

use std::path::PathBuf;

use anyhow::{Context as _, ensure};
use burn_megatron::data_parallel::ParameterOffload;
use burn_megatron::optimizer::OptimizerOffload;
use burn_megatron::pipeline_parallel::LayerLayout;
use clap::{Args, ValueEnum};

use super::stages::check_layers;

/// Where the optimizer's state is and what updates it, and where the parameters and the activations are.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Offload")]
pub struct OffloadArguments {
    /// Hold the optimizer's state, main parameters included, where the parameters are, in host memory (as
    /// --optimizer-cpu-offload), or in a file of each rank in --nvme-path; from the last two the CPU updates it
    #[arg(long, value_enum, value_name = "PLACE")]
    pub offload_optimizer: Option<OffloadPlace>,
    /// With --zero-stage 3, hold each rank's shards of the parameters, while they are not gathered, where the model is,
    /// in host memory, or in a file of each rank in --nvme-path
    #[arg(long, value_enum, value_name = "PLACE")]
    pub offload_param: Option<OffloadPlace>,
    /// The folder of the files of --offload-optimizer nvme and --offload-param nvme, which have no name while the run
    /// lasts, and go with it
    #[arg(long, value_name = "DIR")]
    pub nvme_path: Option<PathBuf>,
    /// The folder of the files of --offload-param nvme, where they have one of their own [default: --nvme-path]
    #[arg(long, value_name = "DIR")]
    pub param_nvme_path: Option<PathBuf>,
    /// Hold the optimizer's state in host memory, and update it there; on CPUs that is so in any case
    #[arg(long)]
    pub optimizer_cpu_offload: bool,
    /// The share of the optimizer's state that is offloaded [default: 1]
    #[arg(long, value_name = "SHARE")]
    pub optimizer_offload_fraction: Option<f64>,
    /// Move activations that layers keep for the backward pass to host memory, and back when it needs them; with
    /// --recompute-granularity full those are the inputs of layers
    #[arg(long)]
    pub cpu_offloading: bool,
    /// The layers whose activations are moved, the first ones of each chunk [default: all]
    #[arg(long, value_name = "N")]
    pub cpu_offloading_num_layers: Option<usize>,
}

/// Where something is, by DeepSpeed's names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum OffloadPlace {
    /// Where the model is.
    None,
    /// In host memory.
    Cpu,
    /// In files.
    Nvme,
}

impl OffloadArguments {
    /// Where the optimizer's state is.
    ///
    /// # Errors
    /// When flags contradict each other, or one lacks another that it needs.
    pub fn config(&self) -> anyhow::Result<OptimizerOffload> {
        ensure!(
            !(self.optimizer_cpu_offload && self.offload_optimizer == Some(OffloadPlace::None)),
            "--optimizer-cpu-offload is --offload-optimizer cpu, and none was asked for too: leave one of them out"
        );
        let usual = if self.optimizer_cpu_offload {
            OffloadPlace::Cpu
        } else {
            OffloadPlace::None
        };
        let place = self.offload_optimizer.unwrap_or(usual);
        ensure!(
            self.nvme_path.is_none() || [Some(place), self.offload_param].contains(&Some(OffloadPlace::Nvme)),
            "--nvme-path is for --offload-optimizer nvme and --offload-param nvme"
        );
        ensure!(
            self.param_nvme_path.is_none() || self.offload_param == Some(OffloadPlace::Nvme),
            "--param-nvme-path is for --offload-param nvme"
        );
        ensure!(
            self.optimizer_offload_fraction.is_none() || place != OffloadPlace::None,
            "--optimizer-offload-fraction is for --offload-optimizer cpu or nvme, and --optimizer-cpu-offload"
        );
        let fraction = self.optimizer_offload_fraction.unwrap_or(1.0);
        ensure!(
            (0.0..=1.0).contains(&fraction),
            "--optimizer-offload-fraction must be from 0 to 1, got {fraction}"
        );
        Ok(match place {
            OffloadPlace::None => OptimizerOffload::None,
            OffloadPlace::Cpu => OptimizerOffload::Cpu { fraction },
            OffloadPlace::Nvme => OptimizerOffload::Nvme {
                folder: (self.nvme_path.clone())
                    .context("--offload-optimizer nvme needs --nvme-path: the folder of the optimizer's state")?,
                fraction,
            },
        })
    }

    /// Where this rank's shards of the parameters are.
    ///
    /// # Errors
    /// When a folder is missing.
    pub fn parameters(&self) -> anyhow::Result<ParameterOffload> {
        Ok(match self.offload_param.unwrap_or(OffloadPlace::None) {
            OffloadPlace::None => ParameterOffload::None,
            OffloadPlace::Cpu => ParameterOffload::Cpu,
            OffloadPlace::Nvme => ParameterOffload::Nvme {
                folder: (self.param_nvme_path.clone())
                    .or_else(|| self.nvme_path.clone())
                    .context("--offload-param nvme needs --nvme-path: the folder of the parameters")?,
            },
        })
    }

    /// How many layers of each chunk have their activations in host memory.
    pub fn layers(&self) -> usize {
        if self.cpu_offloading {
            self.cpu_offloading_num_layers.unwrap_or(usize::MAX)
        } else {
            0
        }
    }

    /// Checks that `--cpu-offloading-num-layers` is of use, and at most the layers of the largest chunk.
    ///
    /// # Errors
    /// When it is not, with the valid range.
    pub fn validate_layers(&self, layers: &LayerLayout) -> anyhow::Result<()> {
        let Some(number) = self.cpu_offloading_num_layers else {
            return Ok(());
        };
        ensure!(
            self.cpu_offloading,
            "--cpu-offloading-num-layers needs --cpu-offloading"
        );
        check_layers("--cpu-offloading-num-layers", number, layers)
    }
}

#[cfg(test)]
mod tests {
    use burn_megatron::pipeline_parallel::LayerSizes;

    use super::super::tests::try_parse;
    use super::*;

    fn parse(flags: &str) -> OffloadArguments {
        try_parse(flags).expect("they are flags")
    }

    fn config(flags: &str) -> Result<OptimizerOffload, String> {
        parse(flags).config().map_err(|error| error.to_string())
    }

    #[test]
    fn flags_say_where_the_state_is() {
        let nvme = |fraction| OptimizerOffload::Nvme {
            folder: "/data".into(),
            fraction,
        };
        for (flags, expected) in [
            ("", OptimizerOffload::None),
            ("--offload-optimizer none", OptimizerOffload::None),
            ("--offload-optimizer cpu", OptimizerOffload::Cpu { fraction: 1.0 }),
            (
                "--optimizer-cpu-offload --optimizer-offload-fraction 0.25",
                OptimizerOffload::Cpu { fraction: 0.25 },
            ),
            ("--offload-optimizer nvme --nvme-path /data", nvme(1.0)),
            // The CPU updates it there, too.
            (
                "--optimizer-cpu-offload --offload-optimizer nvme --nvme-path /data --optimizer-offload-fraction 0.5",
                nvme(0.5),
            ),
        ] {
            assert_eq!(config(flags), Ok(expected), "{flags}");
        }
    }

    #[test]
    fn flags_say_where_the_parameters_are() {
        let parameters = |flags: &str| {
            let arguments = parse(flags);
            arguments.config().and_then(|_| arguments.parameters())
        };
        let nvme = ParameterOffload::Nvme { folder: "/data".into() };
        for (flags, expected) in [
            ("", ParameterOffload::None),
            ("--offload-param none --optimizer-cpu-offload", ParameterOffload::None),
            ("--offload-param cpu", ParameterOffload::Cpu),
            ("--offload-param nvme --nvme-path /data", nvme.clone()),
            (
                "--offload-param nvme --offload-optimizer nvme --nvme-path /data",
                nvme.clone(),
            ),
            (
                "--offload-param nvme --offload-optimizer nvme --nvme-path /other --param-nvme-path /data",
                nvme,
            ),
        ] {
            assert_eq!(parameters(flags).expect(flags), expected);
        }
        let error = parameters("--offload-param nvme").unwrap_err().to_string();
        assert!(error.starts_with("--offload-param nvme needs --nvme-path"), "{error}");
    }

    #[test]
    fn flags_say_which_layers_have_their_activations_on_the_host() {
        let sizes = LayerSizes {
            n_layers: 8,
            num_stages: 2,
            num_chunks: 1,
        };
        let layout = LayerLayout::first_last(sizes, Some(2), None).expect("2 and 6 layers");
        let layers = |flags: &str| {
            let arguments = parse(flags);
            let checked = arguments.validate_layers(&layout).map_err(|error| error.to_string());
            checked.map(|()| arguments.layers())
        };
        assert_eq!(layers(""), Ok(0));
        assert_eq!(layers("--cpu-offloading"), Ok(usize::MAX));
        assert_eq!(layers("--cpu-offloading --cpu-offloading-num-layers 6"), Ok(6));
        for (flags, said) in [
            ("--cpu-offloading-num-layers 6", "needs --cpu-offloading"),
            ("--cpu-offloading --cpu-offloading-num-layers 7", "between 1 and 6"),
            ("--cpu-offloading --cpu-offloading-num-layers 0", "between 1 and 6"),
        ] {
            let error = layers(flags).expect_err(flags);
            assert!(error.contains(said), "{flags}: {error}");
        }
    }

    #[test]
    fn flags_that_contradict_are_refused_by_name() {
        for (flags, said) in [
            (
                "--optimizer-cpu-offload --offload-optimizer none",
                "--offload-optimizer cpu, and none",
            ),
            ("--offload-optimizer nvme", "needs --nvme-path"),
            (
                "--param-nvme-path /data",
                "--param-nvme-path is for --offload-param nvme",
            ),
            ("--nvme-path /data", "--nvme-path is for --offload-optimizer nvme and"),
            ("--offload-optimizer cpu --nvme-path /data", "--nvme-path is for"),
            (
                "--optimizer-offload-fraction 0.5",
                "--optimizer-offload-fraction is for",
            ),
            (
                "--optimizer-cpu-offload --optimizer-offload-fraction 1.5",
                "must be from 0 to 1, got 1.5",
            ),
        ] {
            let error = config(flags).expect_err(flags);
            assert!(error.contains(said), "{flags}: {error}");
        }
    }
}
