//! Flags that arrange the ranks, join them to a job and connect them.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use burn_megatron::context::{ParallelContext, ParallelContextConfig, TensorOverlap};
use burn_megatron::data_parallel::ShardingStrategy;
use burn_megatron::launch::{Environment, JoinConfig, LaunchError, Nodes, RankSet, host_alone};
use burn_megatron::pipeline_parallel::LayerSizes;
use burn_megatron::topology::ParallelConfig;
use clap::Args;

use super::StageArguments;
use crate::layout::Layout;

/// What the long help of a program that trains says last.
pub const THOUSANDS_OF_RANKS: &str = "\
Thousands of ranks: raise node 0's limit of open files to two for each rank and a hundred (ulimit -Hn), and
net.core.somaxconn to 4096; --preflight first; then --log-rank 0, --heartbeat-limit-secs 60, --max-restarts with
--save-interval, and --flight-recorder DIR. More: burn-megatron/docs/launching.md.";

/// How the ranks share the work.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Parallelism")]
pub struct ParallelArguments {
    /// Ranks that share each layer
    #[arg(long, alias = "model-parallel-size", value_name = "N", default_value_t = 1)]
    pub tensor_model_parallel_size: usize,
    /// Shard the activations between tensor-parallel regions along the tokens
    #[arg(long)]
    pub sequence_parallel: bool,
    /// Stages that the layers are cut into, each on ranks of its own
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub pipeline_model_parallel_size: usize,
    /// Layers of each chunk, where a stage has several chunks [default: one chunk per stage]
    #[arg(
        long, value_name = "N",
        conflicts_with_all = [
            "num_virtual_stages_per_pipeline_rank", "pipeline_model_parallel_layout",
            "decoder_first_pipeline_num_layers", "decoder_last_pipeline_num_layers",
        ]
    )]
    pub num_layers_per_virtual_pipeline_stage: Option<usize>,
    /// Chunks per stage [default: 1]
    #[arg(long, value_name = "N")]
    pub num_virtual_stages_per_pipeline_rank: Option<usize>,
    /// Ranks in all [default: tensor-model-parallel size * pipeline-model-parallel size]; those beyond one model see
    /// different samples
    #[arg(long, value_name = "N")]
    pub world_size: Option<usize>,
    #[command(flatten)]
    pub stages: StageArguments,
    #[command(flatten)]
    pub communication: CommunicationArguments,
    #[command(flatten)]
    pub launcher: LauncherArguments,
}

/// How the ranks are started, where no other launcher starts them; on several nodes by a launcher on each.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Several nodes (with BURN_MEGATRON_JOB_TOKEN the same secret on each)")]
pub struct LauncherArguments {
    /// Nodes; this program is started once on each, and starts its share of the ranks
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub nnodes: usize,
    /// This node's number, from 0
    #[arg(long, value_name = "K", default_value_t = 0)]
    pub node_rank: usize,
    /// Name or address of node 0, by which every node reaches it
    #[arg(long, value_name = "HOST", value_parser = host_alone)]
    pub master_addr: Option<String>,
    /// Port on node 0 where the ranks meet
    #[arg(long, value_name = "PORT", default_value_t = 29500, value_parser = clap::value_parser!(u16).range(1..))]
    pub master_port: u16,
    /// Interface to listen on: a name, an address or a network such as 10.0.0.0/8 [default: loopback on one node, else
    /// the one that reaches node 0]
    #[arg(long, value_name = "INTERFACE", env = "BURN_MEGATRON_INTERFACE")]
    pub interface: Option<String>,
    /// Nodes to leave out, such as 3,7; the others get new numbers and keep their numbers of ranks, and the first of
    /// them hosts the store: --master-addr is its name. The same on every node
    #[arg(long, value_name = "NODES", value_delimiter = ',')]
    pub exclude_nodes: Vec<usize>,
    /// Start all ranks again when one has failed, up to this many times; training continues from its last checkpoint in
    /// --save. The same on every node
    #[arg(long, value_name = "N", default_value_t = 0, help_heading = "Parallelism")]
    pub max_restarts: usize,
    /// Print the output of these ranks only, such as 0 or 0,8-15, rank 0's results in any case, and the last lines of a
    /// rank that fails first [default: of all, equal lines of several ranks once]
    #[arg(long, value_name = "RANKS", help_heading = "Parallelism")]
    pub log_rank: Option<RankSet>,
}

