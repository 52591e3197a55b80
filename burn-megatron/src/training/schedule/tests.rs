//! Tests of `schedule`: values from the formulas, bounds and continuity.

use super::*;
use proptest::prelude::*;

fn config(decay: LearningRateDecay) -> LearningRateConfig {
    LearningRateConfig {
        decay,
        init: 0.0,
        max: 1.0,
        min: 0.1,
        warm_up_samples: 10,
        decay_samples: 50,
    }
}

fn assert_rates(config: LearningRateConfig, expected: &[(u64, f64)]) {
    let schedule = LearningRateSchedule::new(config).unwrap();
    for &(samples, rate) in expected {
        let got = schedule.learning_rate(samples);
        // A few roundings of numbers of size 1.
        assert!((got - rate).abs() < 1e-15, "at {samples}: got {got}, expected {rate}");
    }
}

#[test]
fn warm_up_is_a_line_from_init_to_max() {
    for decay in [
        LearningRateDecay::Constant,
        LearningRateDecay::Linear,
        LearningRateDecay::Cosine,
    ] {
        assert_rates(config(decay), &[(0, 0.0), (1, 0.1), (5, 0.5), (10, 1.0)]);
        let from_init = LearningRateConfig {
            init: 0.5,
            ..config(decay)
        };
        assert_rates(from_init, &[(0, 0.5), (4, 0.7), (10, 1.0)]);
    }
}

#[test]
fn each_decay_ends_where_it_stays() {
    assert_rates(
        config(LearningRateDecay::Constant),
        &[(11, 1.0), (50, 1.0), (51, 1.0), (u64::MAX, 1.0)],
    );
    // A quarter of the way: ½(1 + cos(π/4)).
    let quarter = 0.1 + 0.9 * 0.5 * (1.0 + 0.5f64.sqrt());
    for (decay, at_quarter) in [(LearningRateDecay::Linear, 0.775), (LearningRateDecay::Cosine, quarter)] {
        let rates = [(20, at_quarter), (30, 0.55), (50, 0.1), (51, 0.1), (u64::MAX, 0.1)];
        assert_rates(config(decay), &rates);
    }
}

#[test]
fn without_warm_up_the_first_step_has_max() {
    for decay in [LearningRateDecay::Constant, LearningRateDecay::Cosine] {
        let config = LearningRateConfig {
            warm_up_samples: 0,
            ..config(decay)
        };
        assert_rates(config, &[(0, 1.0)]);
    }
}

#[test]
fn impossible_schedules_are_errors() {
    let valid = config(LearningRateDecay::Linear);
    for bad in [
        LearningRateConfig { init: 2.0, ..valid },
        LearningRateConfig { min: 2.0, ..valid },
        LearningRateConfig { min: -0.1, ..valid },
        LearningRateConfig { max: f64::NAN, ..valid },
        LearningRateConfig {
            max: f64::INFINITY,
            ..valid
        },
    ] {
        let error = LearningRateSchedule::new(bad).unwrap_err();
        assert!(matches!(error, ScheduleError::Rates { .. }), "{error}");
    }
    let short = LearningRateConfig {
        decay_samples: 10,
        ..valid
    };
    assert_eq!(
        LearningRateSchedule::new(short).unwrap_err().to_string(),
        "the warm-up must end before the decay does: warm-up 10 samples, decay 10 samples; \
         the nearest valid decay is 11 samples"
    );
    let constant = LearningRateConfig {
        decay: LearningRateDecay::Constant,
        ..short
    };
    assert!(LearningRateSchedule::new(constant).is_ok());
}

#[test]
fn inverse_square_root_goes_down_to_min_and_jumps_there_at_the_end() {
    let config = config(LearningRateDecay::InverseSquareRoot);
    // √(10/n): 10/40 is a quarter; nothing of `min` in between.
    assert_rates(
        config,
        &[
            (10, 1.0),
            (20, 0.5f64.sqrt()),
            (40, 0.5),
            (50, 0.2f64.sqrt()),
            (51, 0.1),
            (u64::MAX, 0.1),
        ],
    );
    let floored = LearningRateConfig { min: 0.6, ..config };
    assert_rates(
        floored,
        &[(20, 0.5f64.sqrt()), (30, 0.6), (40, 0.6), (50, 0.6), (51, 0.6)],
    );
    // Without a warm-up, the first sample counts as its end.
    let at_once = LearningRateConfig {
        warm_up_samples: 0,
        ..config
    };
    assert_rates(
        at_once,
        &[(0, 1.0), (1, 1.0), (4, 0.5), (25, 0.2), (50, 0.02f64.sqrt()), (51, 0.1)],
    );
}

fn warm_up_stable_decay(style: AnnealingStyle) -> LearningRateConfig {
    config(LearningRateDecay::WarmUpStableDecay { style, samples: 16 })
}

