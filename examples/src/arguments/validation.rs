//! Checks of the flags together, and the memory that a run of them needs, before any rank is started.

use std::ops::Range;

use burn::tensor::DType;
use burn_megatron::checkpoint::Checkpoint;
use burn_megatron::data_parallel::{ParameterOffload, ShardingStrategy};
use burn_megatron::optimizer::{OffloadError, OptimizerKind, OptimizerOffload, StateMemoryConfig};
use burn_megatron::pipeline_parallel::schedule::ScheduleConfig;
use burn_megatron::topology::RankGrid;
use burn_megatron::training::memory::{machine_bytes, process_bytes};
use models::ModelConfig;
use models::memory::{MemorySetting, StageSetting, activation_bytes_of_stages};
use models::vocabulary::padded_vocab_size;

use super::{ModelArguments, RecomputeArguments, RecomputeGranularity, TrainingArguments};
use crate::figures::bytes;
use crate::memory_plan::{MemoryPlan, StageActivations, StagePlan};
use crate::saved_state::has_adapters;

impl TrainingArguments {
    /// Finds what is wrong with the flags before any rank is started, and returns what memory the ranks need.
    ///
    /// # Errors
    /// The first rule that is broken, with the values and the nearest valid ones.
    pub fn validate(&self) -> anyhow::Result<MemoryPlan> {
        let plan = self.memory_plan()?;
        self.offload.config()?.check()?;
        self.offload.parameters()?.check()?;
        if self.device.kind.has_host_memory() {
            let bytes = |limit: Option<u64>| limit.map_or(f64::INFINITY, |bytes| bytes as f64);
            check_memory(
                &plan.host_bytes_of_stages(),
                &plan.grid,
                self.local_ranks(&plan.grid)?,
                [bytes(machine_bytes()), bytes(process_bytes())],
                &plan.host_parts(),
            )?;
        }
        Ok(plan)
    }

