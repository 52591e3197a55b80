//! Operations that take elements by index, of each kind of tensor.

use burn_backend::tensor::IndexingUpdateOp;

use super::super::case::{Case, Value, case, cases};
use super::super::draw::{Draw, Input, Inputs, Make, float, int, positive, truth};

const ADD: IndexingUpdateOp = IndexingUpdateOp::Add;

pub fn cases() -> Vec<Case> {
    [
        indexing!(Float, float, float; float_select, float_select_assign, float_gather, float_scatter; ADD),
        indexing!(Int, int, int; int_select, int_select_assign, int_gather, int_scatter; ADD),
        indexing!(Bool, bool, truth; bool_select, bool_select_or, bool_gather, bool_scatter_or),
        of_many_dimensions!(Float, float, float, float_gather_nd, float_scatter_nd),
        of_many_dimensions!(Int, int, int, int_gather_nd, int_scatter_nd),
        vec![
            case!(
                "float_select_assign, products",
                |d| select_added(d, float),
                |a, values| [Value::Float(B::float_select_assign(
                    values.float(),
                    a[0],
                    values.int(),
                    values.float(),
                    IndexingUpdateOp::Mul
                ))]
            ),
            case!("float_scatter, maxima", |d| scattered(d, float), |a, values| [
                Value::Float(B::float_scatter(
                    a[0],
                    values.float(),
                    values.int(),
                    values.float(),
                    IndexingUpdateOp::Max
                ))
            ]),
        ],
        cases! { |a|
            float_scatter_nd "with duplicates": |d| duplicates(d, positive) =>
                float(float, int, float; IndexingUpdateOp::Add);
        },
    ]
    .concat()
}

macro_rules! indexing {
    (
        $kind:ident, $take:ident, $make:expr; $select:ident, $select_add:ident, $gather:ident, $scatter_add:ident
        $( ; $update:expr )?
    ) => {
        vec![
            case!(stringify!($select), |d| selected(d, $make), |a, values| [Value::$kind(
                B::$select(values.$take(), a[0], values.int())
            )]),
            case!(stringify!($select_add), |d| select_added(d, $make), |a, values| [
                Value::$kind(B::$select_add(values.$take(), a[0], values.int(), values.$take() $(, $update )?))
            ]),
            case!(stringify!($gather), |d| gathered(d, $make), |a, values| [Value::$kind(
                B::$gather(a[0], values.$take(), values.int())
            )]),
            case!(stringify!($scatter_add), |d| scattered(d, $make), |a, values| [
                Value::$kind(B::$scatter_add(a[0], values.$take(), values.int(), values.$take() $(, $update )?))
            ]),
        ]
    };
}
use indexing;

macro_rules! of_many_dimensions {
    ($kind:ident, $take:ident, $make:expr, $gather_nd:ident, $scatter_nd:ident) => {
        vec![
            case!(stringify!($gather_nd), |d| by_place(d, $make).0, |_, values| [
                Value::$kind(B::$gather_nd(values.$take(), values.int()))
            ]),
            case!(stringify!($scatter_nd), |d| distinct_places(d, $make), |a, values| {
                let update = match a[0] {
                    0 => IndexingUpdateOp::Assign,
                    1 => IndexingUpdateOp::Add,
                    2 => IndexingUpdateOp::Mul,
                    3 => IndexingUpdateOp::Min,
                    _ => IndexingUpdateOp::Max,
                };
                [Value::$kind(B::$scatter_nd(
                    values.$take(),
                    values.int(),
                    values.$take(),
                    update,
                ))]
            }),
        ]
    };
}
use of_many_dimensions;

/// A tensor, indices of one dimension, the dimension.
fn selected(draw: &mut Draw, make: Make) -> Inputs {
    let mut inputs = draw.along(make);
    let length = inputs.tensors[0].data.shape()[inputs.arguments[0]];
    let count = draw.length();
    inputs.tensors.push(draw.indices(&[count], length));
    inputs
}

/// The same with values for each index.
fn select_added(draw: &mut Draw, make: Make) -> Inputs {
    let mut inputs = selected(draw, make);
    let mut shape = inputs.tensors[0].data.shape().to_vec();
    shape[inputs.arguments[0]] = inputs.tensors[1].data.shape()[0];
    inputs.tensors.push(make(draw, &shape));
    inputs
}

/// A tensor, indices of the same number of dimensions, the dimension.
fn gathered(draw: &mut Draw, make: Make) -> Inputs {
    let mut inputs = draw.along(make);
    let mut shape = inputs.tensors[0].data.shape().to_vec();
    let length = shape[inputs.arguments[0]];
    shape[inputs.arguments[0]] = draw.length();
    inputs.tensors.push(draw.indices(&shape, length));
    inputs
}

/// The same with values for each index.
fn scattered(draw: &mut Draw, make: Make) -> Inputs {
    let mut inputs = gathered(draw, make);
    let shape = inputs.tensors[1].data.shape().to_vec();
    inputs.tensors.push(make(draw, &shape));
    inputs
}

/// Data, indices whose last dimension is a place in the first dimensions of the data; and the shape of what is there.
fn by_place(draw: &mut Draw, make: Make) -> (Inputs, Vec<usize>) {
    let shape = draw.shape(1, 4);
    let indexed = 1 + draw.below(shape.len());
    let mut places: Vec<usize> = (0..1 + draw.below(2)).map(|_| draw.length()).collect();
    let values = [&places[..], &shape[indexed..]].concat();
    places.push(indexed);
    // Each index is below the shortest of the dimensions.
    let end = shape[..indexed].iter().copied().min().expect("one is indexed");
    (Inputs::new([make(draw, &shape), draw.indices(&places, end)]), values)
}

/// Data, places each of which occurs once, values, and the number of an update.
fn distinct_places(draw: &mut Draw, make: Make) -> Inputs {
    let mut shape = draw.shape(1, 4);
    shape[0] = draw.longer();
    let indexed = 1 + draw.below(shape.len());
    let count = 1 + draw.below(shape[0]);
    let first = draw.below(shape[0]);
    let mut places = Vec::new();
    for index in 0..count {
        places.push(((first + index) % shape[0]) as i64);
        places.extend(shape[1..indexed].iter().map(|&length| draw.below(length) as i64));
    }
    let indices = Input::new(places, &[count, indexed]);
    let values = [&[count], &shape[indexed..]].concat();
    Inputs::new([make(draw, &shape), indices, make(draw, &values)]).with([draw.below(5)])
}

fn duplicates(draw: &mut Draw, make: Make) -> Inputs {
    let (mut inputs, values) = by_place(draw, make);
    inputs.tensors.push(make(draw, &values));
    inputs
}