/// How the ranks talk to each other.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Parallelism")]
pub struct CommunicationArguments {
    /// The longest wait for another rank
    #[arg(long, value_name = "MINUTES", default_value_t = 10.0)]
    pub distributed_timeout_minutes: f64,
    /// The longest silence of a rank, or of the node that hosts the store; at most three quarters of the timeout count
    /// [default: 30]
    #[arg(long, value_name = "SECONDS", env = "BURN_MEGATRON_HEARTBEAT_LIMIT_SECS")]
    pub heartbeat_limit_secs: Option<f64>,
    /// Elements per gradient bucket [default: the larger of 40000000 and 1000000 per data-parallel rank]
    #[arg(long, value_name = "N")]
    pub ddp_bucket_size: Option<usize>,
    /// As --zero-stage 1, by Megatron-LM's name
    #[arg(long, hide = true)]
    pub use_distributed_optimizer: bool,
    /// What the data-parallel ranks share out: 1 the optimizer's state, each updating its shard of the parameters, 2
    /// the gradients too, 3 the parameters too [default: 0]
    #[arg(long, value_name = "0..3", value_parser = clap::value_parser!(u8).range(0..=3))]
    pub zero_stage: Option<u8>,
    /// As --zero-stage, by Megatron-FSDP's names: no_shard, optim, optim_grads, optim_grads_params
    #[arg(
        long, hide = true, value_name = "STRATEGY", value_parser = sharding_strategy, conflicts_with = "zero_stage"
    )]
    pub data_parallel_sharding_strategy: Option<ShardingStrategy>,
    /// Divide the data-parallel ranks into this many groups of neighbours, such as those of a node: each shares out
    /// what
    /// --zero-stage says, and they are replicas of each other (HSDP)
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub num_distributed_optimizer_instances: usize,
    /// Reduce full gradient buckets during the backward pass
    #[arg(
        long, value_name = "BOOL", num_args = 0..=1, default_value_t = true, default_missing_value = "true",
        action = clap::ArgAction::Set
    )]
    pub overlap_grad_reduce: bool,
    /// What of tensor-parallel linear layers overlaps with matmuls: off, nothing; reduce, the sum over the ranks of the
    /// gradient of a column-parallel layer's input, and a sequence-parallel input is gathered once more then instead of
    /// kept; chunks, also activations with --sequence-parallel, in chunks, where that pays on GPUs with NVLink; or the
    /// number of chunks, in every layer and on any device [default: reduce, and chunks without a value]
    #[arg(
        long, value_name = "WHAT", num_args = 0..=1, default_missing_value = "chunks", value_parser = layer_overlap
    )]
    tp_comm_overlap: Option<LayerOverlap>,
    /// As --tp-comm-overlap reduce, or off with false
    #[arg(long, hide = true, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true")]
    overlap_tensor_reduce: Option<bool>,
    /// The number of chunks of --tp-comm-overlap
    #[arg(long, hide = true, value_name = "N", requires = "tp_comm_overlap")]
    tp_comm_overlap_chunks: Option<NonZeroUsize>,
    /// From --zero-stage 1 on, gather updated parameters while the next buckets are updated and the next
    /// forward pass runs
    #[arg(
        long, value_name = "BOOL", num_args = 0..=1, default_value_t = true, default_missing_value = "true",
        action = clap::ArgAction::Set
    )]
    pub overlap_param_gather: bool,
    /// Write each rank's last collectives to this folder on failure and on SIGUSR1, for the example flight_recorder
    #[arg(long, value_name = "DIR")]
    pub flight_recorder: Option<PathBuf>,
}

