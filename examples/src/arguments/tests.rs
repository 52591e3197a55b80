//! Tests of `arguments`: what command lines come to, and which are refused with which words.

use burn_megatron::optimizer::{AdafactorConfig, MuonConfig, MuonScale, OptimizerKind as Kind};
use burn_megatron::training::{
    AnnealingStyle, BatchSizeRampUp, LearningRateConfig, LearningRateDecay, WeightDecayConfig, WeightDecayIncrease,
};
use burn_megatron_data::names::Effect;
use clap::{Args, Command};

use super::*;

/// Parses flags as a program of these arguments does.
pub(crate) fn try_parse<A: Args>(flags: &str) -> Result<A, clap::Error> {
    let words = std::iter::once("program").chain(flags.split_whitespace());
    A::from_arg_matches(&A::augment_args(Command::new("program")).try_get_matches_from(words)?)
}

/// The cases of a table: a line each, `=>` between what is given and what is expected. Lines that begin with `=>` or
/// `+` continue the one before.
pub(crate) fn cases<const N: usize>(table: &str) -> impl Iterator<Item = [&'static str; N]> {
    let lines = table.lines().map(str::trim);
    let mut cases: Vec<String> = vec![];
    for line in lines.filter(|line| !line.is_empty() && !line.starts_with("// ")) {
        match (cases.last_mut(), line.strip_prefix("+ ")) {
            (Some(last), Some(rest)) => last.extend([" ", rest]),
            (Some(last), None) if line.starts_with("=> ") => last.extend([" ", line]),
            _ => cases.push(line.to_owned()),
        }
    }
    cases.into_iter().map(|case| {
        let columns: Vec<&str> = String::leak(case).split(" => ").collect();
        columns.try_into().expect("one column for each name")
    })
}

fn parse(flags: &str) -> Result<TrainingArguments, clap::Error> {
    try_parse(flags)
}

fn validate(flags: &str) -> Result<(), String> {
    let arguments = parse(flags).expect(flags);
    arguments.validate().map(drop).map_err(|error| error.to_string())
}

/// The configuration of valid flags.
fn config(flags: &str) -> TrainingConfig {
    assert_eq!(validate(flags), Ok(()), "{flags}");
    parse(flags).expect(flags).training_config(128).expect(flags)
}

/// The message about flags that are refused.
fn refusal(flags: &str) -> String {
    match validate(flags) {
        Ok(()) => panic!("{flags} is taken"),
        Err(message) => message,
    }
}

#[test]
fn profiled_steps_lie_within_the_run() {
    let validate = |flags: &str| validate(&format!("--train-iters 4 {flags}"));
    assert_eq!(validate("--timeline t.svg --profile-step-end 4"), Ok(()));
    let error = validate("--timeline t.svg --profile-step-end 5").unwrap_err();
    assert!(error.contains("within the 4 steps of the run, got 3 and 5"), "{error}");
    assert!(validate("--trace t.json --profile-step-start 5").is_err());
    // No timeline is asked for.
    assert_eq!(validate("--profile-step-start 5"), Ok(()));
    let error = validate("--timeline t --trace t").unwrap_err();
    assert!(error.contains("different files, got \"t\""), "{error}");
    let most = format!("--trace t --profile-step-end {}", u64::MAX);
    assert!(validate(&most).unwrap_err().contains("within the 4 steps"));
}

#[test]
fn lengths_in_iterations_are_counted_in_global_batches() {
    let given = config(
        "--train-iters 100 --global-batch-size 16 --lr 0.5 --min-lr 0.25 --lr-decay-style linear --lr-decay-iters 80 \
         --lr-warmup-iters 10 --lr-warmup-init 0.125",
    );
    let rates = LearningRateConfig {
        decay: LearningRateDecay::Linear,
        init: 0.125,
        max: 0.5,
        min: 0.25,
        warm_up_samples: 160,
        decay_samples: 1280,
    };
    assert_eq!((given.train_samples, given.learning_rate), (1600, rates));
    // The defaults: 400 steps, of which the warm-up takes a twentieth.
    let default = config("");
    let rates = default.learning_rate;
    assert_eq!(default.train_samples, 400 * 16);
    assert_eq!((rates.warm_up_samples, rates.decay_samples), (20 * 16, 400 * 16));
    assert_eq!(rates.decay, LearningRateDecay::Cosine);
    // Whole steps.
    assert_eq!(config("--train-iters 39").learning_rate.warm_up_samples, 16);
}

