//! `flash_attention` and `flash_attention_packed` against their host version.

mod bias;
mod case;
mod documents;
mod extremes;
mod key_ranges;

use burn::tensor::DType;
use cubecl_kernels::flash_attention::host::{self, HostInputs};
use cubecl_kernels::flash_attention::{AttentionMask, AttentionSizes};
use libtest_mimic::Trial;
use proptest::prelude::*;

use self::case::{Case, Form, small};
use crate::support::compare::{dot, expect_slopes, normal, over};
use crate::support::setting::{Claim, Setting, plain, trials_of};

pub fn trials() -> Vec<Trial> {
    let mut trials = trials_of::<MatchesTheHost>();
    trials.extend(trials_of::<TakesEveryHeadSize>());
    trials.extend(trials_of::<TakesSeveralBlocks>());
    trials.extend(trials_of::<TakesViews>());
    trials.extend(bias::trials());
    trials.extend(documents::trials());
    trials.extend(key_ranges::trials());
    trials.extend(extremes::trials());
    trials.push(plain(
        "host::flash_attention_gradients_are_slopes_of_the_output",
        host_gradients_are_slopes,
    ));
    trials
}

struct MatchesTheHost;

impl Claim for MatchesTheHost {
    const NAME: &'static str = "flash_attention_matches_the_host";

    fn check(setting: &Setting) -> anyhow::Result<()> {
        let heads = (1usize..3, 1usize..4);
        let d_head = prop::sample::select(vec![1usize, 3, 7, 16, 24, 64, 80, 128, 144, 256]);
        let options = (any::<bool>(), prop::sample::select(vec![0.0, 0.25]));
        let shapes = (1usize..3, 1usize..140, 1usize..140, heads, d_head, options);
        // A single key, a single query, and one of each.
        let edges = [(1, 1), (1, 33), (33, 1)].map(|(queries, keys)| (1, queries, keys, (1, 1), 16, (false, 0.0)));
        let cases = match setting.dtype {
            _ if !setting.takes_few() => 12,
            DType::BF16 => 6,
            _ => 3,
        };
        over(
            edges,
            cases,
            shapes,
            |(batch, queries, keys, heads, d_head, (is_causal, probability))| {
                let case = Case {
                    sizes: AttentionSizes {
                        batch,
                        queries,
                        keys: if is_causal { queries } else { keys },
                        heads: heads.0 * heads.1,
                        kv_heads: heads.0,
                        d_head,
                    },
                    mask: if is_causal {
                        AttentionMask::Causal
                    } else {
                        AttentionMask::Full
                    },
                    probability,
                    scale: None,
                    form: Form::Separate,
                    documents: &[],
                    key_lengths: &[],
                    has_bias: false,
                    is_deterministic: false,
                };
                case.check(setting, case.normal(setting))
            },
        )
    }
}

/// Sizes of heads are specialisations of the kernels, as is dropout.
struct TakesEveryHeadSize;

impl Claim for TakesEveryHeadSize {
    const NAME: &'static str = "flash_attention_takes_every_head_size";

    fn check(setting: &Setting) -> anyhow::Result<()> {
        // All of them on the matrix units, where each is tiled in its own way, and where no kernel is compiled for
        // each.
        let is_complete = setting.dtype == DType::BF16 || !setting.runs_kernels();
        let sizes: &[usize] = if is_complete {
            &[16, 32, 64, 80, 96, 128, 160, 200, 256]
        } else {
            &[32, 96]
        };
        for &d_head in sizes {
            // With dropout tiles are smaller, except for some heads.
            let probabilities: &[f64] = if [96, 256].contains(&d_head) {
                &[0.0, 0.25]
            } else {
                &[0.25]
            };
            for &probability in probabilities {
                let mut case = small(37, 37, AttentionMask::Causal, d_head);
                case.sizes.batch = 1;
                case.sizes.heads = 1;
                case.sizes.kv_heads = 1;
                case.probability = probability;
                case.check(setting, case.normal(setting))?;
            }
        }
        Ok(())
    }
}

