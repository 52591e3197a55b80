//! The sizes of a GPT at which operations are measured.

#[derive(Clone, Debug)]
pub struct Sizes {
    /// Tokens of a micro-batch: the rows of activations.
    pub tokens: usize,
    /// Widths of the model.
    pub widths: Vec<usize>,
    /// Widths at which linear layers are measured.
    pub linear_widths: Vec<usize>,
    /// Batch, heads, tokens of a sample and size of a head.
    pub attention: Vec<[usize; 4]>,
    /// Batch, heads, and tokens of a sample: the shapes of attention scores.
    pub scores: Vec<[usize; 3]>,
    /// The padded vocabulary.
    pub vocabulary: usize,
    /// Parameters that the optimizer updates.
    pub parameters: usize,
    /// Rows, depth and columns of the matrix product whose rate counts as the device's.
    pub product: usize,
}

impl Sizes {
    /// Those of large GPTs, or small ones for a machine without a GPU; only these widths, if there are any.
    pub fn new(small: bool, widths: &[usize]) -> Self {
        let mut sizes = if small { Self::small() } else { Self::large() };
        if !widths.is_empty() {
            sizes.linear_widths.retain(|width| widths.contains(width));
            sizes.widths = widths.to_vec();
        }
        sizes
    }

    fn large() -> Self {
        let (tokens, inner) = (8192, 2048);
        let attention = [64, 128]
            .into_iter()
            .flat_map(|d_head| [1024, 2048, 4096].map(|seq| [tokens / seq, inner / d_head, seq, d_head]));
        Self {
            tokens,
            widths: vec![768, 2048, 4096, 12288],
            linear_widths: vec![768, 2048, 4096],
            attention: attention.collect(),
            scores: vec![[8, 12, 1024], [4, 16, 2048], [1, 16, 4096]],
            vocabulary: 50304,
            parameters: 100_000_000,
            product: 8192,
        }
    }

    fn small() -> Self {
        Self {
            tokens: 96,
            widths: vec![64, 160],
            linear_widths: vec![64],
            attention: vec![[1, 2, 96, 64]],
            scores: vec![[1, 2, 96]],
            vocabulary: 1024,
            parameters: 100_000,
            product: 128,
        }
    }
}

/// The sizes of a training step of a GPT.
#[cfg(feature = "cuda")]
#[derive(Clone, Copy, Debug)]
pub struct StepSizes {
    /// Tokens of a micro-batch.
    pub tokens: usize,
    pub d_model: usize,
    pub n_layers: usize,
    pub vocabulary: usize,
}

#[cfg(feature = "cuda")]
impl StepSizes {
    /// Returns the sizes of 1.3 billion parameters, or small ones for a machine without a GPU.
    pub fn new(small: bool) -> Self {
        let [tokens, d_model, n_layers, vocabulary] = if small {
            [96, 64, 2, 256]
        } else {
            [8192, 2048, 24, 51200]
        };
        Self {
            tokens,
            d_model,
            n_layers,
            vocabulary,
        }
    }
}