#[test]
fn lengths_in_samples_are_taken_as_they_are() {
    let given = config("--train-samples 1000 --lr-decay-samples 801 --lr-warmup-samples 99");
    let rates = given.learning_rate;
    assert_eq!(given.train_samples, 1000);
    assert_eq!((rates.warm_up_samples, rates.decay_samples), (99, 801));
    // The last 8 samples are less than a step.
    assert_eq!(given.num_steps(), Ok(62));
    let rates = config("--train-samples 1000").learning_rate;
    assert_eq!((rates.warm_up_samples, rates.decay_samples), (50, 1000));
}

#[test]
fn a_warm_up_can_be_a_share_of_the_decay() {
    for flags in [
        "--train-iters 100 --lr-decay-iters 50 --lr-warmup-fraction 0.25",
        "--train-samples 1600 --lr-decay-samples 800 --lr-warmup-fraction 0.25",
    ] {
        assert_eq!(config(flags).learning_rate.warm_up_samples, 200, "{flags}");
    }
    for share in ["1", "-0.1", "NaN"] {
        let error = refusal(&format!("--lr-warmup-fraction={share}"));
        assert!(
            error.starts_with("--lr-warmup-fraction must be in [0, 1), got"),
            "{error}"
        );
    }
}

#[test]
fn every_decay_style_has_its_name() {
    let decay = |flags: &str| config(flags).learning_rate.decay;
    for (name, expected) in [
        ("constant", LearningRateDecay::Constant),
        ("linear", LearningRateDecay::Linear),
        ("cosine", LearningRateDecay::Cosine),
        ("inverse-square-root", LearningRateDecay::InverseSquareRoot),
    ] {
        assert_eq!(decay(&format!("--lr-decay-style {name}")), expected);
    }
    let wsd = |style, samples| LearningRateDecay::WarmUpStableDecay { style, samples };
    for (flags, expected) in [
        ("--lr-wsd-decay-iters 3", wsd(AnnealingStyle::Exponential, 48)),
        (
            "--lr-wsd-decay-iters 3 --lr-wsd-decay-style linear",
            wsd(AnnealingStyle::Linear, 48),
        ),
        (
            "--lr-wsd-decay-iters 3 --lr-wsd-decay-style cosine",
            wsd(AnnealingStyle::Cosine, 48),
        ),
        (
            "--lr-wsd-decay-iters 3 --lr-wsd-decay-style exponential",
            wsd(AnnealingStyle::Exponential, 48),
        ),
        (
            "--train-samples 500 --lr-wsd-decay-samples 77 --lr-wsd-decay-style minus_sqrt",
            wsd(AnnealingStyle::MinusSquareRoot, 77),
        ),
    ] {
        assert_eq!(decay(&format!("--lr-decay-style WSD {flags}")), expected, "{flags}");
    }
    assert!(parse("--lr-decay-style sideways").is_err());
}

#[test]
fn iterations_and_samples_do_not_mix() {
    for [flags, names] in cases(
        "
        --train-iters 10 --train-samples 160 => --train-iters --train-samples
        --train-iters 10 --lr-decay-samples 160 => --lr-decay-samples --lr-decay-iters
        --lr-decay-samples 160 => --lr-decay-samples --train-iters
        --train-samples 160 --lr-decay-iters 10 => --lr-decay-iters --lr-decay-samples --train-samples
        --train-iters 10 --lr-warmup-samples 16 => --lr-warmup-samples --lr-warmup-iters
        --train-samples 160 --lr-warmup-iters 1 => --lr-warmup-iters --lr-warmup-samples
        --lr-decay-style WSD --lr-wsd-decay-samples 16 => --lr-wsd-decay-samples --lr-wsd-decay-iters
        --lr-decay-style WSD --train-samples 160 --lr-wsd-decay-iters 1 => --lr-wsd-decay-iters --lr-wsd-decay-samples
        --train-samples 160 --lr-warmup-samples 16 --lr-warmup-fraction 0.1
            => --lr-warmup-samples --lr-warmup-fraction
        --lr-warmup-iters 1 --lr-warmup-fraction 0.1 => --lr-warmup-iters --lr-warmup-fraction
        --rampup-batch-size 8 8 100 => --rampup-batch-size --train-samples
        --train-iters 10 --rampup-batch-size 8 8 100 => --train-samples --train-iters
        ",
    ) {
        let error = refusal(flags);
        assert!(names.split(' ').all(|name| error.contains(name)), "{flags}: {error}");
    }
    assert_eq!(
        refusal("--train-samples 160 --lr-decay-iters 10"),
        "--lr-decay-iters needs --train-iters: with --train-samples it is --lr-decay-samples"
    );
}

