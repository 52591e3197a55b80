//! Compares layers in f16 and bf16 with the same layers in f32 on the same numbers.
//!
//! What is computed in f32 has to give the f32 layer's numbers, rounded once: output and gradients are compared
//! exactly.

use burn::module::{Module, ModuleMapper, ModuleVisitor, Param};
use burn::nn::{LayerNorm, LayerNormConfig};
use burn::tensor::{DType, Device, FloatDType, Gradients, Int, Tensor, TensorData};
use burn_megatron::collectives::ProcessGroup;
use burn_megatron::context::ParallelContext;
use burn_megatron::random::{DropoutConfig, DropoutSite, StepCoordinates, TokenMap};
use burn_megatron::tensor_parallel::{
    ColumnParallelLinear, ColumnParallelLinearConfig, PositionEmbeddingConfig, RowParallelLinearConfig,
    VocabParallelEmbedding, VocabParallelEmbeddingConfig, VocabShard, apply_layer_norm, vocab_parallel_cross_entropy,
};

const HALVES: [DType; 2] = [DType::F16, DType::BF16];

fn device() -> Device {
    Device::flex().autodiff()
}

/// The largest relative error of rounding once.
fn rounding(dtype: DType) -> f64 {
    match dtype {
        DType::F16 => 2f64.powi(-11),
        DType::BF16 => 2f64.powi(-8),
        other => panic!("{other:?} has not 16 bits"),
    }
}

/// Numbers around 0 of about size 1, all of which the type holds exactly.
fn numbers<const D: usize>(dims: [usize; D], seed: usize, dtype: DType) -> TensorData {
    let values: Vec<f64> = (0..dims.iter().product())
        .map(|index| 1.5 * ((index * 7919 + seed * 104_729) as f64 * 0.618).sin())
        .collect();
    TensorData::new(values, dims).convert_dtype(dtype)
}

fn tensor<const D: usize>(data: &TensorData, dtype: DType) -> Tensor<D> {
    Tensor::from_data(data.clone(), (&device(), dtype))
}

/// The module with its parameters rounded to `through` and held in `dtype`.
fn with_parameters_in<M: Module>(module: M, through: DType, dtype: DType) -> M {
    struct Converter(DType, DType);
    impl ModuleMapper for Converter {
        fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
            let (id, value, mapper) = param.consume();
            let value = value
                .inner()
                .cast(FloatDType::from(self.0))
                .cast(FloatDType::from(self.1));
            let value = Tensor::from_inner(value);
            Param::from_mapped_value(id, value.require_grad(), mapper)
        }
    }
    module.map(&mut Converter(through, dtype))
}

/// What a layer made, and the gradients of its input and its parameters.
#[derive(Debug, PartialEq)]
struct Outcome {
    output: TensorData,
    gradients: Vec<TensorData>,
}

impl Outcome {
    fn rounded(self, dtype: DType) -> Outcome {
        Outcome {
            output: self.output.convert_dtype(dtype),
            gradients: self
                .gradients
                .into_iter()
                .map(|data| data.convert_dtype(dtype))
                .collect(),
        }
    }
}

/// Runs a layer forward, and backward from a given gradient of its output.
fn run<M: Module, const D: usize, const E: usize>(
    module: &M,
    input: Tensor<D>,
    ascent: &TensorData,
    forward: impl FnOnce(&M, Tensor<D>) -> Tensor<E>,
) -> Outcome {
    let input = input.require_grad();
    let output = forward(module, input.clone());
    let data = output.to_data();
    let ascent = tensor::<E>(ascent, output.dtype());
    let gradients = (output * ascent).sum().backward();
    let mut reader = Reader {
        read: input.grad(&gradients).map(Tensor::into_data).into_iter().collect(),
        gradients,
    };
    module.visit(&mut reader);
    Outcome {
        output: data,
        gradients: reader.read,
    }
}

struct Reader {
    gradients: Gradients,
    read: Vec<TensorData>,
}

impl ModuleVisitor for Reader {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let gradient = param.val().grad(&self.gradients).expect("every parameter is used");
        self.read.push(gradient.into_data());
    }
}

