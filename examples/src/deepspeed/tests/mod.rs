//! Tests of `deepspeed`: what configurations become, and which are refused with which words.

mod properties;
mod refused;
mod sections;

use super::*;
use crate::arguments::TrainingArguments;
use crate::arguments::tests::try_parse;

const ZERO2: &str = include_str!("../fixtures/ds_zero2_config.json");
const ZERO3: &str = include_str!("../fixtures/ds_zero3_offload.json");
const AUTO: &str = include_str!("../fixtures/ds_zero2_auto.json");

fn words(flags: &str) -> Vec<String> {
    flags.split_whitespace().map(str::to_owned).collect()
}

fn report(text: &str, flags: &str) -> Report {
    translate(text, &words(flags), None).unwrap_or_else(|error| panic!("{text} with {flags}: {error}"))
}

/// The flags that a configuration becomes, as a person writes them.
fn flags(text: &str, given: &str) -> String {
    shown(&report(text, given))
}

fn shown(report: &Report) -> String {
    report.flags.iter().map(Emitted::shown).collect::<Vec<_>>().join(" ")
}

/// The message about a configuration that is refused.
fn refusal(text: &str, flags: &str) -> String {
    match translate(text, &words(flags), None) {
        Ok(report) => panic!("{text} with {flags} is taken:\n{report}"),
        Err(error) => error.to_string(),
    }
}

fn parse(flags: impl IntoIterator<Item = String>) -> TrainingArguments {
    let flags: Vec<String> = flags.into_iter().collect();
    try_parse(&flags.join(" ")).unwrap_or_else(|error| panic!("{error}"))
}

/// The keys without effect.
fn without_effect(report: &Report) -> Vec<&str> {
    report.without_effect.iter().map(|(path, _)| path.as_str()).collect()
}

#[test]
fn a_real_file_of_stage_2_becomes_these_flags() {
    let expected = "\
DeepSpeed's configuration as flags; no code of DeepSpeed runs:
  --global-batch-size 16      train_batch_size
  --micro-batch-size 8        train_batch_size, gradient_accumulation_steps
  --zero-stage 2              zero_optimization.stage
  --fp16                      fp16.enabled
  --initial-loss-scale 65536  fp16.initial_scale_power, DeepSpeed's default
  --loss-scale-window 1000    fp16.loss_scale_window
  --hysteresis 2              fp16.hysteresis
  --min-loss-scale 1          fp16.min_loss_scale
  --optimizer adam            optimizer.type
  --lr 0.00015                optimizer.params.lr
  --adam-beta1 0.9            optimizer.params.betas, DeepSpeed's default
  --adam-beta2 0.999          optimizer.params.betas, DeepSpeed's default
  --adam-eps 1e-8             optimizer.params.eps, DeepSpeed's default
  --weight-decay 0            optimizer.params.weight_decay, DeepSpeed's default
  --log-interval 1            steps_per_print
  --clip-grad 1               gradient_clipping
  --timing-log-level 0        wall_clock_breakdown
  without effect here: activation_checkpointing.contiguous_memory_optimization
  without effect here: activation_checkpointing.partition_activations: it is --sequence-parallel that shards \
activations over the tensor-parallel ranks
";
    assert_eq!(report(ZERO2, "--world-size 2").to_string(), expected);
}