#[test]
fn flags_of_another_style_are_refused() {
    for [flags, expected] in cases(
        "
        --lr-wsd-decay-iters 3 => --lr-wsd-decay-iters is for --lr-decay-style WSD
        --lr-wsd-decay-style linear => --lr-wsd-decay-style is for --lr-decay-style WSD
        --lr-decay-style WSD => --lr-decay-style WSD needs --lr-wsd-decay-iters
        --lr-decay-style WSD --train-samples 160 => --lr-decay-style WSD needs --lr-wsd-decay-samples
        --start-weight-decay 0.1
            => --start-weight-decay needs --weight-decay-incr-style linear or cosine; a constant one is --weight-decay
        --weight-decay-incr-style linear --start-weight-decay 0.1
            => --weight-decay-incr-style linear needs --start-weight-decay and --end-weight-decay
        --weight-decay 0.1 --weight-decay-incr-style cosine --start-weight-decay 0 --end-weight-decay 0.1
            => --weight-decay is for --weight-decay-incr-style constant; cosine has --start-weight-decay and
            + --end-weight-decay
        ",
    ) {
        assert_eq!(refusal(flags), expected, "{flags}");
    }
}

#[test]
fn lengths_that_are_none_or_too_large_are_refused() {
    assert_eq!(refusal("--train-iters 0"), "--train-iters must be at least 1, got 0");
    assert_eq!(
        refusal("--train-samples 0"),
        "--train-samples must be at least 1, got 0"
    );
    assert_eq!(
        refusal("--train-samples 4294967296"),
        "--train-samples must be below 2^32, got 4294967296"
    );
    let error = refusal(&format!("--train-iters {}", u64::MAX));
    assert!(
        error.contains("--train-iters * --global-batch-size must be below 2^32"),
        "{error}"
    );
    let error = refusal(&format!("--lr-decay-iters {}", u64::MAX));
    assert!(error.starts_with("--lr-decay-iters is too large"), "{error}");
    assert!(refusal("--global-batch-size 0").contains("global batch size must be at least 1"));
    assert!(refusal("--train-samples 15").contains("the first global batch is 16, got 15 samples"));
    let error = refusal("--train-iters 10 --lr-decay-style WSD --lr-wsd-decay-iters 11");
    assert!(error.contains("over 1 to 160 samples"), "{error}");
}

#[test]
fn the_weight_decay_rises_over_the_run() {
    assert_eq!(config("").weight_decay, WeightDecayConfig::constant(0.1));
    assert_eq!(
        config("--weight-decay 0.3").weight_decay,
        WeightDecayConfig::constant(0.3)
    );
    for (style, increase) in [
        ("linear", WeightDecayIncrease::Linear),
        ("cosine", WeightDecayIncrease::Cosine),
    ] {
        let flags = format!(
            "--train-iters 10 --weight-decay-incr-style {style} --start-weight-decay 0.01 --end-weight-decay 0.2"
        );
        let expected = WeightDecayConfig {
            increase,
            start: 0.01,
            end: 0.2,
            samples: 160,
        };
        assert_eq!(config(&flags).weight_decay, expected);
    }
    let error = refusal("--weight-decay-incr-style linear --start-weight-decay 0.2 --end-weight-decay 0.1");
    assert!(error.contains("got start 0.2, end 0.1"), "{error}");
}

