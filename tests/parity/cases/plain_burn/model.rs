//! `PlainGpt`: a GPT written with burn's own layers and nothing else. No line of burn-megatron is used here.

use burn::module::{Module, Param};
use burn::nn::loss::CrossEntropyLossConfig;
use burn::nn::{Embedding, LayerNorm, LayerNormConfig, Linear};
use burn::tensor::activation::{gelu_approximate, softmax};
use burn::tensor::{Int, Tensor, TensorData, backend::Backend};

/// The sizes of a [`PlainGpt`].
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    pub n_layers: usize,
    pub d_model: usize,
    pub n_heads: usize,
    pub d_hidden: usize,
    pub max_seq_length: usize,
    pub vocab_size: usize,
}

#[derive(Module, Debug)]
pub struct PlainGpt<B: Backend> {
    pub wte: Embedding<B>,
    pub wpe: Embedding<B>,
    pub h: Vec<PlainBlock<B>>,
    pub ln_f: LayerNorm<B>,
    /// Without it, the head is the token embedding.
    pub lm_head: Option<Linear<B>>,
}

#[derive(Module, Debug)]
pub struct PlainBlock<B: Backend> {
    pub ln_1: LayerNorm<B>,
    pub attn: PlainAttention<B>,
    pub ln_2: LayerNorm<B>,
    pub mlp_input: Linear<B>,
    pub mlp_output: Linear<B>,
}

#[derive(Module, Debug)]
pub struct PlainAttention<B: Backend> {
    pub query: Linear<B>,
    pub key: Linear<B>,
    pub value: Linear<B>,
    pub output: Linear<B>,
    n_heads: usize,
}

impl<B: Backend> PlainGpt<B> {
    /// Returns the model with the numbers that `random` gives for a name and a shape; norms vary around one.
    pub fn new(sizes: &Sizes, tied: bool, random: impl Fn(&str, &[usize]) -> Vec<f64>) -> Self {
        let Sizes {
            d_model,
            d_hidden,
            vocab_size,
            ..
        } = *sizes;
        let maker = Maker { random: &random };
        let h = (0..sizes.n_layers)
            .map(|number| {
                let linear =
                    |name: &str, d_input, d_output| maker.linear(&format!("{number} {name}"), d_input, d_output);
                PlainBlock {
                    ln_1: maker.norm(&format!("{number} ln_1"), d_model),
                    attn: PlainAttention {
                        query: linear("query", d_model, d_model),
                        key: linear("key", d_model, d_model),
                        value: linear("value", d_model, d_model),
                        output: linear("output", d_model, d_model),
                        n_heads: sizes.n_heads,
                    },
                    ln_2: maker.norm(&format!("{number} ln_2"), d_model),
                    mlp_input: linear("input", d_model, d_hidden),
                    mlp_output: linear("output", d_hidden, d_model),
                }
            })
            .collect();
        Self {
            wte: maker.embedding("wte", vocab_size, d_model),
            wpe: maker.embedding("wpe", sizes.max_seq_length, d_model),
            h,
            ln_f: maker.norm("ln_f", d_model),
            lm_head: (!tied).then(|| Linear {
                bias: None,
                ..maker.linear("lm_head", d_model, vocab_size)
            }),
        }
    }

    /// Each token's cross-entropy, `[batch * seq]`.
    pub fn token_losses(&self, tokens: Tensor<B, 2, Int>, targets: Tensor<B, 2, Int>) -> Tensor<B, 1> {
        let [batch, seq] = tokens.dims();
        let device = tokens.device();
        let positions = Tensor::arange(0..seq as i64, &device).unsqueeze::<2>();
        let mut hidden = self.wte.forward(tokens) + self.wpe.forward(positions);
        for block in &self.h {
            hidden = hidden.clone() + block.attn.forward(block.ln_1.forward(hidden));
            let inner = gelu_approximate(block.mlp_input.forward(block.ln_2.forward(hidden.clone())));
            hidden = hidden + block.mlp_output.forward(inner);
        }
        let hidden = self.ln_f.forward(hidden);
        let logits = match &self.lm_head {
            Some(head) => head.forward(hidden),
            None => hidden.matmul(self.wte.weight.val().transpose().unsqueeze::<3>()),
        };
        let [_, _, vocab_size] = logits.dims();
        let (logits, targets) = (
            logits.reshape([batch * seq, vocab_size]),
            targets.reshape([batch * seq]),
        );
        // burn's loss is the mean, so token by token.
        let loss = CrossEntropyLossConfig::new().init(&device);
        let losses = (0..batch * seq)
            .map(|token| loss.forward(logits.clone().narrow(0, token, 1), targets.clone().narrow(0, token, 1)))
            .collect();
        Tensor::cat(losses, 0)
    }
}

impl<B: Backend> PlainAttention<B> {
    fn forward(&self, input: Tensor<B, 3>) -> Tensor<B, 3> {
        let [batch, seq, d_model] = input.dims();
        let d_head = d_model / self.n_heads;
        let heads = |linear: &Linear<B>| {
            let projected = linear.forward(input.clone());
            projected.reshape([batch, seq, self.n_heads, d_head]).swap_dims(1, 2)
        };
        let (query, key, value) = (heads(&self.query), heads(&self.key), heads(&self.value));
        // Not `div_scalar`: in burn 0.21 its backward pass divides in f32, also in a model of f64.
        let scores = query
            .matmul(key.swap_dims(2, 3))
            .mul_scalar(1.0 / (d_head as f64).sqrt());
        let future = Tensor::<B, 2, Int>::ones([seq, seq], &input.device()).triu(1).bool();
        let scores = scores.mask_fill(future.unsqueeze::<4>().expand([batch, self.n_heads, seq, seq]), -1e30);
        let attended = softmax(scores, 3).matmul(value);
        self.output
            .forward(attended.swap_dims(1, 2).reshape([batch, seq, d_model]))
    }
}

/// Makes layers with given numbers.
struct Maker<'a, F> {
    random: &'a F,
}

impl<F: Fn(&str, &[usize]) -> Vec<f64>> Maker<'_, F> {
    fn param<B: Backend, const D: usize>(
        &self,
        name: &str,
        shape: [usize; D],
        mean: f64,
        deviation: f64,
    ) -> Param<Tensor<B, D>> {
        let numbers: Vec<f64> = (self.random)(name, &shape)
            .iter()
            .map(|number| mean + deviation * number)
            .collect();
        Param::from_tensor(Tensor::from_data(
            TensorData::new(numbers, shape),
            &B::Device::default(),
        ))
    }

    fn linear<B: Backend>(&self, name: &str, d_input: usize, d_output: usize) -> Linear<B> {
        Linear {
            weight: self.param(&format!("{name} weight"), [d_input, d_output], 0.0, 0.4),
            bias: Some(self.param(&format!("{name} bias"), [d_output], 0.0, 0.2)),
        }
    }

    fn embedding<B: Backend>(&self, name: &str, rows: usize, d_model: usize) -> Embedding<B> {
        Embedding {
            weight: self.param(name, [rows, d_model], 0.0, 0.5),
        }
    }

    fn norm<B: Backend>(&self, name: &str, d_model: usize) -> LayerNorm<B> {
        let mut norm = LayerNormConfig::new(d_model).init(&B::Device::default());
        norm.gamma = self.param(&format!("{name} gamma"), [d_model], 1.0, 0.2);
        norm.beta = Some(self.param(&format!("{name} beta"), [d_model], 0.0, 0.2));
        norm
    }
}
