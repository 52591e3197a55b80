//! Operations on floats, element by element, and products.

use burn_backend::{BoolDType, FloatDType, IntDType};

use super::super::case::{Case, cases};
use super::super::draw::{
    Draw, Inputs, above_one, few_values, float, fraction, int, natural, not_finite, positive, truth,
};

pub fn cases() -> Vec<Case> {
    [binary(), scalar(), unary(), comparisons(), masks(), products()].concat()
}

fn binary() -> Vec<Case> {
    cases! { |a|
        float_add: |d| d.pair(float, float) => float(float, float);
        float_sub: |d| d.pair(float, float) => float(float, float);
        float_mul: |d| d.pair(float, float) => float(float, float);
        float_div: |d| d.pair(float, positive) => float(float, float);
        float_remainder: |d| d.pair(float, positive) => float(float, float);
        float_powf: |d| d.pair(positive, float) => float(float, float);
        float_powi: |d| d.pair(positive, natural) => float(float, int);
        float_atan2: |d| d.pair(float, positive) => float(float, float);
        relu_backward: |d| d.same(&[float, float]) => float(float, float);
        gelu_backward: |d| d.same(&[float, float]) => float(float, float);
        sigmoid_backward: |d| d.same(&[fraction, float]) => float(float, float);
        log_sigmoid_backward: |d| d.same(&[float, float]) => float(float, float);
    }
}

fn scalar() -> Vec<Case> {
    cases! { |a|
        float_add_scalar: |d| d.one(float) => float(float; 1.5f64.into());
        float_sub_scalar: |d| d.one(float) => float(float; 1.5f64.into());
        float_mul_scalar: |d| d.one(float) => float(float; (-0.75f64).into());
        float_div_scalar: |d| d.one(float) => float(float; 4.0f64.into());
        float_remainder_scalar: |d| d.one(float) => float(float; 1.25f64.into());
        float_powi_scalar: |d| d.one(float) => float(float; 3i64.into());
        float_powi_scalar_impl: |d| d.one(float) => float(float; 5i64.into());
        float_powf_scalar: |d| d.one(positive) => float(float; 0.5f64.into());
        float_powf_scalar_impl: |d| d.one(positive) => float(float; 1.7f64.into());
        float_clamp_min: |d| d.one(float) => float(float; (-1.0f64).into());
        float_clamp_max: |d| d.one(float) => float(float; 1.0f64.into());
        float_clamp: |d| d.one(float) => float(float; (-1.0f64).into(), 2.0f64.into());
    }
}

fn unary() -> Vec<Case> {
    cases! { |a|
        float_neg: |d| d.one(float) => float(float);
        float_cast: |d| d.one(float) => float(float; FloatDType::F32);
        float_recip: |d| d.one(positive) => float(float);
        float_exp: |d| d.one(float) => float(float);
        float_log: |d| d.one(positive) => float(float);
        float_log1p: |d| d.one(positive) => float(float);
        float_sqrt: |d| d.one(positive) => float(float);
        float_abs: |d| d.one(float) => float(float);
        float_cos: |d| d.one(float) => float(float);
        float_sin: |d| d.one(float) => float(float);
        float_tan: |d| d.one(fraction) => float(float);
        float_cosh: |d| d.one(float) => float(float);
        float_sinh: |d| d.one(float) => float(float);
        float_tanh: |d| d.one(float) => float(float);
        float_acos: |d| d.one(fraction) => float(float);
        float_acosh: |d| d.one(above_one) => float(float);
        float_asin: |d| d.one(fraction) => float(float);
        float_asinh: |d| d.one(float) => float(float);
        float_atan: |d| d.one(float) => float(float);
        float_atanh: |d| d.one(fraction) => float(float);
        float_round: |d| d.one(float) => float(float);
        float_floor: |d| d.one(float) => float(float);
        float_ceil: |d| d.one(float) => float(float);
        float_trunc: |d| d.one(float) => float(float);
        float_erf: |d| d.one(float) => float(float);
        float_sign: |d| d.one(few_values) => float(float);
        float_into_int: |d| d.one(float) => int(float; IntDType::I64);
        float_is_nan: |d| d.one(not_finite) => bool(float; BoolDType::Native);
        float_is_inf: |d| d.one(not_finite) => bool(float; BoolDType::Native);
        float_detach: |d| d.one(float) => float(float);
    }
}

fn comparisons() -> Vec<Case> {
    cases! { |a|
        float_equal: |d| d.pair(few_values, few_values) => bool(float, float; BoolDType::Native);
        float_not_equal: |d| d.pair(few_values, few_values) => bool(float, float; BoolDType::Native);
        float_greater: |d| d.pair(few_values, few_values) => bool(float, float; BoolDType::Native);
        float_greater_equal: |d| d.pair(few_values, few_values) => bool(float, float; BoolDType::Native);
        float_lower: |d| d.pair(few_values, few_values) => bool(float, float; BoolDType::Native);
        float_lower_equal: |d| d.pair(few_values, few_values) => bool(float, float; BoolDType::Native);
        float_equal_elem: |d| d.one(few_values) => bool(float; 0.5f64.into(), BoolDType::Native);
        float_not_equal_elem: |d| d.one(few_values) => bool(float; 0.5f64.into(), BoolDType::Native);
        float_greater_elem: |d| d.one(few_values) => bool(float; 0.5f64.into(), BoolDType::Native);
        float_greater_equal_elem: |d| d.one(few_values) => bool(float; 0.5f64.into(), BoolDType::Native);
        float_lower_elem: |d| d.one(few_values) => bool(float; 0.5f64.into(), BoolDType::Native);
        float_lower_equal_elem: |d| d.one(few_values) => bool(float; 0.5f64.into(), BoolDType::Native);
    }
}

fn masks() -> Vec<Case> {
    cases! { |a|
        float_mask_where: |d| d.broadcast(&[float, truth, float]) => float(float, bool, float);
        float_mask_fill: |d| d.broadcast(&[float, truth]) => float(float, bool; 2.5f64.into());
    }
}

fn products() -> Vec<Case> {
    cases! { |a|
        float_matmul: |d| matrices(d, float) => float(float, float);
        int_matmul: |d| matrices(d, int) => int(int, int);
        float_cross: crossed => float(float, float; a[0]);
    }
}

/// Two matrices, or batches of them, some broadcast.
fn matrices(draw: &mut Draw, make: super::super::draw::Make) -> Inputs {
    let batch = match draw.below(3) {
        0 => vec![],
        1 => vec![draw.length()],
        _ => vec![draw.longer(), draw.length()],
    };
    let (m, k, n) = (draw.length(), draw.length(), draw.length());
    let (mut left, mut right) = (batch.clone(), batch);
    for dimension in 0..left.len() {
        match draw.below(6) {
            0 => left[dimension] = 1,
            1 => right[dimension] = 1,
            _ => {}
        }
    }
    left.extend([m, k]);
    right.extend([k, n]);
    Inputs::new([make(draw, &left), make(draw, &right)])
}

fn crossed(draw: &mut Draw) -> Inputs {
    let mut shape = draw.shape(1, 3);
    let dimension = draw.below(shape.len());
    shape[dimension] = 3;
    Inputs::new([float(draw, &shape), float(draw, &shape)]).with([dimension])
}