#[test]
fn a_real_file_of_stage_3_with_offloading_becomes_these_flags() {
    let expected = "\
DeepSpeed's configuration as flags; no code of DeepSpeed runs:
  --micro-batch-size 8          train_micro_batch_size_per_gpu
  --global-batch-size 16        train_micro_batch_size_per_gpu, gradient_accumulation_steps
  --zero-stage 3                zero_optimization.stage
  --ddp-bucket-size 10000000    zero_optimization.reduce_bucket_size
  --overlap-grad-reduce false   zero_optimization.overlap_comm
  --overlap-param-gather false  zero_optimization.overlap_comm
  --optimizer-cpu-offload       zero_optimization.offload_optimizer.device
  --offload-param cpu           zero_optimization.offload_param.device
  --fp16                        fp16.enabled
  --initial-loss-scale 256      fp16.initial_scale_power
  --loss-scale-window 1000      fp16.loss_scale_window
  --hysteresis 2                fp16.hysteresis
  --min-loss-scale 1            fp16.min_loss_scale
  --optimizer adam              optimizer.type
  --lr 0.0001                   optimizer.params.lr
  --adam-beta1 0.9              optimizer.params.betas, DeepSpeed's default
  --adam-beta2 0.999            optimizer.params.betas, DeepSpeed's default
  --adam-eps 1e-8               optimizer.params.eps, DeepSpeed's default
  --weight-decay 0              optimizer.params.weight_decay, DeepSpeed's default
  --clip-grad 1                 gradient_clipping
  --log-interval 2000000        steps_per_print
  without effect here: zero_optimization.stage3_gather_16bit_weights_on_model_save, \
zero_optimization.offload_optimizer.pin_memory, zero_optimization.offload_param.pin_memory, \
zero_optimization.contiguous_gradients, zero_optimization.sub_group_size, \
zero_optimization.stage3_max_live_parameters, zero_optimization.stage3_max_reuse_distance, \
zero_optimization.stage3_prefetch_bucket_size, zero_optimization.stage3_param_persistence_threshold, \
activation_checkpointing.contiguous_memory_optimization, \
activation_checkpointing.synchronize_checkpoint_boundary, activation_checkpointing.profile
  without effect here: activation_checkpointing.partition_activations: it is --sequence-parallel that shards \
activations over the tensor-parallel ranks
";
    let given = "--world-size 4 --tensor-model-parallel-size 2";
    assert_eq!(report(ZERO3, given).to_string(), expected);
}

#[test]
fn what_is_auto_is_left_to_the_flags() {
    let of_file = "--zero-stage 2 --ddp-bucket-size 200000000 --overlap-grad-reduce true \
                   --overlap-param-gather true --optimizer-cpu-offload --optimizer adam --lr-decay-style constant \
                   --log-interval 2000 --timing-log-level 0";
    let report = report(AUTO, "");
    assert_eq!(shown(&report), of_file);
    assert_eq!(report.automatic.len(), 13);
    assert!(without_effect(&report).contains(&"fp16.initial_scale_power"));
    // With --fp16 the loss scale of the file counts.
    let with_fp16 = flags(AUTO, "--fp16 --lr 3e-4 --micro-batch-size 2 --global-batch-size 6");
    assert!(with_fp16.contains("--initial-loss-scale 65536 "), "{with_fp16}");
    assert!(!with_fp16.contains("--fp16") && !with_fp16.contains("--lr "));
}

#[test]
fn the_flags_train_as_those_that_a_person_writes() {
    let text = r#"{
        "train_batch_size": 8, "gradient_accumulation_steps": 2, "bf16": {"enabled": true}, "gradient_clipping": 0.5,
        "optimizer": {"type": "AdamW", "params": {"lr": 6e-4, "betas": [0.8, 0.99], "eps": 1e-6, "weight_decay": 0.01}},
        "scheduler": {"type": "WarmupDecayLR", "params": {"warmup_min_lr": 1e-5, "warmup_max_lr": 6e-4,
            "warmup_num_steps": 4, "warmup_type": "linear", "total_num_steps": 50}}
    }"#;
    let given = "--world-size 2 --train-iters 40";
    let added = report(text, given).flags.iter().map(Emitted::word).collect::<Vec<_>>();
    let by_hand = "--micro-batch-size 2 --global-batch-size 8 --bf16 --clip-grad 0.5 --optimizer adam --lr 6e-4 \
                   --adam-beta1 0.8 --adam-beta2 0.99 --adam-eps 1e-6 --weight-decay 0.01 --lr-decay-style linear \
                   --lr-warmup-init 1e-5 --min-lr 1e-5 --lr-warmup-iters 4 --lr-decay-iters 50";
    let left = parse(added.into_iter().chain(words(given)));
    let right = parse(words(by_hand).into_iter().chain(words(given)));
    assert_eq!(left.statement().value, right.statement().value);
}

