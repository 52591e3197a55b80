//! [`Preset`]: a well-known size of a family.

use std::fmt;

/// A well-known size.
pub struct Preset<C> {
    /// The name on the command line.
    pub name: &'static str,
    make: fn() -> C,
}

impl<C> Preset<C> {
    /// Returns the preset whose configuration is what `make` returns.
    pub const fn new(name: &'static str, make: fn() -> C) -> Self {
        Self { name, make }
    }

    /// Returns the configuration of this size.
    pub fn config(&self) -> C {
        (self.make)()
    }
}

impl<C> Clone for Preset<C> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<C> Copy for Preset<C> {}

impl<C> fmt::Debug for Preset<C> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("Preset").field(&self.name).finish()
    }
}

impl<C> PartialEq for Preset<C> {
    /// Presets of a family differ in name.
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}
