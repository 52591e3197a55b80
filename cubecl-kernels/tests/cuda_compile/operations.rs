//! The operations at the sizes of a GPT: 8 samples of 1024 tokens, d_model 768 (12 heads of 64) or 2048 (16 of 128).

use std::sync::Arc;

use anyhow::Result;
use burn::backend::Autodiff;
use burn::tensor::{DType, Int, Tensor};
use cubecl_kernels::adamw::{AdamWBuffers, AdamWStep, adamw};
use cubecl_kernels::bias_dropout_add::bias_dropout_add;
use cubecl_kernels::bias_gelu::bias_gelu;
use cubecl_kernels::cross_entropy::cross_entropy;
use cubecl_kernels::flash_attention::{AttentionOptions, PackedHeads, Sight, flash_attention, flash_attention_packed};
use cubecl_kernels::l2_norm::sum_of_squares;
use cubecl_kernels::norm::{Addends, NormKind, NormParameters, add_norm, layer_norm, rms_norm};
use cubecl_kernels::random::{RowDropout, RowPlace};
use cubecl_kernels::softmax::{SoftmaxMask, scaled_masked_softmax};
use cubecl_kernels::swiglu::swiglu;
use cuda_source::CudaSourceDevice;

use crate::Backend;

type Differentiable = Autodiff<Backend>;

const SAMPLES: usize = 8;
const TOKENS: usize = 1024;
const ROWS: usize = SAMPLES * TOKENS;
/// GPT-2's vocabulary, and what it is padded to.
const VOCABULARY: [usize; 2] = [50257, 50304];

/// Calls an operation.
type Run = Arc<dyn Fn(&Setting) -> Result<()> + Send + Sync>;

/// An operation at a size, forward and backward.
#[derive(Clone)]
pub struct Operation {
    /// Its name, the part before a comma that of its function.
    pub name: &'static str,
    /// The size, for people.
    pub shape: String,
    /// The type of its inputs.
    pub dtype: DType,
    /// Calls it.
    pub run: Run,
}

/// Where an operation is called.
pub struct Setting {
    /// The device that compiles.
    pub device: CudaSourceDevice,
    /// The type of the inputs.
    pub dtype: DType,
}

impl Setting {
    /// Returns a leaf; nothing reads its values.
    fn leaf<const D: usize>(&self, shape: [usize; D]) -> Tensor<Differentiable, D> {
        Tensor::empty(shape, (&self.device, self.dtype)).require_grad()
    }

    /// Returns a tensor of a backend without autodiff.
    fn plain<const D: usize>(&self, shape: [usize; D], dtype: DType) -> Tensor<Backend, D> {
        Tensor::empty(shape, (&self.device, dtype))
    }

    fn norm(&self, kind: NormKind, d_model: usize) -> NormParameters<Differentiable> {
        NormParameters {
            kind,
            weight: self.leaf([d_model]),
            bias: (kind == NormKind::Layer).then(|| self.leaf([d_model])),
            epsilon: 1e-5,
        }
    }

    fn addends(&self, d_model: usize, dropout: bool) -> Addends<Differentiable> {
        Addends {
            input: self.leaf([ROWS, d_model]),
            bias: dropout.then(|| self.leaf([d_model])),
            residual: self.leaf([ROWS, d_model]),
            dropout: dropout.then(tokens_dropout),
        }
    }
}

/// A dropout of all tokens.
fn tokens_dropout() -> RowDropout {
    let place = |row: usize| RowPlace {
        position: (row % TOKENS) as u32,
        sample: (row / TOKENS) as u32,
    };
    RowDropout {
        key: [1, 2],
        iteration: 3,
        first_head: 0,
        probability: 0.1,
        places: (0..ROWS).map(place).collect(),
    }
}

impl Operation {
    /// Whether it is computed on the matrix units.
    pub fn is_for_matrix_units(&self) -> bool {
        self.name.starts_with("flash_attention") && self.dtype != DType::F32
    }
}

/// Returns every operation at every size in every type of a GPT's training.
pub fn all() -> Vec<Operation> {
    let dtypes = [DType::F32, DType::F16, DType::BF16];
    let operations = dtypes.into_iter().flat_map(|dtype| {
        let mut list = Vec::new();
        let mut add = |name, shape: String, run: Run| {
            list.push(Operation {
                name,
                shape,
                dtype,
                run,
            });
        };
        for d_model in [768, 2048] {
            rows(&mut add, d_model);
        }
        attentions(&mut add);
        scores_and_losses(&mut add);
        optimizer(&mut add);
        list
    });
    operations.collect()
}

