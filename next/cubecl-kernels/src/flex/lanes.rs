//! Passes over one row, to be called inside [`vectorised`](super::math::vectorised).

// Loops over one index of several slices are what the compiler makes vectors of.
#![allow(clippy::needless_range_loop)]

use std::mem::MaybeUninit;

use super::math::Real;

/// Where the results of a pass over some elements go.
pub(crate) enum Destination<'a, T> {
    /// Over the elements.
    Over(&'a mut [T]),
    /// Elsewhere.
    New {
        /// The elements.
        from: &'a [T],
        /// A place for each of them.
        to: &'a mut [MaybeUninit<T>],
    },
}

impl<'a, T: Copy> Destination<'a, T> {
    /// The elements, as long as nothing has been written.
    #[inline(always)]
    pub fn source(&self) -> &[T] {
        match self {
            Self::Over(values) => values,
            Self::New { from, .. } => from,
        }
    }

    /// The first `count` elements, and the others.
    #[inline(always)]
    pub fn split(self, count: usize) -> (Self, Self) {
        match self {
            Self::Over(values) => {
                let (head, tail) = values.split_at_mut(count);
                (Self::Over(head), Self::Over(tail))
            }
            Self::New { from, to } => {
                let ((from, from_tail), (to, to_tail)) = (from.split_at(count), to.split_at_mut(count));
                let tail = Self::New {
                    from: from_tail,
                    to: to_tail,
                };
                (Self::New { from, to }, tail)
            }
        }
    }
}

/// Writes `function(element, others' elements)` for each element; returns the results.
///
/// # Panics
/// When the others are not as long.
#[inline(always)]
pub(crate) fn map<'a, R: Real, const N: usize>(
    destination: Destination<'a, R>,
    others: [&[R]; N],
    function: impl Fn(R, [R; N]) -> R,
) -> &'a mut [R] {
    match destination {
        Destination::Over(values) => {
            let count = values.len();
            let others = cut(others, count);
            for index in 0..count {
                values[index] = function(values[index], at(&others, index));
            }
            values
        }
        Destination::New { from, to } => {
            let count = to.len();
            let [from] = cut([from], count);
            let others = cut(others, count);
            for index in 0..count {
                to[index].write(function(from[index], at(&others, index)));
            }
            // SAFETY: the loop has written every element.
            unsafe { to.assume_init_mut() }
        }
    }
}

/// As [`map`], for two elements and two results at a time.
///
/// # Panics
/// When the destinations or the others are not as long, or one destination is over its elements and the other is not.
#[inline(always)]
pub(crate) fn map_pairs<R: Real, const N: usize>(
    destinations: [Destination<'_, R>; 2],
    others: [&[R]; N],
    function: impl Fn([R; 2], [R; N]) -> [R; 2],
) {
    match destinations {
        [Destination::Over(a), Destination::Over(b)] => {
            let count = a.len();
            let b = &mut b[..count];
            let others = cut(others, count);
            for index in 0..count {
                [a[index], b[index]] = function([a[index], b[index]], at(&others, index));
            }
        }
        [
            Destination::New { from: a, to: to_a },
            Destination::New { from: b, to: to_b },
        ] => {
            let count = to_a.len();
            let to_b = &mut to_b[..count];
            let [a, b] = cut([a, b], count);
            let others = cut(others, count);
            for index in 0..count {
                let results = function([a[index], b[index]], at(&others, index));
                to_a[index].write(results[0]);
                to_b[index].write(results[1]);
            }
        }
        _ => panic!("both results are written over their elements, or neither is"),
    }
}

/// The slices at one length, which spares the loops over them their checks.
#[inline(always)]
fn cut<T, const N: usize>(mut slices: [&[T]; N], count: usize) -> [&[T]; N] {
    for slice in &mut slices {
        assert_eq!(slice.len(), count, "the inputs of a pass are of one length");
        *slice = &slice[..count];
    }
    slices
}

#[inline(always)]
fn at<R: Real, const N: usize>(slices: &[&[R]; N], index: usize) -> [R; N] {
    let mut elements = [R::ZERO; N];
    for slice in 0..N {
        elements[slice] = slices[slice][index];
    }
    elements
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_write_the_same_over_and_elsewhere() {
        let (a, b) = (vec![1.0f32, 2.0, 3.0], vec![10.0f32, 20.0, 30.0]);
        let mut over = a.clone();
        let mut to = [MaybeUninit::uninit(); 3];
        let function = |a: f32, [b]: [f32; 1]| a * b + a;
        map(Destination::Over(&mut over), [&b], function);
        let new = map(Destination::New { from: &a, to: &mut to }, [&b], function);
        assert_eq!(over, [11.0, 42.0, 93.0]);
        assert_eq!(over, new);
    }
}
