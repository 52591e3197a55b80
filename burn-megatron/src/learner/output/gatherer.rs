//! `OutputGatherer`: the output of the global batch on the first data-parallel rank.

use burn::tensor::TensorData;

use super::{GatherOutput, OutputPart};
use crate::collectives::ProcessGroup;
use crate::context::gather_bytes;
use crate::learner::agreement::Shares;
use crate::learner::error::LearnerError;
use crate::learner::packing::{pack, unpack};

/// Joins the outputs of the data-parallel ranks, and looks out for ranks that are given the same samples.
pub(in crate::learner) struct OutputGatherer {
    group: ProcessGroup,
    /// `training` or `validation`.
    split: &'static str,
    /// Batches so far, up to [`WATCHED`].
    batches: usize,
    /// The second rank of a pair that has had the same outputs in all of them.
    same: Option<usize>,
}

const ROWS: &str = "rows";
const MEAN: &str = "mean";

/// Batches after which ranks with the same outputs in all of them have the same samples.
const WATCHED: usize = 3;

impl OutputGatherer {
    pub(in crate::learner) fn new(group: &ProcessGroup, split: &'static str) -> Self {
        Self {
            group: group.labelled("outputs for metrics"),
            split,
            batches: 0,
            same: None,
        }
    }

    /// Returns the output of the global batch on the first data-parallel rank; none on the others.
    ///
    /// # Communication
    /// From each other rank a message of its output to the first.
    ///
    /// # Errors
    /// When outputs do not fit together, when several ranks have the same samples, or when a transfer fails.
    pub(in crate::learner) fn gather<T: GatherOutput>(
        &mut self,
        output: Option<T>,
        shares: &Shares,
        batch: usize,
    ) -> Result<Option<T>, LearnerError> {
        if self.group.size() == 1 {
            return Ok(output);
        }
        let parts = output.as_ref().map(T::parts);
        let Some(gathered) = gather_bytes(
            parts.as_deref().map_or_else(Vec::new, to_bytes),
            usize::MAX,
            &self.group,
        )?
        else {
            return Ok(None);
        };
        let (Some(output), Some(mine)) = (output, parts) else {
            let rank = gathered.iter().position(|bytes| !bytes.is_empty()).unwrap_or_default();
            let rank = self.group.ranks()[rank];
            return Err(LearnerError::FirstRankIdle { rank, batch });
        };
        let others = gathered[1..].iter().map(|bytes| from_bytes(bytes));
        let all: Vec<Option<Vec<OutputPart>>> = std::iter::once(Some(mine)).chain(others).collect();
        self.watch(&all)?;
        let joined = self.join(&all, &shares.samples)?;
        Ok(Some(output.with_parts(joined)))
    }

    /// Fails when two ranks have had the same outputs in all of the first batches.
    fn watch(&mut self, all: &[Option<Vec<OutputPart>>]) -> Result<(), LearnerError> {
        if self.batches == WATCHED {
            return Ok(());
        }
        let is_same = |rank: usize| {
            all[rank]
                .as_ref()
                .is_some_and(|parts| !parts.is_empty() && all[0] == all[rank])
        };
        self.same = match self.batches {
            0 => (1..all.len()).find(|&rank| is_same(rank)),
            _ => self.same.filter(|&rank| is_same(rank)),
        };
        self.batches += 1;
        match self.same {
            Some(other) if self.batches == WATCHED => Err(LearnerError::SameSamples {
                first: self.group.ranks()[0],
                other: self.group.ranks()[other],
                steps: WATCHED,
                split: self.split,
            }),
            _ => Ok(()),
        }
    }

    /// Joins the parts of all ranks, of which the first has some.
    fn join(&self, all: &[Option<Vec<OutputPart>>], samples: &[usize]) -> Result<Vec<TensorData>, LearnerError> {
        let first = all[0].as_ref().expect("checked");
        let ranks = || {
            all.iter()
                .enumerate()
                .filter_map(|(rank, parts)| Some((rank, parts.as_ref()?)))
        };
        (0..first.len())
            .map(|part| {
                let mut of_ranks = Vec::new();
                for (rank, parts) in ranks() {
                    let other = parts.get(part).map(OutputPart::data);
                    let mine = first[part].data();
                    match other.filter(|other| fits(mine, other)) {
                        Some(other) => of_ranks.push((other, samples[rank])),
                        None => return Err(self.outputs_differ(part, mine, rank, other)),
                    }
                }
                let is_mean = |(_, parts): (usize, &Vec<OutputPart>)| matches!(parts[part], OutputPart::Mean(_));
                if ranks().all(is_mean) {
                    Ok(mean(&of_ranks))
                } else {
                    Ok(rows(&of_ranks))
                }
            })
            .collect()
    }

    fn outputs_differ(&self, part: usize, mine: &TensorData, rank: usize, other: Option<&TensorData>) -> LearnerError {
        let describe = |data: &TensorData| format!("{:?} {:?}", data.shape(), data.dtype());
        LearnerError::OutputsDiffer {
            part,
            mine: describe(mine),
            first: self.group.ranks()[0],
            other: other.map_or_else(|| "missing".to_owned(), describe),
            rank: self.group.ranks()[rank],
            rule: "ranks must have equal types, and equal sizes in all dimensions after the first; pad sequences to \
                   one length for all batches",
        }
    }
}

