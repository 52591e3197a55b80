//! `LayerRecompute`: which blocks of a chunk keep their input only and run again before their backward pass.
//!
//! Pure integers. Part of the model's configuration; asked by the model for its segments.

use std::ops::Range;

use serde::{Deserialize, Serialize};

/// Which blocks are recomputed: Megatron's full recomputation.
///
/// # Reference
/// Chen et al. 2016, arXiv:1604.06174; `--recompute-granularity full` of Megatron-LM.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum LayerRecompute {
    /// None: every block keeps what its backward pass needs.
    #[default]
    Nothing,
    /// All blocks, in groups of this many, each of which keeps its input: `uniform`.
    Uniform(usize),
    /// This many blocks of each chunk, the first ones, each on its own; the others keep everything: `block`.
    Block(usize),
}

/// Consecutive blocks of a chunk with a graph of their own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// True if it starts with the embedding.
    pub has_embedding: bool,
    /// The blocks, by their numbers in the chunk.
    pub blocks: Range<usize>,
    /// True if it ends with the head and the loss.
    pub has_head: bool,
    /// True if it is run again before its backward pass.
    pub is_recomputed: bool,
}

impl LayerRecompute {
    /// Returns the segments of a chunk of `num_blocks`, in order; one at least.
    pub fn segments(self, num_blocks: usize, has_embedding: bool, has_head: bool) -> Vec<Segment> {
        let (recomputed, group) = match self {
            LayerRecompute::Nothing => (0, 1),
            LayerRecompute::Uniform(group) => (num_blocks, group.max(1)),
            LayerRecompute::Block(count) => (count.min(num_blocks), 1),
        };
        let kept = |blocks: Range<usize>| Segment {
            has_embedding: false,
            blocks,
            has_head: false,
            is_recomputed: false,
        };
        let mut segments = Vec::new();
        // Embedding and head are kept: they are cheap to keep and dear to run.
        if has_embedding && recomputed > 0 {
            segments.push(kept(0..0));
        }
        segments.extend((0..recomputed).step_by(group).map(|first| Segment {
            is_recomputed: true,
            ..kept(first..(first + group).min(recomputed))
        }));
        if recomputed < num_blocks || has_head || segments.is_empty() {
            segments.push(kept(recomputed..num_blocks));
        }
        if let Some(first) = segments.first_mut() {
            first.has_embedding = has_embedding;
        }
        if let Some(last) = segments.last_mut() {
            last.has_head = has_head;
        }
        segments
    }
}

/// Returns the same work in smaller segments: embedding, head and each block that is not run again are segments of
/// their own.
pub(super) fn layer_segments(segments: Vec<Segment>) -> Vec<Segment> {
    segments.into_iter().flat_map(layers_of).collect()
}

fn layers_of(segment: Segment) -> Vec<Segment> {
    let Range { start, end } = segment.blocks;
    let part = |blocks: Range<usize>| Segment {
        has_embedding: false,
        blocks,
        has_head: false,
        is_recomputed: segment.is_recomputed,
    };
    let step = if segment.is_recomputed { (end - start).max(1) } else { 1 };
    let blocks = (start..end).step_by(step);
    let mut parts: Vec<Segment> = blocks.map(|first| part(first..first + step)).collect();
    if segment.has_embedding {
        let has_embedding = true;
        parts.insert(
            0,
            Segment {
                has_embedding,
                ..part(start..start)
            },
        );
    }
    if segment.has_head {
        let has_head = true;
        parts.push(Segment {
            has_head,
            ..part(end..end)
        });
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Shows the blocks of each segment, with `e` before them if it has the embedding, and after them `h` if it has the
    /// head and `*` if it is recomputed.
    fn shown(recompute: LayerRecompute, num_blocks: usize, ends: [bool; 2]) -> String {
        let segments = recompute.segments(num_blocks, ends[0], ends[1]);
        let shown = segments.iter().map(|segment| {
            let mark = |is: bool, mark| if is { mark } else { "" };
            format!(
                "{}{}..{}{}{}",
                mark(segment.has_embedding, "e"),
                segment.blocks.start,
                segment.blocks.end,
                mark(segment.has_head, "h"),
                mark(segment.is_recomputed, "*")
            )
        });
        shown.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn segments_cover_the_blocks_and_keep_embedding_and_head() {
        let (whole, middle) = ([true, true], [false, false]);
        assert_eq!(shown(LayerRecompute::Nothing, 3, whole), "e0..3h");
        assert_eq!(shown(LayerRecompute::Uniform(2), 3, whole), "e0..0 0..2* 2..3* 3..3h");
        assert_eq!(shown(LayerRecompute::Uniform(2), 3, middle), "0..2* 2..3*");
        assert_eq!(shown(LayerRecompute::Uniform(1), 2, [false, true]), "0..1* 1..2* 2..2h");
        assert_eq!(shown(LayerRecompute::Block(1), 3, whole), "e0..0 0..1* 1..3h");
        assert_eq!(shown(LayerRecompute::Block(5), 2, middle), "0..1* 1..2*");
        assert_eq!(shown(LayerRecompute::Block(2), 0, middle), "0..0");
        assert_eq!(shown(LayerRecompute::Nothing, 0, [true, false]), "e0..0");
    }
}
