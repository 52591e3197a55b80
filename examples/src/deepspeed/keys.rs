//! The keys of DeepSpeed's configuration: what each must be, and what becomes of it.
//!
//! Names and types are those of DeepSpeed at `edaa7221` (`deepspeed/runtime/config.py`, `constants.py`,
//! `zero/config.py`, `zero/offload_config.py`, `precision_config.py`, `lr_schedules.py` and the constants of its
//! monitors and profilers), with names that earlier versions had and files still have. A key that is
//! [read](Effect::Read) is read in `mapping`, by its path, and one that [means](Effect::Means) a flag becomes it.

use burn_megatron_data::names::{Effect, Values};

#[derive(Clone, Copy, Debug)]
pub(super) struct Key {
    pub name: &'static str,
    pub form: Form,
    pub effect: Effect,
}

/// The form of a value. Any but a section may be `null`, which is as if the key was not there; a single value, or one
/// of a list, may be `"auto"`. Numbers and bools may be written as texts, and bools as 0 and 1.
#[derive(Clone, Copy, Debug)]
pub(super) enum Form {
    Bool,
    /// A whole number, at least this.
    Count(u64),
    /// Steps between two events, at least 1; `Infinity` is never.
    Interval,
    /// A number from the first to the second.
    Number(f64, f64),
    /// Two numbers in [0, 1).
    Betas,
    Text,
    Choice(&'static [&'static str]),
    /// An object of these keys.
    Section(&'static [Key]),
    /// An object of these keys, or a bool as in early versions.
    SectionOrBool(&'static [Key]),
    /// Anything: its content is not looked at.
    Any,
    /// Anything, of which this key is judged, in the object itself or also in the objects inside.
    With(&'static str, Depth),
}

/// The objects in which a key is looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Depth {
    Own,
    All,
}

const POSITIVE: Form = Form::Number(0.0, f64::MAX);
const SHARE: Form = Form::Number(0.0, 1.0);
const TYPES: Form = Form::Choice(&["fp32", "fp16", "bf16"]);

/// Values of a switch that is off.
const OFF: Values = &["false", "0", "null", "auto"];

const fn flag(name: &'static str, form: Form, flag: &'static str) -> Key {
    let effect = Effect::Means(flag);
    Key { name, form, effect }
}

const fn mapped(name: &'static str, form: Form) -> Key {
    let effect = Effect::Read;
    Key { name, form, effect }
}

const fn idle(name: &'static str, form: Form) -> Key {
    let effect = Effect::Idle;
    Key { name, form, effect }
}

const fn only(name: &'static str, form: Form, values: Values, why: &'static str) -> Key {
    let effect = Effect::Only(values, why);
    Key { name, form, effect }
}

/// A section that is refused where it is enabled.
const fn refused_enabled(name: &'static str, why: &'static str) -> Key {
    only(name, Form::With("enabled", Depth::Own), OFF, why)
}

const fn refused_true(name: &'static str, why: &'static str) -> Key {
    only(name, Form::Bool, OFF, why)
}

/// Returns whether a key is a comment, of which there are none in JSON.
pub(super) fn is_comment(name: &str) -> bool {
    const NAMES: [&str; 5] = ["comment", "comments", "description", "note", "notes"];
    name.starts_with(['_', '/', '#', '$']) || NAMES.contains(&name)
}

/// The keys of the whole.
#[rustfmt::skip] // A key is a line.
pub(super) const TOP: &[Key] = &[
    mapped("train_batch_size", Form::Count(1)),
    mapped("train_micro_batch_size_per_gpu", Form::Count(1)),
    mapped("gradient_accumulation_steps", Form::Count(1)),
    mapped("zero_optimization", Form::SectionOrBool(ZERO)),
    mapped("fp16", Form::Section(FP16)),
    mapped("bf16", Form::Section(BF16)),
    mapped("bfloat16", Form::Section(BF16)),
    mapped("optimizer", Form::Section(OPTIMIZER)),
    mapped("scheduler", Form::Section(SCHEDULER)),
    flag("gradient_clipping", POSITIVE, "--clip-grad"),
    flag("steps_per_print", Form::Interval, "--log-interval"),
    mapped("wall_clock_breakdown", Form::Bool),
    mapped("activation_checkpointing", Form::Section(ACTIVATION_CHECKPOINTING)),
    mapped("prescale_gradients", Form::Bool),
    mapped("gradient_predivide_factor", POSITIVE),
    only("gradient_allreduce_op", Form::Choice(&["mean", "sum"]), &["mean"],
        "gradients are the mean over the global batch"),
    refused_enabled("amp", "there is no Apex here: enable fp16 or bf16"),
    refused_enabled("torch_autocast", "operations are not cast one by one: enable bf16"),
    refused_enabled("elasticity", "it chooses the batch size by the number of ranks: give train_batch_size"),
    refused_enabled("curriculum_learning", "samples have one length from the first step on"),
    refused_enabled("data_efficiency", "samples and tokens are neither chosen by difficulty nor dropped"),
    only("compression_training", Form::With("enabled", Depth::All), OFF,
        "weights are neither quantized nor pruned in training"),
    only("quantize_training", Form::With("enabled", Depth::All), OFF, "weights are not quantized in training"),
    only("sparse_attention", Form::Any, &[], "attention is dense: leave it out"),
    refused_enabled("progressive_layer_drop", "every layer runs in every step"),
    only("tensor_parallel", Form::With("autotp_size", Depth::Own), &["0", "1", "null", "auto"],
        "give --tensor-model-parallel-size"),
    refused_enabled("expert_parallel", "the models have no experts"),
    only("sequence_parallel_size", Form::Count(1), &["1"],
        "samples are not shared out over ranks by their tokens; --sequence-parallel shards activations"),
    idle("aio", Form::Any),
    idle("allgather_size", Form::Count(0)),
    idle("autotuning", Form::Any),
    idle("checkpoint", Form::Any),
    idle("comet", Form::Section(COMET)),
    idle("comms_logger", Form::Section(COMMS_LOGGER)),
    idle("communication_data_type", TYPES),
    idle("compile", Form::Any),
    idle("csv_monitor", Form::Section(FILE_MONITOR)),
    idle("data_types", Form::Section(DATA_TYPES)),
    idle("dataloader_drop_last", Form::Bool),
    idle("datastates_ckpt", Form::Any),
    idle("disable_allgather", Form::Bool),
    idle("dump_state", Form::Bool),
    idle("eigenvalue", Form::Any),
    idle("flops_profiler", Form::Section(FLOPS_PROFILER)),
    idle("graph_harvesting", Form::Bool),
    idle("hybrid_engine", Form::Any),
    idle("log_level", Form::Text),
    idle("managed_gradient_accumulation", Form::Bool),
    idle("memory_breakdown", Form::Bool),
    idle("nebula", Form::Any),
    idle("pipeline", Form::Any),
    idle("seq_parallel_communication_data_type", TYPES),
    idle("sparse_gradients", Form::Bool),
    idle("tensorboard", Form::Section(FILE_MONITOR)),
    idle("timers", Form::Any),
    idle("use_data_before_expert_parallelism", Form::Bool),
    idle("vocabulary_size", Form::Count(1)),
    idle("wandb", Form::Section(WANDB)),
    idle("weight_quantization", Form::Any),
    idle("zero_allow_untested_optimizer", Form::Bool),
    idle("zero_force_ds_cpu_optimizer", Form::Bool),
];

#[rustfmt::skip] // A key is a line.
const ZERO: &[Key] = &[
    mapped("stage", Form::Count(0)),
    mapped("reduce_bucket_size", Form::Count(1)),
    mapped("allgather_bucket_size", Form::Count(1)),
    mapped("overlap_comm", Form::Bool),
    mapped("offload_optimizer", Form::Section(OFFLOAD_OPTIMIZER)),
    mapped("offload_param", Form::Section(OFFLOAD_PARAM)),
    // Deprecated by DeepSpeed; the third is an earlier name of the second.
    mapped("cpu_offload", Form::Bool),
    mapped("cpu_offload_param", Form::Bool),
    mapped("cpu_offload_params", Form::Bool),
    refused_true("zero_quantized_weights", QUANTIZED),
    refused_true("zero_quantized_nontrainable_weights", QUANTIZED),
    refused_true("zero_quantized_gradients", QUANTIZED),
    only("zenflow", Form::Any, &[], "every parameter is updated in every step: leave it out"),
    idle("allgather_partitions", Form::Bool),
    idle("allgather_sequential", Form::Bool),
    idle("contiguous_gradients", Form::Bool),
    idle("cpu_offload_use_pin_memory", Form::Bool),
    idle("elastic_checkpoint", Form::Bool),
    idle("enable_sanity_checks", Form::Bool),
    idle("gather_16bit_weights_on_model_save", Form::Bool),
    idle("ignore_unused_parameters", Form::Bool),
    idle("leaf_module", Form::Any),
    idle("legacy_stage1", Form::Bool),
    idle("load_from_fp32_weights", Form::Bool),
    idle("log_trace_cache_warnings", Form::Bool),
    idle("max_live_parameters", Form::Count(0)),
    idle("max_reuse_distance", Form::Count(0)),
    idle("memory_efficient_linear", Form::Bool),
    idle("mics_hierarchical_params_gather", Form::Bool),
    idle("mics_shard_size", Form::Number(-1.0, f64::MAX)),
    idle("model_persistence_threshold", Form::Count(0)),
    idle("module_granularity_threshold", Form::Count(0)),
    idle("override_module_apply", Form::Bool),
    idle("param_persistence_threshold", Form::Count(0)),
    idle("pipeline_loading_checkpoint", Form::Bool),
    idle("prefetch_bucket_size", Form::Count(0)),
    idle("reduce_scatter", Form::Bool),
    idle("round_robin_gradients", Form::Bool),
    idle("save_muon_momentum_buffer_in_memory", Form::Bool),
    idle("stage3_allgather_sequential", Form::Bool),
    idle("stage3_gather_16bit_weights_on_model_save", Form::Bool),
    idle("stage3_gather_fp16_weights_on_model_save", Form::Bool),
    idle("stage3_max_live_parameters", Form::Count(0)),
    idle("stage3_max_reuse_distance", Form::Count(0)),
    idle("stage3_model_persistence_threshold", Form::Count(0)),
    idle("stage3_module_granularity_threshold", Form::Count(0)),
    idle("stage3_param_persistence_threshold", Form::Count(0)),
    idle("stage3_prefetch_bucket_size", Form::Count(0)),
    idle("stage3_use_all_reduce_for_fetch_params", Form::Bool),
    idle("sub_group_size", Form::Count(0)),
    idle("use_all_reduce_for_fetch_params", Form::Bool),
    idle("use_multi_rank_bucket_allreduce", Form::Bool),
    idle("zero_hpz_partition_size", Form::Count(0)),
    idle("zeropp_loco_param", Form::Any),
];

const QUANTIZED: &str = "what ranks send each other is not quantized";
const DEVICES: Form = Form::Choice(&["none", "cpu", "nvme"]);

const OFFLOAD_OPTIMIZER: &[Key] = &[
    mapped("device", DEVICES),
    mapped("nvme_path", Form::Text),
    mapped("ratio", SHARE),
    idle("buffer_count", Form::Count(0)),
    idle("buffer_size", Form::Count(0)),
    idle("cpuadam_cores_perc", SHARE),
    idle("fast_init", Form::Bool),
    idle("pin_memory", Form::Bool),
    idle("pipeline_read", Form::Bool),
    idle("pipeline_write", Form::Bool),
    idle("super_offload", Form::Bool),
];

const OFFLOAD_PARAM: &[Key] = &[
    mapped("device", DEVICES),
    mapped("nvme_path", Form::Text),
    idle("buffer_count", Form::Count(0)),
    idle("buffer_size", Form::Count(0)),
    idle("max_in_cpu", Form::Count(0)),
    idle("pin_memory", Form::Bool),
];

const FP16: &[Key] = &[
    mapped("enabled", Form::Bool),
    // GPT-NeoX's.
    mapped("type", Form::Choice(&["fp16", "float16", "bf16", "bfloat16"])),
    mapped("loss_scale", POSITIVE),
    mapped("initial_scale_power", Form::Count(0)),
    mapped("loss_scale_window", Form::Count(1)),
    mapped("hysteresis", Form::Count(1)),
    mapped("min_loss_scale", POSITIVE),
    mapped("consecutive_hysteresis", Form::Bool),
    mapped("fp16_master_weights_and_grads", Form::Bool),
    idle("auto_cast", Form::Bool),
];

const BF16: &[Key] = &[
    mapped("enabled", Form::Bool),
    mapped("bf16_master_weights_and_grads", Form::Bool),
    mapped("bf16_optimizer_states", Form::Bool),
    idle("check_grad_overflow", Form::Bool),
    idle("immediate_grad_update", Form::Bool),
    // bf16 has no loss scale; files that were made from a section fp16 have its keys.
    idle("auto_cast", Form::Bool),
    idle("hysteresis", Form::Count(0)),
    idle("initial_scale_power", Form::Count(0)),
    idle("loss_scale", POSITIVE),
    idle("loss_scale_window", Form::Count(0)),
    idle("min_loss_scale", POSITIVE),
];

const OPTIMIZER: &[Key] = &[
    mapped("type", Form::Text),
    mapped("params", Form::Section(OPTIMIZER_PARAMS)),
    idle("legacy_fusion", Form::Bool),
];

#[rustfmt::skip] // A key is a line.
const OPTIMIZER_PARAMS: &[Key] = &[
    mapped("lr", POSITIVE),
    mapped("betas", Form::Betas),
    mapped("eps", POSITIVE),
    mapped("weight_decay", POSITIVE),
    mapped("momentum", SHARE),
    mapped("adam_w_mode", Form::Bool),
    mapped("adamw_mode", Form::Bool),
    mapped("torch_adam", Form::Bool),
    mapped("muon_lr", POSITIVE),
    mapped("adam_lr", POSITIVE),
    mapped("beta2_decay", Form::Number(f64::MIN, 0.0)),
    mapped("d", Form::Number(1.0, f64::MAX)),
    refused_true("amsgrad", "the second moment is not the largest so far"),
    only("bias_correction", Form::Bool, &["true"], "Adam's moments are corrected for their bias"),
    only("dampening", POSITIVE, &["0"], "the gradient is added to the momentum whole"),
    refused_true("nesterov", "the momentum is not Nesterov's"),
    refused_true("maximize", "the loss is minimized"),
    only("max_grad_norm", POSITIVE, &[], "DeepSpeed refuses it too: write gradient_clipping"),
    idle("capturable", Form::Bool),
    idle("foreach", Form::Bool),
    idle("fp32_optimizer_states", Form::Bool),
    idle("fused", Form::Bool),
    idle("ns_method", Form::Text),
    idle("set_grad_none", Form::Bool),
];

#[rustfmt::skip] // A key is a line.
const SCHEDULER: &[Key] = &[
    mapped("type", Form::Choice(&["WarmupLR", "WarmupDecayLR", "WarmupCosineLR", "OneCycle", "LRRangeTest"])),
    mapped("params", Form::Section(SCHEDULER_PARAMS)),
];

const SCHEDULER_PARAMS: &[Key] = &[
    mapped("warmup_min_lr", POSITIVE),
    mapped("warmup_max_lr", POSITIVE),
    mapped("warmup_num_steps", Form::Count(1)),
    mapped("warmup_type", Form::Choice(&["log", "linear"])),
    mapped("total_num_steps", Form::Count(1)),
    mapped("warmup_min_ratio", SHARE),
    mapped("cos_min_ratio", SHARE),
    mapped("cycle_min_lr", POSITIVE),
    mapped("cycle_max_lr", POSITIVE),
    mapped("cycle_first_step_size", Form::Count(1)),
    mapped("cycle_second_step_size", Form::Count(1)),
    mapped("cycle_first_stair_count", Form::Count(0)),
    mapped("cycle_second_stair_count", Form::Count(0)),
    mapped("decay_step_size", Form::Count(0)),
    mapped("decay_lr_rate", POSITIVE),
    mapped("cycle_momentum", Form::Bool),
    idle("cycle_min_mom", SHARE),
    idle("cycle_max_mom", SHARE),
    idle("decay_mom_rate", POSITIVE),
    idle("lr_range_test_min_lr", POSITIVE),
    idle("lr_range_test_step_size", Form::Count(1)),
    idle("lr_range_test_step_rate", POSITIVE),
    idle("lr_range_test_staircase", Form::Bool),
    idle("last_batch_iteration", Form::Number(-1.0, f64::MAX)),
];

const ACTIVATION_CHECKPOINTING: &[Key] = &[
    mapped("cpu_checkpointing", Form::Bool),
    mapped("partition_activations", Form::Bool),
    mapped("number_checkpoints", Form::Count(0)),
    idle("contiguous_memory_optimization", Form::Bool),
    idle("profile", Form::Bool),
    idle("synchronize_checkpoint_boundary", Form::Bool),
];

const FILE_MONITOR: &[Key] = &[
    idle("enabled", Form::Bool),
    idle("output_path", Form::Text),
    idle("job_name", Form::Text),
];

const WANDB: &[Key] = &[
    idle("enabled", Form::Bool),
    idle("group", Form::Text),
    idle("team", Form::Text),
    idle("project", Form::Text),
];

const COMET: &[Key] = &[
    idle("enabled", Form::Bool),
    idle("samples_log_interval", Form::Count(1)),
    idle("project", Form::Text),
    idle("workspace", Form::Text),
    idle("api_key", Form::Text),
    idle("experiment_name", Form::Text),
    idle("experiment_key", Form::Text),
    idle("online", Form::Bool),
    idle("mode", Form::Text),
];

const FLOPS_PROFILER: &[Key] = &[
    idle("enabled", Form::Bool),
    idle("recompute_fwd_factor", POSITIVE),
    idle("profile_step", Form::Number(-1.0, f64::MAX)),
    idle("module_depth", Form::Number(-1.0, f64::MAX)),
    idle("top_modules", Form::Count(0)),
    idle("detailed", Form::Bool),
    idle("output_file", Form::Text),
];

const COMMS_LOGGER: &[Key] = &[
    idle("enabled", Form::Bool),
    idle("verbose", Form::Bool),
    idle("prof_all", Form::Bool),
    idle("debug", Form::Bool),
    idle("prof_ops", Form::Any),
];

const DATA_TYPES: &[Key] = &[
    idle("grad_accum_dtype", TYPES),
    idle("param_dtype", TYPES),
    idle("buffer_dtype", TYPES),
];
