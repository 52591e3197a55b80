//! Random tensors by logical index: an element is the same whichever rank draws it, and each rank draws its part.
//!
//! Each draw has a key, from the seed and the draw's number. Each element has a counter, its index in the whole tensor.
//! The generator is Philox, as for initialisation and dropout ([`crate::random`]). Ranks agree if they are seeded alike
//! and draw in the same order: a program that every rank runs does.
//!
//! A thread that has called [`Backend::seed`](burn_backend::Backend::seed) numbers its own draws. The draws of
//! all other threads, such as those of a data loader, are numbered together.

use std::cell::RefCell;
use std::ops::Range;

use burn_backend::{DType, Distribution, FloatDType, IntDType, Shape, TensorData};
use half::{bf16, f16};
use parking_lot::Mutex;
use rayon::prelude::*;

use super::ShardedTensor;
use super::kind::{Float, Int};
use super::tensor::Deferred;
use crate::collectives::CollectiveBackend;
use crate::random::RandomStream;
use crate::random::philox::philox4x32_10;

/// Elements that one thread draws at a time.
const CHUNK: usize = 4096;

/// The draws under a seed.
#[derive(Clone, Copy, Debug)]
struct Draws {
    seed: u64,
    /// Whose draws these are: those of other threads have other numbers.
    of: &'static str,
    count: u64,
}

/// Those of threads that have not been seeded themselves.
static OF_PROCESS: Mutex<Draws> = Mutex::new(Draws::new(0, "process"));

thread_local! {
    static OF_THREAD: RefCell<Option<Draws>> = const { RefCell::new(None) };
}

impl Draws {
    const fn new(seed: u64, of: &'static str) -> Self {
        Self { seed, of, count: 0 }
    }

    fn next(&mut self) -> RandomStream {
        let stream = RandomStream::new(self.seed, &format!("{} {}", self.of, self.count));
        self.count += 1;
        stream
    }
}

/// Starts the draws of this thread, and of those that are not seeded themselves.
pub(super) fn seed(seed: u64) {
    OF_THREAD.set(Some(Draws::new(seed, "thread")));
    *OF_PROCESS.lock() = Draws::new(seed, "process");
}

/// The numbers of the next draw.
pub(super) fn next() -> RandomStream {
    OF_THREAD.with_borrow_mut(|own| match own {
        Some(own) => own.next(),
        None => OF_PROCESS.lock().next(),
    })
}

/// A tensor of random floats, of which each rank draws its part when it is first needed.
pub(super) fn floats<B: CollectiveBackend>(
    stream: RandomStream,
    shape: Shape,
    distribution: Distribution,
    device: &B::Device,
    dtype: FloatDType,
) -> ShardedTensor<B, Float> {
    check(distribution);
    let dtype = match dtype {
        FloatDType::Flex32 => DType::F32,
        dtype => dtype.into(),
    };
    let (logical, own_device) = (shape.to_vec(), device.clone());
    let make = move |ranges: &[Range<usize>]| {
        B::float_from_data(float_part(&stream, &logical, ranges, distribution, dtype), &own_device)
    };
    ShardedTensor::deferred(
        shape,
        // The backward pass of a dropout sees what the forward pass has drawn.
        Deferred::new(device, dtype, make).kept(),
    )
}

/// As [`floats`], of integers.
pub(super) fn ints<B: CollectiveBackend>(
    stream: RandomStream,
    shape: Shape,
    distribution: Distribution,
    device: &B::Device,
    dtype: IntDType,
) -> ShardedTensor<B, Int> {
    check(distribution);
    let dtype = dtype.into();
    let (logical, own_device) = (shape.to_vec(), device.clone());
    let make = move |ranges: &[Range<usize>]| {
        B::int_from_data(int_part(&stream, &logical, ranges, distribution, dtype), &own_device)
    };
    ShardedTensor::deferred(shape, Deferred::new(device, dtype, make).kept())
}

/// # Panics
/// When nothing is distributed so.
fn check(distribution: Distribution) {
    match distribution {
        Distribution::Default => {}
        Distribution::Bernoulli(probability) => assert!(
            (0.0..=1.0).contains(&probability),
            "Bernoulli: expected a probability in [0, 1], got {probability}"
        ),
        Distribution::Uniform(low, high) => assert!(low < high, "Uniform: expected low < high, got {low} and {high}"),
        Distribution::Normal(_, deviation) => assert!(
            deviation.is_finite(),
            "Normal: expected a finite standard deviation, got {deviation}"
        ),
    }
}

