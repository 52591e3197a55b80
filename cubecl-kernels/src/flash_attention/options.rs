//! `AttentionOptions`: which keys a query sees, and what is done between the products.

use std::ops::Range;

use super::sizes::AttentionSizes;
use super::{Documents, KeyLengths, MAX_HEAD};
use crate::error::{Check, KernelError};
use crate::operation::parts::{Part, of_range};
use crate::random::RowDropout;

/// Which keys a query sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttentionMask {
    /// All.
    Full,
    /// Those up to its own position; the numbers of keys and queries are equal.
    Causal,
    /// The last `n` of those up to its own position; with 1 its own alone.
    CausalWindow(usize),
}

impl AttentionMask {
    /// Whether a query sees no key after its own position.
    pub fn is_causal(self) -> bool {
        self != Self::Full
    }

    /// How many keys a query sees at most, where that is limited.
    pub fn window(self) -> Option<usize> {
        match self {
            Self::CausalWindow(window) => Some(window),
            Self::Full | Self::Causal => None,
        }
    }
}

/// What is done between the products. Where several of its fields limit the keys that a query sees, it sees those that
/// all of them let it see.
#[derive(Clone, Debug)]
pub struct AttentionOptions {
    /// Which keys a query sees.
    pub mask: AttentionMask,
    /// What the products of queries and keys are multiplied by; `1 / √d_head` as a rule.
    pub scale: f64,
    /// The dropout of the weights, its places those of the queries, sample by sample; none outside training.
    pub dropout: Option<RowDropout>,
    /// The documents that the samples consist of; `None` if each sample is one.
    pub documents: Option<Documents>,
    /// How many keys each sample has, where the others are padding; `None` if all of them count.
    pub key_lengths: Option<KeyLengths>,
    /// Whether the same inputs give the same gradients bit for bit. Otherwise, where it is faster, the parts of a
    /// query's gradient, and of the bias's, are added in an order that is not the same every time: on matrix units of
    /// CUDA.
    pub is_deterministic: bool,
}

impl AttentionOptions {
    /// Returns the options of the samples and heads that a rank has of the first input. A sample has this many queries.
    pub(super) fn of_part(&self, queries: usize, part: &dyn Part) -> Self {
        let (samples, heads) = (part.range(0, 0), part.range(0, 2));
        let dropout = self.dropout.as_ref().map(|dropout| RowDropout {
            first_head: dropout.first_head + heads.start as u32,
            ..of_range(dropout, samples.start * queries..samples.end * queries)
        });
        let documents = self.documents.as_ref();
        let key_lengths = self.key_lengths.as_ref();
        Self {
            dropout,
            documents: documents.map(|documents| documents.of_samples(samples.clone())),
            key_lengths: key_lengths.map(|lengths| lengths.of_samples(samples)),
            ..self.clone()
        }
    }

    /// The keys that a query sees of `keys`. Neither end is before that of an earlier query of the sample.
    pub(super) fn keys_seen(&self, sample: usize, query: usize, keys: usize) -> Range<usize> {
        let documents = self.documents.as_ref();
        let [mut start, mut end] = documents.map_or([0, keys], |documents| documents.of(sample, query));
        if self.mask.is_causal() {
            end = end.min(query + 1);
        }
        if let Some(window) = self.mask.window() {
            start = start.max((query + 1).saturating_sub(window));
        }
        if let Some(lengths) = &self.key_lengths {
            end = end.min(lengths.of(sample));
        }
        start.min(end)..end
    }

    /// Whether what a query sees is more than a mask that is full or causal says.
    pub(super) fn has_ranges(&self) -> bool {
        self.documents.is_some() || self.key_lengths.is_some() || self.mask.window().is_some()
    }

    pub(super) fn check(&self, check: Check, sizes: AttentionSizes) -> Result<(), KernelError> {
        let AttentionSizes {
            batch,
            queries,
            keys,
            heads,
            kv_heads,
            d_head,
        } = sizes;
        let is_head = (1..=MAX_HEAD).contains(&d_head);
        check.value("d_head", d_head as f64, is_head, || format!("1 to {MAX_HEAD}"))?;
        let is_group = kv_heads > 0 && heads.is_multiple_of(kv_heads);
        check.value("the number of key heads", kv_heads as f64, is_group, || {
            format!("a divisor of that of the query heads, {heads}")
        })?;
        let is_scale = self.scale.is_finite() && self.scale > 0.0;
        check.value("the scale", self.scale, is_scale, || "finite and above 0".to_owned())?;
        if self.mask.is_causal() {
            check.value("the number of keys", keys as f64, queries == keys, || {
                format!("that of the queries under causal attention, {queries}")
            })?;
        }
        if let Some(window) = self.mask.window() {
            check.value("the window", window as f64, window > 0, || "at least 1".to_owned())?;
        }
        if let Some(documents) = &self.documents {
            documents.check(check, sizes)?;
        }
        if let Some(lengths) = &self.key_lengths {
            lengths.check(check, sizes)?;
        }
        match &self.dropout {
            Some(dropout) => dropout.check(check.0, batch * queries, heads, keys),
            None => Ok(()),
        }
    }
}
