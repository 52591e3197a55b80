//! `LayerLayout`: which layers of a transformer each virtual stage of a pipeline holds.
//!
//! Chunk `c` of stage `s` is virtual stage `c * p + s`. The virtual stages hold ascending ranges of the layers; the
//! first one has the embedding as well, the last one the head and the loss.

use std::{fmt, ops::Range};

use crate::topology::nearest_multiples;

#[cfg(test)]
mod tests;
mod text;

/// The most virtual stages of a layout.
const MAX_VIRTUAL_STAGES: usize = 1 << 20;

/// The stages and chunks that layers are cut into, and the number of layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LayerSizes {
    /// Layers of the model.
    pub n_layers: usize,
    /// Stages: p.
    pub num_stages: usize,
    /// Chunks per stage: v.
    pub num_chunks: usize,
}

/// The layers of each virtual stage.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LayerLayout {
    sizes: LayerSizes,
    /// The first layer of each virtual stage, and at the end the number of layers.
    starts: Vec<usize>,
}

/// A layout that cannot be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum LayerLayoutError {
    #[error("{name} must be at least 1, got 0")]
    Zero { name: &'static str },
    #[error("num_stages * num_chunks must be at most {limit}, got {num_stages} * {num_chunks}")]
    TooManyStages {
        limit: usize,
        num_stages: usize,
        num_chunks: usize,
    },
    #[error(
        "n_layers must be divisible by num_stages * num_chunks = {num_stages} * {num_chunks} = {divisor}, got \
         {n_layers}; the nearest valid numbers of layers are {nearest}",
        divisor = num_stages * num_chunks
    )]
    Indivisible {
        n_layers: usize,
        num_stages: usize,
        num_chunks: usize,
        nearest: String,
    },
    #[error("layers for the first or the last stage need num_stages of at least 2, got {num_stages}")]
    SingleStage { num_stages: usize },
    #[error(
        "the layers of the {stage} stage must be divisible by num_chunks = {num_chunks}, got {got}; the nearest valid \
         numbers are {nearest}"
    )]
    IndivisibleStage {
        stage: &'static str,
        num_chunks: usize,
        got: usize,
        nearest: String,
    },
    #[error(
        "what the first ({first}) and the last stage ({last}) leave of n_layers = {n_layers} must divide over the \
         {others} other stages of {num_chunks} chunks, at least 1 layer each; the nearest valid numbers of layers are \
         {nearest}"
    )]
    IndivisibleRest {
        n_layers: usize,
        first: String,
        last: String,
        others: usize,
        num_chunks: usize,
        nearest: String,
    },
    #[error("layer layout, character {position}: {problem}")]
    Text {
        /// Where, in characters from 1.
        position: usize,
        problem: String,
    },
}

impl LayerLayout {
    /// Cuts the layers evenly over all virtual stages.
    ///
    /// # Errors
    /// When a size is zero, or p * v does not divide the layers; with the nearest numbers of layers that would do.
    pub fn even(sizes: LayerSizes) -> Result<Self, LayerLayoutError> {
        let num_virtual_stages = sizes.check()?;
        let LayerSizes {
            n_layers,
            num_stages,
            num_chunks,
        } = sizes;
        if !n_layers.is_multiple_of(num_virtual_stages) {
            return Err(LayerLayoutError::Indivisible {
                n_layers,
                num_stages,
                num_chunks,
                nearest: nearest_multiples(n_layers, num_virtual_stages),
            });
        }
        let each = n_layers / num_virtual_stages;
        Ok(Self::from_counts(sizes, (0..num_virtual_stages).map(|_| each)))
    }