/// Returns true if two ranks' parts can be joined: the number of rows may differ.
fn fits(a: &TensorData, b: &TensorData) -> bool {
    a.dtype() == b.dtype() && a.rank() == b.rank() && a.shape().iter().skip(1).eq(b.shape().iter().skip(1))
}

fn rows(of_ranks: &[(&TensorData, usize)]) -> TensorData {
    let (first, _) = of_ranks[0];
    let mut shape = first.shape().to_vec();
    shape[0] = of_ranks.iter().map(|(data, _)| data.shape()[0]).sum();
    let bytes: Vec<u8> = of_ranks.iter().flat_map(|(data, _)| data.as_bytes()).copied().collect();
    TensorData::from_bytes_vec(bytes, shape, first.dtype())
}

/// The mean over ranks, weighted by their samples.
fn mean(of_ranks: &[(&TensorData, usize)]) -> TensorData {
    let (first, _) = of_ranks[0];
    let total: usize = of_ranks.iter().map(|(_, samples)| samples).sum();
    let mut sums = vec![0.0; first.num_elements()];
    for (data, samples) in of_ranks {
        for (sum, value) in sums.iter_mut().zip(data.iter::<f64>()) {
            *sum += value * *samples as f64 / total as f64;
        }
    }
    TensorData::new(sums, first.shape().clone()).convert_dtype(first.dtype())
}

fn to_bytes(parts: &[OutputPart]) -> Vec<u8> {
    let named = parts.iter().map(|part| match part {
        OutputPart::Rows(data) => (ROWS, data),
        OutputPart::Mean(data) => (MEAN, data),
    });
    pack(named)
}

/// The parts of a rank; none if it had no samples.
fn from_bytes(bytes: &[u8]) -> Option<Vec<OutputPart>> {
    let parts = unpack(bytes)?.into_iter().map(|(kind, data)| match kind.as_str() {
        MEAN => OutputPart::Mean(data),
        _ => OutputPart::Rows(data),
    });
    Some(parts.collect())
}

#[cfg(test)]
mod tests {
    use burn::tensor::Tensor;

    use super::*;

    fn parts(loss: f32, rows: Vec<f32>) -> Vec<OutputPart> {
        let count = rows.len() / 2;
        vec![
            OutputPart::Mean(TensorData::new(vec![loss], [1])),
            OutputPart::Rows(TensorData::new(rows, [count, 2])),
        ]
    }

    fn gatherer() -> OutputGatherer {
        OutputGatherer::new(&ProcessGroup::single(), "training")
    }

    #[test]
    fn parts_come_back_from_their_bytes() {
        let parts = parts(0.5, vec![1.0, 2.0, 3.0, 4.0]);
        assert_eq!(from_bytes(&to_bytes(&parts)), Some(parts));
        assert_eq!(from_bytes(&[]), None);
        assert_eq!(from_bytes(&to_bytes(&[])), Some(vec![]));
    }

    #[test]
    fn rows_are_joined_and_means_weighted() {
        let all = [
            Some(parts(1.0, vec![1.0, 2.0, 3.0, 4.0])),
            Some(parts(4.0, vec![5.0, 6.0])),
            None,
        ];
        let joined = gatherer().join(&all, &[2, 1, 0]).expect("they fit");
        assert_eq!(joined[0], TensorData::new(vec![2.0_f32], [1]));
        assert_eq!(
            joined[1],
            TensorData::new(vec![1.0_f32, 2.0, 3.0, 4.0, 5.0, 6.0], [3, 2])
        );
    }

    #[test]
    fn a_loss_for_each_sample_is_joined_even_where_a_rank_has_one() {
        let losses = |values: Vec<f32>| {
            let count = values.len();
            OutputPart::loss(&Tensor::<1>::from_data(
                TensorData::new(values, [count]),
                &burn::tensor::Device::flex(),
            ))
        };
        let all = [Some(vec![losses(vec![1.0, 2.0])]), Some(vec![losses(vec![3.0])])];
        let joined = gatherer().join(&all, &[2, 1]).expect("they fit");
        assert_eq!(joined, [TensorData::new(vec![1.0_f32, 2.0, 3.0], [3])]);
    }

    #[test]
    fn the_same_samples_are_noticed_after_three_batches_and_a_chance_is_not() {
        let same = [Some(parts(1.0, vec![1.0, 2.0])), Some(parts(1.0, vec![1.0, 2.0]))];
        let other = [Some(parts(1.0, vec![1.0, 2.0])), Some(parts(1.0, vec![1.0, 3.0]))];
        let mut watching = gatherer();
        assert!(watching.watch(&same).is_ok() && watching.watch(&same).is_ok());
        assert_eq!(watching.same, Some(1));
        assert!(watching.watch(&other).is_ok() && watching.watch(&same).is_ok());
        assert_eq!(watching.same, None);
    }

    #[test]
    fn parts_of_other_sizes_are_named() {
        let longer = vec![
            OutputPart::Mean(TensorData::new(vec![1.0_f32], [1])),
            OutputPart::Rows(TensorData::new(vec![1.0_f32; 3], [1, 3])),
        ];
        let all = [Some(parts(1.0, vec![1.0, 2.0])), Some(longer)];
        let fits = |part: usize| {
            fits(
                all[0].as_ref().unwrap()[part].data(),
                all[1].as_ref().unwrap()[part].data(),
            )
        };
        assert!(fits(0) && !fits(1));
    }
}
