//! Frequencies against numbers that are worked out from the formulas, and from those of Hugging Face's
//! `modeling_rope_utils`, apart from this code.

use super::*;

/// Llama 3.1's.
fn llama() -> RotaryScaling {
    RotaryScaling::Llama3 {
        factor: 8.0,
        low_freq_factor: 1.0,
        high_freq_factor: 4.0,
        original_max_position: 8192,
    }
}

/// Qwen 2.5's for 128 Ki tokens.
fn yarn(truncate: bool) -> RotaryScaling {
    RotaryScaling::Yarn {
        factor: 4.0,
        beta_fast: 32.0,
        beta_slow: 1.0,
        original_max_position: 32768,
        attention_factor: None,
        truncate,
    }
}

fn expect_close(actual: f64, expected: f64) {
    assert!(
        (actual - expected).abs() <= 1e-13 * expected.abs(),
        "{actual:e}, expected {expected:e}"
    );
}

fn expect_frequencies(found: &[f64], expected: &[(usize, f64)]) {
    for &(pair, expected) in expected {
        println!("pair {pair}");
        expect_close(found[pair], expected);
    }
}

#[test]
fn frequencies_are_powers_of_the_base() {
    let found = inverse_frequencies(8, 10_000.0, &RotaryScaling::None);
    assert_eq!(found.len(), 4);
    expect_frequencies(&found, &[(0, 1.0), (1, 0.1), (2, 0.01), (3, 0.001)]);
    let linear = RotaryScaling::Linear { factor: 4.0 };
    let found = inverse_frequencies(8, 10_000.0, &linear);
    expect_frequencies(&found, &[(0, 0.25), (1, 0.025), (2, 0.0025), (3, 0.00025)]);
}

/// `8192 f / 2π` turns: 4 and more up to pair 28, where `500000^(28/64) = 311.4 < 8192 / 8π = 325.9`; less than 1 from
/// pair 35 on.
#[test]
fn llamas_frequencies_are_those_of_hugging_face() {
    let found = inverse_frequencies(128, 500_000.0, &llama());
    expect_frequencies(
        &found,
        &[
            (0, 1.0),
            (1, 0.814_617_233_856_544_7),
            (28, 0.003_211_445_994_752_591_3),
            (29, 0.002_166_570_763_503_359),
            (32, 0.000_524_846_160_992_954_7),
            (34, 0.000_178_507_812_767_996_38),
            (35, 9.556_212_353_964_683e-5),
            (63, 3.068_925_988_914_511e-7),
        ],
    );
    let plain = inverse_frequencies(128, 500_000.0, &RotaryScaling::None);
    assert!((0..=28).all(|pair| found[pair] == plain[pair]));
    assert!((29..35).all(|pair| found[pair] < plain[pair] && found[pair] > plain[pair] / 8.0));
    assert!((35..64).all(|pair| found[pair] == plain[pair] / 8.0));
    // 1 − (8192 · 500000^(−1/2) / 2π − 1) / 3 of it is divided by 8.
    let low = 1.0 - (8192.0 / 500_000f64.sqrt() / TAU - 1.0) / 3.0;
    expect_close(found[32], (1.0 - low + low / 8.0) / 500_000f64.sqrt());
}

