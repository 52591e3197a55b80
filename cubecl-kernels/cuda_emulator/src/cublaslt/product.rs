//! `Product`: a product with the addresses of its matrices, as a stream's thread computes it.

use super::element::{Element, Wide};
use super::error::{Error, Outcome};
use super::problem::Problem;
use crate::driver::device::Device;
use crate::driver::device::stream::Fault;
use crate::driver::memory::{POISON, check_device, check_running};
use crate::recording;

#[derive(Clone, Copy, Debug)]
pub struct Product {
    pub problem: Problem,
    pub alpha: f64,
    pub beta: f64,
    /// The addresses of the matrices.
    pub a: usize,
    pub b: usize,
    pub c: usize,
    pub d: usize,
    /// To how many bytes these are aligned, as the algorithm expects.
    pub alignments: [usize; 4],
    /// The address of what the algorithm needs, and its bytes, which may be none.
    pub workspace: (usize, usize),
}

/// Memory that is read or written.
struct Region {
    name: &'static str,
    address: usize,
    bytes: usize,
    alignment: usize,
}

impl Product {
    fn regions(&self) -> Vec<Region> {
        let problem = &self.problem;
        let mut regions = Vec::new();
        let mut add = |name, address, bytes, alignment| {
            regions.push(Region {
                name,
                address,
                bytes,
                alignment,
            });
        };
        let [a, b, c, d] = self.alignments;
        add("A", self.a, problem.a.bytes(), a.max(problem.a.element.bytes()));
        add("B", self.b, problem.b.bytes(), b.max(problem.b.element.bytes()));
        add("D", self.d, problem.d.bytes(), d.max(problem.d.element.bytes()));
        if self.reads_c() {
            add("C", self.c, problem.c.bytes(), c.max(problem.c.element.bytes()));
        }
        if let Some((element, address)) = problem.bias {
            add("the bias", address, problem.rows * element.bytes(), element.bytes());
        }
        let (address, bytes) = self.workspace;
        if bytes > 0 {
            add("the workspace", address, bytes, 16);
        }
        regions
    }

    /// Where beta is zero, C is not read.
    fn reads_c(&self) -> bool {
        self.beta != 0.0
    }

    fn is_in_place(&self) -> bool {
        self.reads_c() && self.c == self.d
    }

    /// Checks the addresses when the call is made.
    pub fn check(&self, device: &Device) -> Outcome {
        for region in self.regions() {
            let Region {
                name, address, bytes, ..
            } = region;
            if !address.is_multiple_of(region.alignment) {
                let text = format!("{name} at {address:#x} is not aligned to {} bytes", region.alignment);
                return Err(Error::invalid(text));
            }
            match check_device(address, bytes) {
                Ok(ordinal) if ordinal == device.ordinal => (),
                Ok(other) => {
                    let text = format!("{name} is on device {other}, not on {}", device.ordinal);
                    return Err(Error::invalid(text));
                }
                Err(_) => {
                    let text = format!("{name} has {bytes} bytes at {address:#x}, which are no device memory");
                    return Err(Error::invalid(text));
                }
            }
        }
        if self.is_in_place() && self.problem.c != self.problem.d {
            let text = format!("C and D are at {:#x}, with leading dimensions that differ", self.d);
            return Err(Error::invalid(text));
        }
        Ok(())
    }

    /// Counts the product by its shape, with the bytes of the matrices that it reads and writes.
    pub fn record(&self) {
        let problem = &self.problem;
        let letter = |is_transposed| if is_transposed { 'T' } else { 'N' };
        let (a, b) = (letter(problem.is_a_transposed), letter(problem.is_b_transposed));
        let mut name = format!(
            "{}x{}x{} {a}{b} {:?} to {:?}",
            problem.rows, problem.columns, problem.inner, problem.a.element, problem.d.element
        );
        if problem.d.batch_count > 1 {
            name += &format!(", {} times", problem.d.batch_count);
        }
        if self.reads_c() {
            name += ", added";
        }
        if problem.bias.is_some() {
            name += ", bias";
        }
        let matrices = [problem.a, problem.b, problem.d].map(|matrix| matrix.bytes_of_elements());
        let bytes = matrices.iter().sum::<usize>()
            + if self.reads_c() {
                problem.c.bytes_of_elements()
            } else {
                0
            };
        recording::count("matmul", &name, bytes);
    }

