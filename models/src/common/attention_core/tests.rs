//! The core beside the same formula in burn's tracked operations, and beside differences of its own output.

use burn::backend::Autodiff;
use burn::tensor::activation::softmax;
use burn::tensor::{Bool, DType, Tensor, TensorData};
use burn_flex::Flex;
use burn_megatron::random::{Dropout, DropoutConfig, DropoutSite, StepCoordinates, TokenMap};

use super::*;

type B = Autodiff<Flex>;

/// Rounding of a few dozen terms of about 1; the two graphs add and scale in different orders.
const TOLERANCES: [(DType, f64); 2] = [(DType::F64, 1e-12), (DType::F32, 5e-6)];

#[derive(Clone, Copy, Debug)]
struct Case {
    batch: usize,
    heads: usize,
    queries: usize,
    keys: usize,
    d_head: usize,
    d_value: usize,
    sight: Sight,
    dropout: f64,
    dtype: DType,
}

/// The output, and the gradients of those of query, key and value that are tracked.
struct Outcome {
    output: TensorData,
    gradients: [Option<TensorData>; 3],
}

impl Case {
    fn all() -> Vec<Case> {
        let shape = |batch, heads, seq, d_head| [batch, heads, seq, seq, d_head, d_head];
        // Odd sizes, one token, one head, more than a task of the kernels, values of their own size.
        let causal = [
            shape(2, 3, 5, 4),
            shape(1, 2, 1, 3),
            shape(3, 1, 17, 5),
            shape(2, 5, 67, 7),
            [2, 3, 9, 9, 4, 6],
        ];
        let full = [shape(2, 3, 5, 4), [2, 2, 3, 19, 4, 5], [1, 3, 18, 1, 2, 2]];
        let sights = [(Sight::Causal, &causal[..]), (Sight::Full, &full[..])];
        let mut cases = Vec::new();
        for (sight, shapes) in sights {
            for &[batch, heads, queries, keys, d_head, d_value] in shapes {
                for dropout in [0.0, 0.3] {
                    for (dtype, _) in TOLERANCES {
                        cases.push(Case {
                            batch,
                            heads,
                            queries,
                            keys,
                            d_head,
                            d_value,
                            sight,
                            dropout,
                            dtype,
                        });
                    }
                }
            }
        }
        cases
    }

    fn small(dropout: f64, dtype: DType) -> Case {
        Case {
            batch: 2,
            heads: 2,
            queries: 6,
            keys: 6,
            d_head: 3,
            d_value: 3,
            sight: Sight::Causal,
            dropout,
            dtype,
        }
    }

    fn dims(&self) -> [[usize; 4]; 3] {
        let dims = |rows, columns| [self.batch, self.heads, rows, columns];
        [
            dims(self.queries, self.d_head),
            dims(self.keys, self.d_head),
            dims(self.keys, self.d_value),
        ]
    }

    fn step(&self, first_sample: usize) -> StepCoordinates {
        let samples: Vec<u64> = (first_sample..first_sample + self.batch)
            .map(|sample| sample as u64)
            .collect();
        StepCoordinates {
            seed: 5,
            iteration: 3,
            tokens: TokenMap::of_samples(&samples, self.queries),
        }
    }

    fn site(&self) -> Dropout {
        DropoutConfig::new(self.dropout).init(DropoutSite { layer: 1, number: 2 })
    }

    /// Queries, keys and values that spread the weights.
    fn inputs(&self, seed: usize) -> [TensorData; 3] {
        let mut part = 0;
        self.dims().map(|dims| {
            part += 1;
            numbers(dims, 10 * seed + part, self.dtype)
        })
    }

    fn run(&self, run: Run, inputs: [TensorData; 3], tracked: [bool; 3]) -> Outcome {
        self.forward(run, inputs, tracked, 4).backward(self)
    }

