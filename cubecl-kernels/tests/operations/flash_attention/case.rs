//! A case of attention, compared with the host version: output and gradients.

use burn::tensor::{DType, Tensor};
use cubecl_kernels::flash_attention::host::{self, HostInputs};
use cubecl_kernels::flash_attention::{
    AttentionMask, AttentionOptions, AttentionSizes, Documents, KeyLengths, PackedHeads,
    flash_attention_packed_with_bias, flash_attention_with_bias, unpack,
};
use cubecl_kernels::precision::{compute_type, is_half};
use cubecl_kernels::random::{RowDropout, RowPlace};

use crate::support::compare::{backward, epsilon, expect_close, expect_norm, expect_within, normal};
use crate::support::setting::Setting;

/// How the inputs are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Three tensors, contiguous.
    Separate,
    /// One tensor, given whole.
    Packed,
    /// Views of one tensor, given apart.
    Unpacked,
    /// Views of tensors whose heads come before their positions.
    HeadsFirst,
    /// Views of tensors whose last dimension is not contiguous.
    Transposed,
}

/// How closely results must agree with the host's, in roundings of the type.
#[derive(Clone, Copy, Debug)]
pub struct Tolerance {
    /// An element of the output, of the largest one.
    pub output: f64,
    /// An element of a gradient, of the largest one.
    pub gradient: f64,
    /// Output and gradients as a whole, of their lengths.
    pub norm: [f64; 2],
    /// Whether a key's element is held against the largest of the same element of all keys and heads.
    pub is_by_element: bool,
}

impl Tolerance {
    /// That of numbers around 1.
    ///
    /// A score is a sum of up to 256 products, and its error a relative one of its weight. Numbers of 16 bits are added
    /// up in f32, so that there what counts are the roundings of the results and of what goes between the passes: the
    /// weights, the scores' gradients and the output, whose product with its gradient each of the latter is a
    /// difference from.
    pub fn of(dtype: DType) -> Self {
        let (output, gradient, norm) = match dtype {
            DType::F16 | DType::BF16 => (4.0, 16.0, [1.0, 2.0]),
            _ => (24.0, 64.0, [8.0, 16.0]),
        };
        Self {
            output,
            gradient,
            norm,
            is_by_element: false,
        }
    }
}

/// What attends to what, how often and in which layout.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    pub sizes: AttentionSizes,
    pub mask: AttentionMask,
    pub probability: f64,
    /// `1 / √d_head` where there is none.
    pub scale: Option<f64>,
    pub form: Form,
    /// The lengths of each sample's documents; of none, each sample is one.
    pub documents: &'static [&'static [usize]],
    /// How many keys each sample has; of none, each has all.
    pub key_lengths: &'static [usize],
    /// Whether a relative bias is added to the scores.
    pub has_bias: bool,
    /// Whether gradients are added up in one order.
    pub is_deterministic: bool,
}