/// What of tensor-parallel linear layers overlaps with matmuls.
#[derive(Clone, Copy, Debug)]
pub struct LayerOverlap {
    /// Whether the sum of a column-parallel layer's gradient over the ranks does.
    pub overlaps_reduce: bool,
    /// In which chunks activations do.
    pub chunks: TensorOverlap,
}

impl ParallelArguments {
    /// The flags of a layout on this machine; those of stages are left out of a layout that has none.
    pub fn of_layout(layout: &Layout, stages: &StageArguments, communication: &CommunicationArguments) -> Self {
        Self {
            tensor_model_parallel_size: layout.tensor_parallel_size,
            sequence_parallel: layout.sequence_parallel,
            pipeline_model_parallel_size: layout.pipeline_parallel_size,
            num_layers_per_virtual_pipeline_stage: None,
            num_virtual_stages_per_pipeline_rank: Some(layout.num_chunks),
            world_size: Some(layout.world_size()),
            stages: match layout.pipeline_parallel_size {
                1 => StageArguments::default(),
                _ => stages.clone(),
            },
            communication: communication.clone(),
            launcher: LauncherArguments::default(),
        }
    }

    /// The sizes of the axes.
    pub fn config(&self) -> ParallelConfig {
        ParallelConfig {
            tensor_parallel_size: self.tensor_model_parallel_size,
            pipeline_parallel_size: self.pipeline_model_parallel_size,
            sequence_parallel: self.sequence_parallel,
        }
    }

    /// What the groups of the ranks are made of, with seed 0.
    pub fn context_config(&self) -> ParallelContextConfig {
        let instances = self.communication.num_distributed_optimizer_instances;
        ParallelContextConfig::new(self.config()).with_num_distributed_optimizer_instances(instances)
    }

    pub fn world_size(&self) -> usize {
        let all_nodes = self.world_size.unwrap_or(self.model_size());
        match self.launcher.excluded() {
            0 => all_nodes,
            excluded => all_nodes / self.launcher.nnodes * (self.launcher.nnodes - excluded),
        }
    }

    /// Returns this process's place in the job of a launcher; `None` if it is to start ranks itself, or is alone. With
    /// `--nnodes`, only this program's own launcher and torchrun start ranks.
    ///
    /// # Errors
    /// As [`Environment::detect`].
    pub fn environment(&self) -> Result<Option<Environment>, LaunchError> {
        if self.launcher.is_on_each_node() && !Environment::has_rank() {
            return Ok(None);
        }
        Environment::detect()
    }

    /// Checks the nodes that are left out.
    ///
    /// # Errors
    /// When there is no such node, none is left, or the ranks do not divide into the nodes.
    pub fn check_nodes(&self) -> anyhow::Result<()> {
        self.launcher.check()?;
        let LauncherArguments {
            nnodes, exclude_nodes, ..
        } = &self.launcher;
        let world_size = self.world_size.unwrap_or(self.model_size());
        anyhow::ensure!(
            exclude_nodes.is_empty() || world_size.is_multiple_of(*nnodes),
            "--world-size {world_size} is that of all nodes and must be a multiple of --nnodes {nnodes}, also with \
             --exclude-nodes"
        );
        Ok(())
    }

    /// The ranks of one model.
    fn model_size(&self) -> usize {
        self.tensor_model_parallel_size
            .saturating_mul(self.pipeline_model_parallel_size)
    }

