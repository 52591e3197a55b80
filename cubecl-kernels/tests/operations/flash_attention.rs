//! `flash_attention` and `flash_attention_packed` against their host version.

use burn::backend::Autodiff;
use burn::tensor::{DType, Tensor};
use cubecl_kernels::KernelBackend;
use cubecl_kernels::flash_attention::host::{self, AttentionSizes};
use cubecl_kernels::flash_attention::{
    AttentionOptions, PackedHeads, Sight, flash_attention, flash_attention_packed, unpack,
};
use cubecl_kernels::random::{RowDropout, RowPlace};
use libtest_mimic::Trial;
use proptest::prelude::*;

use crate::backends::{Claim, Setting, trials_of};
use crate::compare::{backward, expect_close, normal, over};

pub fn trials() -> Vec<Trial> {
    let mut trials = trials_of(MatchesTheHost);
    trials.extend(trials_of(TakesViews));
    trials.extend(trials_of(KeepsLogSumExp));
    trials.extend(trials_of(ShowsWhatIsNotFinite));
    trials.extend(trials_of(TakesLargeScores));
    trials.extend(trials_of(TakesNothing));
    let differences = || Ok(host_gradients_are_slopes()?);
    trials.push(Trial::test(
        "host::flash_attention_gradients_are_slopes_of_the_output",
        differences,
    ));
    trials
}

/// How the inputs lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// Three tensors, contiguous.
    Separate,
    /// One tensor, given whole.
    Packed,
    /// Views of one tensor, given apart.
    Unpacked,
    /// Views of tensors whose heads lie before their positions.
    HeadsFirst,
    /// Views of tensors whose last dimension does not lie contiguous.
    Transposed,
}

#[derive(Clone, Copy, Debug)]
struct Case {
    sizes: AttentionSizes,
    sight: Sight,
    probability: f64,
    form: Form,
}

impl Case {
    fn options(self) -> AttentionOptions {
        let AttentionSizes { batch, queries, .. } = self.sizes;
        let places = (0..batch * queries).map(|row| RowPlace {
            position: (row % queries + 11) as u32,
            sample: (row / queries * 3 + 7) as u32,
        });
        let dropout = RowDropout {
            key: [0x1234_5678, 0x9ABC_DEF0],
            iteration: 5,
            first_head: 3,
            probability: self.probability,
            places: places.collect::<Vec<_>>().into(),
        };
        AttentionOptions {
            sight: self.sight,
            scale: (self.sizes.d_head as f64).powf(-0.5),
            dropout: (self.probability > 0.0).then_some(dropout),
        }
    }

    /// Lengths of query, key and value.
    fn lengths(self) -> [usize; 3] {
        let [query, key] = self.shapes();
        [query, key, key].map(|shape| shape.iter().product())
    }

    /// Shapes of query and key.
    fn shapes(self) -> [[usize; 4]; 2] {
        let sizes = self.sizes;
        [
            [sizes.batch, sizes.queries, sizes.heads, sizes.d_head],
            [sizes.batch, sizes.keys, sizes.kv_heads, sizes.d_head],
        ]
    }

    fn normal<B: KernelBackend>(self, setting: &Setting<Autodiff<B>>) -> [Vec<f64>; 3]
    where
        Autodiff<B>: KernelBackend,
    {
        let mut seed = 0;
        self.lengths().map(|length| {
            seed += 1;
            setting.rounded(&normal(length, seed))
        })
    }

    /// Compares output and gradients with the host's.
    fn check<B: KernelBackend>(self, setting: &Setting<Autodiff<B>>, inputs: [Vec<f64>; 3]) -> anyhow::Result<()>
    where
        Autodiff<B>: KernelBackend,
    {
        // A score is a sum of up to 256 products, and its error a relative one of its weight. Numbers of 16 bits are added
        // up in f32, so that there what counts are the roundings of the results and of what goes between the passes.
        let roundings = match setting.dtype {
            DType::F16 | DType::BF16 => [4.0, 16.0],
            _ => [24.0, 64.0],
        };
        self.check_within(setting, inputs, roundings)
            .map_err(|error| anyhow::anyhow!("{self:?}: {error}"))
    }

