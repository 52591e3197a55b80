//! Compares the scaler with sequences computed by hand, and checks its invariants under random sequences.

use proptest::prelude::*;

use super::*;

const CONFIG: DynamicLossScale = DynamicLossScale {
    initial_loss_scale: 16.0,
    min_loss_scale: 2.0,
    loss_scale_window: 3,
    hysteresis: 2,
};

fn dynamic(config: DynamicLossScale) -> LossScaler {
    LossScaleConfig::Dynamic(config).init().expect("a valid configuration")
}

#[test]
fn the_scale_follows_megatrons_rules() {
    // (a gradient is not finite, scale, growth tracker, hysteresis tracker), after each step.
    let steps = [
        (false, 16.0, 1, 2),
        // The first one is forgiven, but growth starts again.
        (true, 16.0, 0, 1),
        (false, 16.0, 1, 1),
        (false, 16.0, 2, 1),
        // The second one since the last growth, though not in a row, halves.
        (true, 8.0, 0, 0),
        // And so does every further one: the tracker is not filled again.
        (true, 4.0, 0, 0),
        (false, 4.0, 1, 0),
        (true, 2.0, 0, 0),
        (true, 2.0, 0, 0),
        (false, 2.0, 1, 0),
        (false, 2.0, 2, 0),
        // A clean window doubles, and forgives again.
        (false, 4.0, 0, 2),
        (true, 4.0, 0, 1),
        (false, 4.0, 1, 1),
        (false, 4.0, 2, 1),
        (false, 8.0, 0, 2),
        (false, 8.0, 1, 2),
    ];
    let mut scaler = dynamic(CONFIG);
    for (number, (found_inf, scale, growth, hysteresis)) in steps.into_iter().enumerate() {
        scaler.update(found_inf).expect("far from the bound");
        let state = scaler.state();
        assert_eq!(
            (scaler.scale(), state.growth_tracker, state.hysteresis_tracker),
            (scale, growth, hysteresis),
            "after step {number}"
        );
    }
}

#[test]
fn the_defaults_are_megatrons() {
    let mut scaler = dynamic(DynamicLossScale::default());
    assert_eq!(scaler.scale(), 4_294_967_296.0);
    scaler.update(true).expect("far from the bound");
    assert_eq!(scaler.scale(), 4_294_967_296.0);
    scaler.update(true).expect("far from the bound");
    assert_eq!(scaler.scale(), 2_147_483_648.0);
    for _ in 0..999 {
        scaler.update(false).expect("clean");
    }
    assert_eq!(scaler.scale(), 2_147_483_648.0);
    scaler.update(false).expect("clean");
    assert_eq!(scaler.scale(), 4_294_967_296.0);
}

#[test]
fn a_constant_scale_stays() {
    let mut scaler = LossScaleConfig::Constant { loss_scale: 65536.0 }.init().expect("valid");
    for found_inf in [false, true, true, true, false] {
        scaler.update(found_inf).expect("far from the bound");
        assert_eq!(scaler.scale(), 65536.0);
    }
}

#[test]
fn infinite_steps_in_a_row_at_the_smallest_scale_are_refused() {
    let constant = LossScaleConfig::Constant { loss_scale: 2.0 }.init().expect("valid");
    let mut smallest = dynamic(CONFIG);
    while smallest.scale() > 2.0 {
        smallest.update(true).expect("the scale can fall");
    }
    for (scaler, max) in [
        (constant.clone(), LossScaler::MAX_SKIPS),
        (smallest, 20),
        (constant.with_max_skips(1), 1),
    ] {
        let mut scaler = scaler;
        for _ in 1..max {
            scaler.update(true).expect("below the bound");
        }
        scaler.update(false).expect("clean");
        for _ in 1..max {
            scaler.update(true).expect("counted from the clean step");
        }
        let error = scaler.update(true).expect_err("one more");
        assert_eq!(error, LossScaleError::Exhausted { steps: max, scale: 2.0 });
    }
}

#[test]
fn the_scale_stays_within_f32() {
    let mut scaler = dynamic(DynamicLossScale {
        initial_loss_scale: 2f64.powi(127),
        loss_scale_window: 1,
        ..CONFIG
    });
    scaler.update(false).expect("clean");
    assert_eq!(scaler.scale(), 2f64.powi(127));
}

