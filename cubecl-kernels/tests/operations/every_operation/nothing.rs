//! Tensors without rows or columns, forward and backward: burn's own operations on some devices do not take them, the
//! ones here do. Norms, softmax, attention and linear have claims of their own about them.

use anyhow::ensure;
use burn::tensor::{DType, Tensor};
use cubecl_kernels::accumulate::{GradientPlace, GradientSums, accumulate};
use cubecl_kernels::adamw::{AdamWBuffers, AdamWStep, adamw};
use cubecl_kernels::bias_dropout_add::bias_dropout_add;
use cubecl_kernels::bias_gelu::bias_gelu;
use cubecl_kernels::cross_entropy::{Statistics, cross_entropy};
use cubecl_kernels::l2_norm::sum_of_squares;
use cubecl_kernels::norm::Addends;
use cubecl_kernels::precision::compute_type;
use cubecl_kernels::swiglu::swiglu;
use libtest_mimic::Trial;

use crate::support::compare::{backward, expect_exactly};
use crate::support::dropout::dropout;
use crate::support::setting::{Claim, Setting, trials_of_nothing};

pub fn trials() -> Vec<Trial> {
    let mut trials = trials_of_nothing::<ElementOperationsTakeNothing>();
    trials.extend(trials_of_nothing::<CrossEntropyTakesNothing>());
    trials.extend(trials_of_nothing::<OptimizerTakesNothing>());
    trials
}

/// No rows, and rows of nothing.
const SHAPES: [[usize; 2]; 3] = [[0, 6], [3, 0], [0, 0]];

struct ElementOperationsTakeNothing;

impl Claim for ElementOperationsTakeNothing {
    const NAME: &'static str = "element_operations_take_nothing";

    fn check(setting: &Setting) -> anyhow::Result<()> {
        for shape @ [rows, columns] in SHAPES {
            let nothing = || setting.tensor::<2>(&[], shape);
            let bias = || setting.tensor(&vec![1.0; columns], [columns]).require_grad();

            let (input, of_input) = (nothing().require_grad(), bias());
            let output = bias_gelu(input.clone(), of_input.clone())?;
            expect_exactly("bias_gelu", output.clone(), shape, &[])?;
            let gradients = backward(vec![[output, nothing()]]);
            expect_exactly(
                "bias_gelu's input",
                input.grad(&gradients).expect("tracked"),
                shape,
                &[],
            )?;
            let found = of_input.grad(&gradients).expect("tracked");
            expect_exactly("bias_gelu's bias", found, [columns], &vec![0.0; columns])?;

            let input = nothing().require_grad();
            let output = swiglu(input.clone())?;
            let halved = [rows, columns / 2];
            expect_exactly("swiglu", output.clone(), halved, &[])?;
            let gradients = backward(vec![[output, setting.tensor(&[], halved)]]);
            expect_exactly("swiglu's input", input.grad(&gradients).expect("tracked"), shape, &[])?;

            for dropout in [None, Some(dropout(rows, 0.5))] {
                let (input, residual, of_sum) = (nothing().require_grad(), nothing().require_grad(), bias());
                let output = bias_dropout_add(Addends {
                    input: input.clone(),
                    bias: Some(of_sum.clone()),
                    residual: residual.clone(),
                    dropout,
                })?;
                expect_exactly("bias_dropout_add", output.clone(), shape, &[])?;
                let gradients = backward(vec![[output, nothing()]]);
                for leaf in [&input, &residual] {
                    expect_exactly("an addend", leaf.grad(&gradients).expect("tracked"), shape, &[])?;
                }
                let found = of_sum.grad(&gradients).expect("tracked");
                expect_exactly("the sum's bias", found, [columns], &vec![0.0; columns])?;
            }
        }
        Ok(())
    }
}

struct CrossEntropyTakesNothing;

impl Claim for CrossEntropyTakesNothing {
    const NAME: &'static str = "cross_entropy_takes_nothing";

    fn check(setting: &Setting) -> anyhow::Result<()> {
        let inner = setting.inner(setting.dtype);
        for [rows, columns] in SHAPES {
            let nothing = || setting.tensor::<2>(&[], [rows, columns]);
            let of_rows = |value: f64| vec![value; rows];
            // Another rank knows of the vocabulary.
            let inside = setting.computed();
            let ones = || inside.tensor(&of_rows(1.0), [rows]);
            let leaf = nothing().require_grad();
            let mut own = None;
            let combine = |statistics| {
                own = Some(statistics);
                Statistics {
                    maximum: ones().inner(),
                    sum: ones().inner(),
                    target: ones().inner(),
                }
            };
            let loss = cross_entropy(
                leaf.clone(),
                Tensor::from_inner(inner.integers(&vec![0; rows])),
                columns,
                combine,
            )?;
            let own = own.expect("ranks combine their statistics");
            expect_exactly("maxima", own.maximum, [rows], &of_rows(f64::NEG_INFINITY))?;
            expect_exactly("sums", own.sum, [rows], &of_rows(0.0))?;
            expect_exactly("targets", own.target, [rows], &of_rows(0.0))?;
            let gradients = backward(vec![[loss, ones()]]);
            expect_exactly(
                "the logits",
                leaf.grad(&gradients).expect("tracked"),
                [rows, columns],
                &[],
            )?;
        }
        Ok(())
    }
}

struct OptimizerTakesNothing;

impl Claim for OptimizerTakesNothing {
    const NAME: &'static str = "accumulate_adamw_and_sum_of_squares_take_nothing";

    fn check(setting: &Setting) -> anyhow::Result<()> {
        let of_type =
            |dtype: DType, values: &[f64]| -> Tensor<1> { setting.inner(dtype).tensor(values, [values.len()]) };
        let main = || of_type(compute_type(setting.dtype), &[]);
        let nothing = || of_type(setting.dtype, &[]);
        let buffers = AdamWBuffers {
            parameter: main(),
            moment_1: main(),
            moment_2: main(),
        };
        let step = AdamWStep {
            learning_rate: 0.1,
            beta_1: 0.9,
            beta_2: 0.99,
            epsilon: 1e-8,
            weight_decay: 0.1,
            gradient_scale: 1.0,
            time: 1,
        };
        let (buffers, copy) = adamw(buffers, nothing(), &step, Some(setting.dtype))?;
        for buffer in [buffers.parameter, buffers.moment_1, buffers.moment_2] {
            expect_exactly("a buffer", buffer, [0], &[])?;
        }
        ensure!(copy.is_some_and(|copy| copy.dims() == [0]), "no copy of no parameters");
        let sums = GradientSums {
            sums: of_type(compute_type(setting.dtype), &[1.0, 2.0]),
            non_finite: of_type(compute_type(setting.dtype), &[0.0]),
        };
        let place = GradientPlace {
            offset: 2,
            parameter: 0,
            is_first: true,
        };
        let sums = accumulate(sums, nothing(), place)?;
        expect_exactly("the sums", sums.sums, [2], &[1.0, 2.0])?;
        expect_exactly("what is not finite", sums.non_finite, [1], &[0.0])?;
        let sum = sum_of_squares(vec![nothing(), nothing()])?.expect("there are buffers");
        expect_exactly("a sum of nothing", sum, [1], &[0.0])?;
        let some = vec![nothing(), of_type(setting.dtype, &[3.0, 4.0])];
        let sum = sum_of_squares(some)?.expect("there are buffers");
        expect_exactly("a sum of some", sum, [1], &[25.0])
    }
}