    /// Gives the first and the last stage their own numbers of layers, and cuts what is left evenly over the others.
    ///
    /// A number is for the whole stage, and is divided over its chunks. Where a number is not given, that stage is one
    /// of the others.
    ///
    /// # Errors
    /// When a size is zero, when there is a single stage and a number is given, when v does not divide a number, or
    /// when what is left does not divide over the other stages and their chunks or is not there; with the nearest
    /// numbers that would do.
    ///
    /// # Reference
    /// Megatron-LM's `--decoder-first-pipeline-num-layers` and `--decoder-last-pipeline-num-layers`.
    pub fn first_last(sizes: LayerSizes, first: Option<usize>, last: Option<usize>) -> Result<Self, LayerLayoutError> {
        if first.is_none() && last.is_none() {
            return Self::even(sizes);
        }
        sizes.check()?;
        let LayerSizes {
            n_layers,
            num_stages,
            num_chunks,
        } = sizes;
        if num_stages < 2 {
            return Err(LayerLayoutError::SingleStage { num_stages });
        }
        for (name, stage, number) in [
            ("the number of layers of the first stage", "first", first),
            ("the number of layers of the last stage", "last", last),
        ] {
            match number {
                Some(0) => return Err(LayerLayoutError::Zero { name }),
                Some(got) if !got.is_multiple_of(num_chunks) => {
                    return Err(LayerLayoutError::IndivisibleStage {
                        stage,
                        num_chunks,
                        got,
                        nearest: nearest_multiples(got, num_chunks),
                    });
                }
                _ => {}
            }
        }
        let others = num_stages - usize::from(first.is_some()) - usize::from(last.is_some());
        let taken = first.unwrap_or(0).saturating_add(last.unwrap_or(0));
        let divisor = others * num_chunks;
        let is_valid = match n_layers.checked_sub(taken) {
            None => false,
            Some(rest) if others == 0 => rest == 0,
            Some(rest) => rest > 0 && rest.is_multiple_of(divisor),
        };
        if !is_valid {
            let text = |number: Option<usize>| number.map_or("not given".to_owned(), |number| number.to_string());
            return Err(LayerLayoutError::IndivisibleRest {
                n_layers,
                first: text(first),
                last: text(last),
                others,
                num_chunks,
                nearest: nearest_totals(n_layers, taken, divisor),
            });
        }
        let each = (n_layers - taken).checked_div(divisor).unwrap_or(0);
        let of_chunk = |number: Option<usize>| number.map_or(each, |number| number / num_chunks);
        let counts = (0..num_stages * num_chunks).map(|virtual_stage| match virtual_stage % num_stages {
            0 => of_chunk(first),
            stage if stage + 1 == num_stages => of_chunk(last),
            _ => each,
        });
        Ok(Self::from_counts(sizes, counts))
    }

    /// Reads a layout: `|` between virtual stages, in ascending order, `E` the embedding, `t` a layer, `L` the head and
    /// the loss, `x*n` and `(...)*n` repetitions, commas wherever they help.
    ///
    /// `Et*3|(tt|)*2tL` has four virtual stages, of 3, 2, 2 and 1 layers. Only here may a virtual stage have none.
    ///
    /// Nothing is allocated beyond what p * v and the text ask for: reading stops at the first layer or virtual stage
    /// too many.
    ///
    /// # Errors
    /// When a size is zero, or the text breaks a rule: `E` first and `L` last, once each, n layers, p * v virtual
    /// stages. The message gives the place in the text, the rule and the values.
    ///
    /// # Reference
    /// Megatron-LM's `--pipeline-model-parallel-layout`.
    pub fn parse(sizes: LayerSizes, text: &str) -> Result<Self, LayerLayoutError> {
        let num_virtual_stages = sizes.check()?;
        let counts = text::read(text, sizes.n_layers, num_virtual_stages)?;
        Ok(Self::from_counts(sizes, counts.into_iter()))
    }

    /// The layers of a virtual stage, by their global numbers.
    ///
    /// # Panics
    /// Unless the virtual stage is below p * v.
    pub fn range(&self, virtual_stage: usize) -> Range<usize> {
        let count = self.num_virtual_stages();
        assert!(
            virtual_stage < count,
            "expected a virtual stage below {count}, got {virtual_stage}"
        );
        self.starts[virtual_stage]..self.starts[virtual_stage + 1]
    }

