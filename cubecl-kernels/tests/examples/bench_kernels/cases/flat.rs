//! The loss, and what runs over flat buffers: AdamW and the gradient norm.

use anyhow::Context;
use burn::tensor::{DType, Tensor};
use cubecl_kernels::KernelBackend;
use cubecl_kernels::adamw::{AdamWBuffers, AdamWStep};
use cubecl_kernels::l2_norm::sum_of_squares;
use serde_json::json;

use super::{Case, Prepare, Setting, Work, dropping};

/// Bytes of a number of f32 or i32.
const WORD: usize = 4;

/// Cross-entropy over a whole vocabulary.
pub fn cross_entropy<B: KernelBackend>(rows: usize, vocabulary: usize, bytes: usize) -> Vec<Case<B>> {
    let all = rows * vocabulary * bytes;
    let forward: Prepare<B> = Box::new(move |setting: &Setting<B>| {
        let (logits, targets) = (setting.random([rows, vocabulary]), setting.targets(rows, vocabulary));
        dropping(move || B::cross_entropy_statistics(logits.clone(), targets.clone(), vocabulary))
    });
    let backward: Prepare<B> = Box::new(move |setting: &Setting<B>| {
        let (logits, targets) = (setting.random([rows, vocabulary]), setting.targets(rows, vocabulary));
        let whole = B::cross_entropy_statistics(logits.clone(), targets.clone(), vocabulary);
        let gradient = Tensor::full([rows], 1.0 / rows as f64, (&setting.device, DType::F32));
        dropping(move || {
            let (logits, targets) = (logits.clone(), targets.clone());
            B::cross_entropy_backward(logits, targets, vocabulary, whole.clone(), gradient.clone())
        })
    });
    // Target, maximum, sum and target's logit of each row; target, maximum, sum and gradient.
    [
        ("forward", all + 4 * rows * WORD, forward),
        ("backward", 2 * all + 4 * rows * WORD, backward),
    ]
    .map(|(pass, moved, prepare)| Case {
        operation: "cross_entropy",
        pass,
        size: format!("{rows} x {vocabulary}"),
        numbers: json!({"rows": rows, "columns": vocabulary}),
        work: Work::Bytes(moved),
        prepare,
    })
    .into()
}

/// A step of AdamW, with a copy of the parameters in types of 16 bits, and the gradient's norm.
pub fn optimizer<B: KernelBackend>(parameters: usize, dtype: DType) -> Vec<Case<B>> {
    let bytes = dtype.size();
    let copy = (bytes < WORD).then_some(dtype);
    let step: Prepare<B> = Box::new(move |setting: &Setting<B>| {
        let main = || setting.random_of([parameters], DType::F32);
        let gradient = setting.random([parameters]);
        let mut buffers = Some(AdamWBuffers {
            parameter: main(),
            moment_1: main(),
            moment_2: main().abs(),
        });
        Ok(Box::new(move || {
            let owned = buffers.take().context("put back after each step")?;
            let (stepped, copied) = B::adamw(owned, gradient.clone(), &ADAMW, copy);
            drop(copied);
            buffers = Some(stepped);
            Ok(())
        }))
    });
    let norm: Prepare<B> = Box::new(move |setting: &Setting<B>| {
        let gradient = setting.random([parameters]);
        Ok(Box::new(move || {
            drop(sum_of_squares(vec![gradient.clone()])?);
            Ok(())
        }))
    });
    let moved = parameters * (6 * WORD + bytes + copy.map_or(0, |_| bytes));
    [
        ("adamw", "step", moved, step),
        ("l2_norm", "forward", parameters * bytes, norm),
    ]
    .map(|(operation, pass, moved, prepare)| Case {
        operation,
        pass,
        size: format!("{parameters}"),
        numbers: json!({"parameters": parameters}),
        work: Work::Bytes(moved),
        prepare,
    })
    .into()
}

const ADAMW: AdamWStep = AdamWStep {
    learning_rate: 1e-3,
    beta_1: 0.9,
    beta_2: 0.95,
    epsilon: 1e-8,
    weight_decay: 0.1,
    gradient_scale: 1.0,
    time: 10,
};
