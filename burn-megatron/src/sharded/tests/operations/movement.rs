//! Operations that move elements, of each kind of tensor.

use burn_backend::{Shape, Slice};

use super::super::case::{Case, Value, case, cases};
use super::super::draw::{Draw, Input, Inputs, Make, float, int, truth};

pub fn cases() -> Vec<Case> {
    [
        movement!(
            Float, float, float; float_repeat_dim, float_swap_dims, float_transpose, float_permute, float_flip,
            float_reshape, float_expand, float_slice, float_slice_assign, float_cat, float_unfold
        ),
        movement!(
            Int, int, int; int_repeat_dim, int_swap_dims, int_transpose, int_permute, int_flip,
            int_reshape, int_expand, int_slice, int_slice_assign, int_cat, int_unfold
        ),
        movement!(
            Bool, bool, truth; bool_repeat_dim, bool_swap_dims, bool_transpose, bool_permute, bool_flip,
            bool_reshape, bool_expand, bool_slice, bool_slice_assign, bool_cat, bool_unfold
        ),
    ]
    .concat()
}

macro_rules! movement {
    (
        $kind:ident, $take:ident, $make:expr;
        $repeat:ident, $swap:ident, $transpose:ident, $permute:ident, $flip:ident,
        $reshape:ident, $expand:ident, $slice:ident, $assign:ident, $cat:ident, $unfold:ident
    ) => {{
        let mut cases = cases! { |a|
            $repeat: |d| with_number(d.along($make), 3) => $take($take; a[0], a[1]);
            $swap: |d| swapped(d, $make) => $take($take; a[0], a[1]);
            $transpose: |d| of_rank(d, 2, $make) => $take($take);
            $permute: |d| permuted(d, $make) => $take($take; a);
            $flip: |d| flipped(d, $make) => $take($take; a);
            $reshape: |d| reshaped(d, $make) => $take($take; Shape::from(a.to_vec()));
            $expand: |d| expanded(d, $make) => $take($take; Shape::from(a.to_vec()));
            $slice: |d| sliced(d, $make).0 => $take($take; &slices(a));
            $unfold: |d| windows(d, $make) => $take($take; a[0], a[1], a[2]);
        };
        cases.extend([
            case!(stringify!($assign), |d| assigned(d, $make), |a, values| [Value::$kind(
                B::$assign(values.$take(), &slices(a), values.$take())
            )]),
            case!(stringify!($cat), |d| joined(d, $make), |a, values| {
                let tensors = (0..values.0.len()).map(|_| values.$take()).collect();
                [Value::$kind(B::$cat(tensors, a[0]))]
            }),
        ]);
        cases
    }};
}
use movement;

fn with_number(mut inputs: Inputs, number: usize) -> Inputs {
    inputs.arguments.push(number);
    inputs
}

fn of_rank(draw: &mut Draw, least: usize, make: Make) -> Inputs {
    let shape = draw.shape(least, 4);
    Inputs::new([make(draw, &shape)])
}

fn swapped(draw: &mut Draw, make: Make) -> Inputs {
    let inputs = draw.one(make);
    let rank = inputs.tensors[0].data.shape().len();
    let dimensions = [draw.below(rank), draw.below(rank)];
    inputs.with(dimensions)
}

fn shuffled(draw: &mut Draw, rank: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..rank).collect();
    for last in (1..rank).rev() {
        order.swap(last, draw.below(last + 1));
    }
    order
}

fn permuted(draw: &mut Draw, make: Make) -> Inputs {
    let inputs = draw.one(make);
    let order = shuffled(draw, inputs.tensors[0].data.shape().len());
    inputs.with(order)
}

fn flipped(draw: &mut Draw, make: Make) -> Inputs {
    let inputs = draw.one(make);
    let rank = inputs.tensors[0].data.shape().len();
    let count = 1 + draw.below(rank);
    let mut dimensions = shuffled(draw, rank);
    dimensions.truncate(count);
    inputs.with(dimensions)
}

/// A shape, and another of the same number of elements: neighbouring dimensions joined, split, ones put between.
fn reshaped(draw: &mut Draw, make: Make) -> Inputs {
    let shape: Vec<usize> = (0..1 + draw.below(4)).map(|_| draw.pick(&[1, 2, 3, 4, 6, 8])).collect();
    let mut to: Vec<usize> = Vec::new();
    for &length in &shape {
        match draw.below(5) {
            0 if !to.is_empty() => *to.last_mut().expect("there is one") *= length,
            1 if length % 2 == 0 => to.extend([2, length / 2]),
            2 if length % 2 == 0 => to.extend([length / 2, 2]),
            3 => to.extend([1, length]),
            _ => to.push(length),
        }
    }
    if draw.chance(6) {
        to = vec![shape.iter().product()];
    }
    Inputs::new([make(draw, &shape)]).with(to)
}

fn expanded(draw: &mut Draw, make: Make) -> Inputs {
    let mut to = draw.shape(1, 3);
    let mut shape = to.clone();
    for length in &mut shape {
        if draw.chance(2) {
            *length = 1;
        }
    }
    if draw.chance(3) {
        let length = draw.length();
        to.insert(0, length);
    }
    Inputs::new([make(draw, &shape)]).with(to)
}

/// An operand, and a slice of each dimension: its start, its end, and its step, to which 10 is added. And the shape
/// that the slices have.
fn sliced(draw: &mut Draw, make: Make) -> (Inputs, Vec<usize>) {
    let shape = draw.shape(1, 4);
    let (mut arguments, mut of_slices) = (Vec::new(), Vec::new());
    for &length in &shape {
        let [start, end, step] = match draw.below(4) {
            0 => {
                let start = draw.below(length);
                [start, start + 1 + draw.below(length - start), 11]
            }
            1 => [0, length, draw.pick(&[9, 12, 8])],
            _ => [0, length, 11],
        };
        arguments.extend([start, end, step]);
        of_slices.push((end - start).div_ceil(step.abs_diff(10)));
    }
    (Inputs::new([make(draw, &shape)]).with(arguments), of_slices)
}

fn slices(arguments: &[usize]) -> Vec<Slice> {
    let slice = |slice: &[usize]| Slice::new(slice[0] as isize, Some(slice[1] as isize), slice[2] as isize - 10);
    arguments.chunks(3).map(slice).collect()
}

fn assigned(draw: &mut Draw, make: Make) -> Inputs {
    let (mut inputs, shape) = sliced(draw, make);
    inputs.tensors.push(make(draw, &shape));
    inputs
}

fn joined(draw: &mut Draw, make: Make) -> Inputs {
    let mut shape = draw.shape(1, 4);
    let dimension = draw.below(shape.len());
    let tensors: Vec<Input> = (0..1 + draw.below(3))
        .map(|_| {
            shape[dimension] = draw.length();
            make(draw, &shape)
        })
        .collect();
    Inputs::new(tensors).with([dimension])
}

fn windows(draw: &mut Draw, make: Make) -> Inputs {
    let mut shape = draw.shape(1, 3);
    let dimension = draw.below(shape.len());
    shape[dimension] = 3 + draw.below(5);
    let (size, step) = (1 + draw.below(3), 1 + draw.below(3));
    Inputs::new([make(draw, &shape)]).with([dimension, size, step])
}
