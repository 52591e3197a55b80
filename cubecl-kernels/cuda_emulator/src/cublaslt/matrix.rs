//! `Matrix`: a matrix's memory layout, or that of each of a batch, checked.

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
    /// How many there are, and the elements from one to the next.
    pub batch_count: usize,
    batch_offset: usize,
}

impl Matrix {
    /// # Errors
    ///
    /// Not supported: other types and orders. Invalid: nothing in it, columns that overlap, a batch that goes
    /// backwards, more than memory can hold.
    pub fn of(name: &str, layout: &Layout) -> Outcome<Self> {
        let Some(element) = Element::of(layout.datatype) else {
            return Err(Error::unsupported(format!("{name} has the type {}", layout.datatype)));
        };
        if layout.order != 0 {
            return Err(Error::unsupported(format!("{name} has the order {}", layout.order)));
        }
        let invalid = || Error::invalid(format!("{name} is {layout:?}"));
        let leading_dimension = usize::try_from(layout.leading_dimension).map_err(|_| invalid())?;
        let (rows, columns) = (layout.rows as usize, layout.columns as usize);
        let batch_count = usize::try_from(layout.batch_count).map_err(|_| invalid())?;
        let batch_offset = usize::try_from(layout.batch_offset).map_err(|_| invalid())?;
        if rows == 0 || columns == 0 || leading_dimension < rows || batch_count == 0 {
            return Err(invalid());
        }
        let others = batch_offset.checked_mul(batch_count - 1);
        let elements = leading_dimension.checked_mul(columns);
        let elements = elements.zip(others).and_then(|(one, others)| one.checked_add(others));
        let bytes = elements.and_then(|elements| elements.checked_mul(element.bytes()));
        match bytes {
            Some(bytes) if bytes <= isize::MAX as usize => Ok(Self {
                element,
                rows,
                columns,
                leading_dimension,
                batch_count,
                batch_offset,
            }),
            _ => Err(invalid()),
        }
    }

    /// The bytes from the first element of the first to the last of the last.
    pub fn bytes(&self) -> usize {
        let one = (self.columns - 1) * self.leading_dimension + self.rows;
        ((self.batch_count - 1) * self.batch_offset + one) * self.element.bytes()
    }

    /// The bytes of its elements, of all in a batch; of the same one only once.
    pub fn bytes_of_elements(&self) -> usize {
        let matrices = if self.batch_offset == 0 { 1 } else { self.batch_count };
        matrices * self.rows * self.columns * self.element.bytes()
    }

    /// Where one of a batch is, of which the first is at the address.
    pub fn address_in_batch(&self, address: usize, which: usize) -> usize {
        address + which * self.batch_offset * self.element.bytes()
    }

    /// Whether those of a batch share no element, one after the other.
    pub fn are_apart(&self) -> bool {
        let one = (self.columns - 1) * self.leading_dimension + self.rows;
        self.batch_count == 1 || self.batch_offset >= one
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
