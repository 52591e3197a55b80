//! [`Report`]: figures, and all that they depend on.

use serde_json::{Value, json};

use super::figures::{Family, as_json, as_table};
use crate::arguments::{EvaluationArguments, TaskKind};
use crate::layout::Layout;

/// An evaluation: its model, its settings and its figures.
pub(super) struct Report<'a> {
    pub(super) arguments: &'a EvaluationArguments,
    pub(super) layout: Layout,
    /// The checkpoint, or the folder of Hugging Face's files.
    pub(super) source: String,
    /// The iteration after which it was saved; none of Hugging Face's files.
    pub(super) iteration: Option<u64>,
    pub(super) num_parameters: usize,
    pub(super) tokenizer: &'static str,
    pub(super) tokenizer_sha256: String,
    pub(super) data_sha256: String,
    pub(super) seq_length: usize,
    /// Advance of windows, of wikitext.
    pub(super) overlapping_eval: Option<usize>,
    pub(super) num_items: usize,
    pub(super) num_truncated: usize,
    pub(super) num_sequences: usize,
    pub(super) seconds: f64,
    pub(super) families: Vec<Family>,
}

impl Report<'_> {
    /// As one object.
    pub(super) fn as_json(&self) -> Value {
        let task = &self.arguments.task;
        json!({
            "task": task.kind.name(),
            "data": task.data,
            "data_sha256": self.data_sha256,
            "checkpoint": self.source,
            "iteration": self.iteration,
            "num_parameters": self.num_parameters,
            "tokenizer": self.tokenizer,
            "tokenizer_sha256": self.tokenizer_sha256,
            "settings": {
                "seq_length": self.seq_length,
                "overlapping_eval": self.overlapping_eval,
                "strict_lambada": (task.kind == TaskKind::Lambada).then_some(task.strict_lambada),
                "target_delimiter": (task.kind == TaskKind::MultipleChoice).then_some(&task.target_delimiter),
                "micro_batch_size": task.micro_batch_size,
                "dtype": burn::tensor::DType::from(self.arguments.precision.dtype()).name(),
                "fused_kernels": !self.arguments.device.no_fused_kernels,
                "layout": self.layout.to_string(),
            },
            "num_items": self.num_items,
            "num_truncated": self.num_truncated,
            "num_sequences": self.num_sequences,
            "seconds": self.seconds,
            "figures": as_json(&self.families),
        })
    }

    /// For people, ending with a line break.
    pub(super) fn as_text(&self) -> String {
        let task = &self.arguments.task;
        let iteration = self
            .iteration
            .map_or(String::new(), |iteration| format!(", iteration {iteration}"));
        let mut text = format!(
            "{}{iteration} | {} of {}, SHA-256 {} | {} sequences of up to {} tokens in {:.1} s\n{}",
            self.source,
            task.kind.name(),
            task.data.display(),
            &self.data_sha256[..16],
            self.num_sequences,
            self.seq_length,
            self.seconds,
            as_table(&self.families)
        );
        if self.num_truncated > 0 {
            text += &format!(
                "{} of {} were longer than the {} tokens that the model sees, and lost their beginning\n",
                self.num_truncated, self.num_items, self.seq_length
            );
        }
        text
    }
}
