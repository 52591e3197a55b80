//! `Element`: the types of matrices; [`Wide`]: those that sums are in.

use std::ops::{AddAssign, Mul};

use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};

/// The number of `f32` in `cudaDataType_t`.
pub const R_32F: u32 = 0;
/// That of `f64`.
pub const R_64F: u32 = 1;
const R_16F: u32 = 2;
const R_16BF: u32 = 14;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Element {
    F16,
    BF16,
    F32,
    F64,
}

impl Element {
    /// The type of a number of `cudaDataType_t`.
    pub fn of(datatype: u32) -> Option<Self> {
        match datatype {
            R_16F => Some(Self::F16),
            R_16BF => Some(Self::BF16),
            R_32F => Some(Self::F32),
            R_64F => Some(Self::F64),
            _ => None,
        }
    }

    pub fn bytes(self) -> usize {
        match self {
            Self::F16 | Self::BF16 => 2,
            Self::F32 => 4,
            Self::F64 => 8,
        }
    }
}

/// A type that sums are in: `f64` for elements that are so, `f32` for all others.
pub trait Wide: Copy + AddAssign + Mul<Output = Self> + 'static {
    const ZERO: Self;
    const ONE: Self;

    fn of(value: f64) -> Self;

    /// Reads consecutive elements.
    ///
    /// # Safety
    ///
    /// There must be `to.len()` aligned elements at the address.
    unsafe fn read(element: Element, from: usize, to: &mut [Self]);

    /// Writes consecutive elements, rounded to the nearest, with ties to even.
    ///
    /// # Safety
    ///
    /// There must be aligned memory for `from.len()` elements at the address.
    unsafe fn write(element: Element, from: &[Self], to: usize);
}

impl Wide for f32 {
    const ZERO: Self = 0.0;
    const ONE: Self = 1.0;

    fn of(value: f64) -> Self {
        value as f32
    }

    unsafe fn read(element: Element, from: usize, to: &mut [Self]) {
        let count = to.len();
        // SAFETY: the caller's; what other streams do meanwhile is the program's care, as on a GPU.
        unsafe {
            match element {
                Element::F16 => std::slice::from_raw_parts(from as *const f16, count).convert_to_f32_slice(to),
                Element::BF16 => std::slice::from_raw_parts(from as *const bf16, count).convert_to_f32_slice(to),
                Element::F32 => std::ptr::copy_nonoverlapping(from as *const f32, to.as_mut_ptr(), count),
                Element::F64 => unreachable!("sums of f64 are in f64"),
            }
        }
    }

    unsafe fn write(element: Element, from: &[Self], to: usize) {
        let count = from.len();
        // SAFETY: as above.
        unsafe {
            match element {
                Element::F16 => std::slice::from_raw_parts_mut(to as *mut f16, count).convert_from_f32_slice(from),
                Element::BF16 => std::slice::from_raw_parts_mut(to as *mut bf16, count).convert_from_f32_slice(from),
                Element::F32 => std::ptr::copy_nonoverlapping(from.as_ptr(), to as *mut f32, count),
                Element::F64 => unreachable!("sums of f64 are in f64"),
            }
        }
    }
}

impl Wide for f64 {
    const ZERO: Self = 0.0;
    const ONE: Self = 1.0;

    fn of(value: f64) -> Self {
        value
    }

    unsafe fn read(element: Element, from: usize, to: &mut [Self]) {
        assert_eq!(element, Element::F64, "sums in f64 are of f64");
        // SAFETY: the caller's, as above.
        unsafe { std::ptr::copy_nonoverlapping(from as *const f64, to.as_mut_ptr(), to.len()) };
    }

    unsafe fn write(element: Element, from: &[Self], to: usize) {
        assert_eq!(element, Element::F64, "sums in f64 are of f64");
        // SAFETY: the caller's, as above.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), to as *mut f64, from.len()) };
    }
}
