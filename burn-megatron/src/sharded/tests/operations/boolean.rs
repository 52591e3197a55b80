//! Operations on booleans, element by element and over dimensions.

use burn_backend::{FloatDType, IntDType};

use super::super::case::{Case, Value, case, cases};
use super::super::draw::{Draw, Input, truth};

pub fn cases() -> Vec<Case> {
    let mut cases = cases! { |a|
        bool_equal: |d| d.pair(truth, truth) => bool(bool, bool);
        bool_not_equal: |d| d.pair(truth, truth) => bool(bool, bool);
        bool_equal_elem: |d| d.one(truth) => bool(bool; true.into());
        bool_not_equal_elem: |d| d.one(truth) => bool(bool; true.into());
        bool_not: |d| d.one(truth) => bool(bool);
        bool_and: |d| d.pair(truth, truth) => bool(bool, bool);
        bool_or: |d| d.pair(truth, truth) => bool(bool, bool);
        bool_xor: |d| d.pair(truth, truth) => bool(bool, bool);
        bool_into_int: |d| d.one(truth) => int(bool; IntDType::I64);
        bool_into_float: |d| d.one(truth) => float(bool; FloatDType::F64);
        bool_mask_where: |d| d.broadcast(&[truth, truth, truth]) => bool(bool, bool, bool);
        bool_mask_fill: |d| d.broadcast(&[truth, truth]) => bool(bool, bool; true.into());
        bool_any: |d| d.one(rare) => bool(bool);
        bool_any_dim: |d| d.along(rare) => bool(bool; a[0]);
        bool_all: |d| d.one(frequent) => bool(bool);
        bool_all_dim: |d| d.along(frequent) => bool(bool; a[0]);
    };
    cases.push(case!("bool_argwhere", |d| d.one(truth), |_, values| {
        let places = B::bool_argwhere(values.bool(), IntDType::I64);
        [Value::Int(
            burn_backend::try_read_sync(places).expect("the backend reads at once"),
        )]
    }));
    cases
}

/// Most are false.
fn rare(draw: &mut Draw, shape: &[usize]) -> Input {
    draw.truths(shape, |draw| draw.chance(9))
}

/// Most are true.
fn frequent(draw: &mut Draw, shape: &[usize]) -> Input {
    draw.truths(shape, |draw| !draw.chance(9))
}
