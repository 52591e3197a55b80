//! Products of matrices with any strides, on the thread that asks for them, by the `gemm` crate.
//!
//! Callers cut what is to be computed into blocks that follow from the shapes alone, and hand these to rayon: so the
//! results do not depend on the number of threads. Numbers of 16 bits are widened block by block.

use std::marker::PhantomData;
use std::ops::Range;

use super::math::{Real, vectorised};
use super::number::Number;

/// A matrix in memory: the element of a row and a column is at `first + row * strides[0] + column * strides[1]`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Matrix<'a, T> {
    values: &'a [T],
    first: usize,
    shape: [usize; 2],
    strides: [isize; 2],
}

impl<'a, T> Matrix<'a, T> {
    /// # Panics
    /// When an element is outside the memory.
    pub fn new(values: &'a [T], first: usize, shape: [usize; 2], strides: [isize; 2]) -> Self {
        if shape[0] > 0 && shape[1] > 0 {
            let (mut lowest, mut highest) = (first as isize, first as isize);
            for (length, stride) in shape.into_iter().zip(strides) {
                let span = (length - 1) as isize * stride;
                lowest += span.min(0);
                highest += span.max(0);
            }
            let is_inside = lowest >= 0 && highest < values.len() as isize;
            assert!(
                is_inside,
                "a matrix {shape:?} from {first} in steps of {strides:?} does not fit in {} values",
                values.len()
            );
        }
        Self {
            values,
            first,
            shape,
            strides,
        }
    }

    /// A matrix whose rows are consecutive.
    pub fn of_rows(values: &'a [T], shape: [usize; 2]) -> Self {
        Self::new(values, 0, shape, [shape[1] as isize, 1])
    }

    pub fn shape(&self) -> [usize; 2] {
        self.shape
    }

    pub fn transposed(self) -> Self {
        Self {
            shape: [self.shape[1], self.shape[0]],
            strides: [self.strides[1], self.strides[0]],
            ..self
        }
    }

    pub fn rows(self, range: Range<usize>) -> Self {
        let first = self.first as isize + range.start as isize * self.strides[0];
        // An empty range may start where there is no memory any more.
        let first = if range.is_empty() { 0 } else { first as usize };
        assert!(
            range.end <= self.shape[0],
            "rows {range:?} of a matrix of {}",
            self.shape[0]
        );
        Self::new(self.values, first, [range.len(), self.shape[1]], self.strides)
    }

    pub fn columns(self, range: Range<usize>) -> Self {
        self.transposed().rows(range).transposed()
    }

    /// Returns a row's elements, if they are consecutive.
    pub fn row(&self, row: usize) -> Option<&'a [T]> {
        let [rows, columns] = self.shape;
        assert!(row < rows, "row {row} of a matrix of {rows}");
        let start = (self.first as isize + row as isize * self.strides[0]) as usize;
        if self.strides[1] == 1 || columns <= 1 {
            Some(&self.values[start..start + columns])
        } else {
            None
        }
    }
}

impl<'a, T: Number> Matrix<'a, T> {
    /// Returns the matrix in the type that is computed in: itself, or widened into the buffer.
    pub fn widened<'b>(self, buffer: &'b mut Vec<T::Real>) -> Matrix<'b, T::Real>
    where
        'a: 'b,
    {
        let [_, columns] = self.shape;
        if T::dtype() == <T::Real as burn::tensor::Element>::dtype() {
            return Matrix {
                values: bytemuck::cast_slice(self.values),
                first: self.first,
                shape: self.shape,
                strides: self.strides,
            };
        }
        if self.strides[1] != 1 && self.strides[0] == 1 && columns > 1 {
            return self.transposed().widened(buffer).transposed();
        }
        self.copy_rows(buffer);
        Matrix::of_rows(buffer, self.shape)
    }

    /// Writes the elements into the buffer, row after row.
    pub fn copy_rows(self, buffer: &mut Vec<T::Real>) {
        let [rows, columns] = self.shape;
        buffer.clear();
        buffer.reserve(rows * columns);
        let (mut gathered, mut wide) = (Vec::new(), Vec::new());
        for row in 0..rows {
            let values = self.row(row).unwrap_or_else(|| {
                let start = self.first as isize + row as isize * self.strides[0];
                let places = (0..columns).map(|column| (start + column as isize * self.strides[1]) as usize);
                gathered.clear();
                gathered.extend(places.map(|place| self.values[place]));
                &gathered
            });
            vectorised(
                #[inline(always)]
                || buffer.extend_from_slice(T::read(values, &mut wide)),
            );
        }
    }
}

/// A matrix to be written, no two of whose elements share an address.
pub(crate) struct MatrixMut<'a, R> {
    first: *mut R,
    shape: [usize; 2],
    strides: [usize; 2],
    memory: PhantomData<&'a mut [R]>,
}

impl<'a, R> MatrixMut<'a, R> {
    /// # Panics
    /// When an element is outside the memory, or two are at one place.
    pub fn new(values: &'a mut [R], shape: [usize; 2], strides: [usize; 2]) -> Self {
        if shape[0] > 0 && shape[1] > 0 {
            let last = (shape[0] - 1) * strides[0] + (shape[1] - 1) * strides[1];
            let (wide, narrow) = if strides[0] >= strides[1] { (0, 1) } else { (1, 0) };
            let is_apart = strides[narrow] > 0 && strides[wide] >= strides[narrow] * shape[narrow];
            assert!(
                last < values.len() && (is_apart || shape[wide] == 1),
                "a matrix {shape:?} in steps of {strides:?} does not fit in {} values",
                values.len()
            );
        }
        // SAFETY: just checked; the memory is borrowed for as long.
        unsafe { Self::from_raw(values.as_mut_ptr(), shape, strides) }
    }