    /// Finds what is wrong with the flags, wherever they are to run, and returns what memory the ranks need.
    ///
    /// # Errors
    /// As [`validate`](Self::validate), except that this machine need not hold the ranks.
    pub fn memory_plan(&self) -> anyhow::Result<MemoryPlan> {
        let parallel = self.parallel.config();
        let grid = parallel.grid(self.parallel.world_size())?;
        self.parallel.communication.timeout()?;
        self.parallel.check_nodes()?;
        let restarts = self.parallel.launcher.max_restarts;
        anyhow::ensure!(
            restarts == 0 || (self.checkpoints.save.is_some() && self.checkpoints.save_interval > 0),
            "--max-restarts {restarts} needs --save and --save-interval: a restarted run continues from the last \
             checkpoint"
        );
        self.parallel.communication.layer_overlap()?;
        let sharding = self.parallel.communication.sharding()?;
        sharding.check_stages(parallel.pipeline_parallel_size)?;
        let instances = self.parallel.communication.num_distributed_optimizer_instances;
        check_optimizer_instances(instances, sharding, grid.data_parallel_size())?;
        let offload_parameters = self.offload.parameters()?;
        anyhow::ensure!(
            offload_parameters == ParameterOffload::None || sharding.shards_parameters(),
            "--offload-param needs --zero-stage 3, in which ranks hold shards of the parameters; got stage {}",
            sharding.stage()
        );
        self.logging.validate()?;
        let batch_sizes = self.optimization.batch_sizes()?;
        self.logging
            .validate_profile(&batch_sizes, self.optimization.num_steps()?)?;
        self.monitoring.validate(
            grid.world_size(),
            self.optimization.num_steps()?,
            self.logging.profile_steps(),
        )?;
        self.model.validate()?;
        self.precision.validate()?;
        self.device.validate(self.precision.dtype())?;
        self.checkpoints.validate()?;
        self.adapters.validate()?;
        self.data.check_source()?;
        let checkpoint = self.checkpoint();
        let model = self.any_model(checkpoint.as_ref())?;
        model.validate(&parallel)?;
        let seq_length = self.sample_length(&*model, checkpoint.as_ref())?;
        let training = self.training_config(seq_length)?;
        training.validate(&grid, parallel.sequence_parallel)?;
        if self.offload.config()? != OptimizerOffload::None {
            anyhow::ensure!(!training.uses(OptimizerKind::Muon), OffloadError::WholeMatrices);
            anyhow::ensure!(!training.uses(OptimizerKind::Adafactor), OffloadError::WholeParameters);
        }
        let sizes = self.parallel.layer_sizes(model.n_layers())?;
        let num_micro_batches = training.num_micro_batches(grid.data_parallel_size())?;
        let layers = self.parallel.stages.layers(sizes)?;
        let every_step = ScheduleConfig {
            kind: self.parallel.stages.schedule(sizes.num_chunks)?,
            num_stages: sizes.num_stages,
            num_chunks: sizes.num_chunks,
            num_micro_batches,
        };
        let schedule = every_step.init()?;
        training.validate_stages(&every_step, grid.data_parallel_size())?;
        self.model.recompute.validate_layers(&layers)?;
        self.offload.validate_layers(&layers)?;
        self.check_plain_kernels()?;
        let setting = StageSetting {
            parallel: &parallel,
            layers: &layers,
        };
        let parameters = model.stage_parameters(&setting)?;
        let setting = MemorySetting {
            parallel: &parallel,
            layers: &layers,
            schedule: &schedule,
            seq_length,
            micro_batch_size: self.optimization.micro_batch_size,
            padded_vocab_size: padded_vocab_size(
                model.vocab_size(),
                self.model.padded_vocab_size,
                parallel.tensor_parallel_size,
            ),
            element_bytes: DType::from(self.precision.dtype()).size(),
            offloaded_layers: 0,
        };
        let activations = |recompute: RecomputeArguments, offloaded_layers: usize| {
            let recomputing = ModelArguments {
                recompute,
                ..self.model.clone()
            };
            let model = recomputing.config(checkpoint.as_ref(), model.vocab_size())?;
            let setting = MemorySetting {
                offloaded_layers,
                ..setting
            };
            Ok::<_, anyhow::Error>(activation_bytes_of_stages(&*model, &setting))
        };
        let (recompute, offloaded_layers) = (&self.model.recompute, self.offload.layers());
        let as_run = activations(recompute.clone(), offloaded_layers)?;
        let on_host = activations(recompute.clone(), 0)?;
        let offloaded = activations(recompute.clone(), usize::MAX)?;
        let recomputed = activations(RecomputeArguments::full(), offloaded_layers)?;
        let stages = parameters.into_iter().enumerate();
        let groups = training.groups();
        let stages = stages.map(|(stage, parameters)| {
            let are_frozen = groups.are_frozen(parameters.iter().map(|parameter| &*parameter.name))?;
            let (frozen, trained): (Vec<_>, Vec<_>) = parameters
                .into_iter()
                .zip(are_frozen)
                .partition(|(_, is_frozen)| *is_frozen);
            Ok(StagePlan {
                parameters: trained.into_iter().map(|(parameter, _)| parameter).collect(),
                frozen: frozen.iter().map(|(parameter, _)| parameter.len).sum(),
                activations: StageActivations {
                    as_run: as_run[stage],
                    on_host: on_host[stage],
                    offloaded: offloaded[stage],
                    recomputed: recomputed[stage],
                },
            })
        });
        let communication = &self.parallel.communication;
        Ok(MemoryPlan {
            stages: stages.collect::<anyhow::Result<_>>()?,
            state: StateMemoryConfig {
                dtype: self.precision.dtype().into(),
                num_state_tensors: training.num_state_tensors(),
                has_factored_state: training.has_factored_state(),
                bucket_size: communication.ddp_bucket_size,
                num_instances: instances,
                overlap_grad_reduce: communication.overlap_grad_reduce,
                overlap_param_gather: communication.overlap_param_gather,
            },
            sharding,
            num_instances: instances,
            micro_batches: num_micro_batches * grid.data_parallel_size(),
            can_offload: !(training.uses(OptimizerKind::Muon) || training.uses(OptimizerKind::Adafactor)),
            offload: self.offload.config()?,
            offload_parameters,
            has_adapters: self.trains_adapters(checkpoint.as_ref()),
            can_offload_layers: offloaded_layers == 0 && self.can_offload_activations(),
            is_recomputed: self.model.recompute.layers() == RecomputeArguments::full().layers(),
            run: self.in_words(&*model, seq_length, &grid, &every_step),
            grid,
        })
    }

