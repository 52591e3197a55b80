//! `Matrix`: a matrix's memory layout, checked.

use super::element::{Element, Wide};
use super::error::{Error, Outcome};
use super::layout::Layout;
use crate::driver::memory::POISON;

/// A matrix, column after column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Matrix {
    pub element: Element,
    pub rows: usize,
    pub columns: usize,
    /// The elements from one column to the next.
    leading_dimension: usize,
}

impl Matrix {
    /// # Errors
    ///
    /// Not supported: other types and orders, and batches. Invalid: nothing in it, columns that overlap, more than
    /// memory can hold.
    pub fn of(name: &str, layout: &Layout) -> Outcome<Self> {
        let Some(element) = Element::of(layout.datatype) else {
            return Err(Error::unsupported(format!("{name} has the type {}", layout.datatype)));
        };
        if layout.order != 0 || layout.batch_count != 1 {
            let (order, count) = (layout.order, layout.batch_count);
            return Err(Error::unsupported(format!(
                "{name} has the order {order} and is a batch of {count}"
            )));
        }
        let invalid = || Error::invalid(format!("{name} is {layout:?}"));
        let leading_dimension = usize::try_from(layout.leading_dimension).map_err(|_| invalid())?;
        let (rows, columns) = (layout.rows as usize, layout.columns as usize);
        if rows == 0 || columns == 0 || leading_dimension < rows {
            return Err(invalid());
        }
        let elements = leading_dimension.checked_mul(columns);
        let bytes = elements.and_then(|elements| elements.checked_mul(element.bytes()));
        match bytes {
            Some(bytes) if bytes <= isize::MAX as usize => Ok(Self {
                element,
                rows,
                columns,
                leading_dimension,
            }),
            _ => Err(invalid()),
        }
    }

    /// The bytes from its first element to its last.
    pub fn bytes(&self) -> usize {
        ((self.columns - 1) * self.leading_dimension + self.rows) * self.element.bytes()
    }

    fn column(&self, address: usize, column: usize) -> usize {
        address + column * self.leading_dimension * self.element.bytes()
    }

    /// Returns its elements, without gaps between the columns.
    ///
    /// # Safety
    ///
    /// It must be at the address, aligned.
    pub unsafe fn read<W: Wide>(&self, address: usize) -> Vec<W> {
        let mut values = vec![W::ZERO; self.rows * self.columns];
        for (column, to) in values.chunks_exact_mut(self.rows).enumerate() {
            // SAFETY: the caller's.
            unsafe { W::read(self.element, self.column(address, column), to) };
        }
        values
    }

    /// Writes its elements, and nothing between the columns.
    ///
    /// # Safety
    ///
    /// There must be memory for it at the address, aligned.
    pub unsafe fn write<W: Wide>(&self, values: &[W], address: usize) {
        for (column, from) in values.chunks_exact(self.rows).enumerate() {
            // SAFETY: the caller's.
            unsafe { W::write(self.element, from, self.column(address, column)) };
        }
    }

    /// Makes its elements no numbers.
    ///
    /// # Safety
    ///
    /// As of [`write`](Self::write).
    pub unsafe fn poison(&self, address: usize) {
        for column in 0..self.columns {
            let to = self.column(address, column) as *mut u8;
            // SAFETY: the caller's.
            unsafe { to.write_bytes(POISON, self.rows * self.element.bytes()) };
        }
    }
}