    /// The layers of each chunk of a stage, in ascending order.
    ///
    /// # Panics
    /// Unless the stage is below p.
    pub fn ranges_of_stage(&self, stage: usize) -> impl Iterator<Item = Range<usize>> + '_ {
        let num_stages = self.sizes.num_stages;
        assert!(stage < num_stages, "expected a stage below {num_stages}, got {stage}");
        (0..self.sizes.num_chunks).map(move |chunk| self.range(chunk * num_stages + stage))
    }

    /// The virtual stage that holds a layer.
    ///
    /// # Panics
    /// Unless the layer is below the number of layers.
    pub fn virtual_stage_of(&self, layer: usize) -> usize {
        let n_layers = self.sizes.n_layers;
        assert!(layer < n_layers, "expected a layer below {n_layers}, got {layer}");
        self.starts.partition_point(|&start| start <= layer) - 1
    }

    /// Whether a virtual stage has the embedding.
    pub fn has_embedding(&self, virtual_stage: usize) -> bool {
        virtual_stage == 0
    }

    /// Whether a virtual stage has the head and the loss.
    pub fn has_head(&self, virtual_stage: usize) -> bool {
        virtual_stage + 1 == self.num_virtual_stages()
    }

    /// Layers of the model.
    pub fn num_layers(&self) -> usize {
        self.sizes.n_layers
    }

    /// Stages: p.
    pub fn num_stages(&self) -> usize {
        self.sizes.num_stages
    }

    /// Chunks per stage: v.
    pub fn num_chunks(&self) -> usize {
        self.sizes.num_chunks
    }

    /// Virtual stages: p * v.
    pub fn num_virtual_stages(&self) -> usize {
        self.starts.len() - 1
    }

    /// The counts must be p * v and sum to the number of layers.
    fn from_counts(sizes: LayerSizes, counts: impl Iterator<Item = usize>) -> Self {
        let mut starts = vec![0];
        let mut end = 0;
        for count in counts {
            end += count;
            starts.push(end);
        }
        assert_eq!(
            (end, starts.len() - 1),
            (sizes.n_layers, sizes.num_stages * sizes.num_chunks)
        );
        Self { sizes, starts }
    }
}

impl LayerSizes {
    /// Returns p * v.
    fn check(self) -> Result<usize, LayerLayoutError> {
        let Self {
            n_layers,
            num_stages,
            num_chunks,
        } = self;
        for (name, size) in [
            ("n_layers", n_layers),
            ("num_stages", num_stages),
            ("num_chunks", num_chunks),
        ] {
            if size == 0 {
                return Err(LayerLayoutError::Zero { name });
            }
        }
        let limit = MAX_VIRTUAL_STAGES;
        num_stages
            .checked_mul(num_chunks)
            .filter(|&product| product <= limit)
            .ok_or(LayerLayoutError::TooManyStages {
                limit,
                num_stages,
                num_chunks,
            })
    }
}

/// The numbers of layers on either side of `n_layers` that leave a positive multiple of `divisor` after `taken`, or
/// nothing where `divisor` is 0; as text.
fn nearest_totals(n_layers: usize, taken: usize, divisor: usize) -> String {
    if divisor == 0 {
        return taken.to_string();
    }
    let rest = n_layers.saturating_sub(taken);
    let below = rest / divisor * divisor;
    let above = taken.saturating_add(below).saturating_add(divisor);
    match below {
        0 => above.to_string(),
        _ => format!("{} and {above}", taken + below),
    }
}

impl fmt::Display for LayerLayout {
    /// The layout as [`LayerLayout::parse`] reads it, repetitions written short.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts: Vec<usize> = self.starts.windows(2).map(|bounds| bounds[1] - bounds[0]).collect();
        text::write(formatter, &counts)
    }
}
