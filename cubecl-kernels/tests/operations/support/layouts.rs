//! The same numbers in memory in several ways: what an operation is given is not always contiguous.

use burn::tensor::Tensor;
use proptest::strategy::Strategy;

use crate::support::setting::Setting;

#[derive(Clone, Copy, Debug)]
pub enum Layout {
    /// Row after row.
    Contiguous,
    /// Column after column.
    Transposed,
    /// In the midst of a larger tensor of NaN.
    Part,
}

pub fn layouts() -> impl Strategy<Value = Layout> {
    proptest::sample::select(vec![Layout::Contiguous, Layout::Transposed, Layout::Part])
}

pub fn matrix(setting: &Setting, values: &[f64], [rows, columns]: [usize; 2], layout: Layout) -> Tensor<2> {
    match layout {
        Layout::Contiguous => setting.tensor(values, [rows, columns]),
        Layout::Transposed => {
            let transposed: Vec<f64> = (0..rows * columns)
                .map(|index| values[index % rows * columns + index / rows])
                .collect();
            setting.tensor(&transposed, [columns, rows]).swap_dims(0, 1)
        }
        Layout::Part => {
            let width = columns + 3;
            let mut whole = vec![f64::NAN; (rows + 2) * width];
            for row in 0..rows {
                let start = (row + 1) * width + 2;
                whole[start..start + columns].copy_from_slice(&values[row * columns..(row + 1) * columns]);
            }
            let whole = setting.tensor(&whole, [rows + 2, width]);
            whole.narrow(0, 1, rows).narrow(1, 2, columns)
        }
    }
}

/// Returns a vector; all but a contiguous one are part of a larger one of NaN.
pub fn vector(setting: &Setting, values: &[f64], layout: Layout) -> Tensor<1> {
    if let Layout::Contiguous = layout {
        return setting.tensor(values, [values.len()]);
    }
    let mut whole = vec![f64::NAN; values.len() + 3];
    whole[1..=values.len()].copy_from_slice(values);
    setting.tensor(&whole, [whole.len()]).narrow(0, 1, values.len())
}
