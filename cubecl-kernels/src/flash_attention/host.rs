//! Attention on the host in f64: what the tests compare with.

use std::ops::Range;

use super::{AttentionMask, AttentionOptions, AttentionSizes};

/// One query of one head: the row of weights that it has.
#[derive(Clone, Copy)]
struct Row {
    sample: usize,
    head: usize,
    query: usize,
}

impl AttentionSizes {
    /// Where the bias is of a row and a key in its table.
    fn bias(self, row: Row, key: usize) -> usize {
        row.head * self.distances() + key + self.queries - 1 - row.query
    }

    fn rows(self) -> impl Iterator<Item = Row> {
        (0..self.batch * self.heads * self.queries).map(move |row| Row {
            sample: row / (self.heads * self.queries),
            head: row / self.queries % self.heads,
            query: row % self.queries,
        })
    }

    /// Returns the range of the query, or of its output.
    fn query(self, row: Row) -> Range<usize> {
        let start = ((row.sample * self.queries + row.query) * self.heads + row.head) * self.d_head;
        start..start + self.d_head
    }

    /// Returns the range of a key, or a value, that the row's head reads.
    fn key(self, row: Row, key: usize) -> Range<usize> {
        let head = row.head * self.kv_heads / self.heads;
        let start = ((row.sample * self.keys + key) * self.kv_heads + head) * self.d_head;
        start..start + self.d_head
    }

    /// The keys that the row's query sees, which follow each other: asked one by one.
    fn seen(self, row: Row, options: &AttentionOptions) -> Range<usize> {
        let Row { sample, query, .. } = row;
        let documents = options.documents.as_ref();
        let [start, end] = documents.map_or([0, self.keys], |documents| documents.of(sample, query));
        let length = options
            .key_lengths
            .as_ref()
            .map_or(self.keys, |lengths| lengths.of(sample));
        let sees = |key: &usize| {
            let is_masked = match options.mask {
                AttentionMask::Full => false,
                AttentionMask::Causal => *key > query,
                AttentionMask::CausalWindow(window) => *key > query || query - key >= window,
            };
            *key >= start && *key < end && *key < length && !is_masked
        };
        let first = (0..self.keys).find(sees).unwrap_or(self.keys);
        first..first + (first..self.keys).take_while(sees).count()
    }

    /// The weights of the keys that the row's query sees, before dropout, and `log Σ exp` of its scores.
    fn weights(self, row: Row, inputs: &HostInputs<'_>, options: &AttentionOptions) -> (Vec<f64>, f64) {
        let query = &inputs.query[self.query(row)];
        let keys = self.seen(row, options);
        let score = |index: usize| {
            let bias = inputs.bias.map_or(0.0, |bias| bias[self.bias(row, index)]);
            options.scale * dot(query, &inputs.key[self.key(row, index)]) + bias
        };
        let scores: Vec<f64> = keys.map(score).collect();
        let maximum = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        // A query that sees nothing, or −∞ alone, weighs nothing.
        let maximum = if maximum == f64::NEG_INFINITY { 0.0 } else { maximum };
        let exponentials: Vec<f64> = scores.iter().map(|score| (score - maximum).exp()).collect();
        let sum: f64 = exponentials.iter().sum();
        let divisor = if sum == 0.0 { 1.0 } else { sum };
        let weights = exponentials.into_iter().map(|exponential| exponential / divisor);
        (weights.collect(), sum.ln() + maximum)
    }

    /// What dropout multiplies the weights by of the keys that the row's query sees.
    fn factors(self, row: Row, options: &AttentionOptions) -> Vec<f64> {
        let keys = self.seen(row, options);
        let mut factors = vec![1.0; keys.len()];
        if let Some(dropout) = &options.dropout {
            let place = row.sample * self.queries + row.query;
            dropout.fill_columns(&mut factors, [place, row.head, keys.start], dropout.scale(), 0.0);
        }
        factors
    }
}

/// What an attention reads.
#[derive(Clone, Copy, Debug)]
pub struct HostInputs<'a> {
    /// The queries.
    pub query: &'a [f64],
    /// The keys.
    pub key: &'a [f64],
    /// The values.
    pub value: &'a [f64],
    /// The relative bias, where there is one: `[heads, queries + keys - 1]`
    pub bias: Option<&'a [f64]>,
}

impl<'a> HostInputs<'a> {
    /// Queries, keys and values, without a bias.
    pub fn new([query, key, value]: [&'a [f64]; 3]) -> Self {
        Self {
            query,
            key,
            value,
            bias: None,
        }
    }
}

/// The gradients of an attention's inputs.
#[derive(Clone, Debug)]
pub struct HostGradients {
    /// Of query, key and value.
    pub inputs: [Vec<f64>; 3],
    /// Of the bias, where there is one.
    pub bias: Option<Vec<f64>>,
}

/// Returns the output, and `log Σ exp` of the scores of each query, as `[batch, heads, queries]`.
pub fn forward(sizes: AttentionSizes, inputs: HostInputs<'_>, options: &AttentionOptions) -> (Vec<f64>, Vec<f64>) {
    let mut output = vec![0.0; inputs.query.len()];
    let mut log_sum_exp = Vec::new();
    for row in sizes.rows() {
        let (weights, of_row) = sizes.weights(row, &inputs, options);
        log_sum_exp.push(of_row);
        let output = &mut output[sizes.query(row)];
        let factors = sizes.factors(row, options);
        for ((index, weight), factor) in sizes.seen(row, options).zip(weights).zip(factors) {
            add(output, weight * factor, &inputs.value[sizes.key(row, index)]);
        }
    }
    (output, log_sum_exp)
}

/// Returns the gradients of the inputs for that of the output.
pub fn backward(
    sizes: AttentionSizes,
    inputs: HostInputs<'_>,
    gradient: &[f64],
    options: &AttentionOptions,
) -> HostGradients {
    let HostInputs {
        query,
        key,
        value,
        bias,
    } = inputs;
    let [mut of_query, mut of_key, mut of_value] = [query, key, value].map(|input| vec![0.0; input.len()]);
    let mut of_bias = bias.map(|bias| vec![0.0; bias.len()]);
    for row in sizes.rows() {
        let (weights, _) = sizes.weights(row, &inputs, options);
        let factors = sizes.factors(row, options);
        let gradient = &gradient[sizes.query(row)];
        let keys = sizes.seen(row, options);
        let of_weights: Vec<f64> = (keys.clone().zip(&factors))
            .map(|(key, factor)| factor * dot(gradient, &value[sizes.key(row, key)]))
            .collect();
        let along = dot(&weights, &of_weights);
        for (key_index, (index, weight)) in keys.zip(weights.iter().enumerate()) {
            let place = sizes.key(row, key_index);
            let of_score = weight * (of_weights[index] - along);
            if let Some(of_bias) = &mut of_bias {
                of_bias[sizes.bias(row, key_index)] += of_score;
            }
            let of_product = options.scale * of_score;
            add(&mut of_query[sizes.query(row)], of_product, &key[place.clone()]);
            add(&mut of_key[place.clone()], of_product, &query[sizes.query(row)]);
            add(&mut of_value[place], weight * factors[index], gradient);
        }
    }
    HostGradients {
        inputs: [of_query, of_key, of_value],
        bias: of_bias,
    }
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn add(to: &mut [f64], factor: f64, terms: &[f64]) {
    for (to, term) in to.iter_mut().zip(terms) {
        *to += factor * term;
    }
}