    /// The stages, their chunks and the layers that they share.
    ///
    /// # Errors
    /// When the layers do not divide into chunks of the size that was asked for, with the nearest valid sizes.
    pub fn layer_sizes(&self, n_layers: usize) -> anyhow::Result<LayerSizes> {
        let num_stages = self.pipeline_model_parallel_size;
        let num_chunks = match self.num_layers_per_virtual_pipeline_stage {
            None => self.num_virtual_stages_per_pipeline_rank.unwrap_or(1),
            Some(each) => {
                let per_stage = n_layers / num_stages.max(1);
                let is_valid = |each: usize| {
                    let divisor = each.saturating_mul(num_stages);
                    divisor > 0 && n_layers.is_multiple_of(divisor)
                };
                let nearest: Vec<String> = (1..=per_stage)
                    .filter(|&n| is_valid(n))
                    .map(|n| n.to_string())
                    .collect();
                anyhow::ensure!(
                    is_valid(each),
                    "--num-layers-per-virtual-pipeline-stage must divide the layers of each stage, {n_layers} / \
                     {num_stages}, got {each}; valid values are {}",
                    if nearest.is_empty() {
                        "none".to_owned()
                    } else {
                        nearest.join(", ")
                    }
                );
                per_stage / each
            }
        };
        Ok(LayerSizes {
            n_layers,
            num_stages,
            num_chunks,
        })
    }
}

impl Default for LauncherArguments {
    /// One node.
    fn default() -> Self {
        Self {
            nnodes: 1,
            node_rank: 0,
            master_addr: None,
            master_port: 29500,
            interface: None,
            exclude_nodes: Vec::new(),
            max_restarts: 0,
            log_rank: None,
        }
    }
}

impl LauncherArguments {
    /// Returns whether a launcher is started on each of several nodes.
    pub fn is_on_each_node(&self) -> bool {
        self.nnodes != 1 || self.node_rank != 0
    }

    /// This launcher's place among those of all nodes that take part; `None` for one node.
    ///
    /// # Errors
    /// When there are several nodes and no address of node 0.
    pub fn nodes(&self) -> anyhow::Result<Option<Nodes>> {
        if !self.is_on_each_node() {
            return Ok(None);
        }
        let address = self.master_addr.clone().with_context(|| {
            format!(
                "--nnodes {} needs --master-addr: the name or address of node 0",
                self.nnodes
            )
        })?;
        let (rank, count) = self.place();
        Ok(Some(Nodes {
            count,
            rank,
            master_addr: address,
            master_port: self.master_port,
        }))
    }

    /// Checks the nodes that are left out.
    ///
    /// # Errors
    /// When there is no such node, or none is left.
    fn check(&self) -> anyhow::Result<()> {
        if let Some(node) = self.exclude_nodes.iter().find(|node| **node >= self.nnodes) {
            anyhow::bail!(
                "--exclude-nodes {node}: there is no such node; valid are 0 to {}",
                self.nnodes.saturating_sub(1)
            );
        }
        anyhow::ensure!(
            self.nnodes == 0 || self.excluded() < self.nnodes,
            "--exclude-nodes leaves out all {} nodes",
            self.nnodes
        );
        Ok(())
    }

    /// This node's number among those that take part, and how many these are.
    pub(super) fn place(&self) -> (usize, usize) {
        let takes_part = |node: &usize| !self.exclude_nodes.contains(node);
        let rank = (0..self.node_rank).filter(takes_part).count();
        (rank, self.nnodes - self.excluded())
    }

    /// Whether this node is left out.
    pub fn is_excluded(&self) -> bool {
        self.exclude_nodes.contains(&self.node_rank)
    }

    /// How many of the nodes are left out.
    fn excluded(&self) -> usize {
        (0..self.nnodes)
            .filter(|node| self.exclude_nodes.contains(node))
            .count()
    }
}

fn sharding_strategy(name: &str) -> Result<ShardingStrategy, String> {
    let found = ShardingStrategy::ALL
        .into_iter()
        .find(|strategy| strategy.name() == name);
    found.ok_or_else(|| {
        format!(
            "valid values are {}",
            ShardingStrategy::ALL.map(ShardingStrategy::name).join(", ")
        )
    })
}