#[test]
fn the_batch_size_rises_as_three_numbers_say() {
    let flags = "--global-batch-size 32 --train-samples 200 --rampup-batch-size 8 8 64";
    let ramped = config(flags);
    let ramp_up = BatchSizeRampUp {
        start: 8,
        increment: 8,
        samples: 64,
    };
    assert_eq!(ramped.rampup_batch_size, Some(ramp_up));
    // 8, 8, 8, 16, 16, 24, and four of 32: 208 samples would be needed for the last.
    assert_eq!(
        (
            ramped.num_steps(),
            parse(flags).unwrap().optimization.num_steps().unwrap()
        ),
        (Ok(9), 9)
    );
    for numbers in ["8", "8 8", "8 8 64 1", "8 8 many", "-8 8 64"] {
        assert!(
            parse(&format!("--train-samples 200 --rampup-batch-size {numbers}")).is_err(),
            "{numbers}"
        );
    }
    assert!(parse(&format!("{flags} --rampup-batch-size 8 8 64")).is_err());
}

#[test]
fn every_step_of_a_ramp_up_fits_the_layout() {
    let flags = |more: &str| format!("--global-batch-size 32 --train-samples 200 --micro-batch-size 4 {more}");
    let error = refusal(&flags("--world-size 2 --rampup-batch-size 12 4 64"));
    assert!(
        error.contains("got 12; the nearest valid sizes are 8 and 16"),
        "{error}"
    );
    let stages = "--pipeline-model-parallel-size 2 --num-virtual-stages-per-pipeline-rank 2";
    assert_eq!(
        validate(&flags(&format!("{stages} --rampup-batch-size 8 8 64"))),
        Ok(())
    );
    let error = refusal(&flags(&format!("{stages} --rampup-batch-size 4 4 64")));
    assert!(
        error.starts_with("a global batch size of 4") && error.ends_with("sizes are 8"),
        "{error}"
    );
}

#[test]
fn profiled_steps_are_of_one_size() {
    let validate = |steps: &str| {
        validate(&format!(
            "--global-batch-size 16 --train-samples 200 --rampup-batch-size 8 8 24 --timeline t.svg {steps}"
        ))
    };
    // Three steps of 8, then those of 16.
    assert_eq!(validate("--profile-step-start 1 --profile-step-end 3"), Ok(()));
    assert_eq!(validate("--profile-step-start 4 --profile-step-end 9"), Ok(()));
    let error = validate("--profile-step-start 3 --profile-step-end 4").unwrap_err();
    assert!(error.contains("step 3 is of 8 samples and step 4 of 16"), "{error}");
}

#[test]
fn positions_are_at_least_the_tokens_of_a_sample() {
    let arguments = parse("--seq-length 64 --max-position-embeddings 96").expect("valid");
    assert_eq!(
        arguments.validate().map(drop).map_err(|error| error.to_string()),
        Ok(())
    );
    let model = arguments.model.config(None, 257).expect("a family");
    assert_eq!(
        (model.max_seq_length(), arguments.sample_length(&*model, None).unwrap()),
        (96, 64)
    );
    let plain = parse("--seq-length 64").expect("valid");
    let model = plain.model.config(None, 257).expect("a family");
    assert_eq!(
        (model.max_seq_length(), plain.sample_length(&*model, None).unwrap()),
        (64, 64)
    );
    assert_eq!(
        refusal("--seq-length 64 --max-position-embeddings 63"),
        "--max-position-embeddings must be at least --seq-length 64, got 63"
    );
    let more = parse("--max-position-embeddings 96").expect("valid");
    let model = more.model.config(None, 257).expect("a family");
    assert_eq!(more.sample_length(&*model, None).unwrap(), 96);
}

