//! `Number`: a type of which tensors are, and the type that it is computed in.

use std::mem::MaybeUninit;

use burn::tensor::Element;
use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};

use super::lanes::Destination;
use super::math::Real;

/// A type of tensors: f32, f64, f16, bf16.
pub(crate) trait Number: Element + bytemuck::Pod {
    /// The type that it is computed in.
    type Real: Real + Number<Real = Self::Real>;

    /// Returns the numbers in the type that is computed in: themselves, or in the buffer.
    fn read<'a>(values: &'a [Self], buffer: &'a mut Vec<Self::Real>) -> &'a [Self::Real];

    /// Rounds numbers to this type.
    ///
    /// # Panics
    /// When the number of places differs.
    fn write(values: &[Self::Real], to: Destination<'_, Self>);

    /// Runs a pass with the destination in the type that is computed in, over the buffer if that is another type.
    fn through<T>(
        destination: Destination<'_, Self>,
        buffer: &mut Vec<Self::Real>,
        pass: impl FnOnce(Destination<'_, Self::Real>) -> T,
    ) -> T;

    /// Runs a pass from numbers of the type that is computed in to new ones of this type, by way of the buffer if that
    /// is another type.
    #[inline(always)]
    fn make<T>(
        from: &[Self::Real],
        to: &mut [MaybeUninit<Self>],
        buffer: &mut Vec<Self::Real>,
        pass: impl FnOnce(Destination<'_, Self::Real>) -> T,
    ) -> T {
        buffer.clear();
        buffer.extend_from_slice(from);
        let result = pass(Destination::Over(buffer));
        Self::write(buffer, Destination::New { from: &[], to });
        result
    }
}

macro_rules! as_it_is {
    ($type:ident) => {
        impl Number for $type {
            type Real = Self;

            #[inline(always)]
            fn read<'a>(values: &'a [Self], _: &'a mut Vec<Self>) -> &'a [Self] {
                values
            }

            #[inline(always)]
            fn write(values: &[Self], to: Destination<'_, Self>) {
                match to {
                    Destination::Over(to) => to.copy_from_slice(values),
                    Destination::New { to, .. } => {
                        to.write_copy_of_slice(values);
                    }
                }
            }

            #[inline(always)]
            fn through<T>(
                destination: Destination<'_, Self>,
                _: &mut Vec<Self>,
                pass: impl FnOnce(Destination<'_, Self>) -> T,
            ) -> T {
                pass(destination)
            }

            #[inline(always)]
            fn make<T>(
                from: &[Self],
                to: &mut [MaybeUninit<Self>],
                _: &mut Vec<Self>,
                pass: impl FnOnce(Destination<'_, Self>) -> T,
            ) -> T {
                pass(Destination::New { from, to })
            }
        }
    };
}

as_it_is!(f32);
as_it_is!(f64);

/// Numbers that are converted at once by way of a short buffer.
const CHUNK: usize = 256;

/// The conversions between a type of 16 bits and f32.
trait Half: Number<Real = f32> {
    fn widen(from: &[Self], to: &mut [f32]);

    fn narrow(from: &[f32], to: &mut [Self]);
}

impl Half for f16 {
    // The library chooses the processor's instructions itself.
    fn widen(from: &[Self], to: &mut [f32]) {
        from.convert_to_f32_slice(to);
    }

    fn narrow(from: &[f32], to: &mut [Self]) {
        to.convert_from_f32_slice(from);
    }
}

impl Half for bf16 {
    #[inline(always)]
    fn widen(from: &[Self], to: &mut [f32]) {
        for (to, from) in to.iter_mut().zip(from) {
            *to = from.to_f32();
        }
    }

    #[inline(always)]
    fn narrow(from: &[f32], to: &mut [Self]) {
        for (to, from) in to.iter_mut().zip(from) {
            *to = Self::from_f32(*from);
        }
    }
}

macro_rules! through_f32 {
    ($type:ident) => {
        impl Number for $type {
            type Real = f32;

            #[inline(always)]
            fn read<'a>(values: &'a [Self], buffer: &'a mut Vec<f32>) -> &'a [f32] {
                buffer.resize(values.len(), 0.0);
                Self::widen(values, buffer);
                buffer
            }

            #[inline(always)]
            fn write(values: &[f32], to: Destination<'_, Self>) {
                match to {
                    Destination::Over(to) => {
                        assert_eq!(to.len(), values.len(), "each number has its place");
                        Self::narrow(values, to);
                    }
                    Destination::New { to, .. } => write_new(values, to),
                }
            }

            #[inline(always)]
            fn through<T>(
                destination: Destination<'_, Self>,
                buffer: &mut Vec<f32>,
                pass: impl FnOnce(Destination<'_, f32>) -> T,
            ) -> T {
                Self::read(destination.source(), buffer);
                let result = pass(Destination::Over(buffer));
                Self::write(buffer, destination);
                result
            }
        }
    };
}

through_f32!(f16);
through_f32!(bf16);

/// Rounds numbers by way of a short buffer, because the conversions take no memory that was never written.
#[inline(always)]
fn write_new<T: Half>(values: &[f32], to: &mut [MaybeUninit<T>]) {
    assert_eq!(to.len(), values.len(), "each number has its place");
    let mut buffer = [T::zeroed(); CHUNK];
    for (values, to) in values.chunks(CHUNK).zip(to.chunks_mut(CHUNK)) {
        let buffer = &mut buffer[..values.len()];
        T::narrow(values, buffer);
        to.write_copy_of_slice(buffer);
    }
}

/// Runs `$body` with `$type` for the type of numbers that a [`DType`](burn::tensor::DType) names.
///
/// # Panics
/// For types that operations do not compute with; their public functions have checked.
macro_rules! with_number {
    ($dtype:expr, $type:ident => $body:expr) => {
        match $dtype {
            burn::tensor::DType::F32 => {
                type $type = f32;
                $body
            }
            burn::tensor::DType::F64 => {
                type $type = f64;
                $body
            }
            burn::tensor::DType::F16 => {
                type $type = half::f16;
                $body
            }
            burn::tensor::DType::BF16 => {
                type $type = half::bf16;
                $body
            }
            other => panic!("{other:?} is not computed with"),
        }
    };
}

pub(crate) use with_number;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_16_bits_round_as_the_library_does() {
        fn check<T: Number<Real = f32> + PartialEq>() {
            for count in [0, 1, 255, 256, 257, 1000] {
                let values: Vec<f32> = (0..count).map(|i| (i as f32 - 300.0) * 1.001).collect();
                let expected: Vec<T> = values.iter().map(|&value| T::from_elem(value)).collect();
                let mut over = vec![T::from_elem(7.0); count];
                T::write(&values, Destination::Over(&mut over));
                assert!(over == expected);
                let mut new = Box::new_uninit_slice(count);
                let to = Destination::New {
                    from: &over,
                    to: &mut new,
                };
                let mut buffer = Vec::new();
                T::through(to, &mut buffer, |row| {
                    crate::flex::lanes::map(row, [], |value, []| value * 2.0);
                });
                // SAFETY: the pass has written every element.
                let new = unsafe { new.assume_init() };
                assert!(
                    new.iter()
                        .zip(&expected)
                        .all(|(&twice, &once)| twice == T::from_elem(once.to_f32() * 2.0))
                );
            }
        }
        check::<f16>();
        check::<bf16>();
    }
}