fn norm(d_model: usize, through: DType, dtype: DType) -> LayerNorm {
    let parameter = |seed| Param::from_tensor(tensor(&numbers([d_model], seed, DType::F32), DType::F32));
    let mut norm = LayerNormConfig::new(d_model).init(&device());
    norm.gamma = parameter(1);
    norm.beta = Some(parameter(2));
    with_parameters_in(norm, through, dtype)
}

/// Runs a norm in 16 bits and in f32, from a gradient of ones.
fn norms(input: &TensorData, dtype: DType) -> [Outcome; 2] {
    let [tokens, d_model] = input.shape().dims();
    let ascent = TensorData::ones::<f32, _>([tokens, d_model]);
    [dtype, DType::F32].map(|run_in| {
        let norm = norm(d_model, dtype, run_in);
        run(&norm, tensor::<2>(input, run_in), &ascent, apply_layer_norm)
    })
}

#[test]
fn a_norm_of_sixteen_bits_is_the_rounded_norm_of_f32() {
    for dtype in HALVES {
        for (shape, seed) in [([7, 13], 0), ([1, 1], 1), ([5, 96], 2)] {
            let [half, single] = norms(&numbers(shape, seed, dtype), dtype);
            assert_eq!(half, single.rounded(dtype), "{dtype:?}, {shape:?}");
        }
    }
}

#[test]
fn a_norms_mean_is_between_two_numbers_of_sixteen_bits() {
    // Neighbours: their mean is not a number of the type, and rounded it would be one of both.
    for (dtype, low, high) in [(DType::F16, 2048.0, 2050.0), (DType::BF16, 256.0, 258.0)] {
        let row: Vec<f64> = (0..10_000)
            .map(|index| if index % 2 == 0 { low } else { high })
            .collect();
        let norm = with_parameters_in(LayerNormConfig::new(10_000).init(&device()), dtype, dtype);
        let output = apply_layer_norm(&norm, tensor::<2>(&TensorData::new(row, [1, 10_000]), dtype));
        for (index, value) in output.into_data().iter::<f64>().enumerate() {
            assert_eq!(value, if index % 2 == 0 { -1.0 } else { 1.0 }, "{dtype:?}: {index}");
        }
    }
}

#[test]
fn a_norm_of_equal_values_is_its_bias() {
    for dtype in HALVES {
        // 10,000 of them: their sum has no place in f16.
        let row = TensorData::new(vec![300.0f64; 10_000], [1, 10_000]);
        let [half, single] = norms(&row, dtype);
        assert_eq!(half.output, numbers([1, 10_000], 2, dtype), "{dtype:?}");
        assert_eq!(half, single.rounded(dtype), "{dtype:?}");
    }
}

#[test]
fn a_norm_squares_what_f16_cannot() {
    let row: Vec<f64> = (0..96)
        .map(|index| if index % 2 == 0 { -400.0 } else { 400.0 })
        .collect();
    let norm = with_parameters_in(LayerNormConfig::new(96).init(&device()), DType::F16, DType::F16);
    let output = apply_layer_norm(&norm, tensor::<2>(&TensorData::new(row, [1, 96]), DType::F16));
    let magnitudes = output.abs().into_data();
    assert!(magnitudes.iter::<f64>().all(|value| value == 1.0), "{magnitudes}");
}

#[test]
fn a_norms_gradients_add_up_more_tokens_than_sixteen_bits_can_count() {
    for dtype in HALVES {
        let [half, single] = norms(&numbers([10_000, 3], 4, dtype), dtype);
        let [_, _, beta] = &half.gradients[..] else {
            panic!("input, gamma and beta have gradients");
        };
        assert_eq!(*beta, TensorData::new(vec![10_000.0f64; 3], [3]).convert_dtype(dtype));
        assert_eq!(half, single.rounded(dtype));
    }
}

