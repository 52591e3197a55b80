//! Attention, the softmax of scores, and linear layers.

use anyhow::Context;
use burn::tensor::Tensor;
use cubecl_kernels::KernelBackend;
use cubecl_kernels::flash_attention::{AttentionBackward, AttentionMask, AttentionOptions};
use cubecl_kernels::linear::{LinearInputs, LinearWanted, WeightOrder};
use cubecl_kernels::softmax::SoftmaxMask;
use serde_json::json;

use super::{Call, Case, DROPOUT, Prepare, Setting, Work, dropout, dropping};

/// Causal attention, with dropout and without.
pub fn flash_attention<B: KernelBackend>([batch, heads, seq, d_head]: [usize; 4]) -> Vec<Case<B>> {
    let shape = [batch, seq, heads, d_head];
    let product = 2.0 * (batch * heads * seq * seq) as f64 * d_head as f64;
    let mut cases = Vec::new();
    for has_dropout in [false, true] {
        // Two products of s × s × d forward; two of these again and three more backward.
        for (pass, products) in [("forward", 2.0), ("backward", 5.0)] {
            let options = AttentionOptions {
                mask: AttentionMask::Causal,
                scale: (d_head as f64).powf(-0.5),
                dropout: has_dropout.then(|| dropout(batch * seq, seq)),
                documents: None,
                key_lengths: None,
                is_deterministic: false,
            };
            let prepare: Prepare<B> = Box::new(move |setting: &Setting<B>| {
                let inputs = [(); 3].map(|()| setting.random(shape));
                match pass {
                    "forward" => forward(inputs, options.clone()),
                    _ => backward(inputs, setting.random(shape), options.clone()),
                }
            });
            cases.push(Case {
                operation: "flash_attention",
                pass,
                size: format!(
                    "{batch} x {heads} x {seq} x {d_head}, causal{}",
                    if has_dropout { ", dropout" } else { "" }
                ),
                numbers: json!({
                    "batch": batch, "heads": heads, "seq": seq, "d_head": d_head,
                    "dropout": if has_dropout { DROPOUT } else { 0.0 },
                }),
                work: Work::Operations {
                    all: products * product,
                    needed: products * product / 2.0,
                },
                prepare,
            });
        }
    }
    cases
}

fn forward<B: KernelBackend>(inputs: [Tensor<B, 4>; 3], options: AttentionOptions) -> anyhow::Result<Call> {
    dropping(move || B::flash_attention_forward(inputs.clone(), None, &options))
}

fn backward<B: KernelBackend>(
    inputs: [Tensor<B, 4>; 3],
    gradient: Tensor<B, 4>,
    options: AttentionOptions,
) -> anyhow::Result<Call> {
    let forward = B::flash_attention_forward(inputs.clone(), None, &options);
    dropping(move || {
        let pass = AttentionBackward {
            forward: forward.clone(),
            gradient: gradient.clone(),
            bias: None,
        };
        B::flash_attention_backward(inputs.clone(), pass, &options)
    })
}

/// The softmax of scaled scores, whole and causal.
pub fn softmax<B: KernelBackend>([batch, heads, seq]: [usize; 3], bytes: usize) -> Vec<Case<B>> {
    const SCALE: f64 = 0.125;
    let shape = [batch, heads, seq, seq];
    let all = shape.iter().product::<usize>() * bytes;
    let seen = batch * heads * seq * (seq + 1) / 2 * bytes;
    let mut cases = Vec::new();
    for is_causal in [false, true] {
        let mask = move || {
            if is_causal {
                SoftmaxMask::Causal
            } else {
                SoftmaxMask::Nothing
            }
        };
        let read = if is_causal { seen } else { all };
        let forward: Prepare<B> = Box::new(move |setting: &Setting<B>| {
            let scores = setting.random(shape);
            dropping(move || B::scaled_masked_softmax(scores.clone(), mask(), SCALE))
        });
        let backward: Prepare<B> = Box::new(move |setting: &Setting<B>| {
            let output = B::scaled_masked_softmax(setting.random(shape), mask(), SCALE);
            let gradient = setting.random(shape);
            dropping(move || B::scaled_masked_softmax_backward(output.clone(), gradient.clone(), SCALE))
        });
        for (pass, moved, prepare) in [("forward", read + all, forward), ("backward", 2 * read + all, backward)] {
            cases.push(Case {
                operation: "softmax",
                pass,
                size: format!(
                    "{batch} x {heads} x {seq} x {seq}{}",
                    if is_causal { ", causal" } else { "" }
                ),
                numbers: json!({"batch": batch, "heads": heads, "seq": seq, "is_causal": is_causal}),
                work: Work::Bytes(moved),
                prepare,
            });
        }
    }
    cases
}

/// The first linear layer of the feed-forward part, with its bias.
pub fn linear<B: KernelBackend>(rows: usize, d_model: usize) -> Vec<Case<B>> {
    let wide = 4 * d_model;
    let product = 2.0 * rows as f64 * (d_model * wide) as f64;
    let order = WeightOrder::InputFirst;
    let inputs = move |setting: &Setting<B>| LinearInputs {
        input: setting.random([rows, d_model]),
        weight: setting.random([d_model, wide]),
        bias: Some(setting.random([wide])),
        order,
    };
    let forward: Prepare<B> = Box::new(move |setting| {
        let inputs = inputs(setting);
        dropping(move || B::affine(inputs.clone()))
    });
    let backward: Prepare<B> = Box::new(move |setting| {
        let (inputs, gradient) = (inputs(setting), setting.random([rows, wide]));
        Ok(Box::new(move || {
            let wanted = LinearWanted {
                input: true,
                weight: true,
                bias: true,
            };
            let LinearInputs { input, weight, .. } = inputs.clone();
            let gradients = B::affine_backward(input, weight, order, gradient.clone(), wanted);
            gradients.weight.context("the weight's gradient is wanted").map(drop)
        }))
    });
    [("forward", 1.0, forward), ("backward", 2.0, backward)]
        .map(|(pass, products, prepare)| Case {
            operation: "linear",
            pass,
            size: format!("{rows} x {d_model} x {wide}"),
            numbers: json!({"rows": rows, "d_input": d_model, "d_output": wide}),
            work: Work::Operations {
                all: products * product,
                needed: products * product,
            },
            prepare,
        })
        .into()
}