    /// As [`check`](Self::check), output and gradients within these many roundings of the largest number.
    fn check_within<B: KernelBackend>(
        self,
        setting: &Setting<Autodiff<B>>,
        inputs: [Vec<f64>; 3],
        roundings: [f64; 2],
    ) -> anyhow::Result<()>
    where
        Autodiff<B>: KernelBackend,
    {
        let options = self.options();
        let [query_shape, key_shape] = self.shapes();
        let heads = PackedHeads {
            queries: self.sizes.heads,
            keys: self.sizes.kv_heads,
        };
        let gradient = setting.rounded(&normal(inputs[0].len(), 4));
        let slices = inputs.each_ref().map(Vec::as_slice);
        let (expected, _) = host::forward(self.sizes, slices, &options);
        let expected_gradients = host::backward(self.sizes, slices, &gradient, &options);

        let tensors = [
            setting.tensor(&inputs[0], query_shape),
            setting.tensor(&inputs[1], key_shape),
            setting.tensor(&inputs[2], key_shape),
        ];
        let contiguous_gradient = setting.tensor(&gradient, query_shape);
        let (output, gradients) = match self.form {
            Form::Separate => separate(tensors, options, contiguous_gradient, |tensor| tensor)?,
            Form::HeadsFirst => separate(tensors, options, contiguous_gradient, |tensor| tensor.swap_dims(1, 2))?,
            Form::Transposed => separate(tensors, options, contiguous_gradient, |tensor| tensor.swap_dims(1, 3))?,
            Form::Packed | Form::Unpacked => {
                let leaf = Tensor::cat(tensors.to_vec(), 2).require_grad();
                let output = match self.form {
                    Form::Packed => flash_attention_packed(leaf.clone(), heads, options)?,
                    _ => {
                        let [query, key, value] = unpack(leaf.clone(), heads);
                        flash_attention(query, key, value, options)?
                    }
                };
                let gradients = backward(vec![[output.clone(), contiguous_gradient]]);
                (output, unpack(leaf.grad(&gradients).expect("tracked"), heads))
            }
        };
        // The terms of the sums are about as large as the largest result.
        expect_close("output", output, &expected, roundings[0], largest(&expected))?;
        let results = gradients.into_iter().zip(expected_gradients);
        for ((actual, expected), what) in results.zip(["query", "key", "value"]) {
            let scale = largest(&expected);
            expect_close(what, actual, &expected, roundings[1], scale)?;
        }
        Ok(())
    }
}

/// The output of three tensors and their gradients; the tensors, and the output's gradient, lie as `view` shows them,
/// which is its own inverse.
#[allow(clippy::type_complexity)]
fn separate<B: KernelBackend>(
    tensors: [Tensor<Autodiff<B>, 4>; 3],
    options: AttentionOptions,
    gradient: Tensor<Autodiff<B>, 4>,
    view: impl Fn(Tensor<Autodiff<B>, 4>) -> Tensor<Autodiff<B>, 4>,
) -> anyhow::Result<(Tensor<Autodiff<B>, 4>, [Tensor<B, 4>; 3])>
where
    Autodiff<B>: KernelBackend,
{
    // Through the host, so that the tensors' memory is really in the other order.
    let laid = |tensor| {
        let data = view(tensor).into_data();
        let dtype = data.dtype;
        (data, dtype)
    };
    let device = gradient.device();
    let leaves = tensors.map(|tensor| {
        let (data, dtype) = laid(tensor);
        Tensor::<Autodiff<B>, 4>::from_data(data, (&device, dtype)).require_grad()
    });
    let [query, key, value] = leaves.clone().map(&view);
    let output = flash_attention(query, key, value, options)?;
    let (data, dtype) = laid(gradient);
    let gradient = view(Tensor::from_data(data, (&device, dtype)));
    let gradients = backward(vec![[output.clone(), gradient]]);
    let of_leaves = leaves.map(|leaf| {
        let gradient = leaf.grad(&gradients).expect("tracked");
        view(Tensor::from_inner(gradient)).inner()
    });
    Ok((output, of_leaves))
}

/// The largest finite magnitude.
fn largest(values: &[f64]) -> f64 {
    let finite = values.iter().filter(|value| value.is_finite());
    finite.fold(0.0, |largest, value| largest.max(value.abs()))
}

#[derive(Clone, Copy)]
struct MatchesTheHost;

impl Claim for MatchesTheHost {
    const NAME: &'static str = "flash_attention_matches_the_host";

    fn check<B: KernelBackend>(self, setting: &Setting<Autodiff<B>>) -> anyhow::Result<()>
    where
        Autodiff<B>: KernelBackend,
    {
        let heads = (1usize..3, 1usize..4);
        let d_head = prop::sample::select(vec![1usize, 3, 7, 16, 24, 64, 80, 128, 256]);
        let options = (any::<bool>(), prop::sample::select(vec![0.0, 0.25]));
        let shapes = (1usize..3, 1usize..140, 1usize..140, heads, d_head, options);
        over(
            14,
            shapes,
            |(batch, queries, keys, heads, d_head, (is_causal, probability))| {
                let case = Case {
                    sizes: AttentionSizes {
                        batch,
                        queries,
                        keys: if is_causal { queries } else { keys },
                        heads: heads.0 * heads.1,
                        kv_heads: heads.0,
                        d_head,
                    },
                    sight: if is_causal { Sight::Causal } else { Sight::Full },
                    probability,
                    form: Form::Separate,
                };
                case.check(setting, case.normal(setting))
            },
        )
    }
}

