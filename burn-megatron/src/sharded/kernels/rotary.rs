//! Rotary embedding over tokens. Groups are whole on each rank: heads that are cut by groups would be at several places
//! of the output.

use burn::tensor::Tensor;
use burn::tensor::ops::{FloatTensor, IntTensor};
use cubecl_kernels::rotary::{RotaryAngles, RotaryHeads, RotaryLayout};

use super::{FloatSharded, local, placed, primitive, tensor};
use crate::collectives::CollectiveBackend;
use crate::sharded::apply::apply;
use crate::sharded::kind::Int;
use crate::sharded::rules::module::Named;
use crate::sharded::{Sharded, ShardedTensor};

pub(super) fn rotary<B: CollectiveBackend>(
    input: Tensor<Sharded<B>, 4>,
    angles: Option<RotaryAngles<Sharded<B>>>,
) -> Tensor<Sharded<B>, 3> {
    let names = if angles.is_some() {
        "t...,..,..,t->t.."
    } else {
        "t...->t.."
    };
    let rule = || Box::new(Named::new(names).linear(&[0])) as _;
    let (layout, [cosine, sine], positions) = parts(angles);
    let operands = (placed(input), cosine, sine, positions);
    let output = apply("rotary", operands, rule, |(input, cosine, sine, positions), _| {
        primitive(B::rotary(local(input), angles_of(layout, [cosine, sine], positions)))
    });
    tensor(output)
}

pub(super) fn rotary_backward<B: CollectiveBackend>(
    gradient: Tensor<Sharded<B>, 3>,
    heads: RotaryHeads,
    angles: Option<RotaryAngles<Sharded<B>>>,
) -> Tensor<Sharded<B>, 4> {
    let names = if angles.is_some() {
        "t..,..,..,t->t..."
    } else {
        "t..->t..."
    };
    let rule = || Box::new(Named::new(names).linear(&[0])) as _;
    let (layout, [cosine, sine], positions) = parts(angles);
    let operands = (placed(gradient), cosine, sine, positions);
    let run = |(gradient, cosine, sine, positions), _: &_| {
        let angles = angles_of(layout, [cosine, sine], positions);
        primitive(B::rotary_backward(local(gradient), heads, angles))
    };
    tensor(apply("rotary_backward", operands, rule, run))
}

/// What angles are made of, as operands.
type AngleParts<B> = (
    RotaryLayout,
    [Option<FloatSharded<B>>; 2],
    Option<ShardedTensor<B, Int>>,
);

fn parts<B: CollectiveBackend>(angles: Option<RotaryAngles<Sharded<B>>>) -> AngleParts<B> {
    match angles {
        None => (RotaryLayout::default(), [None, None], None),
        Some(angles) => (
            angles.layout,
            [angles.cosine, angles.sine].map(|table| Some(placed(table))),
            Some(angles.positions.into_primitive()),
        ),
    }
}

/// This rank's angles.
fn angles_of<B: CollectiveBackend>(
    layout: RotaryLayout,
    tables: [Option<FloatTensor<B>>; 2],
    positions: Option<IntTensor<B>>,
) -> Option<RotaryAngles<B>> {
    let [cosine, sine] = tables.map(|table| table.map(local));
    Some(RotaryAngles {
        cosine: cosine?,
        sine: sine?,
        positions: Tensor::from_primitive(positions?),
        layout,
    })
}
