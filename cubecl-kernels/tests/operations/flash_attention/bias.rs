//! Attention with a relative bias.

use burn::tensor::{DType, Tensor};
use cubecl_kernels::flash_attention::{AttentionMask, flash_attention_with_bias};
use libtest_mimic::Trial;

use super::case::{Form, small};
use crate::support::compare::backward;
use crate::support::setting::{Claim, Setting, trials_of};

pub fn trials() -> Vec<Trial> {
    let mut trials = trials_of::<AddsARelativeBias>();
    trials.extend(trials_of::<TakesABiasForEveryHeadSize>());
    trials.extend(trials_of::<LeavesAConstantBiasAlone>());
    trials
}

struct AddsARelativeBias;

impl Claim for AddsARelativeBias {
    const NAME: &'static str = "flash_attention_adds_a_relative_bias";

    fn check(setting: &Setting) -> anyhow::Result<()> {
        let largest = if setting.takes_few() { 141 } else { 301 };
        for (queries, keys, mask, probability, form) in [
            (1, 1, AttentionMask::Full, 0.0, Form::Separate),
            (1, 37, AttentionMask::Full, 0.0, Form::Separate),
            (37, 1, AttentionMask::Full, 0.0, Form::Separate),
            (45, 139, AttentionMask::Full, 0.0, Form::HeadsFirst),
            (139, 45, AttentionMask::Full, 0.25, Form::Separate),
            (141, 141, AttentionMask::Full, 0.0, Form::Packed),
            (141, 141, AttentionMask::Causal, 0.25, Form::Packed),
            (largest, largest, AttentionMask::Causal, 0.0, Form::Packed),
        ] {
            if setting.takes_few()
                && setting.dtype != DType::BF16
                && [queries, keys] == [141, 141]
                && probability == 0.0
            {
                continue;
            }
            let mut case = small(queries, keys, mask, 16);
            case.probability = probability;
            case.form = form;
            case.has_bias = true;
            case.check(setting, case.normal(setting))?;
        }
        // With what limits the keys that are seen, and with the scale that T5 has.
        let mut case = small(269, 269, AttentionMask::CausalWindow(70), 64);
        case.documents = &[&[129, 1, 62, 1, 1, 1, 74], &[5, 154, 31, 77, 2]];
        case.has_bias = true;
        case.check(setting, case.normal(setting))?;
        let mut case = small(45, 150, AttentionMask::Full, 8);
        case.scale = Some(1.0);
        case.key_lengths = &[150, 67];
        case.has_bias = true;
        case.check(setting, case.normal(setting))
    }
}

struct TakesABiasForEveryHeadSize;

impl Claim for TakesABiasForEveryHeadSize {
    const NAME: &'static str = "flash_attention_takes_a_bias_for_every_head_size";

    fn check(setting: &Setting) -> anyhow::Result<()> {
        // All tiles of the matrix units in one type.
        let is_complete = setting.dtype == DType::BF16;
        let sizes: &[usize] = if is_complete {
            &[24, 80, 96, 128, 160, 256]
        } else {
            &[128]
        };
        for &d_head in sizes {
            let mut case = small(37, 90, AttentionMask::Full, d_head);
            case.sizes.batch = 1;
            case.has_bias = true;
            case.check(setting, case.normal(setting))?;
        }
        Ok(())
    }
}

/// A bias that is not tracked is added, and has no gradient; the inputs have theirs.
struct LeavesAConstantBiasAlone;

impl Claim for LeavesAConstantBiasAlone {
    const NAME: &'static str = "flash_attention_leaves_a_constant_bias_alone";

    fn check(setting: &Setting) -> anyhow::Result<()> {
        let case = small(20, 20, AttentionMask::Causal, 16);
        let [query_shape, key_shape] = case.shapes();
        let inputs = case.normal(setting);
        let run = |is_tracked: bool| -> anyhow::Result<(Vec<f64>, Vec<f64>, bool)> {
            let query: Tensor<4> = setting.tensor(&inputs[0], query_shape).require_grad();
            let [key, value] = [1, 2].map(|input| setting.tensor(&inputs[input], key_shape));
            let wide = setting.computed();
            // ALiBi's, of heads with slopes of their own.
            let distances: Vec<f64> = (0..case.bias_length())
                .map(|place| (place / 39 + 1) as f64 * 0.125 * (place as f64 % 39.0 - 19.0))
                .collect();
            let bias: Tensor<2> = wide.tensor(&distances, [4, 39]);
            let bias = if is_tracked { bias.require_grad() } else { bias };
            let output = flash_attention_with_bias(query.clone(), key, value, Some(bias.clone()), case.options())?;
            let gradients = backward(vec![[output.clone(), output.clone().detach()]]);
            let of_query = query.grad(&gradients).expect("tracked");
            let numbers = |data: burn::tensor::TensorData| data.iter::<f64>().collect();
            Ok((
                numbers(output.into_data()),
                numbers(of_query.into_data()),
                bias.grad(&gradients).is_some(),
            ))
        };
        let (constant, of_constant, has_gradient) = run(false)?;
        anyhow::ensure!(!has_gradient, "a gradient of what is not tracked");
        let (tracked, of_tracked, has_gradient) = run(true)?;
        anyhow::ensure!(has_gradient, "no gradient of what is tracked");
        anyhow::ensure!(constant == tracked && of_constant == of_tracked, "the results differ");
        anyhow::ensure!(constant.iter().any(|&number| number != 0.0), "nothing came out");
        Ok(())
    }
}