#[test]
fn flags_say_what_a_family_is_or_name_the_families_that_are() {
    for flags in [
        "--normalization LayerNorm --position-embedding-type learned_absolute",
        "--model-family llama --swiglu --normalization RMSNorm --position-embedding-type rope --rotary-percent 1 \
         --disable-bias-linear --group-query-attention",
        "--model-family llama --qk-layernorm",
        "--model-size qwen3-0.6b --qk-layernorm --hidden-size 256",
        "--model-family neox --rotary-percent 0.5 --position-embedding-type rope",
        "--model-family bloom --position-embedding-type alibi",
        "--model-family llama --window-size 4095,0",
    ] {
        let arguments = parse(flags).expect("known flags");
        assert!(arguments.model.config(None, 257).is_ok(), "{flags}");
    }
    let llama = "--model-family llama";
    for (flags, message) in [
        (
            "--swiglu",
            "--model-family gpt of these sizes has no --swiglu, which --model-family llama has",
        ),
        (
            "--normalization RMSNorm",
            "--model-family gpt has --normalization LayerNorm, got RMSNorm, which --model-family llama or t5 has",
        ),
        (
            &format!("{llama} --rotary-percent 0.5"),
            "--model-family llama has --rotary-percent 1, got 0.5, which --model-family neox has",
        ),
        (
            "--rotary-percent 0.5",
            "--model-family gpt of these sizes has no --rotary-percent, which --model-family neox has",
        ),
        (
            "--position-embedding-type alibi",
            "--model-family gpt has --position-embedding-type learned_absolute, got alibi, which --model-family bloom \
             has",
        ),
        (
            "--model-family bloom --window-size 8",
            "--model-family bloom of these sizes has no --window-size, which --model-family llama has",
        ),
        (
            &format!("{llama} --num-query-groups 4 --group-query-attention"),
            "--model-family llama of these sizes has no --group-query-attention, which no family has",
        ),
    ] {
        assert_eq!(refusal(flags), message);
    }
}

#[test]
fn samples_of_the_model_in_training_have_a_place_and_an_interval() {
    let flags = "--tensorboard-dir logs --log-samples-interval 5";
    let arguments = parse(&format!("{flags} --sample-prompt fn --sample-length 9")).expect("valid");
    let prompt = arguments.monitoring.sample_after(10).expect("it is due");
    assert_eq!((prompt.text.as_str(), prompt.max_tokens), ("fn", 9));
    assert_eq!(arguments.monitoring.sample_after(11), None);
    assert_eq!(parse("").expect("valid").monitoring.sample_after(10), None);
    assert!(parse("--log-samples-interval 5").is_err() && parse("--sample-prompt fn").is_err());
    let refused = refusal("--tensorboard-dir logs --log-samples-interval 0");
    assert_eq!(refused, "--log-samples-interval must be at least 1, got 0");
    // Every rank must do the same, whatever rank 0 makes of it.
    let statement = |flags: &str| parse(flags).expect("valid").statement().value;
    assert_ne!(statement(flags), statement(""));
}

#[test]
fn replicas_generate_what_is_known_at_the_start_and_do_not_serve() {
    let generation = |flags: &str| {
        let parsed: GenerationArguments = try_parse(flags).expect("flags");
        parsed.validate().map_err(|error| error.to_string())
    };
    let replicas = "--world-size 4 --tensor-model-parallel-size 2 --sequence-parallel";
    assert_eq!(generation(&format!("{replicas} --prompt a")), Ok(()));
    assert_eq!(generation("--tensor-model-parallel-size 2 --sequence-parallel"), Ok(()));
    let error = generation(replicas).expect_err("lines of the standard input");
    assert!(
        error.starts_with("2 data-parallel replicas share the prompts"),
        "{error}"
    );
    let served: ServerArguments = try_parse(replicas).expect("flags");
    let error = served.validate().expect_err("replicas").to_string();
    assert!(
        error.ends_with("--world-size must be 2 * 1, the ranks of one model, got 4"),
        "{error}"
    );
}

