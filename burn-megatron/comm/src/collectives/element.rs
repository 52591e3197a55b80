//! The element types that travel between ranks.
//!
//! [`CollectiveElement`] is the bound of every typed call of a
//! [`ProcessGroup`](super::ProcessGroup); [`ElementType`] is its value in a
//! [`CallDescriptor`](super::CallDescriptor), for the engines, which see bytes.

use std::fmt;

/// The type of the elements of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ElementType {
    /// IEEE single precision.
    F32,
    /// IEEE double precision.
    F64,
    /// IEEE half precision.
    F16,
    /// The upper half of a single-precision number.
    BF16,
    /// Signed, 32 bits.
    I32,
    /// Signed, 64 bits.
    I64,
    /// Unsigned, 8 bits.
    U8,
}

impl ElementType {
    /// Every element type, in the order of their codes in a message.
    pub const ALL: [ElementType; 7] = [
        ElementType::F32,
        ElementType::F64,
        ElementType::F16,
        ElementType::BF16,
        ElementType::I32,
        ElementType::I64,
        ElementType::U8,
    ];

    /// Returns the size of one element in bytes.
    pub fn size_bytes(self) -> usize {
        match self {
            ElementType::F64 | ElementType::I64 => 8,
            ElementType::F32 | ElementType::I32 => 4,
            ElementType::F16 | ElementType::BF16 => 2,
            ElementType::U8 => 1,
        }
    }

    /// Returns whether elements are integers, which have no mean.
    pub fn is_integer(self) -> bool {
        matches!(self, ElementType::I32 | ElementType::I64 | ElementType::U8)
    }
}

impl ElementType {
    /// Returns the name, as messages have it.
    pub fn name(self) -> &'static str {
        match self {
            ElementType::F32 => "f32",
            ElementType::F64 => "f64",
            ElementType::F16 => "f16",
            ElementType::BF16 => "bf16",
            ElementType::I32 => "i32",
            ElementType::I64 => "i64",
            ElementType::U8 => "u8",
        }
    }
}

impl fmt::Display for ElementType {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.name())
    }
}

/// An element that collectives can carry: plain data of a known [`ElementType`].
pub trait CollectiveElement: bytemuck::Pod + Send + 'static {
    /// The element type that goes into the call's descriptor.
    const ELEMENT_TYPE: ElementType;
}

macro_rules! collective_element {
    ($($element:ty => $variant:ident),* $(,)?) => {$(
        impl CollectiveElement for $element {
            const ELEMENT_TYPE: ElementType = ElementType::$variant;
        }
    )*};
}

collective_element! {
    f32 => F32,
    f64 => F64,
    half::f16 => F16,
    half::bf16 => BF16,
    i32 => I32,
    i64 => I64,
    u8 => U8,
}