#[test]
fn flags_of_the_file_come_before_those_of_the_person() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ds.json");
    std::fs::write(&path, r#"{"gradient_clipping": 0.5, "bf16": {"enabled": true}}"#).unwrap();
    let line = |flags: &str| -> Vec<OsString> {
        let file = format!("--deepspeed_config={}", path.display());
        let words = flags.split_whitespace().map(OsString::from);
        ["program".into(), file.into()].into_iter().chain(words).collect()
    };
    for asking in ["--use-deepspeed", "--deepspeed", "--use_deepspeed"] {
        let (expanded, report) = expand(line(asking), None).unwrap();
        assert_eq!(report.map(|report| report.flags.len()), Some(2));
        let expected = [
            vec!["program".into()],
            vec!["--bf16".into(), "--clip-grad=0.5".into()],
            line(asking)[1..].to_vec(),
        ];
        assert_eq!(expanded, expected.concat());
        let parsed = parse(expanded[1..3].iter().map(|word| word.to_string_lossy().into_owned()));
        assert_eq!(parsed.optimization.clip_grad, 0.5);
    }
    for other in ["--bf16", "--use-deepspeed --help", "--deepspeed -h"] {
        assert_eq!(expand(line(other), None).unwrap(), (line(other), None));
    }
    let is_taken = |flags| try_parse::<TrainingArguments>(flags).is_ok();
    assert!(!is_taken("--use-deepspeed") && !is_taken("--deepspeed-config x"));
    assert!(is_taken("--deepspeed --deepspeed-config x"));
    let error = expand(line("--use-deepspeed --clip-grad 1"), None).unwrap_err();
    let message = programs::with_causes(&error);
    assert!(
        message.contains("ds.json: --clip-grad 1 contradicts gradient_clipping 0.5"),
        "{message}"
    );
}

#[test]
fn a_file_that_is_missing_or_too_large_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ds.json");
    assert!(read(&path).unwrap_err().to_string().contains("No such file"));
    std::fs::write(&path, vec![b' '; MAX_BYTES as usize + 1]).unwrap();
    let message = read(&path).unwrap_err().to_string();
    assert_eq!(message, "the file is larger than 4194304 bytes");
    std::fs::write(&path, vec![b' '; MAX_BYTES as usize]).unwrap();
    assert!(read(&path).is_ok());
}

#[test]
fn the_report_names_every_key_and_no_code_of_deepspeed() {
    let text = r#"{"train_batch_size": 16, "fp16": {"enabled": "auto"}, "dump_state": true, "wandb": {"enabled": true},
        "activation_checkpointing": {"partition_activations": true},
        "scheduler": {"type": "WarmupLR", "params": {"warmup_max_lr": 1e-3, "warmup_type": "linear"}}}"#;
    let expected = "\
DeepSpeed's configuration as flags; no code of DeepSpeed runs:
  --global-batch-size 16     train_batch_size
  --micro-batch-size 16      train_batch_size
  --lr-decay-style constant  scheduler.type
  --lr 0.001                 scheduler.params.warmup_max_lr
  --lr-warmup-init 0         scheduler.params.warmup_min_lr, DeepSpeed's default
  --lr-warmup-iters 1000     scheduler.params.warmup_num_steps, DeepSpeed's default
  without effect here: dump_state, wandb
  \"auto\", as the flags say: fp16.enabled
  without effect here: activation_checkpointing.partition_activations: it is --sequence-parallel that shards \
activations over the tensor-parallel ranks
  note: DeepSpeed's \"WarmupLR\" has each rate one step later: its first two steps have the rate of the first one here
";
    assert_eq!(report(text, "").to_string(), expected);
}