/// The overlap of a name, or of a number of chunks.
fn layer_overlap(name: &str) -> Result<LayerOverlap, String> {
    let (overlaps_reduce, chunks) = match name {
        "off" => (false, TensorOverlap::Off),
        "reduce" => (true, TensorOverlap::Off),
        "chunks" => (true, TensorOverlap::WhereItPays),
        number => match number.parse() {
            Ok(number) => (true, TensorOverlap::Chunks(number)),
            Err(_) => return Err("valid values are off, reduce, chunks and numbers of chunks".to_owned()),
        },
    };
    Ok(LayerOverlap {
        overlaps_reduce,
        chunks,
    })
}

impl CommunicationArguments {
    /// What the data-parallel ranks share out.
    ///
    /// # Errors
    /// When flags contradict each other.
    pub fn sharding(&self) -> anyhow::Result<ShardingStrategy> {
        let of_stage = self.zero_stage.map(|stage| ShardingStrategy::ALL[usize::from(stage)]);
        let chosen = of_stage.or(self.data_parallel_sharding_strategy);
        match (self.use_distributed_optimizer, chosen) {
            (true, Some(ShardingStrategy::NoShard)) => anyhow::bail!(
                "--use-distributed-optimizer is --zero-stage 1, and stage 0 was asked for too: leave one of them out"
            ),
            (true, None) => Ok(ShardingStrategy::Optim),
            (_, chosen) => Ok(chosen.unwrap_or_default()),
        }
    }

    /// What of tensor-parallel linear layers overlaps with matmuls.
    ///
    /// # Errors
    /// When flags contradict each other.
    pub fn layer_overlap(&self) -> anyhow::Result<LayerOverlap> {
        let mut overlap = self.tp_comm_overlap.unwrap_or(LayerOverlap {
            overlaps_reduce: self.overlap_tensor_reduce.unwrap_or(true),
            chunks: TensorOverlap::Off,
        });
        if let Some(given) = self.overlap_tensor_reduce {
            anyhow::ensure!(
                given == overlap.overlaps_reduce || overlap.chunks != TensorOverlap::Off,
                "--overlap-tensor-reduce {given} contradicts --tp-comm-overlap: leave one of them out"
            );
            overlap.overlaps_reduce = given;
        }
        if let Some(number) = self.tp_comm_overlap_chunks {
            anyhow::ensure!(
                overlap.chunks == TensorOverlap::WhereItPays,
                "--tp-comm-overlap-chunks {number} contradicts --tp-comm-overlap: leave one of them out"
            );
            overlap.chunks = TensorOverlap::Chunks(number);
        }
        Ok(overlap)
    }

    /// The context whose tensor-parallel layers communicate as the flags ask for.
    ///
    /// # Errors
    /// As [`layer_overlap`](Self::layer_overlap).
    pub fn overlapping(&self, context: ParallelContext) -> anyhow::Result<ParallelContext> {
        let overlap = self.layer_overlap()?;
        let context = context.with_overlap_tensor_reduce(overlap.overlaps_reduce);
        Ok(context.with_tensor_overlap(overlap.chunks))
    }

    /// How this process joins its job.
    ///
    /// # Errors
    /// As [`timeout`](Self::timeout); when the heartbeats' limit is not from 0.5 to 86400 seconds.
    pub fn join_options(&self) -> anyhow::Result<JoinConfig> {
        let limit = self.heartbeat_limit_secs;
        anyhow::ensure!(
            limit.is_none_or(|limit| (0.5..=86400.0).contains(&limit)),
            "--heartbeat-limit-secs must be between 0.5 and 86400, got {}",
            limit.unwrap_or_default()
        );
        Ok(JoinConfig {
            heartbeat_limit: limit.map(Duration::from_secs_f64),
            flight_recorder_folder: self.flight_recorder.clone(),
            ..JoinConfig::new().with_all_timeouts(self.timeout()?)
        })
    }

    /// The longest wait for another rank.
    ///
    /// # Errors
    /// When it is not a positive number of minutes, below a year.
    pub fn timeout(&self) -> anyhow::Result<Duration> {
        duration("--distributed-timeout-minutes", self.distributed_timeout_minutes)
    }
}

