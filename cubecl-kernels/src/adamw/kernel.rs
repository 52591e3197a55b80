//! The kernels of AdamW: one pass over all buffers, of which the written ones may be the read ones.

use cubecl::prelude::*;

use crate::cube::parts::{Parts, is_idle, own_part};

/// What a step multiplies with and adds.
#[derive(CubeType, CubeLaunch)]
pub(super) struct Numbers {
    gradient_scale: f32,
    beta_1: f32,
    /// `1 − β₁`
    rest_1: f32,
    beta_2: f32,
    /// `1 − β₂`
    rest_2: f32,
    /// `lr / (1 − β₁ᵗ)`
    rate: f32,
    /// `1 / √(1 − β₂ᵗ)`
    correction: f32,
    epsilon: f32,
    /// `1 − lr · decay`
    decay: f32,
}

/// Updates the vectors from `first` up to `end`.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(super) fn step<G: Float, N: Size>(
    parameter: &[Vector<f32, N>],
    moment_1: &[Vector<f32, N>],
    moment_2: &[Vector<f32, N>],
    gradient: &[Vector<G, N>],
    new_parameter: &mut [Vector<f32, N>],
    new_moment_1: &mut [Vector<f32, N>],
    new_moment_2: &mut [Vector<f32, N>],
    numbers: Numbers,
    first: usize,
    end: usize,
    #[define(G)] _dtype: ElemType,
) {
    let at = first + ABSOLUTE_POS;
    if at >= end {
        terminate!();
    }
    let gradient = Vector::<f32, N>::cast_from(gradient[at]);
    let (p, m, v) = update::<N>(parameter[at], moment_1[at], moment_2[at], gradient, &numbers);
    new_parameter[at] = p;
    new_moment_1[at] = m;
    new_moment_2[at] = v;
}

/// As [`step`], and also writes the new parameters in another type.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(super) fn step_with_copy<G: Float, C: Float, N: Size>(
    parameter: &[Vector<f32, N>],
    moment_1: &[Vector<f32, N>],
    moment_2: &[Vector<f32, N>],
    gradient: &[Vector<G, N>],
    new_parameter: &mut [Vector<f32, N>],
    new_moment_1: &mut [Vector<f32, N>],
    new_moment_2: &mut [Vector<f32, N>],
    copy: &mut [Vector<C, N>],
    numbers: Numbers,
    first: usize,
    end: usize,
    #[define(G, C)] _dtypes: [ElemType; 2],
) {
    let at = first + ABSOLUTE_POS;
    if at >= end {
        terminate!();
    }
    let gradient = Vector::<f32, N>::cast_from(gradient[at]);
    let (p, m, v) = update::<N>(parameter[at], moment_1[at], moment_2[at], gradient, &numbers);
    new_parameter[at] = p;
    new_moment_1[at] = m;
    new_moment_2[at] = v;
    copy[at] = Vector::cast_from(p);
}

/// The new parameters and moments.
#[cube]
fn update<N: Size>(
    parameter: Vector<f32, N>,
    moment_1: Vector<f32, N>,
    moment_2: Vector<f32, N>,
    gradient: Vector<f32, N>,
    numbers: &Numbers,
) -> (Vector<f32, N>, Vector<f32, N>, Vector<f32, N>) {
    let g = gradient * Vector::new(numbers.gradient_scale);
    let m = moment_1 * Vector::new(numbers.beta_1) + g * Vector::new(numbers.rest_1);
    let v = moment_2 * Vector::new(numbers.beta_2) + g * g * Vector::new(numbers.rest_2);
    let denominator = Vector::sqrt(v) * Vector::new(numbers.correction) + Vector::new(numbers.epsilon);
    let p = parameter * Vector::new(numbers.decay) - m * Vector::new(numbers.rate) / denominator;
    (p, m, v)
}

/// Updates the parts in place, and also writes their new parameters in another type. A part begins where a vector does,
/// and what of its last vector is beyond its end stays.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(super) fn step_parts<G: Float, C: Float, N: Size>(
    parameter: &mut [Vector<f32, N>],
    moment_1: &mut [Vector<f32, N>],
    moment_2: &mut [Vector<f32, N>],
    gradient: &[Vector<G, N>],
    copy: &mut [Vector<C, N>],
    numbers: Numbers,
    parts: &Parts,
    #[comptime] units: usize,
    #[define(G, C)] _dtypes: [ElemType; 2],
) {
    if is_idle(parts) {
        terminate!();
    }
    let part = own_part(parts);
    let size = N::value();
    let first = part.start / size;
    let mut vector = part.cube * units + UNIT_POS as usize;
    while vector * size < part.count {
        let at = first + vector;
        let (old_p, old_m, old_v) = (parameter[at], moment_1[at], moment_2[at]);
        let gradient = Vector::<f32, N>::cast_from(gradient[at]);
        let (mut p, mut m, mut v) = update::<N>(old_p, old_m, old_v, gradient, &numbers);
        if (vector + 1) * size > part.count {
            #[unroll]
            for lane in 0..size {
                let is_own = vector * size + lane < part.count;
                p.insert(lane, select(is_own, p.extract(lane), old_p.extract(lane)));
                m.insert(lane, select(is_own, m.extract(lane), old_m.extract(lane)));
                v.insert(lane, select(is_own, v.extract(lane), old_v.extract(lane)));
            }
        }
        parameter[at] = p;
        moment_1[at] = m;
        moment_2[at] = v;
        copy[at] = Vector::cast_from(p);
        vector += part.cubes * units;
    }
}
