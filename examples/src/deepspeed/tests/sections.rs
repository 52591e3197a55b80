//! What each section becomes.

use super::{flags, refusal, report, translate, without_effect, words};
use crate::arguments::tests::cases;

#[test]
fn two_of_three_batch_sizes_give_the_third() {
    let two_ranks = "--world-size 4 --pipeline-model-parallel-size 2";
    for [text, expected] in cases(
        r#"
        {"train_batch_size": 24, "train_micro_batch_size_per_gpu": 4} => --global-batch-size 24 --micro-batch-size 4
        {"train_batch_size": 24, "gradient_accumulation_steps": 3} => --global-batch-size 24 --micro-batch-size 4
        {"train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 3}
            => --micro-batch-size 4 --global-batch-size 24
        {"train_batch_size": 24, "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 3}
            => --global-batch-size 24 --micro-batch-size 4
        // One alone, as DeepSpeed has it: one step of accumulation.
        {"train_batch_size": 24} => --global-batch-size 24 --micro-batch-size 12
        {"train_micro_batch_size_per_gpu": 4} => --micro-batch-size 4 --global-batch-size 8
        "#,
    ) {
        assert_eq!(flags(text, two_ranks), expected, "{text}");
    }
    // A flag is as good as a key.
    assert_eq!(
        flags(r#"{"gradient_accumulation_steps": 3}"#, "--micro-batch-size 4"),
        "--global-batch-size 12"
    );
    assert_eq!(
        flags(r#"{"train_batch_size": 24}"#, "--micro-batch-size 4"),
        "--global-batch-size 24"
    );
    let auto = r#"{"train_batch_size": 24, "train_micro_batch_size_per_gpu": "auto"}"#;
    assert_eq!(flags(auto, ""), "--global-batch-size 24");
}

#[test]
fn the_ranks_of_a_launcher_count() {
    let text = r#"{"train_micro_batch_size_per_gpu": 4}"#;
    let report = translate(text, &words("--model-parallel-size=2"), Some(8)).unwrap();
    assert_eq!(report.flags[1].shown(), "--global-batch-size 16");
    let message = refusal(text, "--world-size 3 --tensor_model_parallel_size 2");
    assert!(message.contains("world size") && message.contains('3'), "{message}");
    assert_eq!(
        refusal(text, "--world-size many"),
        "--world-size must be a whole number, got \"many\""
    );
}

#[test]
fn batch_sizes_that_do_not_fit_are_refused_with_valid_ones() {
    let text = r#"{"train_batch_size": 32, "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 3}"#;
    assert_eq!(
        refusal(text, "--world-size 2"),
        "train_batch_size 32 must be train_micro_batch_size_per_gpu 4 * gradient_accumulation_steps 3 * data-parallel \
         size 2 = 24; valid with the other two: train_batch_size 24, or gradient_accumulation_steps 4"
    );
    assert_eq!(
        refusal(r#"{"train_batch_size": 30}"#, "--world-size 2 --micro-batch-size 4"),
        "train_batch_size 30 must be a multiple of --micro-batch-size 4 * data-parallel size 2 = 8; nearest: 24 and 32"
    );
    assert_eq!(
        refusal(r#"{"train_batch_size": 1}"#, "--world-size 2"),
        "train_batch_size 1 must be a multiple of data-parallel size 2 = 2; nearest: 2"
    );
    assert!(refusal(r#"{"gradient_accumulation_steps": 2}"#, "").contains("alone gives no batch size"));
    let huge = r#"{"train_micro_batch_size_per_gpu": 1e15, "gradient_accumulation_steps": 1e15}"#;
    assert!(refusal(huge, "").contains("too large"));
}

#[test]
fn offloading_has_the_flags_of_its_device() {
    let zero = |keys: &str| format!(r#"{{"zero_optimization": {{{keys}}}}}"#);
    for (keys, expected) in [
        (
            r#""offload_optimizer": {"device": "cpu", "ratio": 0.25}"#,
            "--optimizer-cpu-offload --optimizer-offload-fraction 0.25",
        ),
        (
            r#""offload_optimizer": {"device": "nvme", "nvme_path": "/a"}"#,
            "--offload-optimizer nvme --nvme-path /a",
        ),
        (
            r#""offload_optimizer": {"device": "nvme", "nvme_path": "/a"}, "offload_param": {"device": "nvme",
                "nvme_path": "/a"}"#,
            "--offload-optimizer nvme --offload-param nvme --nvme-path /a",
        ),
        (
            r#""offload_optimizer": {"device": "none"}, "offload_param": {"device": "none", "nvme_path": "/a"}"#,
            "",
        ),
        (
            r#""cpu_offload": true, "cpu_offload_params": true"#,
            "--optimizer-cpu-offload --offload-param cpu",
        ),
        (r#""cpu_offload": false, "cpu_offload_param": false"#, ""),
    ] {
        assert_eq!(flags(&zero(keys), ""), expected, "{keys}");
    }
    let nvme = zero(r#""offload_param": {"device": "nvme"}"#);
    assert!(refusal(&nvme, "").starts_with("zero_optimization.offload_param.nvme_path is missing"));
    assert_eq!(flags(&nvme, "--nvme-path /b"), "--offload-param nvme");
    let two = zero(
        r#""offload_optimizer": {"device": "nvme", "nvme_path": "/a"}, "offload_param": {"device": "nvme",
            "nvme_path": "/b"}"#,
    );
    assert_eq!(
        flags(&two, ""),
        "--offload-optimizer nvme --offload-param nvme --nvme-path /a --param-nvme-path /b"
    );
    let both = zero(r#""cpu_offload": true, "offload_optimizer": {"device": "cpu"}"#);
    assert!(refusal(&both, "").contains("is there too"));
}

#[test]
fn buckets_are_those_of_the_reduction() {
    let text = r#"{"zero_optimization": {"stage": 1, "reduce_bucket_size": 5e8, "allgather_bucket_size": 2e8}}"#;
    assert_eq!(flags(text, ""), "--zero-stage 1 --ddp-bucket-size 500000000");
    assert_eq!(
        without_effect(&report(text, "")),
        ["zero_optimization.allgather_bucket_size"]
    );
    let gathers = r#"{"zero_optimization": {"allgather_bucket_size": 7}}"#;
    assert_eq!(flags(gathers, ""), "--ddp-bucket-size 7");
    assert_eq!(
        flags(r#"{"zero_optimization": true, "allgather_size": 9}"#, ""),
        "--zero-stage 1"
    );
    assert_eq!(flags(r#"{"zero_optimization": false}"#, ""), "--zero-stage 0");
}

#[test]
fn precision_has_one_type_and_a_scale_where_it_is_fp16() {
    let both = r#"{"fp16": {"enabled": true}, "bf16": {"enabled": true}}"#;
    assert_eq!(
        refusal(both, ""),
        "fp16.enabled true cannot be honoured: bf16.enabled is true as well; enable one of them"
    );
    assert_eq!(flags(r#"{"bfloat16": {"enabled": true}}"#, ""), "--bf16");
    let twice = r#"{"fp16": {"enabled": true}}"#;
    assert!(!flags(twice, "--dtype f16").contains("--fp16"));

    let constant = r#"{"fp16": {"enabled": true, "loss_scale": 128, "hysteresis": 3}}"#;
    assert_eq!(flags(constant, ""), "--fp16 --loss-scale 128");
    assert_eq!(without_effect(&report(constant, "")), ["fp16.hysteresis"]);
    let off = r#"{"fp16": {"enabled": false, "loss_scale": 0, "min_loss_scale": 1}}"#;
    assert!(flags(off, "").is_empty());
    assert_eq!(
        without_effect(&report(off, "")),
        ["fp16.loss_scale", "fp16.min_loss_scale"]
    );
}

#[test]
fn optimizers_have_deepspeeds_defaults() {
    let of = |name: &str, params: &str| {
        let text = format!(r#"{{"optimizer": {{"type": "{name}", "params": {{{params}}}}}}}"#);
        flags(&text, "")
    };
    assert_eq!(
        of("SGD", r#""lr": 0.1"#),
        "--optimizer sgd --lr 0.1 --sgd-momentum 0 --weight-decay 0"
    );
    assert_eq!(
        of("Lion", r#""weight_decay": 0.5"#),
        "--optimizer lion --lr 0.001 --lion-beta1 0.9 --lion-beta2 0.999 --weight-decay 0.5"
    );
    assert_eq!(
        of("Muon", r#""lr": 0.02, "muon_lr": 0.02, "momentum": 0.9"#),
        "--optimizer muon --lr 0.02 --muon-momentum 0.9 --adam-beta1 0.9 --adam-beta2 0.95 --adam-eps 1e-10 \
         --weight-decay 0"
    );
    assert_eq!(
        of("Adafactor", r#""beta2_decay": -0.5"#),
        "--optimizer adafactor --lr 0.01 --adafactor-beta2-decay -0.5 --adafactor-clip-threshold 1 --weight-decay 0"
    );
    // PyTorch's AdamW decays by default.
    assert!(of("AdamW", r#""torch_adam": true"#).ends_with("--weight-decay 0.01"));
    assert!(of("Adam", r#""torch_adam": true"#).ends_with("--weight-decay 0"));
    // DeepSpeed's Adam adds the decay to the gradient where the file says so, its AdamW never.
    for (name, mode, is_coupled) in [("Adam", false, true), ("Adam", true, false), ("AdamW", false, false)] {
        let params = format!(r#""adam_w_mode": {mode}, "weight_decay": 0.1"#);
        let flags = of(name, &params);
        assert!(flags.contains("--weight-decay 0.1"));
        assert_eq!(
            flags.contains("--no-decoupled-weight-decay"),
            is_coupled,
            "{name} {mode}"
        );
    }
    assert_eq!(
        refusal(r#"{"optimizer": {"type": "Lamb"}}"#, ""),
        "optimizer.type \"Lamb\" cannot be honoured: there is no such optimizer here; valid are adam, adamw, \
         fusedadam, deepspeedcpuadam, sgd, lion, fusedlion, deepspeedcpulion, muon, adafactor"
    );
    assert!(refusal(r#"{"optimizer": {"params": {"lr": 1}}}"#, "").starts_with("optimizer.type is missing"));
    let rates = r#"{"optimizer": {"type": "Muon", "params": {"lr": 0.02, "adam_lr": 3e-4}}}"#;
    assert!(refusal(rates, "").contains("one learning rate"));
    assert!(refusal(r#"{"optimizer": {"type": "Muon"}}"#, "").contains("give it, or --lr"));
}

#[test]
fn schedulers_become_lines_and_cosines() {
    let of = |name: &str, params: &str| format!(r#"{{"scheduler": {{"type": "{name}", "params": {{{params}}}}}}}"#);
    let linear = r#""warmup_type": "linear", "warmup_num_steps": 10"#;
    assert_eq!(
        flags(&of("WarmupLR", linear), ""),
        "--lr-decay-style constant --lr-warmup-init 0 --lr-warmup-iters 10"
    );
    assert_eq!(
        flags(
            &of(
                "WarmupDecayLR",
                &format!(r#"{linear}, "warmup_min_lr": 1e-5, "total_num_steps": 100"#)
            ),
            ""
        ),
        "--lr-decay-style linear --lr 0.001 --lr-warmup-init 1e-5 --min-lr 1e-5 --lr-warmup-iters 10 \
         --lr-decay-iters 100"
    );
    assert_eq!(
        flags(
            &of(
                "WarmupCosineLR",
                &format!(r#"{linear}, "cos_min_ratio": 0.5, "total_num_steps": 100"#)
            ),
            "--lr 0.25"
        ),
        "--lr-decay-style cosine --lr-warmup-init 0 --min-lr 0.125 --lr-warmup-iters 10 --lr-decay-iters 100"
    );
    let cycle = r#""cycle_min_lr": 0.5, "cycle_max_lr": 1, "cycle_first_step_size": 4, "cycle_momentum": false"#;
    assert_eq!(
        flags(&of("OneCycle", cycle), ""),
        "--lr-decay-style linear --lr 1 --lr-warmup-init 0.5 --min-lr 0.5 --lr-warmup-iters 4 --lr-decay-iters 8"
    );
    for (name, params, word) in [
        (
            "WarmupLR",
            r#""warmup_num_steps": 10"#,
            "DeepSpeed's default is log; give linear",
        ),
        (
            "WarmupLR",
            r#""warmup_type": "log""#,
            "DeepSpeed's default is log; give linear",
        ),
        ("WarmupDecayLR", linear, "total_num_steps is missing"),
        ("WarmupCosineLR", linear, "give it, or --lr"),
        ("OneCycle", &cycle.replace("false", "true"), "the momentum stays"),
        (
            "OneCycle",
            &format!(r#"{cycle}, "cycle_first_stair_count": 2"#),
            "no stairs",
        ),
        (
            "OneCycle",
            &format!(r#"{cycle}, "decay_lr_rate": 0.1, "decay_step_size": 5"#),
            "after the cycle",
        ),
        (
            "LRRangeTest",
            "",
            "WarmupLR, WarmupDecayLR, WarmupCosineLR and OneCycle",
        ),
    ] {
        let message = refusal(&of(name, params), "");
        assert!(message.contains(word), "{name}: {message}");
    }
}

#[test]
fn the_schedulers_rate_replaces_the_optimizers() {
    let text = |rate: &str| {
        format!(
            r#"{{"optimizer": {{"type": "Adam", "params": {{"lr": {rate}}}}},
            "scheduler": {{"type": "WarmupLR", "params": {{"warmup_max_lr": 0.001, "warmup_type": "linear"}}}}}}"#
        )
    };
    let other = report(&text("0.5"), "");
    assert_eq!(other.flags.iter().filter(|flag| flag.flag == "--lr").count(), 1);
    assert_eq!(
        other.without_effect,
        [(
            "optimizer.params.lr".to_owned(),
            Some("scheduler.params.warmup_max_lr replaces it".to_owned())
        )]
    );
    assert!(report(&text("1e-3"), "").without_effect.is_empty());
}

#[test]
fn the_rest_has_its_flags() {
    let text = r#"{"wall_clock_breakdown": true, "activation_checkpointing": {"cpu_checkpointing": false,
        "partition_activations": true, "number_checkpoints": 4}, "steps_per_print": 1e3, "gradient_clipping": 0}"#;
    assert_eq!(
        flags(text, "--sequence-parallel --tensor-model-parallel-size 2"),
        "--log-interval 1000 --clip-grad 0 --timing-log-level 2"
    );
    let on_cpu = r#"{"activation_checkpointing": {"cpu_checkpointing": true}}"#;
    assert_eq!(flags(on_cpu, ""), "--cpu-offloading");
    let report = report(text, "--sequence-parallel");
    assert!(report.without_effect.iter().all(|(_, why)| why.is_some()), "{report}");
}
