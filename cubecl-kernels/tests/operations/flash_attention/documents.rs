//! Attention of documents that are packed into samples.

use cubecl_kernels::flash_attention::host::{self, HostInputs};
use cubecl_kernels::flash_attention::{AttentionMask, flash_attention};
use libtest_mimic::Trial;

use super::case::{Case, Form, Tolerance, largest, small};
use crate::support::compare::{backward, expect_close, normal};
use crate::support::setting::{Claim, Setting, plain, trials_of};

pub fn trials() -> Vec<Trial> {
    let mut trials = trials_of::<KeepsDocumentsApart>();
    // The reference's weights of hidden keys are zeros, and zero times NaN is none.
    let skipped = trials_of::<SkipsOtherDocuments>().into_iter();
    trials.extend(skipped.filter(|trial| !trial.name().starts_with("reference")));
    trials.push(plain(
        "host::flash_attention_of_documents_is_that_of_each",
        documents_are_attentions_of_their_own,
    ));
    trials
}

/// Documents of a token, of a whole sample, and such as end at the edges of blocks, one before and one after.
const DOCUMENTS: [&[&[usize]]; 2] = [
    &[&[1, 127, 141], &[269]],
    &[&[129, 1, 62, 1, 1, 1, 74], &[5, 154, 31, 77, 2]],
];

struct KeepsDocumentsApart;

impl Claim for KeepsDocumentsApart {
    const NAME: &'static str = "flash_attention_keeps_documents_apart";

    fn check(setting: &Setting) -> anyhow::Result<()> {
        for (mask, d_head, probability, form) in [
            (AttentionMask::Causal, 64, 0.0, Form::Packed),
            (AttentionMask::Full, 64, 0.0, Form::Separate),
            (AttentionMask::Causal, 16, 0.25, Form::Packed),
            (AttentionMask::Full, 16, 0.25, Form::Separate),
            (AttentionMask::Causal, 128, 0.0, Form::HeadsFirst),
        ] {
            for documents in DOCUMENTS {
                let mut case = small(269, 269, mask, d_head);
                case.sizes.heads = 2;
                case.sizes.kv_heads = 1;
                case.probability = probability;
                case.form = form;
                case.documents = documents;
                case.check(setting, case.normal(setting))?;
            }
        }
        // Fewer tokens than a block has, and a head of no whole load.
        let mut case = small(7, 7, AttentionMask::Causal, 3);
        case.documents = &[&[3, 4], &[1, 1, 5]];
        case.check(setting, case.normal(setting))
    }
}

/// The document in the middle begins and ends where blocks of every kernel do: no other block is read for it, or the
/// NaN there would show.
struct SkipsOtherDocuments;

impl Claim for SkipsOtherDocuments {
    const NAME: &'static str = "flash_attention_skips_other_documents";

    fn check(setting: &Setting) -> anyhow::Result<()> {
        for mask in [AttentionMask::Causal, AttentionMask::Full] {
            for is_deterministic in [false, true] {
                let mut case = small(710, 710, mask, 64);
                case.sizes.batch = 1;
                case.sizes.heads = 1;
                case.sizes.kv_heads = 1;
                case.documents = &[&[512, 128, 70]];
                case.is_deterministic = is_deterministic;
                middle_document(case, setting).map_err(|error| error.context(format!("{case:?}")))?;
            }
        }
        Ok(())
    }
}

