//! Operations on integers, element by element.

use burn_backend::{BoolDType, FloatDType, IntDType};

use super::super::case::{Case, cases};
use super::super::draw::{bit, int, natural, truth};

pub fn cases() -> Vec<Case> {
    [binary(), scalar(), bits(), comparisons()].concat()
}

fn binary() -> Vec<Case> {
    cases! { |a|
        int_add: |d| d.pair(int, int) => int(int, int);
        int_sub: |d| d.pair(int, int) => int(int, int);
        int_mul: |d| d.pair(int, int) => int(int, int);
        int_div: |d| d.pair(int, natural) => int(int, int);
        int_remainder: |d| d.pair(int, natural) => int(int, int);
        int_powi: |d| d.pair(int, natural) => int(int, int);
        int_mask_where: |d| d.broadcast(&[int, truth, int]) => int(int, bool, int);
        int_mask_fill: |d| d.broadcast(&[int, truth]) => int(int, bool; 7i64.into());
    }
}

fn scalar() -> Vec<Case> {
    cases! { |a|
        int_add_scalar: |d| d.one(int) => int(int; 3i64.into());
        int_sub_scalar: |d| d.one(int) => int(int; 3i64.into());
        int_mul_scalar: |d| d.one(int) => int(int; (-2i64).into());
        int_div_scalar: |d| d.one(int) => int(int; 2i64.into());
        int_remainder_scalar: |d| d.one(int) => int(int; 3i64.into());
        int_powi_scalar: |d| d.one(int) => int(int; 2i64.into());
        int_powi_scalar_impl: |d| d.one(int) => int(int; 3i64.into());
        int_clamp_min: |d| d.one(int) => int(int; (-2i64).into());
        int_clamp_max: |d| d.one(int) => int(int; 2i64.into());
        int_clamp: |d| d.one(int) => int(int; (-2i64).into(), 3i64.into());
        int_neg: |d| d.one(int) => int(int);
        int_cast: |d| d.one(int) => int(int; IntDType::I32);
        int_abs: |d| d.one(int) => int(int);
        int_sign: |d| d.one(int) => int(int);
        int_into_float: |d| d.one(int) => float(int; FloatDType::F64);
    }
}

fn bits() -> Vec<Case> {
    cases! { |a|
        bitwise_and: |d| d.pair(int, int) => int(int, int);
        bitwise_or: |d| d.pair(int, int) => int(int, int);
        bitwise_xor: |d| d.pair(int, int) => int(int, int);
        bitwise_left_shift: |d| d.pair(int, natural) => int(int, int);
        bitwise_right_shift: |d| d.pair(int, natural) => int(int, int);
        bitwise_and_scalar: |d| d.one(int) => int(int; 6i64.into());
        bitwise_or_scalar: |d| d.one(int) => int(int; 5i64.into());
        bitwise_xor_scalar: |d| d.one(int) => int(int; 3i64.into());
        bitwise_left_shift_scalar: |d| d.one(int) => int(int; 2i64.into());
        bitwise_right_shift_scalar: |d| d.one(int) => int(int; 1i64.into());
        bitwise_not: |d| d.one(int) => int(int);
    }
}

fn comparisons() -> Vec<Case> {
    cases! { |a|
        int_equal: |d| d.pair(bit, bit) => bool(int, int; BoolDType::Native);
        int_not_equal: |d| d.pair(bit, bit) => bool(int, int; BoolDType::Native);
        int_greater: |d| d.pair(bit, bit) => bool(int, int; BoolDType::Native);
        int_greater_equal: |d| d.pair(bit, bit) => bool(int, int; BoolDType::Native);
        int_lower: |d| d.pair(bit, bit) => bool(int, int; BoolDType::Native);
        int_lower_equal: |d| d.pair(bit, bit) => bool(int, int; BoolDType::Native);
        int_equal_elem: |d| d.one(int) => bool(int; 1i64.into(), BoolDType::Native);
        int_not_equal_elem: |d| d.one(int) => bool(int; 1i64.into(), BoolDType::Native);
        int_greater_elem: |d| d.one(int) => bool(int; 1i64.into(), BoolDType::Native);
        int_greater_equal_elem: |d| d.one(int) => bool(int; 1i64.into(), BoolDType::Native);
        int_lower_elem: |d| d.one(int) => bool(int; 1i64.into(), BoolDType::Native);
        int_lower_equal_elem: |d| d.one(int) => bool(int; 1i64.into(), BoolDType::Native);
    }
}
