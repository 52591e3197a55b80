//! Shares, frequencies, cuts and refusals of draws.

use proptest::prelude::*;

use super::*;

const PLACE: DrawPlace = DrawPlace {
    number: 7,
    sample: 0,
    position: 3,
};

fn chosen(scores: &[f64], config: &SamplingConfig, position: u32) -> u32 {
    let place = DrawPlace { position, ..PLACE };
    choose(scores, History::default(), config, place, 0).unwrap().token
}

/// The probabilities after the cuts, computed as they are defined: by sorting everything.
fn expected_shares(scores: &[f64], config: &SamplingConfig) -> Vec<f64> {
    let mut order: Vec<usize> = (0..scores.len()).collect();
    order.sort_by(|left, right| {
        scores[*right]
            .partial_cmp(&scores[*left])
            .unwrap()
            .then(left.cmp(right))
    });
    if config.top_k > 0 {
        order.truncate(config.top_k);
    }
    let highest = scores[order[0]];
    let weights: Vec<f64> = (order.iter())
        .map(|token| ((scores[*token] - highest) / config.temperature).exp())
        .collect();
    let total: f64 = weights.iter().sum();
    let mut shares = vec![0.0; scores.len()];
    let (mut sum, mut kept) = (0.0, 0.0);
    for (token, weight) in order.iter().zip(&weights) {
        // Without a cut every token has a share, also after a sum that rounds to the total.
        if config.top_p == 1.0 || sum < config.top_p * total || sum == 0.0 {
            shares[*token] = *weight;
            kept += weight;
        }
        sum += weight;
    }
    shares.iter().map(|share| share / kept).collect()
}

#[test]
fn greedy_takes_the_lowest_of_equal_scores() {
    let config = SamplingConfig::greedy();
    assert_eq!(chosen(&[1.0, 3.0, 3.0, 2.0], &config, 0), 1);
    assert_eq!(chosen(&[0.0, -0.0], &config, 0), 0);
    assert_eq!(chosen(&[-0.0, 0.0], &config, 0), 0);
    let choice = choose(&[1.0, 3.0, 2.5], History::default(), &config, PLACE, 2).unwrap();
    assert_eq!(choice.margin, 0.5);
    assert_eq!(choice.top.iter().map(|top| top.0).collect::<Vec<_>>(), [1, 2]);
    assert_eq!(choice.top[0].1, choice.log_probability);
}

#[test]
fn log_probabilities_are_those_of_the_models_own_scores() {
    let config = SamplingConfig {
        temperature: 0.3,
        top_k: 1,
        repetition_penalty: 5.0,
        ..SamplingConfig::default()
    };
    let scores = [2.0_f64, 1.0, 0.5];
    let sum: f64 = scores.iter().map(|score| score.exp()).sum();
    let history = History {
        prompt: &[0],
        drawn: &[],
    };
    let choice = choose(&scores, history, &config, PLACE, 3).unwrap();
    // 2 / 5 is below the two others.
    assert_eq!(choice.token, 1);
    assert!((choice.log_probability - (1.0 - sum.ln())).abs() < 1e-15);
    let all: f64 = choice.top.iter().map(|(_, log)| log.exp()).sum();
    assert!((all - 1.0).abs() < 1e-15);
}

#[test]
fn repetition_penalty_is_that_of_transformers() {
    // RepetitionPenaltyLogitsProcessor: a positive score is divided, a negative one multiplied, once.
    let config = SamplingConfig {
        repetition_penalty: 2.0,
        ..SamplingConfig::default()
    };
    let history = History {
        prompt: &[0, 1, 1],
        drawn: &[0, 2, 99],
    };
    assert_eq!(adjust(&[3.0, -2.0, 0.0, 1.0], history, &config), [1.5, -4.0, 0.0, 1.0]);
}

#[test]
fn bias_and_penalties_are_those_of_vllm() {
    let history = History {
        prompt: &[0, 1],
        drawn: &[2, 1, 2, 9],
    };
    let usual = SamplingConfig::default();
    for (config, expected) in [
        // Of what was drawn alone, each time or once.
        (
            SamplingConfig {
                frequency_penalty: 0.5,
                ..usual.clone()
            },
            [4.0, 2.5, 1.0, -1.0],
        ),
        (
            SamplingConfig {
                presence_penalty: -0.5,
                ..usual.clone()
            },
            [4.0, 3.5, 2.5, -1.0],
        ),
        (
            SamplingConfig {
                logit_bias: vec![(3, 2.5), (0, -100.0), (7, 1.0)],
                ..usual.clone()
            },
            [-96.0, 3.0, 2.0, 1.5],
        ),
        // Token 2: (2 + 4) / 2 − 2 · 0.25 − 1; token 0 is of the prompt: (4 − 5) · 2; token 1: 3 / 2 − 0.25 − 1.
        (
            SamplingConfig {
                logit_bias: vec![(2, 4.0), (0, -5.0)],
                repetition_penalty: 2.0,
                frequency_penalty: 0.25,
                presence_penalty: 1.0,
                ..usual
            },
            [-2.0, 0.25, 1.5, -1.0],
        ),
    ] {
        assert_eq!(adjust(&[4.0, 3.0, 2.0, -1.0], history, &config), expected, "{config:?}");
    }
}