/// From pair `64 ln(32768 / 64π) / ln 1e6 = 23.6` to pair `64 ln(32768 / 2π) / ln 1e6 = 39.7`: in whole pairs, from 23
/// to 40.
#[test]
fn yarns_frequencies_are_those_of_hugging_face() {
    let plain = inverse_frequencies(128, 1e6, &RotaryScaling::None);
    let found = inverse_frequencies(128, 1e6, &yarn(true));
    expect_frequencies(
        &found,
        &[
            (0, 1.0),
            (23, 0.006_978_305_848_598_663),
            (24, 0.005_375_321_490_790_102),
            (25, 0.004_131_738_022_518_394),
            (30, 0.001_064_360_981_247_001_7),
            (39, 6.490_394_320_837_028e-5),
            (40, 4.445_698_525_097_307e-5),
            (63, 3.102_344_401_879_299e-7),
        ],
    );
    // Pair 30 is 7 seventeenths of the way to a quarter.
    expect_close(found[30], plain[30] * (1.0 - 0.75 * 7.0 / 17.0));
    let found = inverse_frequencies(128, 1e6, &yarn(false));
    expect_frequencies(
        &found,
        &[
            (23, 0.006_978_305_848_598_663),
            (24, 0.005_517_270_475_134_122_5),
            (30, 0.001_079_237_741_676_553_8),
            (39, 6.187_806_812_450_695e-5),
            (40, 4.445_698_525_097_307e-5),
        ],
    );
    // Where the mix has no length, it is a step.
    let step = RotaryScaling::Yarn {
        factor: 2.0,
        beta_fast: 1.0 + 1e-9,
        beta_slow: 1.0,
        original_max_position: 6,
        attention_factor: None,
        truncate: true,
    };
    let (found, plain) = (
        inverse_frequencies(4, 10.0, &step),
        inverse_frequencies(4, 10.0, &RotaryScaling::None),
    );
    assert_eq!(found, [plain[0], plain[1] / 2.0]);
}

#[test]
fn tables_have_the_cosines_and_sines_of_each_position() {
    let (cosine, sine) = tables(1001, 128, 500_000.0, &llama());
    assert_eq!((cosine.len(), sine.len()), (1001 * 64, 1001 * 64));
    assert!(cosine[..64].iter().all(|&x| x == 1.0) && sine[..64].iter().all(|&x| x == 0.0));
    let at = 1000 * 64 + 32;
    expect_close(cosine[at], 0.865_401_037_494_025_7);
    expect_close(sine[at], 0.501_079_878_167_407_3);
    assert_eq!(tables(0, 128, 500_000.0, &llama()), (vec![], vec![]));
}

#[test]
fn yarn_lengthens_vectors() {
    expect_close(yarn(true).attention_factor(), 1.138_629_436_111_989);
    let (cosine, _) = tables(1, 128, 1e6, &yarn(true));
    expect_close(cosine[5], 1.138_629_436_111_989);
    let mut given = yarn(true);
    if let RotaryScaling::Yarn { attention_factor, .. } = &mut given {
        *attention_factor = Some(1.25);
    }
    assert_eq!(tables(1, 128, 1e6, &given).0, [1.25; 64]);
    let mut shorter = yarn(true);
    if let RotaryScaling::Yarn { factor, .. } = &mut shorter {
        *factor = 0.5;
    }
    assert_eq!(shorter.attention_factor(), 1.0);
    assert_eq!(llama().attention_factor(), 1.0);
}

#[test]
fn what_tables_cannot_be_made_of_is_refused_with_its_values() {
    let refused =
        |rotated, base, scaling: RotaryScaling| check(rotated, base, &scaling).expect_err("refused").to_string();
    assert_eq!(
        refused(7, 1e4, RotaryScaling::None),
        "rotary: the rotated elements must be even and not 0, got 7"
    );
    assert_eq!(
        refused(8, 1.0, RotaryScaling::None),
        "rotary: the base must be above 1, got 1"
    );
    assert_eq!(
        refused(8, 1e4, RotaryScaling::Linear { factor: 0.0 }),
        "rotary: the factor must be above 0, got 0"
    );
    let equal = RotaryScaling::Llama3 {
        factor: 8.0,
        low_freq_factor: 4.0,
        high_freq_factor: 4.0,
        original_max_position: 8192,
    };
    assert_eq!(
        refused(8, 1e4, equal),
        "rotary: high_freq_factor must be above low_freq_factor, 4, got 4"
    );
    let mut slow = yarn(true);
    if let RotaryScaling::Yarn { beta_slow, .. } = &mut slow {
        *beta_slow = 64.0;
    }
    assert_eq!(
        refused(8, 1e4, slow),
        "rotary: beta_fast must be above beta_slow, 64, got 32"
    );
    assert!(check(8, 1e4, &llama()).is_ok() && check(8, 1e4, &yarn(false)).is_ok());
}