#[test]
fn optimizers_have_megatrons_names() {
    for name in ["adam", "fused_adam"] {
        assert_eq!(validate(&format!("--optimizer {name}")), Ok(()));
    }
    assert_eq!(config("").sgd_momentum, None);
    assert_eq!(config("--optimizer sgd").sgd_momentum, Some(0.9));
    assert_eq!(config("--optimizer sgd --sgd-momentum 0").sgd_momentum, Some(0.0));
    assert!(refusal("--sgd-momentum 0.9").contains("is for --optimizer sgd"));
    assert!(refusal("--optimizer sgd --sgd-momentum 1").contains("--sgd-momentum must be in [0, 1), got 1"));
    assert!(parse("--optimizer adagrad").is_err());

    let optimizer = |flags: &str| config(flags).optimizer_choice();
    assert_eq!(optimizer("").kind, Kind::AdamW);
    assert_eq!(optimizer("--optimizer sgd").kind, Kind::Sgd);
    assert_eq!(optimizer("--no-decoupled-weight-decay").kind, Kind::Adam);
    let lion = optimizer("--optimizer lion --lion-beta2 0.98");
    assert_eq!((lion.kind, lion.lion_betas), (Kind::Lion, [0.9, 0.98]));
    for (flags, tensors) in [
        ("", 2),
        ("--no-decoupled-weight-decay", 2),
        ("--optimizer lion", 1),
        ("--optimizer adafactor", 0),
    ] {
        assert_eq!(config(flags).num_state_tensors(), tensors, "{flags}");
    }
    let muon = |flags: &str| optimizer(&format!("--optimizer muon {flags}")).muon;
    assert_eq!(muon(""), MuonConfig::new());
    assert!(muon("--muon-use-nesterov").use_nesterov && !muon("--muon-use-nesterov false").use_nesterov);
    let megatrons = muon("--muon-scale-mode shape_scaling --muon-extra-scale-factor 1 --muon-num-ns-steps 6");
    assert_eq!(
        (megatrons.scale_mode, megatrons.extra_scale_factor),
        (MuonScale::ShapeScaling, 1.0)
    );
    assert_eq!(megatrons.num_ns_steps, 6);
    assert!(refusal("--muon-momentum 0.9").contains("--muon-momentum is for --optimizer muon"));
    assert!(refusal("--optimizer muon --muon-momentum 1").contains("--muon-momentum must be in [0, 1), got 1"));
    assert!(refusal("--optimizer muon --optimizer-cpu-offload").contains("cannot be offloaded"));
    let adafactor = |flags: &str| optimizer(&format!("--optimizer adafactor {flags}")).adafactor;
    assert_eq!(adafactor(""), AdafactorConfig::new());
    let given = adafactor("--adafactor-beta2-decay -0.5 --adafactor-eps1 1e-6 --adafactor-eps2 0.01");
    assert_eq!((given.beta2_decay, given.eps1, given.eps2), (-0.5, Some(1e-6), 0.01));
    let refused = refusal("--optimizer adafactor --adafactor-clip-threshold 0.5");
    assert!(refused.contains("--adafactor-clip-threshold must be at least 1, got 0.5"));
    let refused = refusal("--optimizer adafactor --adafactor-beta2-decay 0.8");
    assert!(refused.contains("--adafactor-beta2-decay must be finite and not positive, got 0.8"));
    assert!(refusal("--adafactor-eps1 1e-6").contains("--adafactor-eps1 is for --optimizer adafactor"));
    assert!(refusal("--optimizer adafactor --optimizer-cpu-offload").contains("Adafactor's state cannot be offloaded"));
    assert!(config("--optimizer adafactor").has_factored_state() && !config("").has_factored_state());
    assert!(refusal("--lion-beta1 0.9").contains("--lion-beta1 is for --optimizer lion"));
    assert!(refusal("--optimizer lion --lion-beta1 1").contains("--lion-beta1 must be in [0, 1), got 1"));
    assert!(refusal("--optimizer sgd --no-decoupled-weight-decay").contains("is for --optimizer adam"));
}

#[test]
fn groups_of_parameters_are_read_and_checked() {
    let flags =
        "--param-group wte.weight:lr_mult=0.1,optimizer=adam --param-group **.bias:weight_decay=0.1 --freeze h.0.**";
    let groups = config(flags).groups().to_string();
    let others = "wte.weight:lr_mult=0.1,optimizer=adam; **.bias:weight_decay=0.1";
    assert_eq!(groups, format!("h.0.**:frozen; {others}"));
    let groups = config(&format!("{flags} --no-decoupled-weight-decay"))
        .groups()
        .to_string();
    assert!(groups.contains("optimizer=adam_l2"), "{groups}");
    assert_eq!(config("").param_groups, None);
    assert!(refusal("--freeze h.[").contains("the pattern \"h.[\" of a group of parameters"));
    assert!(refusal("--param-group wte.weight:lr_mult=-1").contains("must be finite and not negative, got -1"));
    let error = parse("--param-group wte.weight:rate=1")
        .expect_err("there is no rate")
        .to_string();
    assert!(error.contains("is none of lr_mult=X"), "{error}");
}

