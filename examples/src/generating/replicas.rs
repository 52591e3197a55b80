//! [`Replicas`]: the data-parallel replicas of a model that generate together: each continues its share of the prompts,
//! and the first prints what all have drawn.

use anyhow::Context as _;
use burn_megatron::collectives::{ProcessGroup, ReduceOp};
use models::generation::{FinishReason, GenerationEvent};
use serde::{Deserialize, Serialize};

use super::prompts::Prompts;
use crate::launching::StopReason;

/// The first ranks of all replicas, of which this is one.
pub(super) struct Replicas<'a> {
    group: &'a ProcessGroup,
}

/// A token that was drawn for a sample of a prompt.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct SampleToken {
    /// The number of the prompt.
    pub(super) number: u64,
    /// The sample's number among those of the prompt.
    pub(super) sample: usize,
    /// See [`GenerationEvent`], as of the fields below.
    pub(super) token: u32,
    pub(super) log_probability: f64,
    pub(super) top: Vec<(u32, f64)>,
    /// The bits of the margin, which may be infinite: JSON has no such number.
    margin: u64,
    pub(super) text: String,
    pub(super) finished: Option<FinishReason>,
}

impl SampleToken {
    /// Returns what was drawn for a prompt of this number.
    pub(super) fn new(number: u64, event: GenerationEvent) -> Self {
        Self {
            number,
            sample: event.sample,
            token: event.token,
            log_probability: event.log_probability,
            top: event.top,
            margin: event.margin.to_bits(),
            text: event.text,
            finished: event.finished,
        }
    }

    /// How close the choice was.
    pub(super) fn margin(&self) -> f64 {
        f64::from_bits(self.margin)
    }
}

impl<'a> Replicas<'a> {
    pub(super) fn new(group: &'a ProcessGroup) -> Self {
        Self { group }
    }

    pub(super) fn is_alone(&self) -> bool {
        self.group.size() == 1
    }

    /// Whether this is the one that prints.
    pub(super) fn is_first(&self) -> bool {
        self.group.rank() == 0
    }

    /// Returns the first replica's texts on all of them.
    ///
    /// # Communication
    /// Two broadcasts over the replicas, of 8 bytes and of the texts.
    pub(super) fn share_texts(&self, texts: Option<Vec<String>>) -> anyhow::Result<Vec<String>> {
        let mut bytes = match &texts {
            Some(texts) => serde_json::to_vec(texts)?,
            None => Vec::new(),
        };
        let mut length = [bytes.len() as i64];
        self.group.broadcast(&mut length, 0)?;
        bytes.resize(usize::try_from(length[0]).context("the length of all prompts")?, 0);
        self.group.broadcast(&mut bytes, 0)?;
        serde_json::from_slice(&bytes).context("the prompts of rank 0")
    }

    pub(super) fn share_of(&self, texts: &[String]) -> Prompts {
        Prompts::of_replica(texts, self.group.rank(), self.group.size())
    }

    /// Returns why the replicas stop, if any wants to, and whether all are done.
    ///
    /// # Communication
    /// One all-reduce of two numbers over the replicas.
    pub(super) fn agree(
        &self,
        reason: Option<StopReason>,
        is_done: bool,
    ) -> anyhow::Result<(Option<StopReason>, bool)> {
        let mut numbers = [reason.map_or(0, |reason| reason as i32), i32::from(!is_done)];
        self.group.all_reduce(&mut numbers, ReduceOp::Max)?;
        Ok((StopReason::of_number(numbers[0]), numbers[1] == 0))
    }

    /// Returns what all replicas have drawn on the first; nothing on others.
    ///
    /// # Communication
    /// One all-gather of a number over the replicas, and a transfer to the first from each that has something.
    pub(super) fn gather(&self, mine: Vec<SampleToken>) -> anyhow::Result<Vec<SampleToken>> {
        if self.is_alone() {
            return Ok(mine);
        }
        let bytes = match (mine.is_empty(), self.is_first()) {
            (false, false) => serde_json::to_vec(&mine)?,
            _ => Vec::new(),
        };
        let mut lengths = vec![0; self.group.size()];
        self.group.all_gather(&[bytes.len() as i64], &mut lengths)?;
        if !self.is_first() {
            if !bytes.is_empty() {
                self.group.send(&bytes, 0)?;
            }
            return Ok(Vec::new());
        }
        let mut all = mine;
        for (replica, length) in lengths.into_iter().enumerate().filter(|(_, length)| *length > 0) {
            let mut bytes = vec![0; usize::try_from(length).context("the length of what was drawn")?];
            self.group.recv(&mut bytes, replica)?;
            let received: Vec<SampleToken> =
                serde_json::from_slice(&bytes).context("what another replica has drawn")?;
            all.extend(received);
        }
        Ok(all)
    }
}
