//! Size of a GPT and the arithmetic of one training iteration.
//!
//! A multiplication and an addition are two FLOPs. Attention is counted in full, not halved for
//! causality, as in the papers below: say so wherever a rate is printed.

/// The sizes of a GPT that its parameters and FLOPs follow from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GptSize {
    /// Transformer layers, l.
    pub n_layers: u64,
    /// Width, h; the MLP's inner width is 4h.
    pub d_model: u64,
    /// Tokens of the vocabulary, V, with or without padding as the caller counts.
    pub vocabulary_size: u64,
    /// Tokens per sample, s, and learned positions.
    pub seq_length: u64,
}

impl GptSize {
    /// Returns the number of parameters, `12·l·h²·(1 + 13/(12h) + (V + s)/(12·l·h))`.
    ///
    /// That is 12h² of weights and 13h of biases and norms per layer, and V + s embeddings of
    /// width h, the output head being tied. The 2h parameters of the final norm are not in the
    /// paper's formula, nor in this.
    ///
    /// # Reference
    /// Narayanan et al. 2021, arXiv:2104.04473, section 5.1.
    pub fn num_parameters(&self) -> u64 {
        let Self {
            n_layers: l,
            d_model: h,
            vocabulary_size: v,
            seq_length: s,
        } = *self;
        l * (12 * h * h + 13 * h) + (v + s) * h
    }

    /// Returns the FLOPs that one iteration's forward and backward pass need,
    /// `72·B·l·s·h²·(1 + s/(6h) + V/(12·h·l))` for a global batch of B samples.
    ///
    /// These are the model's FLOPs, from which utilisation is computed: recomputed activations do
    /// not count.
    ///
    /// # Reference
    /// Korthikanti et al. 2022, arXiv:2205.05198, appendix A.
    pub fn model_flops_per_iteration(&self, global_batch_size: u64) -> f64 {
        let (layers, head) = self.forward_flops(global_batch_size);
        // The backward pass of a matrix product is two matrix products.
        3.0 * (layers + head)
    }

    /// Returns the FLOPs that the hardware does in one iteration when every layer's forward pass
    /// is done again before its backward pass,
    /// `96·B·l·s·h²·(1 + s/(6h) + V/(16·l·h))`.
    ///
    /// # Reference
    /// Narayanan et al. 2021, arXiv:2104.04473, section 5.1; its table of FLOP/s counts these.
    pub fn recomputation_flops_per_iteration(&self, global_batch_size: u64) -> f64 {
        let (layers, head) = self.forward_flops(global_batch_size);
        4.0 * layers + 3.0 * head
    }

    /// Returns the FLOPs of the forward pass, of the layers and of the output head.
    ///
    /// Per token a layer has 24h² in its four weights and 4sh in `QKᵀ` and its product with V,
    /// the head has 2hV.
    fn forward_flops(&self, global_batch_size: u64) -> (f64, f64) {
        let [l, h, v, s] = [self.n_layers, self.d_model, self.vocabulary_size, self.seq_length].map(|size| size as f64);
        let tokens = global_batch_size as f64 * s;
        let layers = tokens * l * (24.0 * h * h + 4.0 * s * h);
        let head = tokens * 2.0 * h * v;
        (layers, head)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Table 1 of arXiv:2104.04473: billions of parameters, l, h, GPUs, B, TFLOP/s per GPU.
    const TABLE: [(f64, u64, u64, u64, u64, f64); 10] = [
        (1.7, 24, 2304, 32, 512, 137.0),
        (3.6, 30, 3072, 64, 512, 138.0),
        (7.5, 36, 4096, 128, 512, 142.0),
        (18.4, 40, 6144, 256, 1024, 135.0),
        (39.1, 48, 8192, 512, 1536, 138.0),
        (76.1, 60, 10240, 1024, 1792, 140.0),
        (145.6, 80, 12288, 1536, 2304, 148.0),
        (310.1, 96, 16384, 1920, 2160, 155.0),
        (529.6, 105, 20480, 2520, 2520, 163.0),
        (1008.0, 128, 25600, 3072, 3072, 163.0),
    ];

    fn size(n_layers: u64, d_model: u64) -> GptSize {
        GptSize {
            n_layers,
            d_model,
            vocabulary_size: 51200,
            seq_length: 2048,
        }
    }

    fn assert_close(got: f64, expected: f64) {
        // A handful of f64 roundings.
        assert!((got / expected - 1.0).abs() < 1e-14, "got {got}, expected {expected}");
    }

    #[test]
    fn parameter_counts_match_the_paper() {
        for (billions, l, h, ..) in TABLE {
            let got = size(l, h).num_parameters() as f64 / 1e9;
            // The table rounds to a tenth of a billion.
            assert!((got - billions).abs() <= 0.05, "got {got}, expected {billions}");
        }
    }

    #[test]
    fn the_parameter_count_is_the_sum_of_all_shapes() {
        let (l, h, v, s) = (3, 12, 61, 12);
        let norm = 2 * h;
        let linear = |d_input, d_output| d_input * d_output + d_output;
        let attention = linear(h, 3 * h) + linear(h, h);
        let mlp = linear(h, 4 * h) + linear(4 * h, h);
        let layers = l * (2 * norm + attention + mlp);
        let size = GptSize {
            n_layers: l,
            d_model: h,
            vocabulary_size: v,
            seq_length: s,
        };
        assert_eq!(size.num_parameters(), layers + v * h + s * h);
        // The PyTorch fixture has these and a final norm.
        assert_eq!(size.num_parameters() + norm, 6552);
    }

    #[test]
    fn flops_match_both_formulas() {
        for (_, l, h, _, batch, _) in TABLE {
            let size = size(l, h);
            let [lf, hf, b, v, s] = [l, h, batch, 51200, 2048].map(|value| value as f64);
            let attention = s / (6.0 * hf);
            assert_close(
                size.model_flops_per_iteration(batch),
                72.0 * b * lf * s * hf * hf * (1.0 + attention + v / (12.0 * hf * lf)),
            );
            assert_close(
                size.recomputation_flops_per_iteration(batch),
                96.0 * b * lf * s * hf * hf * (1.0 + attention + v / (16.0 * lf * hf)),
            );
        }
    }

    #[test]
    fn the_papers_rates_give_its_training_time() {
        // Section 5.1 puts 1008 billion parameters on 450 billion tokens at 84 days.
        let (_, l, h, gpus, batch, teraflops) = TABLE[9];
        let flops = size(l, h).recomputation_flops_per_iteration(batch);
        let iteration_secs = flops / (teraflops * 1e12 * gpus as f64);
        let iterations = 450e9 / (batch as f64 * 2048.0);
        let days = iterations * iteration_secs / 86400.0;
        assert!((days - 84.0).abs() < 1.5, "{days} days");
    }
}