#[derive(Clone, Copy)]
struct TakesViews;

impl Claim for TakesViews {
    const NAME: &'static str = "flash_attention_takes_views";

    fn check<B: KernelBackend>(self, setting: &Setting<Autodiff<B>>) -> anyhow::Result<()>
    where
        Autodiff<B>: KernelBackend,
    {
        let forms = [Form::Packed, Form::Unpacked, Form::HeadsFirst, Form::Transposed];
        for (form, kv_heads, d_head) in forms.into_iter().flat_map(|form| [(form, 1, 7), (form, 2, 16)]) {
            let sizes = AttentionSizes {
                batch: 2,
                queries: 37,
                keys: 37,
                heads: 4,
                kv_heads,
                d_head,
            };
            let case = Case {
                sizes,
                sight: Sight::Causal,
                probability: 0.25,
                form,
            };
            case.check(setting, case.normal(setting))?;
        }
        Ok(())
    }
}

#[derive(Clone, Copy)]
struct KeepsLogSumExp;

impl Claim for KeepsLogSumExp {
    const NAME: &'static str = "flash_attention_keeps_log_sum_exp";

    fn check<B: KernelBackend>(self, setting: &Setting<Autodiff<B>>) -> anyhow::Result<()>
    where
        Autodiff<B>: KernelBackend,
    {
        for (sight, keys) in [(Sight::Causal, 45), (Sight::Full, 70)] {
            let case = small(45, keys, sight, 16);
            let inputs = case.normal(setting);
            let [query_shape, key_shape] = case.shapes();
            let tensors = [
                setting.tensor(&inputs[0], query_shape).inner(),
                setting.tensor(&inputs[1], key_shape).inner(),
                setting.tensor(&inputs[2], key_shape).inner(),
            ];
            let forward = B::flash_attention_forward(tensors, &case.options());
            let (_, expected) = host::forward(case.sizes, inputs.each_ref().map(Vec::as_slice), &case.options());
            let dims = [case.sizes.batch, case.sizes.heads, case.sizes.queries];
            anyhow::ensure!(forward.log_sum_exp.dims() == dims, "{:?}", forward.log_sum_exp.dims());
            expect_close("log_sum_exp", forward.log_sum_exp, &expected, 8.0, largest(&expected))?;
        }
        Ok(())
    }
}

/// A case without dropout, of two samples and of two heads for each key head.
fn small(queries: usize, keys: usize, sight: Sight, d_head: usize) -> Case {
    Case {
        sizes: AttentionSizes {
            batch: 2,
            queries,
            keys,
            heads: 4,
            kv_heads: 2,
            d_head,
        },
        sight,
        probability: 0.0,
        form: Form::Separate,
    }
}

#[derive(Clone, Copy)]
struct ShowsWhatIsNotFinite;

impl Claim for ShowsWhatIsNotFinite {
    const NAME: &'static str = "flash_attention_shows_what_is_not_finite";

    fn check<B: KernelBackend>(self, setting: &Setting<Autodiff<B>>) -> anyhow::Result<()>
    where
        Autodiff<B>: KernelBackend,
    {
        // What is spoilt: an element of the query, of the key, of the value.
        for (which, spoilt) in [
            (0, f64::NAN),
            (0, f64::INFINITY),
            (1, f64::NAN),
            (1, f64::NEG_INFINITY),
            (2, f64::NAN),
            (2, f64::NEG_INFINITY),
        ] {
            let case = small(40, 50, Sight::Full, 16);
            let mut inputs = case.normal(setting);
            let place = inputs[which].len() / 3;
            inputs[which][place] = spoilt;
            case.check(setting, inputs)
                .map_err(|error| anyhow::anyhow!("{spoilt} in input {which}: {error}"))?;
        }
        // Scores of −∞: the first query sees nothing else, the others one key beside it.
        let case = small(20, 20, Sight::Causal, 1);
        let [mut query, key, value] = case.normal(setting);
        let key: Vec<f64> = key.into_iter().map(f64::abs).collect();
        for (index, element) in query.iter_mut().enumerate() {
            *element = if index % 3 == 0 {
                f64::NEG_INFINITY
            } else {
                element.abs()
            };
        }
        let slices = [&query, &key, &value].map(Vec::as_slice);
        let (expected, _) = host::forward(case.sizes, slices, &case.options());
        anyhow::ensure!(expected[0] == 0.0, "nothing is seen: {}", expected[0]);
        let [query_shape, key_shape] = case.shapes();
        let output = flash_attention(
            setting.tensor(&query, query_shape),
            setting.tensor(&key, key_shape),
            setting.tensor(&value, key_shape),
            case.options(),
        )?;
        expect_close("output", output, &expected, 4.0, largest(&expected))
    }
}