    /// Computes the product when its stream comes to it.
    pub fn run(&self) -> Result<(), Fault> {
        for region in self.regions() {
            check_running(region.address, region.bytes)?;
        }
        // Who has data in the workspace reads no number, whether it is an operand or a result.
        self.spoil_workspace();
        for which in 0..self.problem.d.batch_count {
            let one = self.one_of_batch(which);
            match self.problem.wide() {
                Element::F64 => one.compute::<f64>(),
                _ => one.compute::<f32>(),
            }
        }
        self.spoil_workspace();
        Ok(())
    }

    /// A product of a batch by itself.
    fn one_of_batch(&self, which: usize) -> Self {
        let Problem { a, b, c, d, .. } = &self.problem;
        Self {
            a: a.address_in_batch(self.a, which),
            b: b.address_in_batch(self.b, which),
            c: c.address_in_batch(self.c, which),
            d: d.address_in_batch(self.d, which),
            ..*self
        }
    }

    fn spoil_workspace(&self) {
        let (address, bytes) = self.workspace;
        if bytes > 0 {
            // SAFETY: checked, and only for this.
            unsafe { (address as *mut u8).write_bytes(POISON, bytes) };
        }
    }

    fn compute<W: Wide>(&self) {
        let problem = &self.problem;
        // SAFETY: checked by `run`; what other streams do meanwhile is the program's care, as on a GPU.
        let read_c = || unsafe { problem.c.read::<W>(self.c) };
        let own = self.is_in_place().then(read_c);
        // A GPU may write any of D before it has read the operands: where they share memory, no number comes out.
        // SAFETY: as above.
        unsafe { problem.d.poison(self.d) };
        let c = own.or_else(|| self.reads_c().then(read_c));
        let bias = problem.bias.map(|(element, address)| {
            let mut bias = vec![W::ZERO; problem.rows];
            // SAFETY: as above.
            unsafe { W::read(element, address, &mut bias) };
            bias
        });
        let mut values = self.sums::<W>();
        let (alpha, beta) = (W::of(self.alpha), W::of(self.beta));
        for (at, value) in values.iter_mut().enumerate() {
            *value = alpha * *value;
            if let Some(c) = &c {
                *value += beta * c[at];
            }
            if let Some(bias) = &bias {
                *value += bias[at % problem.rows];
            }
        }
        // SAFETY: as above.
        unsafe { problem.d.write(&values, self.d) };
    }

    /// Returns op(A) op(B), column after column: sums in the order of the inner dimension, in blocks as `gemm` makes
    /// them. The operands are brought into one order first, so that the sums do not depend on how these are stored.
    fn sums<W: Wide>(&self) -> Vec<W> {
        let problem = &self.problem;
        let (rows, columns, inner) = (problem.rows, problem.columns, problem.inner);
        // SAFETY: checked by `run`, as above.
        let (mut a, mut b) = unsafe { (problem.a.read::<W>(self.a), problem.b.read::<W>(self.b)) };
        // op(A) is column after column, op(B) row after row.
        if problem.is_a_transposed {
            a = transposed(&a, inner);
        }
        if !problem.is_b_transposed {
            b = transposed(&b, inner);
        }
        let mut sums = vec![W::ZERO; rows * columns];
        // SAFETY: the three matrices have the elements that these shapes and strides address.
        unsafe {
            gemm::gemm(
                rows,
                columns,
                inner,
                sums.as_mut_ptr(),
                rows as isize,
                1,
                false,
                a.as_ptr(),
                rows as isize,
                1,
                b.as_ptr(),
                1,
                columns as isize,
                W::ZERO,
                W::ONE,
                false,
                false,
                false,
                gemm::Parallelism::None,
            );
        }
        sums
    }
}

/// Transposes a matrix of `rows` rows, stored column by column without gaps.
fn transposed<W: Wide>(values: &[W], rows: usize) -> Vec<W> {
    let columns = values.len() / rows;
    let mut result = Vec::with_capacity(values.len());
    for row in 0..rows {
        result.extend((0..columns).map(|column| values[row + column * rows]));
    }
    result
}