#[test]
fn min_p_is_a_share_of_the_highest_probability_after_the_temperature() {
    // Probabilities 0.4, 0.3, 0.2 and 0.1: shares of the highest one 1, 0.75, 0.5 and 0.25, and with temperature 0.5
    // their squares.
    let scores = [0.2_f64, 0.4, 0.1, 0.3].map(f64::ln);
    for (min_p, temperature, top_k, top_p, expected) in [
        (0.0, 1.0, 0, 1.0, vec![0, 1, 2, 3]),
        (0.6, 1.0, 0, 1.0, vec![1, 3]),
        (0.49, 1.0, 0, 1.0, vec![1, 3, 0]),
        (0.49, 0.5, 0, 1.0, vec![1, 3]),
        (0.49, 1.0, 1, 1.0, vec![1]),
        (1.0, 1.0, 0, 1.0, vec![1]),
        // Of the two that are left, the first has 4 / 7.
        (0.6, 1.0, 0, 0.57, vec![1]),
        (0.0, 1.0, 0, 0.57, vec![1, 3]),
    ] {
        let config = SamplingConfig {
            min_p,
            temperature,
            top_k,
            top_p,
            ..SamplingConfig::default()
        };
        assert_eq!(candidates(&scores, &config), expected, "{config:?}");
    }
}

#[test]
fn scores_and_settings_that_cannot_be_are_refused() {
    let config = SamplingConfig::default();
    let error = choose(&[0.0, f64::NAN], History::default(), &config, PLACE, 0).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the score of token 1 is NaN, expected a finite number"
    );
    for (config, message) in [
        (
            SamplingConfig {
                top_p: 0.0,
                ..config.clone()
            },
            "top_p must be above 0 and at most 1, got 0",
        ),
        (
            SamplingConfig {
                temperature: -1.0,
                ..config.clone()
            },
            "temperature must be 0 or from 1e-6 to a finite number, got -1",
        ),
        (
            SamplingConfig {
                repetition_penalty: f64::NAN,
                ..config.clone()
            },
            "repetition_penalty must be from 1e-6 to 1e6, got NaN",
        ),
        (
            SamplingConfig {
                min_p: 1.5,
                ..config.clone()
            },
            "min_p must be from 0 to 1, got 1.5",
        ),
        (
            SamplingConfig {
                presence_penalty: -2.5,
                ..config.clone()
            },
            "presence_penalty must be from -2 to 2, got -2.5",
        ),
        (
            SamplingConfig {
                logit_bias: vec![(0, 1.0), (1, 101.0)],
                ..config
            },
            "logit_bias must be from -100 to 100, got 101",
        ),
    ] {
        assert_eq!(config.validate().unwrap_err().to_string(), message);
    }
}

#[test]
fn draws_have_the_frequencies_of_their_shares() {
    let scores = [1.0, 0.0, -1.0, 2.0, 0.5, -3.0];
    for config in [
        SamplingConfig::default(),
        SamplingConfig {
            temperature: 0.7,
            top_k: 4,
            top_p: 0.85,
            ..SamplingConfig::default()
        },
    ] {
        let shares = expected_shares(&scores, &config);
        let draws = 20_000;
        let mut counts = vec![0; scores.len()];
        for position in 0..draws {
            counts[chosen(&scores, &config, position) as usize] += 1;
        }
        for (token, (count, share)) in counts.iter().zip(&shares).enumerate() {
            // Four standard deviations.
            let deviation = 4.0 * (f64::from(draws) * share * (1.0 - share)).sqrt();
            let expected = f64::from(draws) * share;
            assert!(
                (f64::from(*count) - expected).abs() <= deviation,
                "token {token}: {count} of {draws}, expected {expected:.0}"
            );
        }
    }
}

#[test]
fn every_coordinate_changes_the_draw() {
    let base = PLACE.uniform(1);
    assert!((0.0..1.0).contains(&base));
    assert_ne!(base, PLACE.uniform(2));
    for other in [
        DrawPlace { number: 8, ..PLACE },
        DrawPlace {
            number: PLACE.number + (1 << 32),
            ..PLACE
        },
        DrawPlace { sample: 1, ..PLACE },
        DrawPlace { position: 4, ..PLACE },
    ] {
        assert_ne!(base, other.uniform(1), "{other:?}");
    }
}

proptest! {
    #[test]
    fn draws_are_those_of_sorted_shares(
        scores in prop::collection::vec(-8.0_f64..8.0, 1..600),
        top_k in 0_usize..40,
        top_p in prop::sample::select(vec![0.05, 0.5, 0.9, 0.999, 1.0]),
        temperature in 0.2_f64..3.0,
        position in 0_u32..1000,
    ) {
        let config = SamplingConfig { temperature, top_k, top_p, ..SamplingConfig::default() };
        let shares = expected_shares(&scores, &config);
        let token = chosen(&scores, &config, position) as usize;
        prop_assert!(shares[token] > 0.0, "token {} has no share", token);
        let kept = candidates(&scores, &config);
        let expected = shares.iter().filter(|share| **share > 0.0).count();
        // A sum that is the wanted one but for rounding may end a token earlier or later.
        prop_assert!(kept.len().abs_diff(expected) <= 1, "{} against {}", kept.len(), expected);
        if config.top_p == 1.0 {
            prop_assert_eq!(kept.len(), expected);
        }
    }

    #[test]
    fn one_candidate_is_the_greedy_choice(
        scores in prop::collection::vec(-8_i32..8, 1..100),
        seed in any::<u64>(),
    ) {
        let scores: Vec<f64> = scores.into_iter().map(f64::from).collect();
        let greedy = chosen(&scores, &SamplingConfig::greedy(), 0);
        let config = SamplingConfig { top_k: 1, seed, ..SamplingConfig::default() };
        prop_assert_eq!(chosen(&scores, &config, 0), greedy);
        let config = SamplingConfig { top_p: 1e-9, seed, ..SamplingConfig::default() };
        prop_assert_eq!(chosen(&scores, &config, 0), greedy);
    }
}
