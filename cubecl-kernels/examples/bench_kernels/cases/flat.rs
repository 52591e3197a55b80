//! The loss, and what runs over flat buffers: AdamW and the gradient norm.

use burn::tensor::{DType, Tensor};
use cubecl_kernels::adamw::{AdamWBuffers, AdamWStep, adamw};
use cubecl_kernels::cross_entropy::cross_entropy;
use cubecl_kernels::l2_norm::sum_of_squares;
use serde_json::json;

use super::{Case, Time, Work};

/// Bytes of a number of f32 or i32.
const WORD: usize = 4;

/// Cross-entropy over a whole vocabulary.
pub fn loss(rows: usize, vocabulary: usize, bytes: usize) -> Vec<Case> {
    let all = rows * vocabulary * bytes;
    let losses = move |logits, targets| cross_entropy(logits, targets, vocabulary, |whole| whole);
    let forward: Time = Box::new(move |setting| {
        let (logits, targets) = (setting.random([rows, vocabulary]), setting.targets(rows, vocabulary));
        setting.time(|| losses(logits.clone(), targets.clone()))
    });
    let backward: Time = Box::new(move |setting| {
        let (logits, targets) = (setting.random([rows, vocabulary]), setting.targets(rows, vocabulary));
        let gradient = Tensor::<1>::full([rows], 1.0 / rows as f64, (&setting.clock.device, DType::F32));
        setting.time_backward(|passes| {
            let output = losses(passes.track(logits.clone()), targets.clone())?;
            passes.add([output], [gradient.clone()]);
            Ok(())
        })
    });
    // Target, maximum, sum and target's logit of each row; target, maximum, sum and gradient.
    [
        ("forward", all + 4 * rows * WORD, forward),
        ("backward", 2 * all + 4 * rows * WORD, backward),
    ]
    .map(|(pass, moved, time)| Case {
        operation: "cross_entropy",
        pass,
        size: format!("{rows} x {vocabulary}"),
        numbers: json!({"rows": rows, "columns": vocabulary}),
        work: Work::Bytes(moved),
        time,
    })
    .into()
}

/// A step of AdamW, with a copy of the parameters in types of 16 bits, and the gradient's norm.
pub fn optimizer(parameters: usize, dtype: DType) -> Vec<Case> {
    let bytes = dtype.size();
    let copy = (bytes < WORD).then_some(dtype);
    let step: Time = Box::new(move |setting| {
        let main = || setting.random_of([parameters], DType::F32);
        let gradient = setting.random([parameters]);
        let mut buffers = Some(AdamWBuffers {
            parameter: main(),
            moment_1: main(),
            moment_2: main().abs(),
        });
        setting.time(|| {
            let owned = buffers.take().expect("put back after each step");
            let (stepped, copied) = adamw(owned, gradient.clone(), &ADAMW, copy)?;
            let parameter = stepped.parameter.clone();
            buffers = Some(stepped);
            Ok((parameter, copied))
        })
    });
    let norm: Time = Box::new(move |setting| {
        let gradient = setting.random([parameters]);
        setting.time(|| sum_of_squares(vec![gradient.clone()]))
    });
    let moved = parameters * (6 * WORD + bytes + copy.map_or(0, |_| bytes));
    [
        ("adamw", "step", moved, step),
        ("l2_norm", "forward", parameters * bytes, norm),
    ]
    .map(|(operation, pass, moved, time)| Case {
        operation,
        pass,
        size: format!("{parameters}"),
        numbers: json!({"parameters": parameters}),
        work: Work::Bytes(moved),
        time,
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
