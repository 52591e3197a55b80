//! Gradients of vectors that are added to sums by the operations themselves, against those that the graph gives.

use std::sync::{Arc, Mutex};

use anyhow::ensure;
use burn::tensor::Tensor;
use cubecl_kernels::accumulate::vectors::{VectorSink, redirect};
use cubecl_kernels::accumulate::{GradientPlace, GradientSums, VectorSums};
use cubecl_kernels::bias_dropout_add::bias_dropout_add;
use cubecl_kernels::bias_gelu::bias_gelu;
use cubecl_kernels::linear::linear;
use cubecl_kernels::norm::{Addends, NormKind, NormParameters, add_norm, layer_norm, norm_of_stream, rms_norm};
use cubecl_kernels::precision::{compute_type, is_half};
use libtest_mimic::Trial;

use crate::support::compare::{backward, epsilon, expect_close, expect_within, normal, numbers};
use crate::support::dropout::dropout;
use crate::support::setting::{Claim, Setting, trials_of};

pub fn trials() -> Vec<Trial> {
    let mut trials = trials_of::<AreThoseOfTheGraph>();
    trials.extend(trials_of::<NoteWhatIsNotFinite>());
    trials.extend(trials_of::<StayInTheGraphWithoutOneSink>());
    trials
}

/// Operations, each with the number of its vectors.
const OPERATIONS: [(Operation, usize); 8] = [
    (Operation::LayerNorm, 2),
    (Operation::RmsNorm, 1),
    (Operation::NormOfStream, 2),
    (Operation::AddNorm { drops: false }, 3),
    (Operation::AddNorm { drops: true }, 3),
    (Operation::BiasGelu, 1),
    (Operation::BiasDropoutAdd, 1),
    (Operation::Linear, 1),
];

#[derive(Clone, Copy, Debug)]
enum Operation {
    LayerNorm,
    RmsNorm,
    NormOfStream,
    AddNorm { drops: bool },
    BiasGelu,
    BiasDropoutAdd,
    Linear,
}

impl Operation {
    fn run(self, input: Tensor<2>, vectors: &[Tensor<1>], residual: Tensor<2>) -> anyhow::Result<Vec<Tensor<2>>> {
        let [rows, columns] = input.dims();
        let vector = |index: usize| vectors[index].clone();
        let addends = |bias, dropout| Addends {
            input: input.clone(),
            bias: Some(bias),
            residual: residual.clone(),
            dropout,
        };
        Ok(match self {
            Self::LayerNorm => vec![layer_norm(input, vector(0), Some(vector(1)), 1e-5)?],
            Self::RmsNorm => vec![rms_norm(input, vector(0), 1e-5)?],
            Self::NormOfStream => norm_of_stream(input, layer(vectors))?.to_vec(),
            Self::AddNorm { drops } => {
                let parameters = layer(vectors);
                add_norm(addends(vector(2), drops.then(|| dropout(rows, 0.3))), parameters)?.to_vec()
            }
            Self::BiasGelu => vec![bias_gelu(input, vector(0))?],
            Self::BiasDropoutAdd => vec![bias_dropout_add(addends(vector(0), Some(dropout(rows, 0.3))))?],
            Self::Linear => vec![linear(input, residual.narrow(0, 0, columns), Some(vector(0)))?],
        })
    }
}

fn layer(vectors: &[Tensor<1>]) -> NormParameters {
    NormParameters {
        kind: NormKind::Layer,
        weight: vectors[0].clone(),
        bias: Some(vectors[1].clone()),
        epsilon: 1e-5,
    }
}

/// Sums that are lent, with room between the vectors.
#[derive(Debug)]
struct Lender {
    sums: Mutex<Option<GradientSums>>,
    columns: usize,
}

impl Lender {
    /// Vectors begin at odd places, and every other one replaces what is there.
    fn place(&self, parameter: usize) -> GradientPlace {
        GradientPlace {
            offset: 3 + parameter * (self.columns + 2),
            parameter,
            is_first: parameter.is_multiple_of(2),
        }
    }
}