    fn forward(&self, run: Run, inputs: [TensorData; 3], tracked: [bool; 3], first_sample: usize) -> InFlight {
        let device = Default::default();
        let mut tracked = tracked.into_iter();
        let leaves = inputs.map(|data| {
            let leaf = Tensor::<B, 4>::from_data(data, (&device, self.dtype));
            match tracked.next() {
                Some(true) => leaf.require_grad(),
                _ => leaf,
            }
        });
        let [query, key, value] = leaves.clone();
        // Not laid out as it is read.
        let query = query.swap_dims(1, 2) * 1.0;
        let query = query.swap_dims(1, 2);
        let step = self.step(first_sample);
        let output = match run {
            Run::Burn => reference(query, key, value, self.sight, &self.site(), &step),
            Run::Core(recompute) => {
                let dropout = self.site().of_attention::<B>(&step, 3, &device);
                let rule = WeightRule {
                    sight: self.sight,
                    dropout,
                };
                attention_core(query, key, value, rule, recompute)
            }
        };
        InFlight { leaves, output }
    }
}

#[derive(Clone, Copy, Debug)]
enum Run {
    Burn,
    Core(Recompute),
}

struct InFlight {
    leaves: [Tensor<B, 4>; 3],
    output: Tensor<B, 4>,
}

impl InFlight {
    fn backward(self, case: &Case) -> Outcome {
        let output = self.output.to_data();
        let ascent = numbers(self.output.dims(), 99, case.dtype);
        let ascent = Tensor::from_data(ascent, (&self.output.device(), case.dtype));
        let gradients = (self.output * ascent).sum().backward();
        Outcome {
            output,
            gradients: self.leaves.map(|leaf| leaf.grad(&gradients).map(Tensor::into_data)),
        }
    }
}

fn numbers(dims: [usize; 4], seed: usize, dtype: DType) -> TensorData {
    let values: Vec<f64> = (0..dims.iter().product())
        .map(|index| 2.0 * ((index * 7919 + seed * 104_729) as f64 * 0.618).sin())
        .collect();
    TensorData::new(values, dims).convert_dtype(dtype)
}

/// The core as burn's own operations compute it.
fn reference(
    query: Tensor<B, 4>,
    key: Tensor<B, 4>,
    value: Tensor<B, 4>,
    sight: Sight,
    dropout: &Dropout,
    step: &StepCoordinates,
) -> Tensor<B, 4> {
    let [_, _, queries, d_head] = query.dims();
    let keys = key.dims()[2];
    let scores = query
        .matmul(key.swap_dims(2, 3))
        .mul_scalar(1.0 / (d_head as f64).sqrt());
    let scores = match sight {
        Sight::Full => scores,
        Sight::Causal => {
            let after_query = Tensor::<B, 2, Bool>::tril_mask([queries, keys], 0, &scores.device());
            scores.mask_fill(after_query.unsqueeze(), f64::NEG_INFINITY)
        }
    };
    let weights = dropout.forward_attention(softmax(scores, 3), step, 3);
    weights.matmul(value)
}

fn assert_close(case: Case, what: &str, actual: &TensorData, expected: &TensorData) {
    assert_eq!(actual.shape, expected.shape, "{case:?}: {what}");
    assert_eq!(actual.dtype, expected.dtype, "{case:?}: {what}");
    let (_, tolerance) = TOLERANCES
        .into_iter()
        .find(|(dtype, _)| *dtype == case.dtype)
        .expect("listed");
    for (index, (a, b)) in actual.iter::<f64>().zip(expected.iter::<f64>()).enumerate() {
        let scale = 1.0 + b.abs();
        assert!(
            (a - b).abs() <= tolerance * scale,
            "{case:?}: {what}[{index}] is {a}, burn's {b}"
        );
    }
}

fn assert_outcomes_close(case: Case, actual: &Outcome, expected: &Outcome) {
    assert_close(case, "output", &actual.output, &expected.output);
    let gradients = actual.gradients.iter().zip(&expected.gradients);
    for (name, (actual, expected)) in ["query", "key", "value"].into_iter().zip(gradients) {
        match (actual, expected) {
            (Some(actual), Some(expected)) => assert_close(case, name, actual, expected),
            (None, None) => {}
            _ => panic!("{case:?}: the gradient of {name} is there in one of both only"),
        }
    }
}

#[test]
fn output_and_gradients_are_those_of_burns_graph() {
    for case in Case::all() {
        let run = |run| case.run(run, case.inputs(0), [true; 3]);
        assert_outcomes_close(case, &run(Run::Core(Recompute::Nothing)), &run(Run::Burn));
    }
}

