//! How much memory a rank of a GPT needs, by the papers' formulas. Asked by training programs before they start.

use burn_megatron::topology::ParallelConfig;

use super::GptConfig;

impl GptConfig {
    /// Returns about how many bytes a rank needs to train: parameters, gradients, Adam's moments and activations.
    ///
    /// Static: 4 numbers per parameter, shared out over the tensor ranks. Activations per layer, with s tokens in each
    /// of b samples, a heads, width h and t tensor ranks: `sbh (5 + 12/t + as/(ht))` numbers; under sequence
    /// parallelism `sbh (17 + as/h) / t`. The paper's bytes are of 16-bit elements, hence half as many numbers; where it
    /// has 5as/2h for attention's core, this one holds its weights once, and not at all where it recomputes them.
    ///
    /// # Reference
    /// Korthikanti et al. 2022, arXiv:2205.05198, equations 1, 2, 4 and 6.
    pub fn memory_bytes(&self, parallel: &ParallelConfig, micro_batch_size: usize, element_bytes: usize) -> f64 {
        let [s, b, h, a, t] = [
            self.max_seq_length,
            micro_batch_size,
            self.d_model,
            self.n_heads,
            parallel.tensor_parallel_size,
        ]
        .map(|size| size as f64);
        let attention = match self.recompute_attention {
            true => 0.0,
            false => a * s / h,
        };
        let per_element = match parallel.sequence_parallel {
            true => (17.0 + attention) / t,
            false => 5.0 + (12.0 + attention) / t,
        };
        let activations = self.n_layers as f64 * s * b * h * per_element;
        let parameters = 4.0 * self.num_parameters() as f64 / t;
        (activations + parameters) * element_bytes as f64
    }
}

#[cfg(test)]
mod tests {
    use crate::gpt::GptPreset;

    use super::*;

    #[test]
    fn sequence_parallelism_divides_the_activations_and_tensor_parallelism_part_of_them() {
        let config = GptPreset::named("gpt3-1.7b").expect("a preset").config();
        let bytes = |tensor_parallel_size, sequence_parallel| {
            let parallel = ParallelConfig {
                tensor_parallel_size,
                sequence_parallel,
                ..ParallelConfig::default()
            };
            config.memory_bytes(&parallel, 4, 2)
        };
        assert!((bytes(1, false) / bytes(8, true) - 8.0).abs() < 1e-9);
        assert!(bytes(8, true) < bytes(8, false) && bytes(8, false) < bytes(1, false));
    }

    #[test]
    fn recomputation_saves_one_number_per_attention_weight() {
        let config = GptPreset::named("gpt2-124m").expect("a preset").config();
        let recomputed = GptConfig {
            recompute_attention: true,
            ..config.clone()
        };
        let bytes = |config: &GptConfig| config.memory_bytes(&ParallelConfig::default(), 3, 4);
        let weights = config.n_layers * 3 * config.n_heads * config.max_seq_length.pow(2);
        let saved = bytes(&config) - bytes(&recomputed);
        assert!((saved / (4 * weights) as f64 - 1.0).abs() < 1e-9, "{saved}");
    }
}
