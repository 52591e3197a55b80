//! The element types that travel between ranks.
//!
//! [`CollectiveElement`] is the bound of every typed call of a
//! [`ProcessGroup`](super::ProcessGroup); [`ElementType`] is its value in a
//! [`CallDescriptor`](super::CallDescriptor), for the engines, which see bytes.

use strum::VariantArray;

/// The type of the elements of a buffer, in the order of their codes in a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::Display, strum::IntoStaticStr, VariantArray)]
#[strum(serialize_all = "lowercase")]
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
    /// Every element type.
    pub const ALL: &'static [ElementType] = Self::VARIANTS;

    /// Returns the name, as messages have it.
    pub fn name(self) -> &'static str {
        self.into()
    }

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