#[test]
fn recomputed_weights_give_the_same_bits_as_kept_ones() {
    for case in Case::all() {
        let run = |recompute| case.run(Run::Core(recompute), case.inputs(0), [true; 3]);
        let (kept, recomputed) = (run(Recompute::Nothing), run(Recompute::Weights));
        assert_eq!(kept.output, recomputed.output, "{case:?}");
        assert_eq!(kept.gradients, recomputed.gradients, "{case:?}");
    }
}

#[test]
fn gradients_are_the_limits_of_differences() {
    for dropout in [0.0, 0.3] {
        let case = Case::small(dropout, DType::F64);
        let run = |inputs| case.run(Run::Core(Recompute::Weights), inputs, [true; 3]);
        let objective = |inputs| {
            let output = run(inputs).output;
            let ascent = numbers(output.shape.dims(), 99, case.dtype);
            output
                .iter::<f64>()
                .zip(ascent.iter::<f64>())
                .map(|(a, b)| a * b)
                .sum::<f64>()
        };
        let gradients = run(case.inputs(0)).gradients;
        for part in 0..3 {
            let gradient = gradients[part].as_ref().expect("tracked");
            for (index, gradient) in gradient.iter::<f64>().enumerate() {
                const STEP: f64 = 1e-5;
                let moved = |by: f64| {
                    let mut inputs = case.inputs(0);
                    inputs[part].as_mut_slice::<f64>().expect("f64")[index] += by;
                    objective(inputs)
                };
                let difference = (moved(STEP) - moved(-STEP)) / (2.0 * STEP);
                // The error of a central difference is of the order of the step squared, and of rounding over the step.
                let error = (difference - gradient).abs();
                assert!(
                    error < 1e-8,
                    "{case:?}, input {part}[{index}]: {gradient}, by difference {difference}"
                );
            }
        }
    }
}

#[test]
fn only_tracked_inputs_get_gradients_and_the_right_ones() {
    for case in [Case::small(0.0, DType::F64), Case::small(0.3, DType::F64)] {
        for bits in 1..8 {
            let tracked = [bits & 1 != 0, bits & 2 != 0, bits & 4 != 0];
            for recompute in [Recompute::Nothing, Recompute::Weights] {
                let run = |run| case.run(run, case.inputs(0), tracked);
                let actual = run(Run::Core(recompute));
                assert_eq!(actual.gradients.each_ref().map(Option::is_some), tracked);
                assert_outcomes_close(case, &actual, &run(Run::Burn));
            }
        }
    }
}

#[test]
fn untracked_inputs_give_an_untracked_output_with_dropout() {
    let case = Case::small(0.3, DType::F64);
    let forward = |run| case.forward(run, case.inputs(0), [false; 3], 4).output;
    let output = forward(Run::Core(Recompute::Nothing));
    assert!(!output.is_require_grad());
    assert_close(case, "output", &output.into_data(), &forward(Run::Burn).into_data());
}

#[test]
fn micro_batches_in_flight_keep_their_inputs_and_their_dropout() {
    let case = Case::small(0.3, DType::F64);
    for recompute in [Recompute::Nothing, Recompute::Weights] {
        let forward = |run, number| case.forward(run, case.inputs(number), [true; 3], 4 + 10 * number);
        let in_flight = [0, 1].map(|number| forward(Run::Core(recompute), number));
        for (number, micro_batch) in in_flight.into_iter().enumerate() {
            let expected = forward(Run::Burn, number).backward(&case);
            assert_outcomes_close(case, &micro_batch.backward(&case), &expected);
        }
    }
}

#[test]
fn one_tensor_as_query_key_and_value_gets_the_sum_of_its_gradients() {
    let case = Case::small(0.0, DType::F64);
    let gradient = |core: bool| {
        let [data, ..] = case.inputs(0);
        let leaf = Tensor::<B, 4>::from_data(data, (&Default::default(), case.dtype)).require_grad();
        let [query, key, value] = [leaf.clone(), leaf.clone(), leaf.clone()];
        let output = match core {
            false => reference(query, key, value, case.sight, &case.site(), &case.step(0)),
            true => {
                let rule = WeightRule {
                    sight: case.sight,
                    dropout: None,
                };
                attention_core(query, key, value, rule, Recompute::Nothing)
            }
        };
        let gradients = output.powf_scalar(2.0).sum().backward();
        leaf.grad(&gradients).expect("tracked").into_data()
    };
    assert_close(case, "the sum", &gradient(true), &gradient(false));
}

