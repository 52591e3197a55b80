//! Passes over one row: maps, sums and maxima, to be called inside [`vectorised`](super::math::vectorised).
//!
//! Sums go into a fixed number of lanes, which are then added pairwise: as fast as vectors are, more exact than one
//! after the other, and the same for vectors of any width.

// Loops over one index of several slices are what the compiler makes vectors of.
#![allow(clippy::needless_range_loop)]

use std::mem::MaybeUninit;

use super::math::Real;

/// Terms that are added up side by side: two vectors of f32 in AVX-512, four in AVX2.
const LANES: usize = 32;

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

    /// Writes one value everywhere.
    #[inline(always)]
    pub fn fill(self, value: T) {
        match self {
            Self::Over(values) => values.fill(value),
            Self::New { to, .. } => {
                to.fill(MaybeUninit::new(value));
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

/// As [`map_pairs`], for elements that are next to each other: the first two, the next two and so on.
///
/// # Panics
/// When the elements' number is odd, or the others are not half as long.
#[inline(always)]
pub(crate) fn map_neighbours<R: Real, const N: usize>(
    destination: Destination<'_, R>,
    others: [&[R]; N],
    function: impl Fn([R; 2], [R; N]) -> [R; 2],
) {
    match destination {
        Destination::Over(values) => {
            let (pairs, rest) = values.as_chunks_mut::<2>();
            assert!(rest.is_empty(), "each element has a neighbour");
            let others = cut(others, pairs.len());
            for index in 0..pairs.len() {
                pairs[index] = function(pairs[index], at(&others, index));
            }
        }
        Destination::New { from, to } => {
            let ((from, _), (to, rest)) = (from.as_chunks::<2>(), to.as_chunks_mut::<2>());
            assert!(rest.is_empty(), "each element has a neighbour");
            let from = &from[..to.len()];
            let others = cut(others, to.len());
            for index in 0..to.len() {
                let results = function(from[index], at(&others, index));
                to[index][0].write(results[0]);
                to[index][1].write(results[1]);
            }
        }
    }
}

/// Writes the elements, or `value` where they are masked; returns the results.
///
/// # Panics
/// When the mask is not as long.
#[inline(always)]
pub(crate) fn mask<'a, R: Real>(destination: Destination<'a, R>, masked: &[u8], value: R) -> &'a mut [R] {
    match destination {
        Destination::Over(values) => {
            let [masked] = cut([masked], values.len());
            for (element, &masked) in values.iter_mut().zip(masked) {
                *element = if masked != 0 { value } else { *element };
            }
            values
        }
        Destination::New { from, to } => {
            let ([from], [masked]) = (cut([from], to.len()), cut([masked], to.len()));
            for index in 0..to.len() {
                to[index].write(if masked[index] != 0 { value } else { from[index] });
            }
            // SAFETY: the loop has written every element.
            unsafe { to.assume_init_mut() }
        }
    }
}

/// Returns the sums of the terms over the inputs' elements, `M` sums at once.
///
/// # Panics
/// When the inputs are not of one length.
#[inline(always)]
pub(crate) fn sums<R: Real, const N: usize, const M: usize>(
    inputs: [&[R]; N],
    terms: impl Fn([R; N]) -> [R; M],
) -> [R; M] {
    let count = inputs[0].len();
    let inputs = cut(inputs, count);
    let blocks = inputs.map(|input| input.as_chunks::<LANES>().0);
    let blocks_count = count / LANES;
    let mut lanes = [[R::ZERO; LANES]; M];
    for block in 0..blocks_count {
        for lane in 0..LANES {
            let mut elements = [R::ZERO; N];
            for input in 0..N {
                elements[input] = blocks[input][block][lane];
            }
            let terms = terms(elements);
            for sum in 0..M {
                lanes[sum][lane] = lanes[sum][lane] + terms[sum];
            }
        }
    }
    for (lane, index) in (blocks_count * LANES..count).enumerate() {
        let terms = terms(at(&inputs, index));
        for sum in 0..M {
            lanes[sum][lane] = lanes[sum][lane] + terms[sum];
        }
    }
    lanes.map(
        #[inline(always)]
        |lanes| fold(lanes, R::add),
    )
}

/// Returns the sum of some numbers.
#[inline(always)]
pub(crate) fn sum<R: Real>(values: &[R]) -> R {
    sums(
        [values],
        #[inline(always)]
        |[value]| [value],
    )[0]
}

/// Returns the largest number, −∞ of none. NaNs may be passed over.
#[inline(always)]
pub(crate) fn maximum<R: Real>(values: &[R]) -> R {
    let (blocks, rest) = values.as_chunks::<LANES>();
    let mut lanes = [R::NEG_INFINITY; LANES];
    for block in blocks {
        for lane in 0..LANES {
            lanes[lane] = block[lane].larger(lanes[lane]);
        }
    }
    for (lane, &value) in lanes.iter_mut().zip(rest) {
        *lane = value.larger(*lane);
    }
    fold(lanes, R::larger)
}

/// Adds `terms(others' elements)` to each sum.
///
/// # Panics
/// When the others are not as long.
#[inline(always)]
pub(crate) fn accumulate<R: Real, const N: usize>(sums: &mut [R], others: [&[R]; N], term: impl Fn([R; N]) -> R) {
    map(
        Destination::Over(sums),
        others,
        #[inline(always)]
        |sum, others| sum + term(others),
    );
}

#[inline(always)]
fn fold<R: Real>(mut lanes: [R; LANES], combine: impl Fn(R, R) -> R) -> R {
    let mut half = LANES / 2;
    while half > 0 {
        for lane in 0..half {
            lanes[lane] = combine(lanes[lane], lanes[lane + half]);
        }
        half /= 2;
    }
    lanes[0]
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
    fn sums_and_maxima_count_every_element_once() {
        for count in [0, 1, 31, 32, 33, 64, 1000] {
            let values: Vec<f64> = (0..count).map(f64::from).collect();
            let n = f64::from(count);
            assert_eq!(sum(&values), n * (n - 1.0) / 2.0);
            let [squares, ones] = sums([&values, &values], |[a, b]| [a * b, 1.0]);
            assert_eq!(squares, (n - 1.0).max(0.0) * n * (2.0 * n - 1.0) / 6.0);
            assert_eq!(ones, n);
            assert_eq!(maximum(&values), values.last().copied().unwrap_or(f64::NEG_INFINITY));
        }
    }

    #[test]
    fn sums_round_less_than_one_term_after_the_other() {
        let values = vec![0.1f32; 1 << 16];
        let expected = f64::from(0.1f32) * f64::from(1 << 16);
        let error = |sum: f32| (f64::from(sum) / expected - 1.0).abs();
        assert!(8.0 * error(sum(&values)) < error(values.iter().sum()));
    }

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
