//! Norms and element-wise operations, over the rows of tokens.

use burn::tensor::DType;
use cubecl_kernels::bias_dropout_add::bias_dropout_add;
use cubecl_kernels::bias_gelu::bias_gelu;
use cubecl_kernels::norm::{Addends, NormKind, NormParameters, add_norm, layer_norm, rms_norm};
use cubecl_kernels::swiglu::swiglu;

use crate::operations::{List, MANY_ROWS, ROWS, Setting, tokens_dropout};

/// Of GPT's presets: those whose rows are spread differently over units, in the type that such models are trained in.
const D_MODELS: &[usize] = &[768, 1600, 2048, 8192, 12288, 25600];

/// Which of its optional inputs a sum has.
#[derive(Clone, Copy)]
struct Sum {
    has_bias: bool,
    has_dropout: bool,
}

impl Setting {
    fn norm(&self, kind: NormKind, d_model: usize) -> NormParameters {
        NormParameters {
            kind,
            weight: self.leaf([d_model]),
            bias: (kind == NormKind::Layer).then(|| self.leaf([d_model])),
            epsilon: 1e-5,
        }
    }

    fn addends(&self, [rows, d_model]: [usize; 2], sum: Sum) -> Addends {
        Addends {
            input: self.leaf([rows, d_model]),
            bias: sum.has_bias.then(|| self.leaf([d_model])),
            residual: self.leaf([rows, d_model]),
            dropout: sum.has_dropout.then(|| tokens_dropout(rows)),
        }
    }
}

pub fn list(list: &mut List) {
    let d_models: &[usize] = match list.dtype {
        DType::BF16 => D_MODELS,
        // Conversions are all that differs.
        DType::F16 => &[768, 2048],
        _ => &[768, 2048, 8192, 25600],
    };
    for &d_model in d_models {
        list.is_for_a_release = ![2048, 12288].contains(&d_model);
        norms(list, [ROWS, d_model]);
        elements(list, [ROWS, d_model], [4 * d_model; 2]);
    }
    list.is_for_a_release = false;
    if list.dtype == DType::BF16 {
        // Indexed by 64 bits.
        sums_and_norms(
            list,
            [MANY_ROWS, 2048],
            [(NormKind::Layer, "add_norm, layer, bias", true, false)],
        );
        elements(list, [MANY_ROWS, 2048], [2048, 1024]);
    }
}

fn norms(list: &mut List, [rows, d_model]: [usize; 2]) {
    let shape = format!("{rows} x {d_model}");
    list.add("layer_norm", shape.clone(), move |setting| {
        let (weight, bias) = (setting.leaf([d_model]), setting.leaf([d_model]));
        layer_norm(setting.leaf([rows, d_model]), weight, Some(bias), 1e-5)?.backward();
        Ok(())
    });
    list.add("rms_norm", shape, move |setting| {
        rms_norm(setting.leaf([rows, d_model]), setting.leaf([d_model]), 1e-5)?.backward();
        Ok(())
    });
    let cases = [
        (NormKind::Layer, "add_norm, layer", false, false),
        (NormKind::Layer, "add_norm, layer, bias", true, false),
        (NormKind::Layer, "add_norm, layer, bias and dropout", true, true),
        (NormKind::Rms, "add_norm, rms", false, false),
        (NormKind::Rms, "add_norm, rms, bias", true, false),
        (NormKind::Rms, "add_norm, rms, dropout", false, true),
        (NormKind::Rms, "add_norm, rms, bias and dropout", true, true),
    ];
    sums_and_norms(list, [rows, d_model], cases);
}

/// Sums with their norms: the kind, the name, whether there is a bias, whether there is dropout.
fn sums_and_norms<const N: usize>(
    list: &mut List,
    [rows, d_model]: [usize; 2],
    cases: [(NormKind, &'static str, bool, bool); N],
) {
    for (kind, name, has_bias, has_dropout) in cases {
        let sum = Sum { has_bias, has_dropout };
        list.add(name, format!("{rows} x {d_model}"), move |setting| {
            let [hidden, norm] = add_norm(setting.addends([rows, d_model], sum), setting.norm(kind, d_model))?;
            (hidden + norm).backward();
            Ok(())
        });
    }
}

/// Sums, and the activations of the hidden layers of bias-GELU and SwiGLU.
fn elements(list: &mut List, [rows, d_model]: [usize; 2], [of_gelu, of_swiglu]: [usize; 2]) {
    for (name, has_bias, has_dropout) in [
        ("bias_dropout_add, bare", false, false),
        ("bias_dropout_add, bias", true, false),
        ("bias_dropout_add, dropout", false, true),
        ("bias_dropout_add", true, true),
    ] {
        let sum = Sum { has_bias, has_dropout };
        list.add(name, format!("{rows} x {d_model}"), move |setting| {
            bias_dropout_add(setting.addends([rows, d_model], sum))?.backward();
            Ok(())
        });
    }
    list.add("bias_gelu", format!("{rows} x {of_gelu}"), move |setting| {
        bias_gelu(setting.leaf([rows, of_gelu]), setting.leaf([of_gelu]))?.backward();
        Ok(())
    });
    list.add("swiglu", format!("{rows} x 2 x {of_swiglu}"), move |setting| {
        swiglu(setting.leaf([rows, 2 * of_swiglu]))?.backward();
        Ok(())
    });
}
