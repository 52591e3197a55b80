//! [`Progress`]: how far a rank has come with its module.

use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};

use crate::random::SaidOfStep;

/// What a rank has done to its module since it was wrapped; the same on all ranks that hold the same parameters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Steps of the optimizer.
    pub steps: u32,
    /// Calls of [`update`](super::DistributedDataParallel::update) and loaded records.
    pub updates: u32,
}

/// A rank's statement of the step at hand, the same on all data-parallel ranks: else one has left a step out.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Stated {
    pub(super) said: SaidOfStep,
    /// Steps begun, those that were given up included.
    pub(super) begun: u64,
    /// That of the last step of the optimizer.
    pub(super) learning_rate: Option<f64>,
}

impl Stated {
    /// Elements of [`to_words`](Self::to_words).
    pub(super) const NUM_WORDS: usize = 5;

    pub(super) fn to_words(self) -> [i64; Self::NUM_WORDS] {
        let Self {
            said: SaidOfStep { iteration, batch },
            begun,
            learning_rate,
        } = self;
        // Of what is not said no value is near.
        let or_none = |value: Option<u64>| value.map_or(-1, |value| value as i64);
        [
            or_none(iteration),
            or_none(batch.map(|[start, _]| start)),
            or_none(batch.map(|[_, end]| end)),
            begun as i64,
            or_none(learning_rate.map(f64::to_bits)),
        ]
    }

    /// Says in which of their words two ranks differ, and what each says; `None` if they do not.
    pub(super) fn difference(first: &[i64], other: &[i64]) -> Option<(&'static str, [String; 2])> {
        let said = |word: i64, text: fn(i64) -> String| if word < 0 { "none".to_owned() } else { text(word) };
        let both = |text: &dyn Fn(&[i64]) -> String| [text(first), text(other)];
        let number = |word: i64| word.to_string();
        if first[0] != other[0] {
            return Some((
                "the iteration that set_step named",
                both(&|words| said(words[0], number)),
            ));
        }
        if first[1..3] != other[1..3] {
            let range = |words: &[i64]| match words[1] {
                ..0 => "none".to_owned(),
                start => format!("{start}..{}", words[2]),
            };
            return Some(("the global batch of data_shard or shard_loader", both(&range)));
        }
        if first[3] != other[3] {
            return Some(("the number of steps begun", both(&|words| number(words[3]))));
        }
        let rate = |word: i64| f64::from_bits(word as u64).to_string();
        (first[4] != other[4]).then(|| {
            (
                "the learning rate of the last step",
                both(&|words| said(words[4], rate)),
            )
        })
    }
}

impl fmt::Display for Progress {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = |count: u32| if count == 1 { "" } else { "s" };
        let Self { steps, updates } = *self;
        write!(
            formatter,
            "{steps} step{} and {updates} update{}",
            plural(steps),
            plural(updates)
        )
    }
}

impl Progress {
    /// Elements of [`to_maxima`](Self::to_maxima).
    pub(super) const NUM_MAXIMA: usize = 6;

    /// Returns the numbers whose maxima over the ranks show whether the ranks have come equally far, and say the same.
    pub(super) fn to_maxima(self, stated: Stated) -> [i32; Self::NUM_MAXIMA] {
        let mut hasher = DefaultHasher::new();
        stated.to_words().hash(&mut hasher);
        let counts = [self.steps, self.updates, hasher.finish() as u32];
        let [steps, updates, hash] = counts.map(|count| (count & i32::MAX as u32) as i32);
        [steps, -steps, updates, -updates, hash, -hash]
    }

    /// Whether ranks with these maxima have come equally far: the largest number is the smallest.
    pub(super) fn is_equal(maxima: &[i32]) -> bool {
        maxima.chunks_exact(2).all(|pair| pair[0] == -pair[1])
    }
}