#[test]
fn the_gradient_of_an_embeddings_row_adds_up_all_its_tokens() {
    for dtype in HALVES {
        // Token 3 stands at 5000 places; f16 would stall at 2048, bf16 at 256.
        let tokens: Vec<i64> = (0..10_000)
            .map(|place| if place % 2 == 0 { 3 } else { place % 11 })
            .collect();
        let run_in = |run_in| {
            let context = ParallelContext::single(5);
            let embedding: VocabParallelEmbedding = VocabParallelEmbeddingConfig::new(11, 6)
                .init(&device(), &context.root())
                .expect("the sizes fit");
            let embedding = with_parameters_in(embedding, dtype, run_in);
            let tokens = Tensor::<1, Int>::from_data(TensorData::from(&tokens[..]), &device());
            let unused = Tensor::<1>::zeros([1], &device());
            let ascent = TensorData::ones::<f32, _>([10_000, 6]);
            run(&embedding, unused, &ascent, |embedding, _| embedding.forward(tokens))
        };
        let (half, single) = (run_in(dtype), run_in(DType::F32));
        let gradient: Vec<f64> = half.gradients[0].iter::<f64>().collect();
        let places = tokens.iter().filter(|&&token| token == 3).count() as f64;
        assert!(
            (gradient[3 * 6] - places).abs() <= rounding(dtype) * places,
            "{} of {places}",
            gradient[3 * 6]
        );
        assert_eq!(half, single.rounded(dtype), "{dtype:?}");
    }
}

#[test]
fn token_losses_of_sixteen_bits_are_those_of_f32_and_their_gradient_goes_back_in_sixteen_bits() {
    // 997 tokens in a vocabulary padded to 1000; then logits that are all equal, whose loss is ln 997.
    let shard = VocabShard::new(997, 1000, &ProcessGroup::single());
    let targets: Vec<i64> = (0..7).map(|token| token * 142 + 3).collect();
    for dtype in HALVES {
        for logits in [numbers([7, 1000], 3, dtype), TensorData::ones::<f32, _>([7, 1000])] {
            let run_in = |run_in| {
                let targets = Tensor::<1, Int>::from_data(TensorData::from(&targets[..]), &device());
                let ascent = numbers([7], 8, dtype);
                run(&Nothing, tensor::<2>(&logits, run_in), &ascent, |_, logits| {
                    vocab_parallel_cross_entropy(logits, targets, shard, &ProcessGroup::single())
                })
            };
            let (half, single) = (run_in(dtype), run_in(DType::F32));
            assert_eq!(half.output, single.output, "{dtype:?}");
            assert_eq!(half.gradients, single.rounded(dtype).gradients, "{dtype:?}");
        }
    }
}

#[test]
fn losses_in_chunks_of_sixteen_bits_are_those_of_one_buffer() {
    const CHUNKS: usize = 5;
    let targets: Vec<i64> = (0..37).map(|token| token * 26 + 3).collect();
    for dtype in HALVES {
        let run_with = |chunk_tokens: Option<usize>| {
            let context = ParallelContext::single(5);
            let head: VocabParallelEmbedding = VocabParallelEmbeddingConfig::new(997, 24)
                .with_padded_size(Some(1000))
                .init(&device(), &context.root())
                .expect("the sizes fit");
            let head = with_parameters_in(head, dtype, dtype);
            let targets = Tensor::<1, Int>::from_data(TensorData::from(&targets[..]), &device());
            let (hidden, ascent) = (numbers([37, 24], 3, dtype), numbers([37], 8, dtype));
            let group = ProcessGroup::single();
            run(&head, tensor::<2>(&hidden, dtype), &ascent, |head, hidden| {
                let loss = |logits, targets| vocab_parallel_cross_entropy(logits, targets, head.vocab_shard(), &group);
                match chunk_tokens {
                    None => loss(head.logits(hidden), targets),
                    Some(tokens) => head.losses_in_chunks(hidden, targets, tokens, loss),
                }
            })
        };
        let (chunked, whole) = (run_with(Some(37usize.div_ceil(CHUNKS))), run_with(None));
        let pairs = chunked.gradients.iter().zip(&whole.gradients);
        for (chunked, whole) in pairs.chain([(&chunked.output, &whole.output)]) {
            let whole: Vec<f64> = whole.iter::<f64>().collect();
            let largest = whole.iter().fold(0.0, |largest: f64, value| largest.max(value.abs()));
            // The weight's gradient is rounded in each chunk, and so is each sum of two.
            let allowed = 2.0 * CHUNKS as f64 * rounding(dtype) * largest;
            for (found, expected) in chunked.iter::<f64>().zip(whole) {
                assert!((found - expected).abs() <= allowed, "{dtype:?}: {found} for {expected}");
            }
        }
    }
}