/// The time of a flag in minutes.
///
/// # Errors
/// When it is not a positive number, below a year.
pub(super) fn duration(flag: &str, minutes: f64) -> anyhow::Result<Duration> {
    anyhow::ensure!(
        minutes > 0.0 && minutes < 60.0 * 24.0 * 366.0,
        "{flag} must be above 0 and below a year, got {minutes}"
    );
    Ok(Duration::from_secs_f64(minutes * 60.0))
}

#[cfg(test)]
mod tests {
    use super::super::tests::try_parse;
    use super::*;

    fn parallel(flags: &str) -> ParallelArguments {
        try_parse(flags).expect("they are flags")
    }

    #[test]
    fn overlaps_have_several_spellings() {
        let overlap = |flags: &str| {
            let overlap = parallel(flags).communication.layer_overlap();
            let overlap = overlap.map_err(|error| error.to_string())?;
            Ok::<_, String>((overlap.overlaps_reduce, overlap.chunks))
        };
        let chunks = TensorOverlap::Chunks(NonZeroUsize::MIN);
        for (same, expected) in [
            (
                ["", "--overlap-tensor-reduce", "--tp-comm-overlap reduce"],
                (true, TensorOverlap::Off),
            ),
            (
                [
                    "--overlap-tensor-reduce false",
                    "--tp-comm-overlap off",
                    "--tp-comm-overlap=off",
                ],
                (false, TensorOverlap::Off),
            ),
            (
                [
                    "--tp-comm-overlap",
                    "--tp-comm-overlap chunks",
                    "--tp-comm-overlap --overlap-tensor-reduce",
                ],
                (true, TensorOverlap::WhereItPays),
            ),
            (
                [
                    "--tp-comm-overlap --overlap-tensor-reduce false",
                    "--tp-comm-overlap chunks --overlap-tensor-reduce false",
                    "--overlap-tensor-reduce false --tp-comm-overlap",
                ],
                (false, TensorOverlap::WhereItPays),
            ),
            (
                [
                    "--tp-comm-overlap 1",
                    "--tp-comm-overlap --tp-comm-overlap-chunks 1",
                    "--tp-comm-overlap=1",
                ],
                (true, chunks),
            ),
        ] {
            for flags in same {
                assert_eq!(overlap(flags), Ok(expected), "{flags}");
            }
        }
        for flag in ["--overlap-tensor-reduce true", "--tp-comm-overlap-chunks 2"] {
            let error = overlap(&format!("--tp-comm-overlap off {flag}")).expect_err("contradicts");
            assert_eq!(
                error,
                format!("{flag} contradicts --tp-comm-overlap: leave one of them out")
            );
        }
    }

    #[test]
    fn nodes_that_are_left_out_have_no_ranks_and_the_others_are_numbered_anew() {
        let all = "--world-size 16 --nnodes 4 --master-addr a --exclude-nodes";
        for (node, rank) in [(0, 0), (3, 1)] {
            let parallel = parallel(&format!("{all} 1,2 --node-rank {node}"));
            let nodes = parallel.launcher.nodes().expect("valid").expect("several nodes");
            assert_eq!((nodes.count, nodes.rank), (2, rank));
            assert_eq!(parallel.world_size(), 8);
            assert!(!parallel.launcher.is_excluded());
        }
        assert!(parallel(&format!("{all} 1,2 --node-rank 1")).launcher.is_excluded());
        let error = |flags: &str| {
            let checked = parallel(&format!("{all} {flags}")).launcher.check();
            checked.expect_err("invalid").to_string()
        };
        assert_eq!(
            error("1,4"),
            "--exclude-nodes 4: there is no such node; valid are 0 to 3"
        );
        assert_eq!(error("3,2,1,0"), "--exclude-nodes leaves out all 4 nodes");
        let uneven = parallel("--world-size 10 --nnodes 4 --master-addr a --exclude-nodes 3");
        let uneven = uneven.check_nodes().expect_err("10 ranks are not those of 4 nodes");
        assert!(uneven.to_string().contains("multiple of --nnodes 4"), "{uneven}");
    }
}