impl VectorSink for Lender {
    fn lends(&self, _parameters: &[usize]) -> bool {
        true
    }

    fn lend(&self, parameters: &[usize], add: &mut dyn FnMut(VectorSums) -> GradientSums) {
        let mut sums = self.sums.lock().expect("no panic");
        let lent = VectorSums {
            sums: sums.take().expect("lent once at a time"),
            places: parameters.iter().map(|&parameter| self.place(parameter)).collect(),
        };
        *sums = Some(add(lent));
    }
}

/// The numbers that an operation is tried with.
struct Case {
    operation: Operation,
    shape: [usize; 2],
    vectors: usize,
    /// An element of the output's gradient that is infinite.
    infinite: Option<usize>,
}

/// Outcome of a run with lent sums, these, and what was in them before.
type Lent = (Outcome, Arc<Lender>, Vec<f64>);

/// Outcome of a run: the input's gradient, and each vector's.
struct Outcome {
    input: Tensor<2>,
    vectors: Vec<Tensor<1>>,
}

impl Case {
    fn numbers(&self, setting: &Setting, count: usize, seed: u64) -> Vec<f64> {
        setting.rounded(&normal(count, seed))
    }

    fn vectors(&self, setting: &Setting) -> Vec<Tensor<1>> {
        let columns = self.shape[1];
        let one = |index| setting.tensor(&self.numbers(setting, columns, 10 + index), [columns]);
        (0..self.vectors as u64)
            .map(|index| one(index).require_grad())
            .collect()
    }

    /// Runs the operation forward and backward.
    fn run(&self, setting: &Setting, vectors: &[Tensor<1>]) -> anyhow::Result<Outcome> {
        let [rows, columns] = self.shape;
        let other_rows = rows.max(columns);
        let input = setting
            .tensor(&self.numbers(setting, rows * columns, 1), self.shape)
            .require_grad();
        let other = setting.tensor(&self.numbers(setting, other_rows * columns, 2), [other_rows, columns]);
        let other = match self.operation {
            Operation::Linear => other,
            _ => other.narrow(0, 0, rows),
        };
        let outputs = self.operation.run(input.clone(), vectors, other)?;
        let mut gradient = self.numbers(setting, rows * columns, 3);
        if let Some(at) = self.infinite {
            gradient[at] = f64::INFINITY;
        }
        let seeded = outputs
            .into_iter()
            .map(|output| [output, setting.tensor(&gradient, self.shape)]);
        let gradients = backward(seeded.collect());
        let of = |vector: &Tensor<1>| vector.grad(&gradients).expect("tracked");
        Ok(Outcome {
            input: input.grad(&gradients).expect("tracked"),
            vectors: vectors.iter().map(of).collect(),
        })
    }

    /// Runs it with the vectors led to sums. Returns these, and what is there before.
    fn run_lent(&self, setting: &Setting) -> anyhow::Result<Lent> {
        let vectors = self.vectors(setting);
        let here = setting.inner(compute_type(setting.dtype));
        let before = here.rounded(&normal(3 + self.vectors * (self.shape[1] + 2), 20));
        let lender = Arc::new(Lender {
            sums: Mutex::new(Some(GradientSums {
                sums: here.tensor(&before, [before.len()]),
                non_finite: here.tensor(&vec![0.0; self.vectors], [self.vectors]),
            })),
            columns: self.shape[1],
        });
        let led: Vec<_> = vectors
            .iter()
            .enumerate()
            .map(|(index, vector)| redirect(vector, lender.clone(), index))
            .collect();
        let outcome = self.run(setting, &vectors)?;
        drop(led);
        for vector in &outcome.vectors {
            ensure!(vector.dims() == [1], "{:?} for a vector in the graph", vector.dims());
            expect_close("the graph's", vector.clone(), &[0.0], 0.0, 0.0)?;
        }
        Ok((outcome, lender, before))
    }
}

fn sums_of(lender: &Lender) -> GradientSums {
    lender.sums.lock().expect("no panic").take().expect("they came back")
}

