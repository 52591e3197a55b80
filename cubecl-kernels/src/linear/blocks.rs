//! Products of some of a matrix's rows, written to some rows of another: what a linear layer multiplies while the other
//! rows are still on their way.

use burn::tensor::{DType, Device, Tensor};
#[cfg(feature = "cubecl")]
use burn_cubecl::tensor::CubeTensor;
#[cfg(feature = "cubecl")]
use cubecl::client::Client;

use super::{LinearInputs, WeightOrder, affine};
#[cfg(feature = "cubecl")]
use super::{launch, product};
use crate::operation::{Of, Operation, Spec, apply};
pub use crate::row_blocks::RowBlocks;

/// A product of some rows.
#[derive(Clone, Debug)]
pub struct BlockProduct {
    /// Terms of the product; of the input, only the rows `from`.
    pub inputs: LinearInputs,
    /// Rows of the input.
    pub from: RowBlocks,
    /// Matrix that the product is written to.
    pub output: Tensor<2>,
    /// Rows of the output: the same number of blocks, each of the same number of rows.
    pub to: RowBlocks,
}

impl WeightOrder {
    /// Returns the order of the same weight as it is multiplied with the gradient of the output.
    pub fn turned(self) -> Self {
        match self {
            Self::InputFirst => Self::OutputFirst,
            Self::OutputFirst => Self::InputFirst,
        }
    }
}

impl BlockProduct {
    /// Checks that the rows are there and apart, that their number is the same, and that columns and types fit.
    ///
    /// # Panics
    /// When they are not.
    fn check(&self) {
        let Self { from, to, .. } = self;
        assert_eq!(
            (from.rows, from.count),
            (to.rows, to.count),
            "blocks of input and output"
        );
        for (what, blocks, rows) in [
            ("input", from, self.inputs.input.dims()[0]),
            ("output", to, self.output.dims()[0]),
        ] {
            let end = blocks.ranges().last().map_or(0, |range| range.end);
            assert!(end <= rows, "rows up to {end} of an {what} of {rows} rows");
            assert!(
                blocks.count < 2 || blocks.stride >= blocks.rows,
                "blocks of {} rows of the {what} begin {} rows apart",
                blocks.rows,
                blocks.stride
            );
        }
        let LinearInputs {
            input, weight, order, ..
        } = &self.inputs;
        let [first, second] = weight.dims();
        let [d_input, d_output] = match order {
            WeightOrder::InputFirst => [first, second],
            WeightOrder::OutputFirst => [second, first],
        };
        assert_eq!(
            [input.dims()[1], self.output.dims()[1]],
            [d_input, d_output],
            "columns of input and output, and those of the weight"
        );
        assert_eq!(
            [input.dtype(), self.output.dtype()],
            [weight.dtype(); 2],
            "types of input and output, and that of the weight"
        );
    }
}

/// Returns a matrix whose elements are to be written, without gaps between its rows: burn's own of two dimensions may
/// have such on a device.
pub fn unwritten([rows, columns]: [usize; 2], device: &Device, dtype: DType) -> Tensor<2> {
    Tensor::<1>::empty([rows * columns], (device, dtype)).reshape([rows, columns])
}

/// Returns the product's output with its rows written: where the library has a kernel for it, all blocks by one call,
/// from where they are to where they belong.
///
/// # Panics
/// When the rows are not there, or their numbers differ.
pub fn affine_blocks(product: BlockProduct) -> Tensor<2> {
    product.check();
    let BlockProduct {
        inputs,
        from,
        output,
        to,
    } = product;
    let LinearInputs {
        input,
        weight,
        bias,
        order,
    } = inputs;
    apply(&Blocks { order, from, to }, (input, weight, bias, output))
}

/// Input, weight, bias and output to the output with the rows of the product.
#[derive(Clone, Copy, Debug)]
struct Blocks {
    order: WeightOrder,
    from: RowBlocks,
    to: RowBlocks,
}

impl Operation for Blocks {
    type Inputs = (Tensor<2>, Tensor<2>, Option<Tensor<1>>, Tensor<2>);
    type Outputs = Tensor<2>;

    const NAME: &'static str = "linear_blocks";

    fn outputs(&self, (_, _, _, output): Of<Self::Inputs, Spec>) -> Spec {
        output
    }

    fn reference(&self, (input, weight, bias, output): Self::Inputs) -> Tensor<2> {
        let [_, columns] = output.dims();
        let blocks = self.from.ranges().zip(self.to.ranges());
        blocks.fold(output, |output, (from, to)| {
            let rows = affine(LinearInputs {
                input: input.clone().slice([from]),
                weight: weight.clone(),
                bias: bias.clone(),
                order: self.order,
            });
            output.slice_assign([to, 0..columns], rows)
        })
    }

    #[cfg(feature = "cubecl")]
    fn is_taken(&self, client: &Client, _inputs: Of<Self::Inputs, Spec>) -> bool {
        self.from.rows * self.from.count > 0 && product::is_in_library(client)
    }

    #[cfg(feature = "cubecl")]
    fn cube(&self, (input, weight, bias, output): Of<Self::Inputs, CubeTensor>) -> CubeTensor {
        launch::blocks((input, weight, self.order), bias, output, [self.from, self.to])
    }
}

#[cfg(test)]
mod tests {
    use burn::tensor::{DType, Distribution, TensorData};

    use super::*;

    #[test]
    fn rows_of_the_input_come_to_their_places() {
        let device = Device::flex();
        let random = |shape: [usize; 2]| Tensor::<2>::random(shape, Distribution::Default, &device);
        let (input, weight) = (random([12, 5]), random([7, 5]));
        let bias = Tensor::<1>::random([7], Distribution::Default, &device);
        let inputs = LinearInputs {
            input: input.clone(),
            weight,
            bias: Some(bias),
            order: WeightOrder::OutputFirst,
        };
        let whole = affine(inputs.clone());
        // Rows 1 to 2 and 7 to 8, as the second part of each of two parts of four rows.
        let [from, to] = [[1, 6, 2], [2, 4, 2]].map(|[first, stride, count]| RowBlocks {
            first,
            rows: 2,
            stride,
            count,
        });
        let output = affine_blocks(BlockProduct {
            inputs,
            from,
            output: Tensor::zeros([8, 7], (&device, DType::F32)),
            to,
        });
        for (from, to) in from.ranges().zip(to.ranges()) {
            let [found, expected] = [(&output, to), (&whole, from)].map(|(all, rows)| all.clone().slice([rows]));
            found
                .into_data()
                .assert_approx_eq::<f32>(&expected.into_data(), burn::tensor::Tolerance::absolute(1e-6));
        }
        let untouched = output.narrow(0, 0, 2).into_data();
        assert_eq!(untouched, TensorData::zeros::<f32, _>([2, 7]));
    }

    #[test]
    #[should_panic(expected = "rows up to 13 of an input of 12 rows")]
    fn rows_that_are_not_there_are_refused() {
        let device = Device::flex();
        let matrix = |rows| Tensor::<2>::zeros([rows, 1], &device);
        let blocks = |first| RowBlocks {
            first,
            rows: 3,
            stride: 6,
            count: 2,
        };
        affine_blocks(BlockProduct {
            inputs: LinearInputs {
                input: matrix(12),
                weight: matrix(1),
                bias: None,
                order: WeightOrder::InputFirst,
            },
            from: blocks(4),
            output: matrix(12),
            to: blocks(3),
        });
    }
}