    /// Returns whether layers keep something that can be moved.
    fn can_offload_activations(&self) -> bool {
        !self.device.no_fused_kernels || self.model.recompute.is_full()
    }

    /// Checks that no flag asks for what fused operations alone do while another asks for burn's.
    fn check_plain_kernels(&self) -> anyhow::Result<()> {
        let is_selective = self.model.recompute.recompute_granularity == Some(RecomputeGranularity::Selective);
        anyhow::ensure!(
            !(self.device.no_fused_kernels && is_selective),
            "--recompute-granularity selective is what fused attention does, and --no-fused-kernels asks for burn's: \
             give one of them"
        );
        anyhow::ensure!(
            !self.offload.cpu_offloading || self.can_offload_activations(),
            "--cpu-offloading moves what fused operations keep, and --no-fused-kernels asks for burn's, whose \
             activations stay: give one of them, or --recompute-granularity full, which keeps the inputs of layers"
        );
        Ok(())
    }

    /// The model, the layout and the batches.
    fn in_words(
        &self,
        model: &dyn ModelConfig,
        seq_length: usize,
        grid: &RankGrid,
        schedule: &ScheduleConfig,
    ) -> Vec<String> {
        let (parallel, flags) = (&self.parallel, &self.optimization);
        vec![
            format!(
                "{} of {} parameters in {}: {} layers of {}, samples of {seq_length} tokens",
                model.family_name(),
                model.num_parameters(),
                DType::from(self.precision.dtype()).name(),
                model.n_layers(),
                model.d_model(),
            ),
            format!(
                "{}: tensor {} (sequence {}), pipeline {} ({}), data {}",
                counted(grid.world_size(), "rank", "ranks"),
                grid.tensor_parallel_size(),
                if parallel.sequence_parallel { "sharded" } else { "whole" },
                grid.pipeline_parallel_size(),
                schedule.kind,
                grid.data_parallel_size(),
            ),
            format!(
                "{} per step: {} of {} on each data-parallel rank",
                counted(flags.global_batch_size, "sample", "samples"),
                counted(schedule.num_micro_batches, "micro-batch", "micro-batches"),
                flags.micro_batch_size,
            ),
        ]
    }

    /// Returns whether adapters alone are trained, of this run or of the checkpoint that it continues from.
    fn trains_adapters(&self, checkpoint: Option<&Checkpoint>) -> bool {
        self.adapters.lora_rank.is_some() || checkpoint.is_some_and(has_adapters)
    }

    /// The ranks on this machine, which a launcher numbers one after the other.
    fn local_ranks(&self, grid: &RankGrid) -> anyhow::Result<Range<usize>> {
        let launcher = &self.parallel.launcher;
        let (first, count) = match self.parallel.environment()? {
            Some(environment) => (
                environment.rank.saturating_sub(environment.local_rank),
                environment.local_world_size,
            ),
            None => {
                let (node, count) = launcher.place();
                let each = grid.world_size() / count.max(1);
                (node.saturating_mul(each), each)
            }
        };
        let last = first.saturating_add(count).min(grid.world_size());
        Ok(first.min(last)..last)
    }
}

fn counted(count: usize, one: &str, many: &str) -> String {
    match count {
        1 => format!("1 {one}"),
        count => format!("{count} {many}"),
    }
}

/// Refuses groups of data-parallel ranks that would not be alike, or would share out nothing.
fn check_optimizer_instances(instances: usize, sharding: ShardingStrategy, data_parallel: usize) -> anyhow::Result<()> {
    anyhow::ensure!(
        instances > 0 && data_parallel.is_multiple_of(instances),
        "--num-distributed-optimizer-instances must divide the data-parallel size, {data_parallel}; got {instances}"
    );
    anyhow::ensure!(
        instances == 1 || sharding.shards_optimizer(),
        "--num-distributed-optimizer-instances {instances} needs --zero-stage 1, 2 or 3: nothing else is shared out"
    );
    Ok(())
}