/// A module without parameters.
#[derive(Module, Debug)]
struct Nothing;

#[test]
fn what_dropout_keeps_is_scaled_in_f32_and_rounded_once() {
    let dropout = DropoutConfig::new(0.1).init(DropoutSite { layer: 1, number: 2 });
    let step = StepCoordinates {
        seed: 5,
        iteration: 3,
        tokens: TokenMap::of_samples(&[4, 9], 6),
    };
    for dtype in HALVES {
        let ascent = numbers([12, 101], 8, dtype);
        let [half, single] = [dtype, DType::F32].map(|run_in| {
            let input = tensor::<2>(&numbers([12, 101], 7, dtype), run_in);
            run(&Nothing, input, &ascent, |_, input| dropout.forward(input, &step))
        });
        assert_eq!(half, single.rounded(dtype), "{dtype:?}");
        assert!(half.output.iter::<f64>().any(|value| value == 0.0));
    }
}

fn column(through: DType, dtype: DType, [d_input, d_output]: [usize; 2]) -> ColumnParallelLinear {
    let layer = ColumnParallelLinearConfig::new(d_input, d_output).init(&device(), &ParallelContext::single(3).root());
    with_parameters_in(layer.expect("the sizes fit"), through, dtype)
}

/// Checks that the difference is rounding, in the mean over the elements.
fn assert_near(actual: &TensorData, expected: &TensorData, tolerance: f64, what: &str) {
    let of = |data: &TensorData| data.iter::<f64>().collect::<Vec<_>>();
    let (actual, expected) = (of(actual), of(expected));
    assert_eq!(actual.len(), expected.len(), "{what}");
    let norm = |values: &mut dyn Iterator<Item = f64>| values.map(|v| v * v).sum::<f64>().sqrt();
    let difference = norm(&mut actual.iter().zip(&expected).map(|(a, b)| a - b));
    let relative = difference / norm(&mut expected.iter().copied());
    assert!(
        relative <= tolerance,
        "{what}: differs by {relative:.2e}, allowed are {tolerance:.2e}"
    );
}

#[test]
fn linear_layers_of_sixteen_bits_are_near_f32() {
    for dtype in HALVES {
        // Among them products that are vectors.
        let sizes = [
            ([3, 11], 13, 7),
            ([3, 11], 96, 33),
            ([3, 11], 5, 1),
            ([7, 9], 1, 6),
            ([1, 1], 1000, 3),
        ];
        for ([batch, seq], d_input, d_output) in sizes {
            let ascent = numbers([batch, seq, d_output], 8, dtype);
            let [half, single] = [dtype, DType::F32].map(|run_in| {
                let input = tensor::<3>(&numbers([batch, seq, d_input], 7, dtype), run_in);
                run(
                    &column(dtype, run_in, [d_input, d_output]),
                    input,
                    &ascent,
                    ColumnParallelLinear::forward,
                )
            });
            // The product is rounded, and its sum with the bias.
            let tolerance = 2.0 * rounding(dtype);
            assert_eq!(
                (half.output.dtype(), half.output.shape()),
                (dtype, single.output.shape())
            );
            assert_near(&half.output, &single.output, tolerance, "output");
            assert_eq!(half.gradients.len(), 3);
            for (number, (half, single)) in half.gradients.iter().zip(&single.gradients).enumerate() {
                assert_eq!((half.dtype(), half.shape()), (dtype, single.shape()));
                assert_near(
                    half,
                    single,
                    tolerance,
                    &format!("gradient {number} of {d_input} to {d_output}"),
                );
            }
        }
    }
}

