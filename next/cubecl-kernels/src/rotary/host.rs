//! The split and the rotation on the host in f64: what the tests compare with.

use super::{RotaryHeads, RotaryLayout};

/// The angles of a rotation.
#[derive(Clone, Debug)]
pub struct HostAngles {
    /// The cosines, in rows of `rotated / 2`.
    pub cosine: Vec<f64>,
    /// The sines.
    pub sine: Vec<f64>,
    /// The row of each token; one that the tables do not have gives zeros.
    pub positions: Vec<i64>,
    /// The elements of a head that are rotated.
    pub rotated: usize,
    /// Which elements are rotated together.
    pub layout: RotaryLayout,
}

/// Returns the heads of each token, split and rotated.
pub fn forward(input: &[f64], heads: RotaryHeads, d_head: usize, angles: Option<&HostAngles>) -> Vec<f64> {
    let mut output = vec![0.0; input.len()];
    each_head(input.len(), heads, d_head, |token, packed, split, turns| {
        let head = &mut output[split..][..d_head];
        head.copy_from_slice(&input[packed..][..d_head]);
        if let (Some(angles), true) = (angles, turns) {
            turn(head, angles, token, 1.0);
        }
    });
    output
}

/// Returns the input's gradient for the output's.
pub fn backward(gradient: &[f64], heads: RotaryHeads, d_head: usize, angles: Option<&HostAngles>) -> Vec<f64> {
    let mut result = vec![0.0; gradient.len()];
    each_head(gradient.len(), heads, d_head, |token, packed, split, turns| {
        let head = &mut result[packed..][..d_head];
        head.copy_from_slice(&gradient[split..][..d_head]);
        if let (Some(angles), true) = (angles, turns) {
            turn(head, angles, token, -1.0);
        }
    });
    result
}

/// Calls a function for each head: with its token, where it begins in the projection and where once it is split, and
/// whether it is rotated.
fn each_head(
    elements: usize,
    RotaryHeads { groups, queries }: RotaryHeads,
    d_head: usize,
    mut function: impl FnMut(usize, usize, usize, bool),
) {
    let of_group = queries + 2;
    let row = groups * of_group * d_head;
    for token in 0..elements.checked_div(row).unwrap_or(0) {
        for group in 0..groups {
            for head in 0..of_group {
                let split = match head {
                    head if head < queries => group * queries + head,
                    head if head == queries => groups * queries + group,
                    _ => groups * queries + groups + group,
                };
                let (packed, split) = ((group * of_group + head) * d_head, split * d_head);
                function(token, token * row + packed, token * row + split, head <= queries);
            }
        }
    }
}

fn turn(head: &mut [f64], angles: &HostAngles, token: usize, sign: f64) {
    let half = angles.rotated / 2;
    let rows = angles.cosine.len().checked_div(half).unwrap_or(0);
    let row = usize::try_from(angles.positions[token]).ok().filter(|&row| row < rows);
    for pair in 0..half {
        let (cosine, sine) = match row {
            Some(row) => (angles.cosine[row * half + pair], angles.sine[row * half + pair]),
            None => (0.0, 0.0),
        };
        let [first, second] = match angles.layout {
            RotaryLayout::Halves => [pair, pair + half],
            RotaryLayout::Interleaved => [2 * pair, 2 * pair + 1],
        };
        let (a, b) = (head[first], head[second]);
        head[first] = a * cosine - b * sign * sine;
        head[second] = b * cosine + a * sign * sine;
    }
}