#[derive(Clone, Copy)]
struct TakesLargeScores;

impl Claim for TakesLargeScores {
    const NAME: &'static str = "flash_attention_takes_large_scores";

    fn check<B: KernelBackend>(self, setting: &Setting<Autodiff<B>>) -> anyhow::Result<()>
    where
        Autodiff<B>: KernelBackend,
    {
        let case = small(40, 70, Sight::Full, 16);
        let [query, key, value] = case.normal(setting);
        let [query, key] = [query, key].map(|values| {
            let large: Vec<f64> = values.iter().map(|value| value * 100.0).collect();
            setting.rounded(&large)
        });
        // Scores of 1e4 have errors of 1e4 roundings, which the exponential makes relative ones. Of numbers of 16 bits the
        // output's own rounding is as large as what is left of the gradients; they must be numbers.
        let roundings = match setting.dtype {
            DType::F16 | DType::BF16 => [16.0, f64::INFINITY],
            _ => [4e4, 4e6],
        };
        case.check_within(setting, [query, key, value], roundings)
    }
}

#[derive(Clone, Copy)]
struct TakesNothing;

impl Claim for TakesNothing {
    const NAME: &'static str = "flash_attention_takes_empty_tensors";

    fn check<B: KernelBackend>(self, setting: &Setting<Autodiff<B>>) -> anyhow::Result<()>
    where
        Autodiff<B>: KernelBackend,
    {
        for (batch, queries, keys) in [(0, 5, 5), (2, 0, 4), (2, 4, 0)] {
            let mut case = small(queries, keys, Sight::Full, 16);
            case.sizes.batch = batch;
            let [query_shape, key_shape] = case.shapes();
            let [query, key, value] = case.normal(setting);
            let [query, key, value] = [
                setting.tensor(&query, query_shape).require_grad(),
                setting.tensor(&key, key_shape).require_grad(),
                setting.tensor(&value, key_shape).require_grad(),
            ];
            let output = flash_attention(query.clone(), key.clone(), value.clone(), case.options())?;
            let gradient = setting.tensor(&vec![1.0; query_shape.iter().product()], query_shape);
            let gradients = backward(vec![[output.clone(), gradient]]);
            expect_zeros("output", output, query_shape)?;
            for (leaf, shape) in [(query, query_shape), (key, key_shape), (value, key_shape)] {
                expect_zeros("gradient", leaf.grad(&gradients).expect("tracked"), shape)?;
            }
        }
        Ok(())
    }
}

/// Checks that a tensor has a shape and nothing but zeros. An empty one is not read: reading launches a kernel, which CUDA
/// refuses for no elements.
fn expect_zeros<B: burn::tensor::backend::Backend>(
    what: &str,
    actual: Tensor<B, 4>,
    shape: [usize; 4],
) -> anyhow::Result<()> {
    anyhow::ensure!(
        actual.dims() == shape,
        "{what}: {:?}, expected {shape:?}",
        actual.dims()
    );
    match shape.iter().product() {
        0 => Ok(()),
        count => expect_close(what, actual, &vec![0.0; count], 0.0, 0.0),
    }
}

/// The host version's gradients against differences of its own output.
fn host_gradients_are_slopes() -> anyhow::Result<()> {
    for (sight, keys, probability) in [(Sight::Causal, 5, 0.0), (Sight::Full, 7, 0.3), (Sight::Causal, 5, 0.3)] {
        let mut case = small(5, keys, sight, 3);
        case.probability = probability;
        let options = case.options();
        let mut inputs = case.lengths().map(|length| normal(length, length as u64));
        let gradient = normal(inputs[0].len(), 9);
        let loss = |inputs: &[Vec<f64>; 3]| -> f64 {
            let (output, _) = host::forward(case.sizes, inputs.each_ref().map(Vec::as_slice), &options);
            output
                .iter()
                .zip(&gradient)
                .map(|(output, gradient)| output * gradient)
                .sum()
        };
        let gradients = host::backward(case.sizes, inputs.each_ref().map(Vec::as_slice), &gradient, &options);
        for (which, gradients) in gradients.iter().enumerate() {
            for (index, &actual) in gradients.iter().enumerate() {
                // The cube root of the rounding: there the errors of truncation and of rounding are about the same.
                let step = 1e-5;
                let middle = inputs[which][index];
                let mut at = |value| {
                    inputs[which][index] = value;
                    loss(&inputs)
                };
                let slope = (at(middle + step) - at(middle - step)) / (2.0 * step);
                at(middle);
                anyhow::ensure!(
                    (slope - actual).abs() < 1e-8 * slope.abs().max(1.0),
                    "{case:?}: gradient {index} of input {which} is {actual:e}, the slope {slope:e}"
                );
            }
        }
    }
    Ok(())
}