#[test]
fn without_autodiff_the_output_is_the_same_and_nothing_falls() {
    let mut case = Case::small(0.0, DType::F32);
    let expected = case
        .run(Run::Core(Recompute::Nothing), case.inputs(0), [true; 3])
        .output;
    case.dropout = 0.3;
    let [query, key, value] = case
        .inputs(0)
        .map(|data| Tensor::<Flex, 4>::from_data(data, &Default::default()));
    let rule = WeightRule {
        sight: case.sight,
        dropout: case.site().of_attention::<Flex>(&case.step(4), 3, &Default::default()),
    };
    let output = attention_core(query, key, value, rule, Recompute::Weights);
    assert_eq!(output.into_data(), expected);
}

#[test]
fn the_kernels_of_the_cpu_compute_what_burns_operations_do() {
    for case in Case::all() {
        let dims = [case.batch, case.heads, case.queries, case.keys];
        let device = Default::default();
        let tensor = |seed| {
            let data = numbers(dims, seed, case.dtype);
            let tensor = Tensor::<Flex, 4>::from_data(data, (&device, case.dtype));
            tensor.into_primitive().tensor()
        };
        let rule = WeightRule {
            sight: case.sight,
            dropout: case.site().of_attention::<B>(&case.step(4), 3, &device),
        };
        let weights = Flex::attention_weights(tensor(1), &rule, 0.7);
        let expected = portable::attention_weights::<Flex>(tensor(1), &rule, 0.7);
        assert_close(case, "weights", &weights.clone().into_data(), &expected.into_data());
        let gradient = Flex::scores_gradient(weights.clone(), tensor(2), &rule, 0.7);
        let expected = portable::scores_gradient::<Flex>(weights, tensor(2), &rule, 0.7);
        assert_close(case, "gradient", &gradient.into_data(), &expected.into_data());
    }
}

/// The types of 16 bits, with the largest relative error of rounding once.
const HALVES: [(DType, f64); 2] = [(DType::F16, 1.0 / 2048.0), (DType::BF16, 1.0 / 256.0)];

#[test]
fn half_precision_is_near_single_precision() {
    for case in Case::all().into_iter().filter(|case| case.dtype == DType::F32) {
        for (dtype, rounding) in HALVES {
            let inputs = || case.inputs(0).map(|data| data.convert_dtype(dtype));
            let run = |dtype| Case { dtype, ..case }.run(Run::Core(Recompute::Weights), inputs(), [true; 3]);
            let (half, single) = (run(dtype), run(DType::F32));
            let parts = half.gradients.into_iter().flatten().chain([half.output]);
            let expected = single.gradients.into_iter().flatten().chain([single.output]);
            for (actual, expected) in parts.zip(expected) {
                assert_eq!(actual.dtype, dtype);
                let norm = |values: &mut dyn Iterator<Item = f64>| values.map(|v| v * v).sum::<f64>().sqrt();
                let difference = norm(&mut actual.iter().zip(expected.iter()).map(|(a, b): (f64, f64)| a - b));
                let scale = norm(&mut expected.iter());
                // The weights, the gradient that comes in and the one that goes out are rounded; a gradient of the
                // scores is a difference of numbers some times its size.
                assert!(
                    difference <= 6.0 * rounding * scale,
                    "{case:?} in {dtype:?}: {difference:.1e} of {scale:.1e}"
                );
            }
        }
    }
}

#[test]
fn recomputed_weights_give_the_same_bits_as_kept_ones_in_half_precision() {
    for (dtype, _) in HALVES {
        for dropout in [0.0, 0.3] {
            let case = Case::small(dropout, dtype);
            let run = |recompute| case.run(Run::Core(recompute), case.inputs(0), [true; 3]);
            let (kept, recomputed) = (run(Recompute::Nothing), run(Recompute::Weights));
            assert_eq!(kept.output, recomputed.output, "{case:?}");
            assert_eq!(kept.gradients, recomputed.gradients, "{case:?}");
        }
    }
}