fn rows(add: &mut impl FnMut(&'static str, String, Run), d_model: usize) {
    let shape = format!("{ROWS} x {d_model}");
    let run: Run = Arc::new(move |setting| {
        let (weight, bias) = (setting.leaf([d_model]), setting.leaf([d_model]));
        layer_norm(setting.leaf([ROWS, d_model]), weight, Some(bias), 1e-5)?.backward();
        Ok(())
    });
    add("layer_norm", shape.clone(), run);
    let run: Run = Arc::new(move |setting| {
        rms_norm(setting.leaf([ROWS, d_model]), setting.leaf([d_model]), 1e-5)?.backward();
        Ok(())
    });
    add("rms_norm", shape.clone(), run);
    for (kind, dropout, name) in [
        (NormKind::Layer, false, "add_norm, layer"),
        (NormKind::Layer, true, "add_norm, layer, bias and dropout"),
        (NormKind::Rms, false, "add_norm, rms"),
        (NormKind::Rms, true, "add_norm, rms, bias and dropout"),
    ] {
        let run: Run = Arc::new(move |setting| {
            let [hidden, norm] = add_norm(setting.addends(d_model, dropout), setting.norm(kind, d_model))?;
            (hidden + norm).backward();
            Ok(())
        });
        add(name, shape.clone(), run);
    }
    for (dropout, name) in [(false, "bias_dropout_add, bare"), (true, "bias_dropout_add")] {
        let run: Run = Arc::new(move |setting| {
            bias_dropout_add(setting.addends(d_model, dropout))?.backward();
            Ok(())
        });
        add(name, shape.clone(), run);
    }
    let inner = 4 * d_model;
    let run: Run = Arc::new(move |setting| {
        bias_gelu(setting.leaf([ROWS, inner]), setting.leaf([inner]))?.backward();
        Ok(())
    });
    add("bias_gelu", format!("{ROWS} x {inner}"), run);
    let run: Run = Arc::new(move |setting| {
        swiglu(setting.leaf([ROWS, 2 * inner]))?.backward();
        Ok(())
    });
    add("swiglu", format!("{ROWS} x 2 x {inner}"), run);
}

fn attentions(add: &mut impl FnMut(&'static str, String, Run)) {
    let options = |d_head: usize, sight, dropout: bool| AttentionOptions {
        sight,
        scale: 1.0 / (d_head as f64).sqrt(),
        dropout: dropout.then(tokens_dropout),
    };
    for (heads, d_head) in [(12, 64), (16, 128)] {
        let shape = format!("{SAMPLES} x {heads} heads x {TOKENS} x {d_head}");
        for (sight, dropout, name) in [
            (Sight::Causal, false, "flash_attention, causal"),
            (Sight::Causal, true, "flash_attention, causal, dropout"),
            (Sight::Full, false, "flash_attention, full"),
            (Sight::Full, true, "flash_attention, full, dropout"),
        ] {
            let run: Run = Arc::new(move |setting| {
                let [query, key, value] = [(); 3].map(|()| setting.leaf([SAMPLES, TOKENS, heads, d_head]));
                flash_attention(query, key, value, options(d_head, sight, dropout))?.backward();
                Ok(())
            });
            add(name, shape.clone(), run);
        }
        for (dropout, name) in [
            (false, "flash_attention, packed, causal"),
            (true, "flash_attention, packed, causal, dropout"),
        ] {
            let run: Run = Arc::new(move |setting| {
                let counts = PackedHeads {
                    queries: heads,
                    keys: heads,
                };
                let packed = setting.leaf([SAMPLES, TOKENS, counts.total(), d_head]);
                flash_attention_packed(packed, counts, options(d_head, Sight::Causal, dropout))?.backward();
                Ok(())
            });
            add(name, shape.clone(), run);
        }
    }
}

fn scores_and_losses(add: &mut impl FnMut(&'static str, String, Run)) {
    for (name, is_causal) in [("softmax, causal", true), ("softmax", false)] {
        let run: Run = Arc::new(move |setting| {
            let scores = setting.leaf([SAMPLES, 12, TOKENS, TOKENS]);
            let mask = if is_causal {
                SoftmaxMask::Causal
            } else {
                SoftmaxMask::Nothing
            };
            scaled_masked_softmax(scores, mask, 0.125)?.backward();
            Ok(())
        });
        add(name, format!("{SAMPLES} x 12 x {TOKENS} x {TOKENS}"), run);
    }
    let [valid, columns] = VOCABULARY;
    let run: Run = Arc::new(move |setting| {
        let targets = Tensor::<Differentiable, 1, Int>::empty([ROWS], &setting.device);
        cross_entropy(setting.leaf([ROWS, columns]), targets, valid, |own| own)?.backward();
        Ok(())
    });
    add("cross_entropy", format!("{ROWS} x {columns}"), run);
}

fn optimizer(add: &mut impl FnMut(&'static str, String, Run)) {
    const ELEMENTS: usize = 1 << 24;
    let step = AdamWStep {
        learning_rate: 1e-3,
        beta_1: 0.9,
        beta_2: 0.95,
        epsilon: 1e-8,
        weight_decay: 0.1,
        gradient_scale: 1.0,
        time: 1,
    };
    for (name, has_copy) in [("adamw", false), ("adamw, with a copy in the type", true)] {
        let run: Run = Arc::new(move |setting| {
            let main = || setting.plain([ELEMENTS], DType::F32);
            let buffers = AdamWBuffers {
                parameter: main(),
                moment_1: main(),
                moment_2: main(),
            };
            let gradient = setting.plain([ELEMENTS], setting.dtype);
            adamw(buffers, gradient, &step, has_copy.then_some(setting.dtype))?;
            Ok(())
        });
        add(name, format!("{ELEMENTS}"), run);
    }
    let run: Run = Arc::new(move |setting| {
        let buffers = [ELEMENTS, 1000].map(|elements| setting.plain([elements], setting.dtype));
        sum_of_squares(buffers.to_vec())?;
        Ok(())
    });
    add("sum_of_squares", format!("{ELEMENTS}"), run);
}
