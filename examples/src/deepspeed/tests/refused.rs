//! Configurations that are refused.

use super::{flags, refusal, report, without_effect};
use crate::arguments::tests::cases;

#[test]
fn an_unknown_key_is_named_with_the_nearest_known_one() {
    for (text, path, nearest) in [
        (r#"{"train_batchsize": 8}"#, "train_batchsize", "train_batch_size"),
        (
            r#"{"zero_optimization": {"offload_optimiser": {}}}"#,
            "zero_optimization.offload_optimiser",
            "zero_optimization.offload_optimizer",
        ),
        // As in a file of DeepSpeed's examples.
        (
            r#"{"zero_optimization": {"stage3_param_persitance_threshold": 1e5}}"#,
            "zero_optimization.stage3_param_persitance_threshold",
            "zero_optimization.stage3_param_persistence_threshold",
        ),
        (
            r#"{"zero_optimization": {"offload_param": {"devise": "cpu"}}}"#,
            "zero_optimization.offload_param.devise",
            "zero_optimization.offload_param.device",
        ),
        (
            r#"{"optimizer": {"type": "Adam", "params": {"weightdecay": 0}}}"#,
            "optimizer.params.weightdecay",
            "optimizer.params.weight_decay",
        ),
        (
            r#"{"scheduler": {"type": "WarmupLR", "params": {"warmup_steps": 1}}}"#,
            "scheduler.params.warmup_steps",
            "scheduler.params.warmup_type",
        ),
        (
            r#"{"tensorboard": {"enable": true}}"#,
            "tensorboard.enable",
            "tensorboard.enabled",
        ),
        (r#"{"fp16": {"a\u001bb": 1}}"#, "fp16.a\\u{1b}b", "fp16.enabled"),
    ] {
        let message = refusal(text, "");
        let expected = format!("{path} is not known: the nearest known name is ");
        let found = message.strip_prefix(&expected);
        let found = found.unwrap_or_else(|| panic!("{message} instead of {expected}"));
        if !path.contains("u{1b}") {
            assert_eq!(found, nearest);
        }
    }
}

#[test]
fn what_is_no_json_object_is_refused_with_line_and_column() {
    for (text, expected) in [
        ("{\n  \"stage\": }", "line 2 cannot be read at column 12: \"stage\": }"),
        ("", "the text ends in line 1, with brackets or quotes open"),
        ("{\n\"a\": [1,", "the text ends in line 2, with brackets or quotes open"),
        ("{} {}", "line 1 cannot be read at column 4: {} {}"),
        (
            r#"{"gradient_clipping": 1e999}"#,
            r#"line 1 cannot be read at column 27: {"gradient_clipping": 1e999}"#,
        ),
    ] {
        assert_eq!(refusal(text, ""), format!("not JSON: {expected}"));
    }
    assert!(refusal(&"[".repeat(100_000), "").len() < 200);
    assert_eq!(
        refusal("[1]", ""),
        "the configuration must be an object of keys, got [1]"
    );
}

#[test]
fn a_key_that_occurs_twice_is_refused_by_path() {
    let message = refusal(r#"{"zero_optimization": {"stage": 1, "stage": 1}}"#, "");
    assert_eq!(message, "zero_optimization.stage occurs twice: leave one of them out");
    let message = refusal(r#"{"aio": {"a": [{"b": 1, "b": null}]}}"#, "");
    assert_eq!(message, "aio.a.b occurs twice: leave one of them out");
    let message = refusal(r#"{"steps_per_print": 1, "bf16": {}, "steps_per_print": 2}"#, "");
    assert_eq!(message, "steps_per_print occurs twice: leave one of them out");
}

#[test]
fn a_wrong_type_or_value_is_refused_by_path_with_what_is_valid() {
    for [text, expected] in cases(
        r#"
        {"train_batch_size": "many"} => train_batch_size must be a whole number, at least 1, got "many"
        {"train_batch_size": 1.5} => train_batch_size must be a whole number, at least 1, got 1.5
        {"train_batch_size": 0} => train_batch_size must be a whole number, at least 1, got 0
        {"gradient_clipping": -1} => gradient_clipping must be a number, at least 0, got -1
        {"zero_optimization": {"stage": 4}} => zero_optimization.stage must be 0, 1, 2 or 3, got 4
        {"zero_optimization": 2} => zero_optimization must be an object of keys, or true or false, got 2
        {"bf16": true} => bf16 must be an object of keys, got true
        {"bf16": {"enabled": 2}} => bf16.enabled must be true or false, got 2
        {"gradient_clipping": Infinity} => gradient_clipping must be a number, at least 0, got Infinity
        {"steps_per_print": NaN} => steps_per_print must be a whole number, at least 1, or Infinity, got NaN
        {"zero_optimization": {"offload_param": {"device": "disk"}}}
            => zero_optimization.offload_param.device must be one of none, cpu, nvme, got "disk"
        {"zero_optimization": {"offload_optimizer": {"device": "cpu", "ratio": 1.5}}}
            => zero_optimization.offload_optimizer.ratio must be a number from 0 to 1, got 1.5
        {"optimizer": {"type": "Adam", "params": {"betas": [0.9, 1.0]}}}
            => optimizer.params.betas must be a list of two numbers, each at least 0 and below 1, got [0.9,1.0]
        {"scheduler": {"type": "Cosine"}}
            => scheduler.type must be one of WarmupLR, WarmupDecayLR, WarmupCosineLR, OneCycle, LRRangeTest, got
            + "Cosine"
        {"fp16": {"enabled": true, "initial_scale_power": 128}}
            => fp16.initial_scale_power must be at most 127, the largest power of two in f32, got 128
        "#,
    ) {
        assert_eq!(refusal(text, ""), expected);
    }
    // A long value is cut.
    let long = format!(r#"{{"bf16": "{}"}}"#, "é".repeat(1000));
    assert!(refusal(&long, "").len() < 200);
}

#[test]
fn null_is_as_if_the_key_was_not_there() {
    let text =
        r#"{"steps_per_print": null, "bf16": null, "zero_optimization": {"stage": null, "offload_param": null}}"#;
    let report = report(text, "");
    assert_eq!(report, super::Report::default());
}

#[test]
fn what_would_change_the_result_is_refused_and_harmless_when_disabled() {
    for (section, word) in [
        ("amp", "Apex"),
        ("torch_autocast", "bf16"),
        ("elasticity", "train_batch_size"),
        ("curriculum_learning", "one length"),
        ("data_efficiency", "difficulty"),
        ("progressive_layer_drop", "every layer"),
        ("expert_parallel", "no experts"),
    ] {
        let message = refusal(&format!(r#"{{"{section}": {{"enabled": true}}}}"#), "");
        let expected = format!(r#"{section} {{"enabled":true}} cannot be honoured: "#);
        assert!(message.starts_with(&expected) && message.contains(word), "{message}");
        let harmless = report(&format!(r#"{{"{section}": {{"enabled": false, "other": 1}}}}"#), "");
        assert_eq!(without_effect(&harmless), [section]);
    }
    let pruned = r#"{"compression_training": {"row_pruning": {"shared_parameters": {"enabled": true}}}}"#;
    assert!(refusal(pruned, "").contains("neither quantized nor pruned"));
    assert!(flags(&pruned.replace("true", "false"), "").is_empty());
    for text in [
        r#"{"sparse_attention": {"mode": "fixed"}}"#,
        r#"{"gradient_allreduce_op": "sum"}"#,
        r#"{"sequence_parallel_size": 2}"#,
        r#"{"tensor_parallel": {"autotp_size": 2}}"#,
        r#"{"zero_optimization": {"zero_quantized_gradients": true}}"#,
        r#"{"zero_optimization": {"zenflow": {"topk_ratio": 0.1}}}"#,
        r#"{"bf16": {"enabled": true, "bf16_optimizer_states": true}}"#,
        r#"{"fp16": {"type": "bf16"}, "bf16": {"enabled": true, "bf16_optimizer_states": true}}"#,
        r#"{"fp16": {"enabled": true, "fp16_master_weights_and_grads": true}}"#,
        r#"{"fp16": {"enabled": true, "consecutive_hysteresis": true}}"#,
        r#"{"prescale_gradients": true, "gradient_predivide_factor": 2.0}"#,
        r#"{"optimizer": {"type": "Adam", "params": {"amsgrad": true}}}"#,
        r#"{"optimizer": {"type": "Adam", "params": {"bias_correction": false}}}"#,
        r#"{"optimizer": {"type": "Adam", "params": {"max_grad_norm": 1.0}}}"#,
        r#"{"optimizer": {"type": "SGD", "params": {"nesterov": true}}}"#,
        r#"{"optimizer": {"type": "SGD", "params": {"dampening": 0.5}}}"#,
    ] {
        assert!(refusal(text, "").contains(" cannot be honoured: "), "{text}");
    }
    for text in [
        r#"{"gradient_allreduce_op": "mean", "sequence_parallel_size": 1, "tensor_parallel": {"autotp_size": 1}}"#,
        r#"{"zero_optimization": {"zero_quantized_gradients": false, "zenflow": null}}"#,
        r#"{"prescale_gradients": true, "gradient_predivide_factor": 1.0}"#,
        r#"{"prescale_gradients": false, "gradient_predivide_factor": 2.0}"#,
        r#"{"fp16": {"enabled": false, "consecutive_hysteresis": true}}"#,
    ] {
        assert!(flags(text, "").is_empty(), "{text}");
    }
}

#[test]
fn a_flag_that_contradicts_a_key_is_named_with_both_values() {
    for [text, given, expected] in cases(
        r#"
        {"gradient_clipping": 1.0}
            => --clip_grad=0.5
            => --clip-grad 0.5 contradicts gradient_clipping 1.0, which becomes --clip-grad 1: leave out one of them
        {"train_batch_size": 16}
            => --global-batch-size 32
            => --global-batch-size 32 contradicts train_batch_size 16, which becomes --global-batch-size 16: leave
            + out one of them
        {"bf16": {"enabled": true}}
            => --fp16
            => --fp16 contradicts bf16.enabled true, which becomes --bf16: leave out one of them
        {"bf16": {"enabled": false}}
            => --bf16
            => --bf16 contradicts bf16.enabled false, which becomes no --bf16: leave out one of them
        {"fp16": {"enabled": false}}
            => --dtype f16
            => --dtype f16 contradicts fp16.enabled false, which becomes no --fp16: leave out one of them
        {"fp16": {"enabled": true, "loss_scale": 0}}
            => --loss-scale 128
            => --loss-scale 128 contradicts fp16.loss_scale 0, which becomes a dynamic loss scale: leave out one of
            + them
        {"zero_optimization": {"stage": 0}}
            => --use-distributed-optimizer
            => --use-distributed-optimizer contradicts zero_optimization.stage 0, which becomes --zero-stage 0: leave
            + out one of them
        {"zero_optimization": {"overlap_comm": false}}
            => --overlap-grad-reduce
            => --overlap-grad-reduce contradicts zero_optimization.overlap_comm false, which becomes
            + --overlap-grad-reduce false: leave out one of them
        {"zero_optimization": {"offload_optimizer": {"device": "none"}}}
            => --optimizer-cpu-offload
            => --optimizer-cpu-offload contradicts zero_optimization.offload_optimizer.device "none", which becomes
            + no --optimizer-cpu-offload: leave out one of them
        {"scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 9, "warmup_type": "linear"}}}
            => --lr-warmup-samples 90
            => --lr-warmup-samples 90 contradicts scheduler.params.warmup_num_steps 9, which becomes
            + --lr-warmup-iters 9: leave out one of them
        "#,
    ) {
        assert_eq!(refusal(text, given), expected);
    }
}

#[test]
fn the_same_value_twice_is_taken_and_a_flag_is_preferred_to_a_default() {
    let text = r#"{"gradient_clipping": 1.0, "bf16": {"enabled": true}, "zero_optimization": {"overlap_comm": true}}"#;
    let given = "--clip-grad 1 --bf16 --overlap-grad-reduce";
    assert_eq!(flags(text, given), "--overlap-grad-reduce true --bf16 --clip-grad 1");
    // Of a repeated flag the last one counts, and what follows -- is none.
    assert!(flags(text, "--clip-grad 3 --clip-grad 1.0 -- --clip-grad 4").ends_with("--clip-grad 1"));
    let adam = r#"{"optimizer": {"type": "Adam", "params": {"lr": 0.1}}}"#;
    assert_eq!(
        flags(adam, "--adam-beta2 0.95 --weight-decay 0.1 --adam-eps 1e-7"),
        "--optimizer adam --lr 0.1 --adam-beta1 0.9"
    );
}
