//! `DocumentMarks`: positions, documents and loss mask of a sample, by its end-of-document tokens.

use crate::tokenizer::Token;

/// What starts again where a document ends within a sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DocumentRules {
    /// Positions count from 0 in every document (`--reset-position-ids`).
    pub reset_position_ids: bool,
    /// Attention does not cross documents (`--reset-attention-mask`).
    pub reset_attention_mask: bool,
    /// What follows an end-of-document token counts nothing in the loss (`--eod-mask-loss`).
    pub eod_mask_loss: bool,
}

impl DocumentRules {
    /// Returns whether a sample is one text, whatever tokens are in it.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// Which token ends a document, and what starts again there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DocumentMarking {
    /// The token.
    pub end_of_document: Token,
    /// What starts again.
    pub rules: DocumentRules,
}

/// What a model needs to know of a sample next to its tokens.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct DocumentMarks {
    /// Position of each input, in its document or in the sample, `[seq_length]`.
    pub position_ids: Vec<u32>,
    /// First input of the document of each input, a number in the sample, `[seq_length]`: attention sees nothing before
    /// it. Zeros if attention crosses documents. Kernels take these as bounds of sequences, instead of a dense mask.
    pub document_starts: Vec<usize>,
    /// How much the loss at each input counts, `[seq_length]`.
    pub loss_mask: Vec<f32>,
}

impl DocumentMarks {
    /// Appends the marks of a sample with these inputs. An end-of-document token belongs to the document that it ends.
    ///
    /// # Shapes
    /// - `inputs`: `[seq_length]`, what the model sees, without the last target
    ///
    /// # Reference
    /// Megatron-LM's `_get_ltor_masks_and_position_ids`.
    pub fn push(&mut self, inputs: &[Token], end_of_document: Token, rules: DocumentRules) {
        let mut start = 0;
        for (place, &token) in inputs.iter().enumerate() {
            let position = if rules.reset_position_ids { place - start } else { place };
            self.position_ids.push(position as u32);
            self.document_starts
                .push(if rules.reset_attention_mask { start } else { 0 });
            let is_end = token == end_of_document;
            self.loss_mask
                .push(if is_end && rules.eod_mask_loss { 0.0 } else { 1.0 });
            if is_end {
                start = place + 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const END: Token = 9;
    const INPUTS: [Token; 8] = [1, 2, END, 3, END, END, 4, 5];

    // The known answers are Megatron-LM's, of its function with PyTorch 2.15.
    #[test]
    fn each_rule_starts_again_at_an_end_of_document() {
        let plain = ([0, 1, 2, 3, 4, 5, 6, 7], [0; 8], [1.0; 8]);
        let cases = [
            ([false, false, false], plain),
            ([true, false, false], ([0, 1, 2, 0, 1, 0, 0, 1], plain.1, plain.2)),
            ([false, true, false], (plain.0, [0, 0, 0, 3, 3, 5, 6, 6], plain.2)),
            (
                [false, false, true],
                (plain.0, plain.1, [1.0, 1.0, 0.0, 1.0, 0.0, 0.0, 1.0, 1.0]),
            ),
        ];
        for ([reset_position_ids, reset_attention_mask, eod_mask_loss], (positions, starts, loss_mask)) in cases {
            let rules = DocumentRules {
                reset_position_ids,
                reset_attention_mask,
                eod_mask_loss,
            };
            let mut marks = DocumentMarks::default();
            marks.push(&INPUTS, END, rules);
            assert_eq!(marks.position_ids, positions, "{rules:?}");
            assert_eq!(marks.document_starts, starts, "{rules:?}");
            assert_eq!(marks.loss_mask, loss_mask, "{rules:?}");
        }
    }

    #[test]
    fn samples_are_appended() {
        let rules = DocumentRules {
            reset_attention_mask: true,
            ..DocumentRules::default()
        };
        let mut marks = DocumentMarks::default();
        marks.push(&INPUTS, END, rules);
        marks.push(&[END, 1], END, rules);
        assert_eq!(marks.document_starts[8..], [0, 1]);
        assert_eq!(marks.position_ids[8..], [0, 1]);
    }
}