#[test]
fn what_files_write_otherwise_is_the_same() {
    for (text, same) in [
        (
            r#"{"train_batch_size": "8", "gradient_clipping": "5e-1", "bf16": {"enabled": "True"}}"#,
            r#"{"train_batch_size": 8, "gradient_clipping": 0.5, "bf16": {"enabled": true}}"#,
        ),
        (r#"{"bf16": {"enabled": 1}}"#, r#"{"bf16": {"enabled": true}}"#),
        (
            "{\"train_batch_size\": 8, # of all\n// none\n \"zero_optimization\": {\"stage\": 1,},/* a, \" */}",
            r#"{"train_batch_size": 8, "zero_optimization": {"stage": 1}}"#,
        ),
        // GPT-NeoX has one section for both types.
        (
            r#"{"fp16": {"enabled": true, "type": "bfloat16", "loss_scale": 128}}"#,
            r#"{"bf16": {"enabled": true}}"#,
        ),
        (
            r#"{"fp16": {"enabled": false, "type": "bfloat16"}}"#,
            r#"{"bf16": {"enabled": false}}"#,
        ),
        (
            r#"{"fp16": {"enabled": true, "type": "bf16"}, "bf16": {"enabled": true}}"#,
            r#"{"bf16": {"enabled": true}}"#,
        ),
        (
            r#"{"optimizer": {"type": "DeepSpeedCPUAdam", "params": {"lr": 0.1, "adamw_mode": false}}}"#,
            r#"{"optimizer": {"type": "Adam", "params": {"lr": 0.1, "adam_w_mode": false}}}"#,
        ),
        (
            r#"{"optimizer": {"type": "FusedAdam", "params": {"lr": 0.1, "betas": ["0.8", 0.9]}}}"#,
            r#"{"optimizer": {"type": "AdamW", "params": {"lr": 0.1, "betas": [0.8, 0.9]}}}"#,
        ),
    ] {
        assert_eq!(flags(text, ""), flags(same, ""), "{text}");
    }
    // Within a text nothing is a comment, a comma or an infinity.
    let folder =
        r#"{"zero_optimization": {"stage": 3, "offload_param": {"device": "nvme", "nvme_path": "/a#,]//NaN\"b"}}}"#;
    assert!(flags(folder, "").contains(r#"--nvme-path /a#,]//NaN"b"#));
}

#[test]
fn auto_and_infinities_are_taken_where_they_mean_something() {
    let adam =
        |betas: &str| format!(r#"{{"optimizer": {{"type": "Adam", "params": {{"lr": 0.1, "betas": {betas}}}}}}}"#);
    let betas = |text: &str| flags(&adam(text), "");
    assert!(!betas(r#"["auto", "auto"]"#).contains("--adam-beta"));
    let second = betas(r#"["auto", 0.98]"#);
    assert!(
        second.contains("--adam-beta2 0.98 ") && !second.contains("--adam-beta1"),
        "{second}"
    );
    assert_eq!(
        report(&adam(r#"["auto", "auto"]"#), "").automatic,
        ["optimizer.params.betas"]
    );
    // What accelerate writes for never.
    assert_eq!(
        flags(r#"{"steps_per_print": Infinity}"#, ""),
        format!("--log-interval {}", u64::MAX)
    );
    let idle = r#"{"zero_optimization": {"stage3_max_live_parameters": Infinity, "sub_group_size": 1.5e7,
        "stage3_prefetch_bucket_size": 15099494.4}}"#;
    assert_eq!(without_effect(&report(idle, "")).len(), 3);
}

#[test]
fn unknown_keys_are_harmless_where_nothing_is_computed() {
    let text = r#"{"_comment": "a", "//": [1], "note": "b", "my_company": {"stage": 3}, "wandb": {"colour": "red"},
        "train_batch_size": 8, "optimizer": {"_why": "", "type": "Adam", "params": {"lr": 0.1}}}"#;
    let report = report(text, "");
    assert_eq!(
        without_effect(&report),
        ["_comment", "//", "note", "wandb", "optimizer._why"]
    );
    let unknown = |key: &str, nearest: &str| {
        format!("{key} is not known, and has no effect: the nearest known name is {nearest}")
    };
    assert_eq!(
        report.unknown,
        [unknown("my_company", "compile"), unknown("wandb.colour", "wandb.group")]
    );
    assert!(report.to_string().contains("  warning: my_company is not known"));
    // What may be meant to compute something, or is spelled nearly as another, is an error.
    for text in [
        r#"{"zero_optimization": {"my_company": 3}}"#,
        r#"{"fp16": {"opt_level": "O1"}}"#,
        r#"{"wandb": {"enable": true}}"#,
        r#"{"gradient_cliping": 1.0}"#,
    ] {
        assert!(
            refusal(text, "").contains(" is not known: the nearest known name is "),
            "{text}"
        );
    }
}

#[test]
fn the_file_is_named_as_other_programs_name_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ds.json").display().to_string();
    let text = r#"{"gradient_clipping": 0.5, "zero_optimization": {"stage": 1}}"#;
    std::fs::write(&path, text).unwrap();
    // `base64.urlsafe_b64encode` of the text, as GPT-NeoX passes it.
    let encoded = "eyJncmFkaWVudF9jbGlwcGluZyI6IDAuNSwgInplcm9fb3B0aW1pemF0aW9uIjogeyJzdGFnZSI6IDF9fQ==";
    for words in [
        vec!["--deepspeed", &path],
        vec![&*format!("--deepspeed={path}")],
        vec!["--deepspeed", "--deepspeed-config", &path],
        vec!["--deepspeed-config", &path, "--use-deepspeed"],
        vec!["--deepspeed", encoded],
    ] {
        let line = ["program"].into_iter().chain(words).map(OsString::from).collect();
        let (expanded, report) = expand(line, None).unwrap();
        assert_eq!(report.map(|report| report.flags.len()), Some(2));
        let taken = parse(expanded[1..].iter().map(|word| word.to_string_lossy().into_owned()));
        assert_eq!(taken.optimization.clip_grad, 0.5);
    }
}
