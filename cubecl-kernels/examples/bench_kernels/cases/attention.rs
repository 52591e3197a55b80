//! Attention, the softmax of scores, and linear layers.

use cubecl_kernels::flash_attention::{AttentionMask, AttentionOptions, flash_attention};
use cubecl_kernels::linear::{LinearInputs, LinearWanted, WeightOrder, affine, affine_backward};
use cubecl_kernels::softmax::{SoftmaxMask, scaled_masked_softmax};
use serde_json::json;

use super::{Case, DROPOUT, Setting, Time, Work, dropout};

/// Causal attention, with dropout and without.
pub fn attention([batch, heads, seq, d_head]: [usize; 4]) -> Vec<Case> {
    let shape = [batch, seq, heads, d_head];
    let product = 2.0 * (batch * heads * seq * seq) as f64 * d_head as f64;
    let mut cases = Vec::new();
    for has_dropout in [false, true] {
        let options = AttentionOptions {
            mask: AttentionMask::Causal,
            scale: (d_head as f64).powf(-0.5),
            dropout: has_dropout.then(|| dropout(batch * seq, seq)),
            documents: None,
            key_lengths: None,
            is_deterministic: false,
        };
        let same_options = options.clone();
        let forward: Time = Box::new(move |setting| {
            let [q, k, v] = [(); 3].map(|()| setting.random(shape));
            setting.time(|| flash_attention(q.clone(), k.clone(), v.clone(), options.clone()))
        });
        let backward: Time = Box::new(move |setting| {
            let [q, k, v, gradient] = [(); 4].map(|()| setting.random(shape));
            setting.time_backward(|passes| {
                let [q, k, v] = [&q, &k, &v].map(|input| passes.track(input.clone()));
                let output = flash_attention(q, k, v, same_options.clone())?;
                passes.add([output], [gradient.clone()]);
                Ok(())
            })
        });
        // Two products of s × s × d forward; two of these again and three more backward.
        for (pass, products, time) in [("forward", 2.0, forward), ("backward", 5.0, backward)] {
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
                time,
            });
        }
    }
    cases
}

/// The softmax of scaled scores, whole and causal.
pub fn softmax([batch, heads, seq]: [usize; 3], bytes: usize) -> Vec<Case> {
    const SCALE: f64 = 0.125;
    let shape = [batch, heads, seq, seq];
    let all = shape.iter().product::<usize>() * bytes;
    let seen = batch * heads * seq * (seq + 1) / 2 * bytes;
    let mut cases = Vec::new();
    for is_causal in [false, true] {
        let softmax = move |scores| {
            let mask = if is_causal {
                SoftmaxMask::Causal
            } else {
                SoftmaxMask::Nothing
            };
            scaled_masked_softmax(scores, mask, SCALE)
        };
        let read = if is_causal { seen } else { all };
        let forward: Time = Box::new(move |setting| {
            let scores = setting.random(shape);
            setting.time(|| softmax(scores.clone()))
        });
        let backward: Time = Box::new(move |setting| {
            let [scores, gradient] = [(); 2].map(|()| setting.random(shape));
            setting.time_backward(|passes| {
                let output = softmax(passes.track(scores.clone()))?;
                passes.add([output], [gradient.clone()]);
                Ok(())
            })
        });
        for (pass, moved, time) in [("forward", read + all, forward), ("backward", 2 * read + all, backward)] {
            cases.push(Case {
                operation: "softmax",
                pass,
                size: format!(
                    "{batch} x {heads} x {seq} x {seq}{}",
                    if is_causal { ", causal" } else { "" }
                ),
                numbers: json!({"batch": batch, "heads": heads, "seq": seq, "is_causal": is_causal}),
                work: Work::Bytes(moved),
                time,
            });
        }
    }
    cases
}

/// The first linear layer of the feed-forward part, with its bias.
pub fn linear(rows: usize, d_model: usize) -> Vec<Case> {
    let wide = 4 * d_model;
    let product = 2.0 * rows as f64 * (d_model * wide) as f64;
    let order = WeightOrder::InputFirst;
    let inputs = move |setting: &Setting| LinearInputs {
        input: setting.random([rows, d_model]),
        weight: setting.random([d_model, wide]),
        bias: Some(setting.random([wide])),
        order,
    };
    let forward: Time = Box::new(move |setting| {
        let inputs = inputs(setting);
        setting.time(|| Ok(affine(inputs.clone())))
    });
    let backward: Time = Box::new(move |setting| {
        let (inputs, gradient) = (inputs(setting), setting.random([rows, wide]));
        setting.time(|| {
            let wanted = LinearWanted {
                input: true,
                weight: true,
                bias: true,
            };
            let LinearInputs { input, weight, .. } = inputs.clone();
            let gradients = affine_backward(input, weight, order, gradient.clone(), wanted);
            Ok((gradients.input, gradients.weight, gradients.bias))
        })
    });
    [("forward", 1.0, forward), ("backward", 2.0, backward)]
        .map(|(pass, products, time)| Case {
            operation: "linear",
            pass,
            size: format!("{rows} x {d_model} x {wide}"),
            numbers: json!({"rows": rows, "d_input": d_model, "d_output": wide}),
            work: Work::Operations {
                all: products * product,
                needed: products * product,
            },
            time,
        })
        .into()
}
