//! The operations on activations: norms, sums with dropout, activation functions.

use cubecl_kernels::bias_dropout_add::bias_dropout_add;
use cubecl_kernels::bias_gelu::bias_gelu;
use cubecl_kernels::norm::{Addends, NormKind, NormParameters, add_norm};
use cubecl_kernels::swiglu::swiglu;
use serde_json::json;

use super::{Case, Setting, Time, Work, dropout};
use crate::passes::norm;

/// Bytes of a number of f32: statistics.
const F32: usize = 4;

/// Layer norm, RMS norm, and layer norm after a sum with bias and dropout.
pub fn norms(rows: usize, columns: usize, bytes: usize) -> Vec<Case> {
    let (all, row) = (rows * columns * bytes, columns * bytes);
    let size = format!("{rows} x {columns}");
    let numbers = json!({"rows": rows, "columns": columns});
    let shape = [rows, columns];
    let case = |operation, pass, moved, time: Time| Case {
        operation,
        pass,
        size: size.clone(),
        numbers: numbers.clone(),
        work: Work::Bytes(moved),
        time,
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
                setting.time(|| norm(input.clone(), parameters.clone()))
            }),
        ));
        let backward = 3 * all + (1 + parts) * row + parts * rows * F32;
        cases.push(case(
            name,
            "backward",
            backward,
            Box::new(move |setting| {
                let (input, parameters) = (setting.random(shape), parameters(setting, kind, columns));
                let gradient = setting.random(shape);
                setting.time_backward(|passes| {
                    let parameters = passes.track_parameters(parameters.clone());
                    let output = norm(passes.track(input.clone()), parameters)?;
                    passes.add([output], [gradient.clone()]);
                    Ok(())
                })
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
            setting.time(|| add_norm(addends.clone(), parameters.clone()))
        }),
    ));
    let backward = 5 * all + 4 * row + 4 * rows * F32;
    cases.push(case(
        "add_norm",
        "backward",
        backward,
        Box::new(move |setting| {
            let (addends, parameters) = (addends(setting, shape), parameters(setting, NormKind::Layer, columns));
            let gradients = [(); 2].map(|()| setting.random(shape));
            setting.time_backward(|passes| {
                let addends = passes.track_addends(addends.clone());
                let outputs = add_norm(addends, passes.track_parameters(parameters.clone()))?;
                passes.add(outputs, gradients.clone());
                Ok(())
            })
        }),
    ));
    cases
}

/// The sum with bias and dropout, bias and GELU, and SwiGLU; the latter two four times as wide.
pub fn elements(rows: usize, d_model: usize, bytes: usize) -> Vec<Case> {
    let case = |operation, pass, columns: usize, moved, time: Time| Case {
        operation,
        pass,
        size: format!("{rows} x {columns}"),
        numbers: json!({"rows": rows, "columns": columns}),
        work: Work::Bytes(moved),
        time,
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
                setting.time(|| bias_dropout_add(addends.clone()))
            }),
        ),
        case(
            "bias_dropout_add",
            "backward",
            d_model,
            2 * narrow_bytes + d_model * bytes + places,
            Box::new(move |setting| {
                let (addends, gradient) = (addends(setting, shape), setting.random(shape));
                setting.time_backward(|passes| {
                    let output = bias_dropout_add(passes.track_addends(addends.clone()))?;
                    passes.add([output], [gradient.clone()]);
                    Ok(())
                })
            }),
        ),
        case(
            "bias_gelu",
            "forward",
            wide,
            2 * wide_bytes + wide * bytes,
            Box::new(move |setting| {
                let (input, bias) = (setting.random([rows, wide]), setting.random([wide]));
                setting.time(|| bias_gelu(input.clone(), bias.clone()))
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
                setting.time_backward(|passes| {
                    let output = bias_gelu(passes.track(input.clone()), passes.track(bias.clone()))?;
                    passes.add([output], [gradient.clone()]);
                    Ok(())
                })
            }),
        ),
        case(
            "swiglu",
            "forward",
            wide,
            3 * wide_bytes,
            Box::new(move |setting| {
                let input = setting.random([rows, 2 * wide]);
                setting.time(|| swiglu(input.clone()))
            }),
        ),
        case(
            "swiglu",
            "backward",
            wide,
            5 * wide_bytes,
            Box::new(move |setting| {
                let (input, gradient) = (setting.random([rows, 2 * wide]), setting.random([rows, wide]));
                setting.time_backward(|passes| {
                    let output = swiglu(passes.track(input.clone()))?;
                    passes.add([output], [gradient.clone()]);
                    Ok(())
                })
            }),
        ),
    ]
}

fn parameters(setting: &Setting, kind: NormKind, columns: usize) -> NormParameters {
    NormParameters {
        kind,
        weight: setting.random([columns]),
        bias: (kind == NormKind::Layer).then(|| setting.random([columns])),
        epsilon: 1e-5,
    }
}

fn addends(setting: &Setting, shape: [usize; 2]) -> Addends {
    Addends {
        input: setting.random(shape),
        bias: Some(setting.random([shape[1]])),
        residual: setting.random(shape),
        dropout: Some(dropout(shape[0], shape[0].min(1024))),
    }
}