struct AreThoseOfTheGraph;

impl Claim for AreThoseOfTheGraph {
    const NAME: &'static str = "vector_sums_are_those_of_the_graph";

    fn check(setting: &Setting) -> anyhow::Result<()> {
        for (operation, vectors) in OPERATIONS {
            // More columns and parts than a cube adds up; and one of each.
            for shape in [[5, 7], [1, 1], [300, 37], [3, 520]] {
                let case = Case {
                    operation,
                    shape,
                    vectors,
                    infinite: None,
                };
                check_one(setting, &case).map_err(|error| error.context(format!("{operation:?} of {shape:?}")))?;
            }
        }
        Ok(())
    }
}

fn check_one(setting: &Setting, case: &Case) -> anyhow::Result<()> {
    let [rows, columns] = case.shape;
    let alone = case.run(setting, &case.vectors(setting))?;
    let (outcome, lender, before) = case.run_lent(setting)?;
    expect_close("the input's gradient", outcome.input, &numbers(&alone.input), 0.0, 0.0)?;
    let gradients: Vec<Vec<f64>> = alone.vectors.into_iter().map(|vector| numbers(&vector)).collect();
    let mut expected = before.clone();
    let mut rounded = vec![0.0; before.len()];
    for (parameter, gradient) in gradients.iter().enumerate() {
        let place = lender.place(parameter);
        let range = place.offset..place.offset + columns;
        for (at, gradient) in range.zip(gradient) {
            expected[at] = gradient + if place.is_first { 0.0 } else { before[at] };
            rounded[at] = gradient.abs();
        }
    }
    let sums = sums_of(&lender);
    expect_close(
        "what is not finite",
        sums.non_finite,
        &vec![0.0; case.vectors],
        0.0,
        0.0,
    )?;
    // Those of the graph were rounded to the type, and both are sums of the same terms, rounded once more here.
    let once = if is_half(setting.dtype) {
        0.5 * epsilon(setting.dtype)
    } else {
        0.0
    };
    let inside = 4.0 * epsilon(compute_type(setting.dtype)) * (rows as f64).sqrt();
    expect_within("sums", sums.sums, &expected, |at, expected| {
        once * rounded[at] + inside * expected.abs().max(rounded[at]).max(8.0)
    })
}

struct NoteWhatIsNotFinite;

impl Claim for NoteWhatIsNotFinite {
    const NAME: &'static str = "vector_sums_note_what_is_not_finite";

    fn check(setting: &Setting) -> anyhow::Result<()> {
        for (operation, vectors) in [(Operation::LayerNorm, 2), (Operation::Linear, 1)] {
            let case = Case {
                operation,
                shape: [9, 18],
                vectors,
                infinite: Some(18 * 4 + 17),
            };
            let (_, lender, _) = case.run_lent(setting)?;
            let noted = numbers(&sums_of(&lender).non_finite);
            ensure!(noted == vec![1.0; vectors], "{operation:?}: {noted:?}");
        }
        Ok(())
    }
}

/// A norm of which only the weight is led to sums keeps both gradients in the graph.
struct StayInTheGraphWithoutOneSink;

impl Claim for StayInTheGraphWithoutOneSink {
    const NAME: &'static str = "vector_sums_stay_in_the_graph_without_one_sink";

    fn check(setting: &Setting) -> anyhow::Result<()> {
        let case = Case {
            operation: Operation::LayerNorm,
            shape: [6, 10],
            vectors: 2,
            infinite: None,
        };
        let vectors = case.vectors(setting);
        let lender = Arc::new(Lender {
            sums: Mutex::new(None),
            columns: 10,
        });
        let led = redirect(&vectors[0], lender, 0);
        let outcome = case.run(setting, &vectors)?;
        drop(led);
        let alone = case.run(setting, &case.vectors(setting))?;
        for (found, expected) in outcome.vectors.into_iter().zip(alone.vectors) {
            expect_close("a vector's gradient", found, &numbers(&expected), 0.0, 0.0)?;
        }
        Ok(())
    }
}
