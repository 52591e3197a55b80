//! Operations over a dimension or over all, and along a dimension.

use burn_backend::{BoolDType, IntDType};

use super::super::case::{Case, cases};
use super::super::draw::{Inputs, bit, few_values, float, int, natural};

pub fn cases() -> Vec<Case> {
    [floats(), floats_along(), ints(), ints_along()].concat()
}

fn floats() -> Vec<Case> {
    cases! { |a|
        float_sum: |d| d.one(float) => float(float);
        float_sum_dim: |d| d.along(float) => float(float; a[0]);
        float_mean: |d| d.one(float) => float(float);
        float_mean_dim: |d| d.along(float) => float(float; a[0]);
        float_max: |d| d.one(float) => float(float);
        float_max_dim: |d| d.along(float) => float(float; a[0]);
        float_min: |d| d.one(float) => float(float);
        float_min_dim: |d| d.along(float) => float(float; a[0]);
        float_max_abs: |d| d.one(float) => float(float);
        float_max_abs_dim: |d| d.along(float) => float(float; a[0]);
        float_any: |d| d.one(few_values) => bool(float; BoolDType::Native);
        float_any_dim: |d| d.along(few_values) => bool(float; a[0], BoolDType::Native);
        float_all: |d| d.one(few_values) => bool(float; BoolDType::Native);
        float_all_dim: |d| d.along(few_values) => bool(float; a[0], BoolDType::Native);
        float_prod: |d| d.one(float) => float(float);
        float_prod_dim: |d| d.along(float) => float(float; a[0]);
    }
}

fn floats_along() -> Vec<Case> {
    cases! { |a|
        float_cumsum: |d| d.along(float) => float(float; a[0]);
        float_cumprod: |d| d.along(float) => float(float; a[0]);
        float_cummin: |d| d.along(float) => float(float; a[0]);
        float_cummax: |d| d.along(float) => float(float; a[0]);
        float_argmax: |d| d.along(few_values) => int(float; a[0], IntDType::I64);
        float_argmin: |d| d.along(few_values) => int(float; a[0], IntDType::I64);
        float_topk: |d| d.top(float) => float(float; a[0], a[1]);
        float_max_dim_with_indices: |d| d.along(few_values) => float_int(float; a[0], IntDType::I64);
        float_min_dim_with_indices: |d| d.along(few_values) => float_int(float; a[0], IntDType::I64);
        float_sort: |d| d.along(float) => float(float; a[0], true);
        float_sort_with_indices: |d| d.along(few_values) => float_int(float; a[0], false, IntDType::I64);
        float_argsort: |d| d.along(few_values) => int(float; a[0], true, IntDType::I64);
    }
}

fn ints() -> Vec<Case> {
    cases! { |a|
        int_sum: |d| d.one(int) => int(int);
        int_sum_dim: |d| d.along(int) => int(int; a[0]);
        int_mean: |d| d.one(int) => int(int);
        int_mean_dim: |d| d.along(int) => int(int; a[0]);
        int_max: |d| d.one(int) => int(int);
        int_max_dim: |d| d.along(int) => int(int; a[0]);
        int_min: |d| d.one(int) => int(int);
        int_min_dim: |d| d.along(int) => int(int; a[0]);
        int_max_abs: |d| d.one(int) => int(int);
        int_max_abs_dim: |d| d.along(int) => int(int; a[0]);
        int_any: |d| d.one(bit) => bool(int; BoolDType::Native);
        int_any_dim: |d| d.along(bit) => bool(int; a[0], BoolDType::Native);
        int_all: |d| d.one(bit) => bool(int; BoolDType::Native);
        int_all_dim: |d| d.along(bit) => bool(int; a[0], BoolDType::Native);
        int_prod: |d| { let length = [d.length()]; Inputs::new([natural(d, &length)]) } => int(int);
        int_prod_dim: |d| d.along(natural) => int(int; a[0]);
    }
}

fn ints_along() -> Vec<Case> {
    cases! { |a|
        int_cumsum: |d| d.along(int) => int(int; a[0]);
        int_cumprod: |d| d.along(natural) => int(int; a[0]);
        int_cummin: |d| d.along(int) => int(int; a[0]);
        int_cummax: |d| d.along(int) => int(int; a[0]);
        int_argmax: |d| d.along(int) => int(int; a[0]);
        int_argmin: |d| d.along(int) => int(int; a[0]);
        int_topk: |d| d.top(int) => int(int; a[0], a[1]);
        int_max_dim_with_indices: |d| d.along(int) => int_int(int; a[0]);
        int_min_dim_with_indices: |d| d.along(int) => int_int(int; a[0]);
        int_sort: |d| d.along(int) => int(int; a[0], false);
        int_sort_with_indices: |d| d.along(int) => int_int(int; a[0], true);
        int_argsort: |d| d.along(int) => int(int; a[0], false);
    }
}
