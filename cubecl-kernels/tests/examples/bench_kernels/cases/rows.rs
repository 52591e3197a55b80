//! The operations on activations: norms, sums with dropout, activation functions.

use cubecl_kernels::KernelBackend;
use cubecl_kernels::norm::{Addends, NormKind, NormParameters};
use serde_json::json;

use super::{Case, Setting, Work, dropout, dropping};

/// Bytes of a number of f32: statistics.
const F32: usize = 4;

/// Layer norm, RMS norm, and layer norm after a sum with bias and dropout.
pub fn norms<B: KernelBackend>(rows: usize, columns: usize, bytes: usize) -> Vec<Case<B>> {
    let (all, row) = (rows * columns * bytes, columns * bytes);
    let size = format!("{rows} x {columns}");
    let numbers = json!({"rows": rows, "columns": columns});
    let shape = [rows, columns];
    let case = |operation, pass, moved, prepare: super::Prepare<B>| Case {
        operation,
        pass,
        size: size.clone(),
        numbers: numbers.clone(),
        work: Work::Bytes(moved),
        prepare,
    };
    let mut cases = Vec::new();
    for (name, kind) in [("layer_norm", NormKind::Layer), ("rms_norm", NormKind::Rms)] {
        // Weight and bias, or the weight alone; mean and reciprocal deviation, or the latter alone.
        let parts = if kind == NormKind::Layer { 2 } else { 1 };
        let forward = 2 * all + parts * (row + rows * F32);
        cases.push(case(
            name,
            "forward",
            forward,
            Box::new(move |setting| {
                let (input, parameters) = (setting.random(shape), parameters(setting, kind, columns));
                dropping(move || B::norm_forward(input.clone(), &parameters))
            }),
        ));
        let backward = 3 * all + (1 + parts) * row + parts * rows * F32;
        cases.push(case(
            name,
            "backward",
            backward,
            Box::new(move |setting| {
                let (input, parameters) = (setting.random(shape), parameters(setting, kind, columns));
                let statistics = B::norm_forward(input.clone(), &parameters).1;
                let gradient = setting.random(shape);
                dropping(move || B::norm_backward(input.clone(), &parameters, statistics.clone(), gradient.clone()))
            }),
        ));
    }
    // Weight and bias of the norm and bias of the sum; statistics; a place of two words for each row.
    let forward = 4 * all + 3 * row + 4 * rows * F32;
    cases.push(case(
        "add_norm",
        "forward",
        forward,
        Box::new(move |setting| {
            let (addends, parameters) = (addends(setting, shape), parameters(setting, NormKind::Layer, columns));
            dropping(move || B::add_norm_forward(addends.clone(), &parameters))
        }),
    ));
    let backward = 5 * all + 4 * row + 4 * rows * F32;
    cases.push(case(
        "add_norm",
        "backward",
        backward,
        Box::new(move |setting| {
            let (addends, parameters) = (addends(setting, shape), parameters(setting, NormKind::Layer, columns));
            let rule = addends.rule();
            let ([hidden, _], statistics) = B::add_norm_forward(addends, &parameters);
            let gradients = [(); 2].map(|()| Some(setting.random(shape)));
            dropping(move || {
                let (hidden, gradients) = (hidden.clone(), gradients.clone());
                B::add_norm_backward(hidden, &parameters, statistics.clone(), gradients, &rule)
            })
        }),
    ));
    cases
}

/// The sum with bias and dropout, bias and GELU, and SwiGLU; the latter two four times as wide.
pub fn elements<B: KernelBackend>(rows: usize, d_model: usize, bytes: usize) -> Vec<Case<B>> {
    let case = |operation, pass, columns: usize, moved, prepare: super::Prepare<B>| Case {
        operation,
        pass,
        size: format!("{rows} x {columns}"),
        numbers: json!({"rows": rows, "columns": columns}),
        work: Work::Bytes(moved),
        prepare,
    };
    let (wide, shape) = (4 * d_model, [rows, d_model]);
    let [narrow_bytes, wide_bytes] = [d_model, wide].map(|columns| rows * columns * bytes);
    let places = 2 * rows * F32;
    vec![
        case(
            "bias_dropout_add",
            "forward",
            d_model,
            3 * narrow_bytes + d_model * bytes + places,
            Box::new(move |setting| {
                let addends = addends(setting, shape);
                dropping(move || B::bias_dropout_add(addends.clone()))
            }),
        ),
        case(
            "bias_dropout_add",
            "backward",
            d_model,
            2 * narrow_bytes + d_model * bytes + places,
            Box::new(move |setting| {
                let (rule, gradient) = (addends(setting, shape).rule(), setting.random(shape));
                dropping(move || B::bias_dropout_add_backward(gradient.clone(), &rule))
            }),
        ),
        case(
            "bias_gelu",
            "forward",
            wide,
            2 * wide_bytes + wide * bytes,
            Box::new(move |setting| {
                let (input, bias) = (setting.random([rows, wide]), setting.random([wide]));
                dropping(move || B::bias_gelu(input.clone(), bias.clone()))
            }),
        ),
        case(
            "bias_gelu",
            "backward",
            wide,
            3 * wide_bytes + 2 * wide * bytes,
            Box::new(move |setting| {
                let (input, bias) = (setting.random([rows, wide]), setting.random([wide]));
                let gradient = setting.random([rows, wide]);
                dropping(move || B::bias_gelu_backward(input.clone(), bias.clone(), gradient.clone()))
            }),
        ),
        case(
            "swiglu",
            "forward",
            wide,
            3 * wide_bytes,
            Box::new(move |setting| {
                let input = setting.random([rows, 2 * wide]);
                dropping(move || B::swiglu(input.clone()))
            }),
        ),
        case(
            "swiglu",
            "backward",
            wide,
            5 * wide_bytes,
            Box::new(move |setting| {
                let (input, gradient) = (setting.random([rows, 2 * wide]), setting.random([rows, wide]));
                dropping(move || B::swiglu_backward(input.clone(), gradient.clone()))
            }),
        ),
    ]
}

fn parameters<B: KernelBackend>(setting: &Setting<B>, kind: NormKind, columns: usize) -> NormParameters<B> {
    NormParameters {
        kind,
        weight: setting.random([columns]),
        bias: (kind == NormKind::Layer).then(|| setting.random([columns])),
        epsilon: 1e-5,
    }
}

fn addends<B: KernelBackend>(setting: &Setting<B>, shape: [usize; 2]) -> Addends<B> {
    Addends {
        input: setting.random(shape),
        bias: Some(setting.random([shape[1]])),
        residual: setting.random(shape),
        dropout: Some(dropout(shape[0], shape[0].min(1024))),
    }
}