/// More rows than any tile has, and not a multiple of any: several cubes add to a query's gradient.
struct TakesSeveralBlocks;

impl Claim for TakesSeveralBlocks {
    const NAME: &'static str = "flash_attention_takes_several_blocks";

    fn check(setting: &Setting) -> anyhow::Result<()> {
        // Two blocks of the largest tile, or more of them.
        let [few, many] = if setting.takes_few() { [77, 141] } else { [141, 269] };
        for (queries, keys, mask, d_head, probability) in [
            (many, many, AttentionMask::Causal, 64, 0.0),
            (many, many, AttentionMask::Causal, 128, 0.0),
            (many, many, AttentionMask::Causal, 96, 0.25),
            (few, many + 6, AttentionMask::Full, 64, 0.25),
            (many + 6, few, AttentionMask::Full, 160, 0.0),
        ] {
            let mut case = small(queries, keys, mask, d_head);
            case.sizes.batch = 1;
            case.sizes.heads = 2;
            case.sizes.kv_heads = 1;
            case.probability = probability;
            case.check(setting, case.normal(setting))?;
        }
        Ok(())
    }
}

struct TakesViews;

impl Claim for TakesViews {
    const NAME: &'static str = "flash_attention_takes_views";

    fn check(setting: &Setting) -> anyhow::Result<()> {
        let forms = [Form::Packed, Form::Unpacked, Form::HeadsFirst, Form::Transposed];
        for (form, kv_heads, d_head) in forms.into_iter().flat_map(|form| [(form, 1, 7), (form, 2, 16)]) {
            let sizes = AttentionSizes {
                batch: 2,
                queries: 37,
                keys: 37,
                heads: 4,
                kv_heads,
                d_head,
            };
            let case = Case {
                sizes,
                mask: AttentionMask::Causal,
                probability: 0.25,
                scale: None,
                form,
                documents: &[],
                key_lengths: &[],
                has_bias: false,
                is_deterministic: false,
            };
            case.check(setting, case.normal(setting))?;
        }
        Ok(())
    }
}

/// The host version's gradients against differences of its own output.
fn host_gradients_are_slopes() -> anyhow::Result<()> {
    for (mask, keys, probability) in [
        (AttentionMask::Causal, 5, 0.0),
        (AttentionMask::Full, 7, 0.3),
        (AttentionMask::Causal, 5, 0.3),
        (AttentionMask::CausalWindow(2), 5, 0.0),
    ] {
        let mut case = small(5, keys, mask, 3);
        case.probability = probability;
        let options = case.options();
        let inputs = case.lengths().map(|length| normal(length, length as u64));
        let bias = normal(case.bias_length(), 8);
        let gradient = normal(inputs[0].len(), 9);
        let all = HostInputs {
            bias: Some(&bias),
            ..HostInputs::new(inputs.each_ref().map(Vec::as_slice))
        };
        let gradients = host::backward(case.sizes, all, &gradient, &options);
        let loss = |moved: HostInputs<'_>| dot(&host::forward(case.sizes, moved, &options).0, &gradient);
        let what = |input: &str| format!("{case:?}, {input}");
        let [of_query, of_key, of_value] = &gradients.inputs;
        expect_slopes(&what("query"), of_query, all.query, |query| {
            loss(HostInputs { query, ..all })
        })?;
        expect_slopes(&what("key"), of_key, all.key, |key| loss(HostInputs { key, ..all }))?;
        expect_slopes(&what("value"), of_value, all.value, |value| {
            loss(HostInputs { value, ..all })
        })?;
        let of_bias = gradients.bias.as_ref().expect("there is one");
        expect_slopes(&what("bias"), of_bias, &bias, |bias| {
            loss(HostInputs {
                bias: Some(bias),
                ..all
            })
        })?;
    }
    Ok(())
}