/// Compares the second document of three with the host, where the others are NaN.
fn middle_document(case: Case, setting: &Setting) -> anyhow::Result<()> {
    let d_head = case.sizes.d_head;
    let [first, count, _] = case.documents[0] else {
        anyhow::bail!("three documents are expected");
    };
    let elements = first * d_head..(first + count) * d_head;
    let spoilt = |values: Vec<f64>| -> Vec<f64> {
        let values = values.into_iter().enumerate();
        values
            .map(|(index, value)| if elements.contains(&index) { value } else { f64::NAN })
            .collect()
    };
    let inputs = case.normal(setting).map(&spoilt);
    let gradient = spoilt(setting.rounded(&normal(inputs[0].len(), 4)));
    let slices = inputs.each_ref().map(Vec::as_slice);
    let (output, _) = host::forward(case.sizes, HostInputs::new(slices), &case.options());
    let [of_query, of_key, of_value] =
        host::backward(case.sizes, HostInputs::new(slices), &gradient, &case.options()).inputs;

    let [shape, _] = case.shapes();
    let leaves = inputs
        .each_ref()
        .map(|input| setting.tensor(input, shape).require_grad());
    let [query, key, value] = leaves.clone();
    let actual = flash_attention(query, key, value, case.options())?;
    let gradients = backward(vec![[actual.clone(), setting.tensor(&gradient, shape)]]);
    let tolerance = Tolerance::of(setting.dtype);
    let expected = &output[elements.clone()];
    let actual = actual.narrow(1, *first, *count);
    expect_close("output", actual, expected, tolerance.output, largest(expected))?;
    for ((leaf, expected), what) in leaves
        .iter()
        .zip([of_query, of_key, of_value])
        .zip(["query", "key", "value"])
    {
        let actual = leaf.grad(&gradients).expect("tracked").narrow(1, *first, *count);
        let expected = &expected[elements.clone()];
        expect_close(what, actual, expected, tolerance.gradient, largest(expected))?;
    }
    Ok(())
}

/// The host's attention of packed documents against its attention of one after the other: bit for bit.
fn documents_are_attentions_of_their_own() -> anyhow::Result<()> {
    for mask in [AttentionMask::Causal, AttentionMask::Full] {
        let mut case = small(12, 12, mask, 3);
        case.documents = &[&[1, 4, 7], &[12]];
        let inputs = case.lengths().map(|length| normal(length, length as u64));
        let gradient = normal(inputs[0].len(), 9);
        let slices = inputs.each_ref().map(Vec::as_slice);
        let (output, log_sum_exp) = host::forward(case.sizes, HostInputs::new(slices), &case.options());
        let gradients = host::backward(case.sizes, HostInputs::new(slices), &gradient, &case.options()).inputs;
        for (sample, first, count) in [(0, 0, 1), (0, 1, 4), (0, 5, 7), (1, 0, 12)] {
            let mut alone = case;
            alone.documents = &[];
            alone.sizes.batch = 1;
            (alone.sizes.queries, alone.sizes.keys) = (count, count);
            // Of tensors of whole samples, and of rows of this many heads.
            let rows = |values: &[f64], heads: usize| {
                let row = heads * case.sizes.d_head;
                let start = (sample * 12 + first) * row;
                values[start..start + count * row].to_vec()
            };
            let (heads, kv_heads) = (case.sizes.heads, case.sizes.kv_heads);
            let own = [
                rows(&inputs[0], heads),
                rows(&inputs[1], kv_heads),
                rows(&inputs[2], kv_heads),
            ];
            let own = own.each_ref().map(Vec::as_slice);
            let (own_output, own_log_sum_exp) = host::forward(alone.sizes, HostInputs::new(own), &alone.options());
            anyhow::ensure!(own_output == rows(&output, heads), "the output of {alone:?}");
            for head in 0..heads {
                let start = (sample * heads + head) * 12 + first;
                anyhow::ensure!(
                    own_log_sum_exp[head * count..][..count] == log_sum_exp[start..][..count],
                    "the statistics of {alone:?}"
                );
            }
            let own = host::backward(
                alone.sizes,
                HostInputs::new(own),
                &rows(&gradient, heads),
                &alone.options(),
            )
            .inputs;
            for ((own, all), heads) in own.iter().zip(&gradients).zip([heads, kv_heads, kv_heads]) {
                anyhow::ensure!(*own == rows(all, heads), "a gradient of {alone:?}");
            }
        }
    }
    Ok(())
}