#[test]
fn monitoring_flags_are_checked() {
    for flags in [
        "--tensorboard-dir tb --tensorboard-log-interval 5",
        "--log-throughput --peak-tflops 312",
        "--timing-log-level 2 --timing-log-option all",
        "--prometheus-port 0 --prometheus-address ::1",
        "--profile --profile-step-start 2 --profile-step-end 4 --profile-ranks 0",
    ] {
        assert_eq!(validate(flags), Ok(()), "{flags}");
    }
    for (flags, message) in [
        ("--tensorboard-dir tb --tensorboard-log-interval 0", "at least 1"),
        ("--tensorboard-dir tb --tensorboard-queue-size 0", "from 1 to 1000000"),
        ("--log-throughput --peak-tflops 0", "above 0, got 0"),
        ("--log-throughput --peak-tflops nan", "finite"),
        (
            "--profile --profile-ranks 1",
            "--profile-ranks must be from 0 to 0, got 1",
        ),
        ("--profile --train-iters 2", "within the 2 steps"),
    ] {
        let error = refusal(flags);
        assert!(error.contains(message), "{flags}: {error}");
    }
    for flags in [
        "--timing-log-level 3",
        "--peak-tflops 1",
        "--prometheus-address 127.0.0.1",
    ] {
        assert!(parse(flags).is_err(), "{flags}");
    }
}

#[test]
fn ranks_may_differ_in_what_rank_0_writes() {
    let statement = |flags: &str| parse(flags).expect(flags).statement().value;
    assert_eq!(statement("--tensorboard-dir a --prometheus-port 9"), statement(""));
    assert_ne!(statement("--timing-log-level 1"), statement(""));
    assert_ne!(statement("--log-throughput"), statement(""));
}

#[test]
fn adapters_need_a_rank_and_parameters_to_begin_with() {
    for flags in [
        "--lora-rank 4",
        "--load a --lora-alpha 2",
        "--load a --lora-target q_proj",
    ] {
        assert!(parse(flags).is_err(), "{flags}");
    }
    let low_rank = |flags: &str| parse(flags).expect(flags).adapters.low_rank();
    assert_eq!(low_rank("--load a"), None);
    let found = low_rank("--load a --lora-rank 4 --lora-target q_proj,v_proj").expect("a rank");
    assert_eq!((found.rank, found.alpha, found.dropout), (4, 8.0, 0.0));
    let found = low_rank("--load a --lora-rank 4 --lora-alpha 3 --lora-dropout 0.1").expect("a rank");
    assert_eq!((found.alpha, found.dropout), (3.0, 0.1));
    assert_eq!(
        refusal("--load a --finetune --lora-rank 0"),
        "the rank of low-rank adapters must be at least 1, got 0"
    );
    assert!(refusal("--load a --finetune --lora-rank 2 --lora-dropout 1").contains("in [0, 1), got 1"));
}

#[test]
fn flags_of_megatron_are_named_once_and_are_no_flags_of_a_program() {
    let mut command = TrainingArguments::augment_args(Command::new("program"));
    command.build();
    let names = command.get_arguments().flat_map(|argument| {
        let aliases = argument.get_all_aliases().unwrap_or_default();
        argument.get_long().into_iter().chain(aliases).collect::<Vec<_>>()
    });
    let own: Vec<String> = names.map(|name| format!("--{name}")).collect();
    let has = |flag: &str| own.iter().any(|own| own == flag);
    for (place, (name, role)) in foreign::MEGATRON.iter().enumerate() {
        let before = &foreign::MEGATRON[..place];
        assert!(before.iter().all(|(other, _)| other != name), "{name} is there twice");
        assert!(name.starts_with("--") && !name.contains('_'), "{name}");
        let name = name.trim_end_matches('=');
        match role {
            Effect::Needs(other) => assert!(has(name) && has(other), "{name} needs {other}"),
            Effect::Means(words) => assert!(!has(name) && parse(words).is_ok(), "{name} is {words:?}"),
            _ => assert!(!has(name), "{name}"),
        }
    }
    // As Megatron-LM takes them.
    assert!(parse("--save-interval 100 --async-save --tensorboard-log-interval 1").is_ok());
}