#[test]
fn rows_of_weights_sum_to_one_over_more_keys_than_sixteen_bits_can_count() {
    for (dtype, rounding) in HALVES {
        // Equal weights of 1/5000 times values of 1.
        let [query, key, value] = [[1, 1, 1, 2], [1, 1, 5000, 2], [1, 1, 5000, 2]]
            .map(|dims| Tensor::<B, 4>::from_data(TensorData::ones::<f32, _>(dims), (&Default::default(), dtype)));
        let rule = WeightRule {
            sight: Sight::Full,
            dropout: None,
        };
        let output = attention_core(query, key, value, rule, Recompute::Nothing).into_data();
        let mean = output.iter::<f64>().next().expect("one query");
        // Each weight is rounded, and the output.
        assert!((mean - 1.0).abs() <= 2.0 * rounding, "{dtype:?}: {mean}");
    }
}

#[test]
fn products_that_f16_cannot_hold_before_they_are_scaled_overflow_nothing() {
    let case = Case {
        d_head: 64,
        ..Case::small(0.0, DType::F16)
    };
    // Up to 64 * 80², over 8.
    let large = || {
        let mut inputs = case.inputs(0).map(|data| {
            let values: Vec<f64> = data.iter::<f64>().map(|value| 40.0 * value).collect();
            TensorData::new(values, data.shape).convert_dtype(DType::F16)
        });
        inputs[1] = inputs[0].clone();
        inputs
    };
    let run = |dtype| Case { dtype, ..case }.run(Run::Core(Recompute::Weights), large(), [true; 3]);
    let (half, single) = (run(DType::F16), run(DType::F32));
    for data in half.gradients.iter().flatten().chain([&half.output]) {
        assert!(data.iter::<f32>().all(f32::is_finite), "{data}");
    }
    assert_eq!(half.output, single.output.convert_dtype(DType::F16));
}

#[test]
#[should_panic(expected = "attention: the value must be BF16, as the parameters or the other inputs are, got F32")]
fn inputs_of_different_types_are_refused() {
    let [query, key, value] = [DType::BF16, DType::BF16, DType::F32]
        .map(|dtype| Tensor::<B, 4>::from_data(TensorData::ones::<f32, _>([1, 1, 2, 3]), (&Default::default(), dtype)));
    let rule = WeightRule {
        sight: Sight::Causal,
        dropout: None,
    };
    attention_core(query, key, value, rule, Recompute::Nothing);
}

#[test]
fn large_scores_overflow_nothing() {
    let case = Case::small(0.0, DType::F32);
    let large = case.inputs(0).map(|data| {
        let values: Vec<f32> = data.iter::<f32>().map(|value| 1e4 * value).collect();
        TensorData::new(values, data.shape)
    });
    let outcome = case.run(Run::Core(Recompute::Weights), large, [true; 3]);
    for data in outcome.gradients.into_iter().flatten().chain([outcome.output]) {
        assert!(data.iter::<f32>().all(f32::is_finite), "{data}");
    }
}

#[test]
fn scores_that_are_no_numbers_are_seen_in_the_output_under_dropout_too() {
    for dtype in [DType::F32, DType::F64, DType::BF16] {
        let case = Case::small(0.5, dtype);
        let mut inputs = case.inputs(0);
        let mut query: Vec<f64> = inputs[0].iter::<f64>().collect();
        query[0] = f64::NAN;
        inputs[0] = TensorData::new(query, inputs[0].shape.clone()).convert_dtype(inputs[0].dtype);
        let outcome = case.run(Run::Core(Recompute::Nothing), inputs, [true; 3]);
        assert!(outcome.output.iter::<f64>().any(f64::is_nan), "{dtype:?}");
    }
}

#[test]
#[should_panic(expected = "as many keys as queries")]
fn causal_attention_to_other_keys_is_refused() {
    let case = Case {
        keys: 7,
        ..Case::small(0.0, DType::F32)
    };
    case.run(Run::Core(Recompute::Nothing), case.inputs(0), [true; 3]);
}