/// The elements of these ranges of a random tensor of floats.
fn float_part(
    stream: &RandomStream,
    shape: &[usize],
    ranges: &[Range<usize>],
    distribution: Distribution,
    dtype: DType,
) -> TensorData {
    macro_rules! draw {
        ($element:ty, $from:expr, $digits:expr) => {
            draw_part::<$element>(shape, ranges, |first, output| {
                fill_floats(stream, first, output, distribution, $digits, $from)
            })
        };
    }
    match dtype {
        DType::F64 => draw!(f64, |value| value, f64::MANTISSA_DIGITS),
        DType::F16 => draw!(f16, f16::from_f64, f16::MANTISSA_DIGITS),
        DType::BF16 => draw!(bf16, bf16::from_f64, bf16::MANTISSA_DIGITS),
        _ => draw!(f32, |value| value as f32, f32::MANTISSA_DIGITS),
    }
}

/// The elements of these ranges of a random tensor of integers.
fn int_part(
    stream: &RandomStream,
    shape: &[usize],
    ranges: &[Range<usize>],
    distribution: Distribution,
    dtype: DType,
) -> TensorData {
    macro_rules! draw {
        ($element:ty) => {
            draw_part::<$element>(shape, ranges, |first, output| match distribution {
                Distribution::Default => fill_words(stream, first, output, |word| word as $element),
                Distribution::Bernoulli(probability) => {
                    let is_below = below(probability);
                    fill_half_words(stream, first, output, |word| <$element>::from(is_below(word)));
                }
                Distribution::Uniform(low, high) => {
                    // Whole numbers, as burn takes them.
                    let (low, high) = (low as $element as i128, high as $element as i128);
                    let count = (high - low).max(1) as u128;
                    fill_words(stream, first, output, |word| {
                        (low + ((u128::from(word) * count) >> 64) as i128) as $element
                    });
                }
                Distribution::Normal(mean, deviation) => {
                    fill_normals(stream, first, output, mean, deviation, |value| value as $element);
                }
            })
        };
    }
    match dtype {
        DType::I32 => draw!(i32),
        DType::I16 => draw!(i16),
        DType::I8 => draw!(i8),
        DType::U64 => draw!(u64),
        DType::U32 => draw!(u32),
        DType::U16 => draw!(u16),
        DType::U8 => draw!(u8),
        _ => draw!(i64),
    }
}

/// Draws floats whose type has this number of binary digits.
fn fill_floats<T: Copy + Into<f64>>(
    stream: &RandomStream,
    first: u64,
    output: &mut [T],
    distribution: Distribution,
    digits: u32,
    from: impl Fn(f64) -> T,
) {
    let between = |low: f64, high: f64, unit: f64| {
        let value = from(low + (high - low) * unit);
        // Rounding may reach the end, which is not one of the numbers.
        if value.into() < high { value } else { from(low) }
    };
    match distribution {
        Distribution::Default => fill_floats(stream, first, output, Distribution::Uniform(0.0, 1.0), digits, from),
        Distribution::Uniform(low, high) if digits > u32::BITS => {
            fill_words(stream, first, output, |word| {
                between(low, high, unit(word >> (u64::BITS - digits), digits))
            });
        }
        Distribution::Uniform(low, high) => fill_half_words(stream, first, output, |word| {
            between(low, high, unit(u64::from(word >> (u32::BITS - digits)), digits))
        }),
        Distribution::Bernoulli(probability) => {
            let [no, yes] = [0.0, 1.0].map(from);
            let is_below = below(probability);
            fill_half_words(stream, first, output, |word| if is_below(word) { yes } else { no });
        }
        Distribution::Normal(mean, deviation) => fill_normals(stream, first, output, mean, deviation, from),
    }
}

/// Whether a word is one of those that a probability has of all, exact to 2^-32 and rounded down.
fn below(probability: f64) -> impl Fn(u32) -> bool {
    let threshold = (probability * 4_294_967_296.0) as u64;
    move |word| u64::from(word) < threshold
}

/// A number of U[0, 1) by its binary digits after the point.
fn unit(word: u64, digits: u32) -> f64 {
    word as f64 / (1u64 << digits) as f64
}

