//! Attention of a window of keys, and of samples with other many keys.

use cubecl_kernels::flash_attention::host::{self, HostInputs};
use cubecl_kernels::flash_attention::{AttentionMask, flash_attention};
use libtest_mimic::Trial;

use super::case::{Case, Form, Tolerance, largest, small};
use crate::support::compare::{backward, expect_close, normal};
use crate::support::setting::{Claim, Setting, trials_of};

pub fn trials() -> Vec<Trial> {
    let mut trials = trials_of::<SeesAWindow>();
    trials.extend(trials_of::<EndsAtKeyLengths>());
    // The reference's weights of hidden keys are zeros, and zero times NaN is none.
    let skipped = trials_of::<SkipsWhatNoQuerySees>().into_iter();
    trials.extend(skipped.filter(|trial| !trial.name().starts_with("reference")));
    trials
}

struct SeesAWindow;

impl Claim for SeesAWindow {
    const NAME: &'static str = "flash_attention_sees_a_window";

    fn check(setting: &Setting) -> anyhow::Result<()> {
        // Windows of one key, of blocks and next to these, and of more keys than there are.
        for (seq, window, d_head, probability, form) in [
            (7, 1, 3, 0.0, Form::Separate),
            (7, 3, 3, 0.0, Form::Separate),
            (269, 64, 64, 0.0, Form::Packed),
            (269, 65, 64, 0.0, Form::HeadsFirst),
            (269, 33, 16, 0.25, Form::Packed),
            (269, 128, 128, 0.0, Form::Packed),
            (141, 1000, 16, 0.0, Form::Separate),
        ] {
            let mut case = small(seq, seq, AttentionMask::CausalWindow(window), d_head);
            case.probability = probability;
            case.form = form;
            case.check(setting, case.normal(setting))?;
        }
        // Within documents, the first of them shorter than the window.
        let mut case = small(269, 269, AttentionMask::CausalWindow(40), 64);
        case.form = Form::Packed;
        case.documents = &[&[1, 30, 98, 140], &[269]];
        case.check(setting, case.normal(setting))
    }
}

struct EndsAtKeyLengths;

impl Claim for EndsAtKeyLengths {
    const NAME: &'static str = "flash_attention_ends_at_key_lengths";

    fn check(setting: &Setting) -> anyhow::Result<()> {
        // Cross-attention; a sample without keys, and one with a single key.
        for (queries, keys, lengths, d_head, probability, form) in [
            (5, 9, &[1, 9], 3, 0.0, Form::Separate),
            (45, 139, &[64, 139], 64, 0.0, Form::Separate),
            (139, 70, &[0, 65], 16, 0.25, Form::HeadsFirst),
            (70, 139, &[33, 129], 128, 0.0, Form::Separate),
            (150, 150, &[150, 33], 64, 0.0, Form::Packed),
        ] {
            let mut case = small(queries, keys, AttentionMask::Full, d_head);
            case.probability = probability;
            case.form = form;
            case.key_lengths = lengths;
            case.check(setting, case.normal(setting))?;
        }
        // With the other limits: of queries beyond the keys nothing comes.
        let mut case = small(150, 150, AttentionMask::CausalWindow(20), 16);
        case.key_lengths = &[100, 7];
        case.check(setting, case.normal(setting))?;
        let mut case = small(150, 150, AttentionMask::Full, 16);
        case.documents = &[&[40, 110], &[150]];
        case.key_lengths = &[30, 149];
        case.check(setting, case.normal(setting))
    }
}

/// Where keys are not numbers that no query of a block sees, blocks of queries give numbers: those keys are not read.
struct SkipsWhatNoQuerySees;

impl Claim for SkipsWhatNoQuerySees {
    const NAME: &'static str = "flash_attention_skips_what_no_query_sees";

    fn check(setting: &Setting) -> anyhow::Result<()> {
        // Blocks of keys of every kernel end at 256.
        let mut padded = small(40, 600, AttentionMask::Full, 16);
        padded.sizes.batch = 1;
        padded.key_lengths = &[256];
        expect_rows(padded, setting, |key| key >= 256, 0..40, 0..256)?;
        // And so do blocks of queries: from 512 on, none sees a key before 256.
        let mut windowed = small(700, 700, AttentionMask::CausalWindow(250), 16);
        windowed.sizes.batch = 1;
        expect_rows(windowed, setting, |key| key < 256, 512..700, 512..700)
    }
}

/// Compares some queries' outputs and gradients, and some keys' gradients, with the host's, where other keys, their
/// values and their queries' outputs' gradients are NaN.
fn expect_rows(
    case: Case,
    setting: &Setting,
    is_spoilt: impl Fn(usize) -> bool,
    queries: std::ops::Range<usize>,
    keys: std::ops::Range<usize>,
) -> anyhow::Result<()> {
    let [query_shape, key_shape] = case.shapes();
    let row = |shape: [usize; 4]| shape[2] * shape[3];
    let [query, key, value] = case.normal(setting);
    let spoil = |values: Vec<f64>| -> Vec<f64> {
        let values = values.into_iter().enumerate();
        let place = |index: usize| index / row(key_shape);
        values
            .map(|(index, value)| if is_spoilt(place(index)) { f64::NAN } else { value })
            .collect()
    };
    let inputs = [query, spoil(key), spoil(value)];
    let gradient = setting.rounded(&normal(inputs[0].len(), 4));
    let on_host = HostInputs::new(inputs.each_ref().map(Vec::as_slice));
    let (output, _) = host::forward(case.sizes, on_host, &case.options());
    let gradients = host::backward(case.sizes, on_host, &gradient, &case.options()).inputs;

    let shapes = [query_shape, key_shape, key_shape];
    let mut shapes = shapes.into_iter();
    let leaves = inputs
        .each_ref()
        .map(|input| setting.tensor(input, shapes.next().expect("three")).require_grad());
    let [query, key, value] = leaves.clone();
    let actual = flash_attention(query, key, value, case.options())?;
    let found = backward(vec![[actual.clone(), setting.tensor(&gradient, query_shape)]]);
    let tolerance = Tolerance::of(setting.dtype);
    let of_rows = |values: &[f64], rows: &std::ops::Range<usize>, shape| -> Vec<f64> {
        values[rows.start * row(shape)..rows.end * row(shape)].to_vec()
    };
    let expected = of_rows(&output, &queries, query_shape);
    let actual = actual.narrow(1, queries.start, queries.len());
    expect_close("output", actual, &expected, tolerance.output, largest(&expected))?;
    let rows = [
        ("query", &queries, query_shape),
        ("key", &keys, key_shape),
        ("value", &keys, key_shape),
    ];
    for ((leaf, expected), (what, rows, shape)) in leaves.iter().zip(gradients).zip(rows) {
        let actual = leaf.grad(&found).expect("tracked").narrow(1, rows.start, rows.len());
        let expected = of_rows(&expected, rows, shape);
        expect_close(what, actual, &expected, tolerance.gradient, largest(&expected))?;
    }
    Ok(())
}