const STYLES: [AnnealingStyle; 4] = [
    AnnealingStyle::Linear,
    AnnealingStyle::Cosine,
    AnnealingStyle::Exponential,
    AnnealingStyle::MinusSquareRoot,
];

#[test]
fn warm_up_stable_decay_is_stable_until_its_last_samples() {
    for style in STYLES {
        assert_rates(
            warm_up_stable_decay(style),
            &[
                (5, 0.5),
                (10, 1.0),
                (11, 1.0),
                (34, 1.0),
                (50, 0.1),
                (51, 0.1),
                (u64::MAX, 0.1),
            ],
        );
    }
}

#[test]
fn each_annealing_style_has_its_own_way_down() {
    // A quarter, a half and all of the sixteen samples after the 34th.
    let at = |[quarter, half]: [f64; 2]| [(38, 0.1 + 0.9 * quarter), (42, 0.1 + 0.9 * half), (50, 0.1)];
    let root = 0.5f64.sqrt();
    for (style, shares) in STYLES.into_iter().zip([
        [0.75, 0.5],
        [0.5 * (1.0 + root), 0.5],
        // 2·2^(−¼) − 1 and 2·2^(−½) − 1.
        [2.0 / 2.0f64.sqrt().sqrt() - 1.0, 2.0 * root - 1.0],
        [0.5, 1.0 - root],
    ]) {
        assert_rates(warm_up_stable_decay(style), &at(shares));
    }
}

#[test]
fn a_stable_phase_that_does_not_fit_is_an_error() {
    let with = |samples| {
        let decay = LearningRateDecay::WarmUpStableDecay {
            style: AnnealingStyle::Linear,
            samples,
        };
        LearningRateSchedule::new(config(decay))
    };
    assert!(with(1).is_ok() && with(40).is_ok());
    for samples in [0, 41] {
        assert_eq!(
            with(samples).unwrap_err().to_string(),
            format!(
                "a warm-up-stable-decay schedule must come down over 1 to 40 samples, those between the end of the \
                 warm-up, 10, and that of the decay, 50; got {samples}"
            )
        );
    }
}

fn any_decay() -> impl Strategy<Value = LearningRateDecay> {
    let annealing = prop::sample::select(&STYLES[..]);
    prop_oneof![
        Just(LearningRateDecay::Linear),
        Just(LearningRateDecay::Cosine),
        Just(LearningRateDecay::InverseSquareRoot),
        // Within every length of the decay below.
        (annealing, 1u64..20).prop_map(|(style, samples)| LearningRateDecay::WarmUpStableDecay { style, samples }),
    ]
}

proptest! {
    #[test]
    fn the_rate_stays_in_bounds_and_never_rises_after_the_warm_up(
        decay in any_decay(),
        warm_up in 0u64..100,
        length in 20u64..1000,
        min in 0.0f64..1.0,
        rise in 0.0f64..1.0,
    ) {
        let max = min + rise;
        let schedule = LearningRateSchedule::new(LearningRateConfig {
            decay,
            init: 0.0,
            max,
            min,
            warm_up_samples: warm_up,
            decay_samples: warm_up + length,
        })
        .unwrap();
        let rates: Vec<f64> = (warm_up..warm_up + length + 2)
            .map(|samples| schedule.learning_rate(samples))
            .collect();
        prop_assert_eq!((rates[0], rates[length as usize + 1]), (max, min));
        prop_assert!(rates.iter().all(|rate| (min..=max).contains(rate)));
        prop_assert!(rates.windows(2).all(|pair| pair[1] <= pair[0]));
    }

    #[test]
    fn the_rate_does_not_jump(decay in any_decay(), warm_up in 1u64..100, length in 20u64..1000) {
        // The inverse square root jumps to the minimum at the end, where Megatron-LM's does.
        let until = match decay {
            LearningRateDecay::InverseSquareRoot => warm_up + length - 1,
            _ => warm_up + length + 2,
        };
        let schedule = LearningRateSchedule::new(LearningRateConfig {
            warm_up_samples: warm_up,
            decay_samples: warm_up + length,
            ..config(decay)
        })
        .unwrap();
        // The steepest sample of each: a line's slope, π/2 times that, 2·ln 2 times that, √(1/S) at the beginning.
        let most = |samples: u64| 1.6 / samples as f64;
        let decaying = match decay {
            LearningRateDecay::WarmUpStableDecay { style: AnnealingStyle::MinusSquareRoot, samples } => {
                (1.0 / samples as f64).sqrt()
            }
            LearningRateDecay::WarmUpStableDecay { samples, .. } => most(samples),
            LearningRateDecay::InverseSquareRoot => most(warm_up),
            _ => most(length),
        };
        for samples in 0..until {
            let [before, after] = [samples, samples + 1].map(|samples| schedule.learning_rate(samples));
            let limit = if samples < warm_up { most(warm_up) } else { decaying };
            prop_assert!((after - before).abs() <= limit, "{samples}: {before} to {after}");
        }
    }
}