impl Case {
    pub fn options(self) -> AttentionOptions {
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
            mask: self.mask,
            scale: self.scale.unwrap_or((self.sizes.d_head as f64).powf(-0.5)),
            dropout: (self.probability > 0.0).then_some(dropout),
            documents: self.documents(),
            key_lengths: (!self.key_lengths.is_empty()).then(|| KeyLengths::new(self.key_lengths)),
            is_deterministic: self.is_deterministic,
        }
    }

    fn documents(self) -> Option<Documents> {
        let samples: Vec<Vec<usize>> = self.documents.iter().map(|lengths| lengths.to_vec()).collect();
        let documents = || Documents::from_lengths(self.sizes.queries, &samples);
        (!samples.is_empty()).then(|| documents().expect("lengths of whole samples"))
    }

    pub fn bias_length(self) -> usize {
        self.sizes.heads * self.distances()
    }

    fn distances(self) -> usize {
        self.sizes.queries + self.sizes.keys - 1
    }

    /// The relative bias, in the type that scores are in.
    fn bias(self, setting: &Setting) -> Option<(Vec<f64>, Tensor<2>)> {
        let wide = setting.computed();
        self.has_bias.then(|| {
            let values = wide.rounded(&normal(self.bias_length(), 5));
            let tensor = wide.tensor(&values, [self.sizes.heads, self.distances()]);
            (values, tensor.require_grad())
        })
    }

    /// Lengths of query, key and value.
    pub fn lengths(self) -> [usize; 3] {
        let [query, key] = self.shapes();
        [query, key, key].map(|shape| shape.iter().product())
    }

    /// Shapes of query and key.
    pub fn shapes(self) -> [[usize; 4]; 2] {
        let sizes = self.sizes;
        [
            [sizes.batch, sizes.queries, sizes.heads, sizes.d_head],
            [sizes.batch, sizes.keys, sizes.kv_heads, sizes.d_head],
        ]
    }

    pub fn normal(self, setting: &Setting) -> [Vec<f64>; 3] {
        let mut seed = 0;
        self.lengths().map(|length| {
            seed += 1;
            setting.rounded(&normal(length, seed))
        })
    }

    /// Compares output and gradients with the host's.
    pub fn check(self, setting: &Setting, inputs: [Vec<f64>; 3]) -> anyhow::Result<()> {
        self.check_within(setting, inputs, Tolerance::of(setting.dtype))
    }

    /// As [`check`](Self::check), with another tolerance. Where there are two forms of the backward pass, both are
    /// compared.
    pub fn check_within(self, setting: &Setting, inputs: [Vec<f64>; 3], tolerance: Tolerance) -> anyhow::Result<()> {
        // On matrix units.
        let has_two = is_half(setting.dtype) && setting.runs_kernels();
        for is_deterministic in if has_two { &[false, true][..] } else { &[false] } {
            let case = Self {
                is_deterministic: *is_deterministic,
                ..self
            };
            case.compare(setting, &inputs, tolerance)
                .map_err(|error| error.context(format!("{case:?}")))?;
        }
        Ok(())
    }

    fn compare(self, setting: &Setting, inputs: &[Vec<f64>; 3], tolerance: Tolerance) -> anyhow::Result<()> {
        let options = self.options();
        let [query_shape, key_shape] = self.shapes();
        let heads = PackedHeads {
            queries: self.sizes.heads,
            keys: self.sizes.kv_heads,
        };
        let gradient = setting.rounded(&normal(inputs[0].len(), 4));
        let slices = inputs.each_ref().map(Vec::as_slice);
        let (bias_values, bias) = self.bias(setting).unzip();
        let on_host = HostInputs {
            bias: bias_values.as_deref(),
            ..HostInputs::new(slices)
        };
        let (expected, _) = host::forward(self.sizes, on_host, &options);
        let expected_gradients = host::backward(self.sizes, on_host, &gradient, &options);

        let tensors = [
            setting.tensor(&inputs[0], query_shape),
            setting.tensor(&inputs[1], key_shape),
            setting.tensor(&inputs[2], key_shape),
        ];
        let contiguous_gradient = setting.tensor(&gradient, query_shape);
        let separately = |view: fn(Tensor<4>) -> Tensor<4>| {
            separate(
                tensors.clone(),
                bias.clone(),
                options.clone(),
                contiguous_gradient.clone(),
                view,
            )
        };
        let (output, gradients, of_bias) = match self.form {
            Form::Separate => separately(|tensor| tensor)?,
            Form::HeadsFirst => separately(|tensor| tensor.swap_dims(1, 2))?,
            Form::Transposed => separately(|tensor| tensor.swap_dims(1, 3))?,
            Form::Packed | Form::Unpacked => {
                let leaf = Tensor::cat(tensors.to_vec(), 2).require_grad();
                let output = match self.form {
                    Form::Packed => {
                        flash_attention_packed_with_bias(leaf.clone(), heads, bias.clone(), options.clone())?
                    }
                    _ => {
                        let [query, key, value] = unpack(leaf.clone(), heads);
                        flash_attention_with_bias(query, key, value, bias.clone(), options.clone())?
                    }
                };
                let gradients = backward(vec![[output.clone(), contiguous_gradient.clone()]]);
                let of_bias = bias.as_ref().map(|bias| bias.grad(&gradients).expect("tracked"));
                (output, unpack(leaf.grad(&gradients).expect("tracked"), heads), of_bias)
            }
        };
        // The terms of the sums are about as large as the largest result.
        expect_close(
            "output",
            output.clone(),
            &expected,
            tolerance.output,
            largest(&expected),
        )?;
        let is_finite = inputs.iter().flatten().all(|value| value.is_finite());
        if is_finite {
            expect_norm("output", output, &expected, tolerance.norm[0])?;
        }
        if let (Some(actual), Some(expected)) = (of_bias, &expected_gradients.bias) {
            // It is in the type that scores are in; what it is summed from is as precise as the other gradients.
            let roundings = epsilon(setting.dtype) / epsilon(compute_type(setting.dtype));
            // Of a single key all of them are 0, as sums over the batch of what is a difference then.
            let floor = 4.0 * (self.sizes.d_head as f64).sqrt() * self.sizes.batch as f64;
            let scale = if self.sizes.keys == 1 { floor } else { largest(expected) };
            expect_close("bias", actual.clone(), expected, tolerance.gradient * roundings, scale)?;
            if is_finite && self.sizes.keys > 1 {
                expect_norm("bias", actual, expected, tolerance.norm[1] * roundings)?;
            }
        }
        let results = gradients.into_iter().zip(expected_gradients.inputs);
        for ((actual, expected), what) in results.zip(["query", "key", "value"]) {
            let d_head = self.sizes.d_head;
            let is_by_element = tolerance.is_by_element && what == "key";
            let scales: Vec<f64> = if is_by_element {
                (0..d_head)
                    .map(|element| largest(expected.iter().skip(element).step_by(d_head)))
                    .collect()
            } else {
                vec![largest(&expected); d_head]
            };
            // Of a single key, weights are 1 whatever the scores are: the gradients of query and key are 0, as
            // differences of numbers as large as an output's element times its gradient are.
            let is_certain = what != "value" && scales.iter().all(|&scale| scale < 1e-12);
            let floor = if is_certain {
                4.0 * options.scale * (d_head as f64).sqrt()
            } else {
                0.0
            };
            let epsilon = epsilon(setting.dtype);
            let allowed = |index: usize, expected: f64| {
                tolerance.gradient * epsilon * expected.abs().max(scales[index % d_head]).max(floor)
            };
            expect_within(what, actual.clone(), &expected, allowed)?;
            if is_finite && !is_certain {
                expect_norm(what, actual, &expected, tolerance.norm[1])?;
            }
        }
        Ok(())
    }
}