#[test]
fn a_bad_configuration_is_refused_by_the_name_of_its_flag() {
    let refusal = |config: LossScaleConfig| config.init().expect_err("a bad configuration").to_string();
    for (value, shown) in [
        (0.0, "0"),
        (-1.0, "-1"),
        (f64::NAN, "NaN"),
        (1e39, "1000000000000000000000000000000000000000"),
    ] {
        let expected = |flag| format!("{flag} must be a positive number that f32 can hold, got {shown}");
        assert_eq!(
            refusal(LossScaleConfig::Constant { loss_scale: value }),
            expected("--loss-scale")
        );
        let initial = DynamicLossScale {
            initial_loss_scale: value,
            ..CONFIG
        };
        assert_eq!(
            refusal(LossScaleConfig::Dynamic(initial)),
            expected("--initial-loss-scale")
        );
        let min = DynamicLossScale {
            min_loss_scale: value,
            ..CONFIG
        };
        assert_eq!(refusal(LossScaleConfig::Dynamic(min)), expected("--min-loss-scale"));
    }
    let below = DynamicLossScale {
        initial_loss_scale: 1.0,
        ..CONFIG
    };
    assert_eq!(
        refusal(LossScaleConfig::Dynamic(below)),
        "--initial-loss-scale (1) must be at least --min-loss-scale (2)"
    );
    let window = DynamicLossScale {
        loss_scale_window: 0,
        ..CONFIG
    };
    assert_eq!(
        refusal(LossScaleConfig::Dynamic(window)),
        "--loss-scale-window must be at least 1, got 0"
    );
    let hysteresis = DynamicLossScale {
        hysteresis: 0,
        ..CONFIG
    };
    assert_eq!(
        refusal(LossScaleConfig::Dynamic(hysteresis)),
        "--hysteresis must be at least 1, got 0"
    );
}

#[test]
fn a_recorded_scale_that_is_no_number_is_refused_and_changes_nothing() {
    let mut scaler = dynamic(CONFIG);
    let before = scaler.clone();
    let state = LossScalerState {
        scale: f64::NAN,
        ..scaler.state()
    };
    let error = scaler.restore(state).expect_err("not a number").to_string();
    assert_eq!(
        error,
        "the checkpoint's loss scale must be a positive number that f32 can hold, got NaN"
    );
    assert_eq!(scaler, before);
}

#[test]
fn a_restored_scaler_obeys_its_own_configuration() {
    let recorded = LossScalerState {
        scale: 1.0,
        growth_tracker: 900,
        hysteresis_tracker: 9,
        skips_at_minimum: 0,
    };
    let mut scaler = dynamic(CONFIG);
    scaler.restore(recorded).expect("valid");
    assert_eq!((scaler.scale(), scaler.state().hysteresis_tracker), (2.0, 2));
    // The window is full at once.
    scaler.update(false).expect("clean");
    assert_eq!((scaler.scale(), scaler.state().growth_tracker), (4.0, 0));
    let mut constant = LossScaleConfig::Constant { loss_scale: 8.0 }.init().expect("valid");
    constant.restore(recorded).expect("valid");
    assert_eq!(constant.scale(), 8.0);
    // After a constant scale, a dynamic one has its full hysteresis.
    scaler.restore(constant.state()).expect("valid");
    assert_eq!((scaler.scale(), scaler.state().hysteresis_tracker), (8.0, 2));
}

fn configs() -> impl Strategy<Value = DynamicLossScale> {
    (0..40i32, 0..20i32, 1..6u32, 1..5u32).prop_map(|(above, min, window, hysteresis)| DynamicLossScale {
        initial_loss_scale: 2f64.powi(min + above),
        min_loss_scale: 2f64.powi(min),
        loss_scale_window: window,
        hysteresis,
    })
}

proptest! {
    #[test]
    fn the_scale_is_a_power_of_two_within_its_bounds_and_changes_by_one_step_at_most(
        config in configs(),
        steps in prop::collection::vec(any::<bool>(), 0..90),
    ) {
        // Twenty skips in a row at the smallest scale are an error, and may be drawn.
        let mut scaler = dynamic(config).with_max_skips(u32::MAX);
        for found_inf in steps {
            let before = scaler.state();
            prop_assert!(scaler.update(found_inf).is_ok());
            let after = scaler.state();
            prop_assert_eq!(after.scale.log2().fract(), 0.0);
            prop_assert!((config.min_loss_scale..=f64::from(f32::MAX)).contains(&after.scale));
            prop_assert!(after.growth_tracker < config.loss_scale_window);
            prop_assert!(after.hysteresis_tracker <= config.hysteresis);
            let ratio = after.scale / before.scale;
            let changed = if found_inf { 0.5 } else { 2.0 };
            prop_assert!(ratio == changed || ratio == 1.0, "{} times the scale before", ratio);
        }
    }

    #[test]
    fn a_scaler_restored_anywhere_continues_as_the_one_that_was_recorded(
        config in configs(),
        before in prop::collection::vec(any::<bool>(), 0..50),
        after in prop::collection::vec(any::<bool>(), 0..50),
    ) {
        let mut whole = dynamic(config);
        for found_inf in before {
            prop_assert!(whole.update(found_inf).is_ok());
        }
        let recorded = serde_json::to_string(&whole.state()).expect("plain numbers");
        let mut resumed = dynamic(config);
        resumed.restore(serde_json::from_str(&recorded).expect("as written")).expect("valid");
        prop_assert_eq!(&resumed, &whole);
        for found_inf in after {
            prop_assert_eq!(whole.update(found_inf), resumed.update(found_inf));
            prop_assert_eq!(&resumed, &whole);
        }
    }
}
