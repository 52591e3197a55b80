//! Reductions, in the order of ranks. Sixteen-bit floats are added up in `f32` and rounded once: NCCL orders sums in
//! other ways, and rounds in between.

use half::{bf16, f16};

/// The numbers of `ncclRedOp_t`.
pub const SUM: u8 = 0;
const PROD: u8 = 1;
const MAX: u8 = 2;
const MIN: u8 = 3;
/// The last of them.
pub const AVERAGE: u8 = 4;

/// Returns the bytes of an element of a type of `ncclDataType_t`.
pub fn size_of_type(datatype: u32) -> Option<usize> {
    match datatype {
        0 | 1 => Some(1),
        2 | 3 | 7 => Some(4),
        4 | 5 | 8 => Some(8),
        6 | 9 => Some(2),
        _ => None,
    }
}

/// Reduces parts of equal length, the first rank's first.
pub fn reduce(datatype: u8, reduction: u8, parts: &[&[u8]]) -> Vec<u8> {
    macro_rules! integers {
        ($type:ty) => {{
            let number = |bytes: &[u8]| <$type>::from_ne_bytes(bytes.try_into().expect("one element"));
            let count = parts.len();
            let join = |a: $type, b: $type| match reduction {
                PROD => a.wrapping_mul(b),
                MAX => a.max(b),
                MIN => a.min(b),
                _ => a.wrapping_add(b),
            };
            let end = |value: $type| {
                if reduction == AVERAGE {
                    value / count as $type
                } else {
                    value
                }
            };
            fold(parts, number, join, |value| end(value).to_ne_bytes())
        }};
    }
    macro_rules! floats {
        ($type:ty, $wide:ty, $widen:expr, $narrow:expr) => {{
            let number =
                |bytes: &[u8]| -> $wide { $widen(<$type>::from_ne_bytes(bytes.try_into().expect("one element"))) };
            let count = parts.len() as $wide;
            let join = |a: $wide, b: $wide| match reduction {
                PROD => a * b,
                // What is not a number stays so: it is what this is to find.
                MAX | MIN if a.is_nan() || b.is_nan() => <$wide>::NAN,
                MAX => a.max(b),
                MIN => a.min(b),
                _ => a + b,
            };
            let end = |value: $wide| if reduction == AVERAGE { value / count } else { value };
            fold(parts, number, join, |value| $narrow(end(value)).to_ne_bytes())
        }};
    }
    match datatype {
        0 => integers!(i8),
        1 => integers!(u8),
        2 => integers!(i32),
        3 => integers!(u32),
        4 => integers!(i64),
        5 => integers!(u64),
        6 => floats!(f16, f32, f16::to_f32, f16::from_f32),
        7 => floats!(f32, f32, |value: f32| value, |value: f32| value),
        8 => floats!(f64, f64, |value: f64| value, |value: f64| value),
        _ => floats!(bf16, f32, bf16::to_f32, bf16::from_f32),
    }
}

fn fold<T: Copy, const N: usize>(
    parts: &[&[u8]],
    number: impl Fn(&[u8]) -> T,
    join: impl Fn(T, T) -> T,
    end: impl Fn(T) -> [u8; N],
) -> Vec<u8> {
    let bytes = parts.first().map_or(0, |part| part.len());
    let mut result = Vec::with_capacity(bytes);
    for at in (0..bytes).step_by(N) {
        let values = parts.iter().map(|part| number(&part[at..at + N]));
        let value = values.reduce(&join).expect("there is a rank");
        result.extend(end(value));
    }
    result
}