/// The output of three tensors and their gradients, and that of the bias; the tensors, and the output's gradient, are
/// stored as `view` shows them, which is its own inverse.
#[allow(clippy::type_complexity)]
fn separate(
    tensors: [Tensor<4>; 3],
    bias: Option<Tensor<2>>,
    options: AttentionOptions,
    gradient: Tensor<4>,
    view: impl Fn(Tensor<4>) -> Tensor<4>,
) -> anyhow::Result<(Tensor<4>, [Tensor<4>; 3], Option<Tensor<2>>)> {
    // Through the host, so that the tensors' memory is really in the other order.
    let laid = |tensor| {
        let data = view(tensor).into_data();
        let dtype = data.dtype();
        (data, dtype)
    };
    let device = gradient.device();
    let leaves = tensors.map(|tensor| {
        let (data, dtype) = laid(tensor);
        Tensor::<4>::from_data(data, (&device, dtype)).require_grad()
    });
    let [query, key, value] = leaves.clone().map(&view);
    let output = flash_attention_with_bias(query, key, value, bias.clone(), options)?;
    let (data, dtype) = laid(gradient);
    let gradient = view(Tensor::from_data(data, (&device, dtype)));
    let gradients = backward(vec![[output.clone(), gradient]]);
    let of_leaves = leaves.map(|leaf| {
        let gradient = leaf.grad(&gradients).expect("tracked");
        view(gradient)
    });
    let of_bias = bias.map(|bias| bias.grad(&gradients).expect("tracked"));
    Ok((output, of_leaves, of_bias))
}

/// The largest finite magnitude.
pub fn largest<'a>(values: impl IntoIterator<Item = &'a f64>) -> f64 {
    let finite = values.into_iter().filter(|value| value.is_finite());
    finite.fold(0.0, |largest, value| largest.max(value.abs()))
}

/// A case without dropout, of two samples and of two heads for each key head.
pub fn small(queries: usize, keys: usize, mask: AttentionMask, d_head: usize) -> Case {
    Case {
        sizes: AttentionSizes {
            batch: 2,
            queries,
            keys,
            heads: 4,
            kv_heads: 2,
            d_head,
        },
        mask,
        probability: 0.0,
        scale: None,
        form: Form::Separate,
        documents: &[],
        key_lengths: &[],
        has_bias: false,
        is_deterministic: false,
    }
}