    /// A matrix in memory that may not have been written yet.
    ///
    /// # Safety
    /// Its elements are in memory that is there for `'a` and that nothing else uses, no two of them at one place.
    pub unsafe fn from_raw(first: *mut R, shape: [usize; 2], strides: [usize; 2]) -> Self {
        Self {
            first,
            shape,
            strides,
            memory: PhantomData,
        }
    }
}

/// What happens to the previous value where a matmul's result goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Onto {
    /// It is written over, and not read.
    Nothing,
    /// The product is added to it.
    Sum,
}

/// Writes the product of two matrices.
///
/// # Panics
/// When the shapes do not fit each other.
pub(crate) fn product<R: Real>(a: Matrix<'_, R>, b: Matrix<'_, R>, into: MatrixMut<'_, R>, onto: Onto) {
    let ([rows, depth], [_, columns]) = (a.shape, b.shape);
    assert_eq!(b.shape[0], depth, "the second factor's rows");
    assert_eq!(into.shape, [rows, columns], "the product's shape");
    if rows == 0 || columns == 0 {
        return;
    }
    // With a depth of 0 nothing is read, and `first` may be anywhere.
    let start = |matrix: &Matrix<'_, R>| matrix.values.as_ptr().wrapping_add(matrix.first);
    // SAFETY: the matrices are inside their memory, which their constructors have checked, and what is written is in
    // memory of its own, whose strides fit into isize as its size does.
    unsafe {
        gemm::gemm(
            rows,
            columns,
            depth,
            into.first,
            into.strides[1] as isize,
            into.strides[0] as isize,
            onto == Onto::Sum,
            start(&a),
            a.strides[1],
            a.strides[0],
            start(&b),
            b.strides[1],
            b.strides[0],
            R::ONE,
            R::ONE,
            false,
            false,
            false,
            gemm::Parallelism::None,
        );
    }
}

#[cfg(test)]
mod tests {
    use half::bf16;

    use super::*;

    fn numbers(count: usize) -> Vec<f64> {
        (0..count).map(|i| ((i * 37 + 11) % 101) as f64 - 50.0).collect()
    }

    #[test]
    fn products_of_any_strides_are_exact_in_whole_numbers() {
        for [rows, depth, columns] in [
            [1, 1, 1],
            [3, 0, 2],
            [0, 3, 2],
            [5, 7, 1],
            [1, 300, 70],
            [70, 2, 33],
            [65, 64, 130],
        ] {
            let (left, right) = (numbers(rows * depth), numbers(depth * columns));
            for turned in 0..8 {
                let factor = |values, shape: [usize; 2], is_turned| {
                    if is_turned {
                        Matrix::of_rows(values, [shape[1], shape[0]]).transposed()
                    } else {
                        Matrix::of_rows(values, shape)
                    }
                };
                let a = factor(&left, [rows, depth], turned & 1 > 0);
                let b = factor(&right, [depth, columns], turned & 2 > 0);
                let strides = if turned & 4 > 0 {
                    [1, rows + 3]
                } else {
                    [columns + 3, 1]
                };
                let at = |matrix: Matrix<'_, f64>, row: usize, column: usize| {
                    let [by_row, by_column] = matrix.strides;
                    matrix.values[(row as isize * by_row + column as isize * by_column) as usize]
                };
                let mut into = vec![f64::NAN; (rows + 3) * (columns + 3)];
                product(a, b, MatrixMut::new(&mut into, [rows, columns], strides), Onto::Nothing);
                product(a, b, MatrixMut::new(&mut into, [rows, columns], strides), Onto::Sum);
                for row in 0..rows {
                    for column in 0..columns {
                        let expected: f64 = (0..depth).map(|k| at(a, row, k) * at(b, k, column)).sum();
                        assert_eq!(into[row * strides[0] + column * strides[1]], 2.0 * expected);
                    }
                }
                let untouched = into.iter().filter(|value| value.is_nan()).count();
                assert_eq!(untouched, into.len() - rows * columns);
            }
        }
    }

    #[test]
    fn numbers_of_16_bits_are_widened_in_any_order() {
        let values: Vec<bf16> = (0..24).map(|i| bf16::from_f32(i as f32)).collect();
        let mut buffer = Vec::new();
        for strides in [[6, 1], [1, 4], [12, 2]] {
            let shape = if strides == [12, 2] { [2, 3] } else { [3, 4] };
            let wide = Matrix::new(&values, 1, shape, strides).widened(&mut buffer);
            for row in 0..shape[0] {
                for column in 0..shape[1] {
                    let place =
                        wide.first as isize + row as isize * wide.strides[0] + column as isize * wide.strides[1];
                    let expected = 1 + row as isize * strides[0] + column as isize * strides[1];
                    assert_eq!(wide.values[place as usize], expected as f32);
                }
            }
        }
    }

    #[test]
    #[should_panic(expected = "does not fit in 5 values")]
    fn matrices_outside_their_memory_are_refused() {
        Matrix::new(&[0.0; 5], 0, [2, 3], [3, 1]);
    }
}