#[test]
fn the_gradients_of_a_linear_layer_add_up_more_tokens_than_sixteen_bits_can_count() {
    for (dtype, d_output) in HALVES.into_iter().flat_map(|dtype| [(dtype, 3), (dtype, 1)]) {
        let input = tensor::<2>(&TensorData::ones::<f32, _>([10_000, 2]), dtype);
        let ascent = TensorData::ones::<f32, _>([10_000, d_output]);
        let column = column(dtype, dtype, [2, d_output]);
        let outcome = run(&column, input, &ascent, ColumnParallelLinear::forward);
        let count = |len: usize| TensorData::new(vec![10_000.0f64; len], [len]);
        assert_eq!(outcome.gradients[2], count(d_output).convert_dtype(dtype), "{dtype:?}");
        // burn's CPU backend rounds sums to f16 every 512 terms or more.
        let weight = &outcome.gradients[1];
        assert_near(
            weight,
            &count(2 * d_output),
            4.0 * rounding(dtype),
            "the weight's gradient",
        );
    }
}

#[test]
fn the_gradient_of_a_bias_over_two_dimensions_is_rounded_once() {
    // The sum over the first dimension alone, 2049 or 257, is not a number of the type, that over both is rounded.
    for (dtype, samples) in [(DType::F16, 2049), (DType::BF16, 257)] {
        let input = || tensor::<3>(&TensorData::zeros::<f32, _>([samples, 3, 2]), dtype);
        let ascent = TensorData::ones::<f32, _>([samples, 3, 5]);
        let context = ParallelContext::single(3);
        let row = RowParallelLinearConfig::new(2, 5).init(&device(), &context.root());
        let row = with_parameters_in(row.expect("the sizes fit"), dtype, dtype);
        let outcomes = [
            run(
                &column(dtype, dtype, [2, 5]),
                input(),
                &ascent,
                ColumnParallelLinear::forward,
            ),
            run(&row, input(), &ascent, |row, input| row.forward(input)),
        ];
        for outcome in outcomes {
            let expected = TensorData::new(vec![3.0 * samples as f64; 5], [5]).convert_dtype(dtype);
            assert_eq!(outcome.gradients[2], expected, "{dtype:?}");
        }
    }
}

#[test]
fn an_input_of_another_type_is_refused_by_the_name_of_the_layer() {
    let context = ParallelContext::single(3);
    let input = || Tensor::<2>::ones([6, 4], &device());
    let device = &device();
    let column = column(DType::BF16, DType::BF16, [4, 4]);
    let row = RowParallelLinearConfig::new(4, 4)
        .init(device, &context.root())
        .expect("the sizes fit");
    let row = with_parameters_in(row, DType::BF16, DType::BF16);
    let head = VocabParallelEmbeddingConfig::new(5, 4)
        .init(device, &context.root())
        .expect("the sizes fit");
    let head = with_parameters_in(head, DType::BF16, DType::BF16);
    let positions = PositionEmbeddingConfig::new(6, 4).init(device, &context.root());
    let positions = with_parameters_in(positions, DType::BF16, DType::BF16);
    let norm = norm(4, DType::BF16, DType::BF16);
    type Forward<'a> = Box<dyn Fn() -> Tensor<2> + 'a>;
    let layers: [(&str, Forward<'_>); 5] = [
        ("column-parallel linear", Box::new(|| column.forward(input()))),
        ("row-parallel linear", Box::new(|| row.forward(input()))),
        ("output head", Box::new(|| head.logits(input()))),
        ("position embedding", Box::new(|| positions.forward(input(), 3))),
        ("layer norm", Box::new(|| apply_layer_norm(&norm, input()))),
    ];
    for (name, forward) in layers {
        let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(forward)).expect_err(name);
        let message = panic.downcast_ref::<String>().expect("a message");
        let expected = "the input must be BF16, as the parameters or the other inputs are, got F32";
        assert_eq!(*message, format!("{name}: {expected}"));
    }
}