/// Advice for a run that needs too much memory.
pub(crate) const NEEDS_LESS: &str =
    "use a smaller model, a shorter sequence, a smaller micro-batch, --recompute-granularity full or more machines";

/// Refuses ranks that cannot fit a machine together, or a process one by one, before an allocation does it without a
/// word. `parts` says what the largest is made of.
fn check_memory(
    stage_bytes: &[f64],
    grid: &RankGrid,
    local: Range<usize>,
    [machine, process]: [f64; 2],
    parts: &str,
) -> anyhow::Result<()> {
    let needs: Vec<f64> = local.map(|rank| stage_bytes[grid.coordinates(rank).pipeline]).collect();
    let all: f64 = needs.iter().sum();
    let largest = needs.iter().copied().fold(0.0, f64::max);
    let limit = if all > machine {
        format!(
            "this machine, or this container, has {} of memory",
            bytes(machine as u64)
        )
    } else if largest > process {
        format!("a process may have {} of memory (ulimit -v)", bytes(process as u64))
    } else {
        return Ok(());
    };
    anyhow::bail!(
        "{} would need about {} for parameters, optimizer and activations, up to {} each ({parts}), and {limit}; \
         {NEEDS_LESS}",
        counted(needs.len(), "rank", "ranks"),
        bytes(all as u64),
        bytes(largest as u64),
    )
}

#[cfg(test)]
mod tests {
    use burn_megatron::checkpoint::{CheckpointConfig, CheckpointWriter};
    use burn_megatron::collectives::ProcessGroup;
    use burn_megatron::topology::ParallelConfig;
    use serde_json::{Value, json};

    use super::super::tests::try_parse;
    use super::*;

    #[test]
    fn the_stages_of_the_ranks_here_must_fit_together() {
        let parallel = ParallelConfig {
            tensor_parallel_size: 2,
            pipeline_parallel_size: 2,
            ..ParallelConfig::default()
        };
        let grid = parallel.grid(8).unwrap();
        let mib = |count: f64| count * 1024.0 * 1024.0;
        let check_both = |local, machine, process| {
            check_memory(
                &[mib(5.0), mib(3.0)],
                &grid,
                local,
                [mib(machine), mib(process)],
                "all of it",
            )
        };
        let check = |local, machine| check_both(local, machine, 5.0);
        // Four ranks of each stage: less than eight of the largest.
        assert!(check(0..8, 32.0).is_ok());
        let error = check(0..8, 31.9).unwrap_err().to_string();
        assert!(error.starts_with("8 ranks would need about 32.0 MiB for"), "{error}");
        assert!(
            error.contains("up to 5.0 MiB each (all of it), and this machine, or this container, has 31.9"),
            "{error}"
        );
        let error = check_both(0..8, 32.0, 4.9).unwrap_err().to_string();
        assert!(
            error.contains("and a process may have 4.9 MiB of memory (ulimit -v); use a smaller model"),
            "{error}"
        );
        assert!(check_both(4..8, 32.0, 4.9).is_ok());
        // The second machine has the second stage.
        assert!(check(4..8, 12.0).is_ok() && check(0..4, 12.0).is_err());
    }

    #[test]
    fn adapters_alone_are_trained_wherever_they_come_from() {
        let trains_adapters = |flags: &str, state: Option<Value>| {
            let folder = tempfile::tempdir().unwrap();
            let flags = format!("--load {} {flags}", folder.path().display());
            let arguments: TrainingArguments = try_parse(&flags).expect("they are flags");
            if let Some(state) = state {
                let mut writer =
                    CheckpointWriter::new(ProcessGroup::single(), folder.path(), CheckpointConfig::new()).unwrap();
                writer.save(1, Vec::new(), state).unwrap();
            }
            arguments.trains_adapters(arguments.checkpoint().as_ref())
        };
        assert!(trains_adapters("--lora-rank 4", None));
        assert!(trains_adapters("", Some(json!({ "adapters": { "rank": 4 } }))));
        for state in [None, Some(json!({})), Some(json!({ "adapters": null }))] {
            assert!(!trains_adapters("", state));
        }
    }
}
