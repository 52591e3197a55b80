//! The split and the rotation in burn's operations.

use burn::tensor::Tensor;

use super::{RotaryAngles, RotaryHeads, RotaryLayout};
use crate::precision::{narrow, widen, zeros};

/// Returns all query heads, all key heads and all value heads; queries and keys rotated.
pub fn forward(input: Tensor<4>, angles: Option<RotaryAngles>) -> Tensor<3> {
    let shape @ [tokens, groups, _, d_head] = input.dims();
    let heads = RotaryHeads::of(shape);
    if shape.contains(&0) {
        return zeros([tokens, heads.total(), d_head], &input.device(), input.dtype());
    }
    let part = |first, count| {
        let part = input.clone().narrow(2, first, count);
        part.reshape([tokens, groups * count, d_head])
    };
    let queries = part(0, heads.queries);
    let keys = part(heads.queries, 1);
    let values = part(heads.queries + 1, 1);
    let Some(angles) = angles else {
        return Tensor::cat(vec![queries, keys, values], 1);
    };
    let turned = turn(Tensor::cat(vec![queries, keys], 1), angles);
    Tensor::cat(vec![turned, values], 1)
}

/// Returns the input's gradient for the output's.
pub fn backward(gradient: Tensor<3>, heads: RotaryHeads, angles: Option<RotaryAngles>) -> Tensor<4> {
    let RotaryHeads { groups, queries } = heads;
    let [tokens, _, d_head] = gradient.dims();
    let shape = [tokens, groups, queries + 2, d_head];
    if shape.contains(&0) {
        return zeros(shape, &gradient.device(), gradient.dtype());
    }
    let turning = gradient.clone().narrow(1, 0, heads.turning());
    let values = gradient.narrow(1, heads.turning(), groups);
    let turning = match angles {
        Some(angles) => turn(
            turning,
            RotaryAngles {
                sine: angles.sine.neg(),
                ..angles
            },
        ),
        None => turning,
    };
    let of_queries = turning.clone().narrow(1, 0, groups * queries);
    let of_keys = turning.narrow(1, groups * queries, groups);
    let of_group = |part: Tensor<3>, count| part.reshape([tokens, groups, count, d_head]);
    Tensor::cat(
        vec![of_group(of_queries, queries), of_group(of_keys, 1), of_group(values, 1)],
        2,
    )
}

/// Rotates the first elements of all heads.
fn turn(heads: Tensor<3>, angles: RotaryAngles) -> Tensor<3> {
    let (dtype, [tokens, count, d_head]) = (heads.dtype(), heads.dims());
    let rotated = angles.rotated();
    let half = rotated / 2;
    let RotaryAngles {
        cosine,
        sine,
        positions,
        layout,
    } = angles;
    // [tokens, 1, half]
    let [cosine, sine] = [cosine, sine].map(|table| table.select(0, positions.clone()).unsqueeze_dim::<3>(1));
    let turning = widen(heads.clone().narrow(2, 0, rotated));
    let [first, second] = match layout {
        RotaryLayout::Halves => [0, half].map(|start| turning.clone().narrow(2, start, half)),
        RotaryLayout::Interleaved => {
            let pairs = turning.reshape([tokens, count, half, 2]);
            [0, 1].map(|which| pairs.clone().narrow(3, which, 1).reshape([tokens, count, half]))
        }
    };
    let turned = [
        first.clone() * cosine.clone() - second.clone() * sine.clone(),
        second * cosine + first * sine,
    ];
    let turned = match layout {
        RotaryLayout::Halves => Tensor::cat(turned.to_vec(), 2),
        RotaryLayout::Interleaved => Tensor::stack::<4>(turned.to_vec(), 3).reshape([tokens, count, rotated]),
    };
    let turned = narrow(turned, dtype);
    if rotated == d_head {
        return turned;
    }
    Tensor::cat(vec![turned, heads.narrow(2, rotated, d_head - rotated)], 2)
}