/// Writes what becomes of the random words of 32 bits `first, first + 1, …`. A value of the counter gives four, and
/// vector instructions compute several values together.
fn fill_half_words<T>(stream: &RandomStream, first: u64, output: &mut [T], map: impl Fn(u32) -> T) {
    const BLOCKS: usize = 16;
    let mut index = first;
    let mut rest = output;
    while !rest.is_empty() {
        let mut words = [0; 4 * BLOCKS];
        for (block, words) in (index / 4..).zip(words.chunks_exact_mut(4)) {
            words.copy_from_slice(&philox4x32_10([block as u32, (block >> 32) as u32, 0, 0], stream.key()));
        }
        let words = &words[(index % 4) as usize..];
        let (head, tail) = rest.split_at_mut(words.len().min(rest.len()));
        for (value, &word) in head.iter_mut().zip(words) {
            *value = map(word);
        }
        index += head.len() as u64;
        rest = tail;
    }
}

/// As [`fill_half_words`], of words of 64 bits: two for each value of the counter.
fn fill_words<T>(stream: &RandomStream, first: u64, output: &mut [T], map: impl Fn(u64) -> T) {
    let mut index = first;
    let mut rest = output;
    while !rest.is_empty() {
        let block = index / 2;
        let [a, b, c, d] = philox4x32_10([block as u32, (block >> 32) as u32, 0, 0], stream.key());
        let pair = [u64::from(a) | u64::from(b) << 32, u64::from(c) | u64::from(d) << 32];
        let lane = (index % 2) as usize;
        let (head, tail) = rest.split_at_mut((2 - lane).min(rest.len()));
        for (value, &word) in head.iter_mut().zip(&pair[lane..]) {
            *value = map(word);
        }
        index += head.len() as u64;
        rest = tail;
    }
}

/// Writes the numbers `first, first + 1, …` of a normal distribution.
fn fill_normals<T>(
    stream: &RandomStream,
    first: u64,
    output: &mut [T],
    mean: f64,
    deviation: f64,
    map: impl Fn(f64) -> T,
) {
    let mut normals = [0.0; 64];
    for (chunk, values) in output.chunks_mut(normals.len()).enumerate() {
        let normals = &mut normals[..values.len()];
        stream.fill_normal(first + (chunk * 64) as u64, deviation, normals);
        for (value, normal) in values.iter_mut().zip(normals) {
            *value = map(mean + *normal);
        }
    }
}

/// The elements of these ranges of a tensor, where `fill` writes those from an index of the whole on.
fn draw_part<T: burn_backend::Element + Default>(
    shape: &[usize],
    ranges: &[Range<usize>],
    fill: impl Fn(u64, &mut [T]) + Sync,
) -> TensorData {
    let part: Vec<usize> = ranges.iter().map(Range::len).collect();
    let runs = Runs::new(shape, ranges);
    let mut values = vec![T::default(); part.iter().product()];
    let draw = |(chunk, mut rest): (usize, &mut [T])| {
        let mut position = chunk * CHUNK;
        while !rest.is_empty() {
            let (first, length) = runs.at(position);
            let (run, after) = rest.split_at_mut(length.min(rest.len()));
            fill(first as u64, run);
            position += run.len();
            rest = after;
        }
    };
    if values.len() > CHUNK {
        values.par_chunks_mut(CHUNK).enumerate().for_each(draw);
    } else {
        draw((0, &mut values));
    }
    TensorData::new(values, part)
}

/// The runs of a part: elements that are neighbours in the whole, too.
struct Runs {
    length: usize,
    /// The index in the whole of the first run's first element.
    start: usize,
    /// Of each dimension outside the runs: how many of it there are, and how far they are apart in the whole.
    outside: Vec<(usize, usize)>,
}

impl Runs {
    fn new(shape: &[usize], ranges: &[Range<usize>]) -> Self {
        let mut stride = 1;
        let mut runs = Self {
            length: 1,
            start: 0,
            outside: Vec::new(),
        };
        let mut is_inside = true;
        for (&length, range) in shape.iter().zip(ranges).rev() {
            runs.start += range.start * stride;
            if is_inside {
                runs.length *= range.len();
            } else {
                runs.outside.push((range.len(), stride));
            }
            is_inside &= range.len() == length;
            stride *= length;
        }
        runs
    }

    /// The index in the whole of an element of the part, and the length of its run from there.
    fn at(&self, position: usize) -> (usize, usize) {
        let inside = position % self.length;
        let mut run = position / self.length;
        let mut index = self.start + inside;
        for &(count, stride) in &self.outside {
            index += run % count * stride;
            run /= count;
        }
        (index, self.length - inside)
    }
}
