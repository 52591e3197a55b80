//! What the tests of schedules share: sizes, and the schedules of all kinds for them.

use proptest::prelude::*;

use super::{Schedule, ScheduleConfig, ScheduleKind};

pub fn config(kind: &str, num_stages: usize, num_chunks: usize, num_micro_batches: usize) -> ScheduleConfig {
    ScheduleConfig {
        kind: kind.parse().unwrap(),
        num_stages,
        num_chunks,
        num_micro_batches,
    }
}

/// Stages, chunks per stage, micro-batches and the group size of the interleaved schedule: p, v, m and g.
pub type Sizes = (usize, usize, usize, usize);

/// Sizes whose group size is valid, if any is.
pub fn sizes() -> impl Strategy<Value = Sizes> {
    (1usize..=8, 1usize..=4, 1usize..=32)
        .prop_flat_map(|(p, v, m)| (Just(p), Just(v), Just(m), p..=p.max(m)))
        .prop_filter("rule", |&(p, _, m, g)| m < p || m % g == 0 || m % g >= p)
}

/// The schedule of every kind that there is for some sizes, and last that of the forward passes alone, whose kind is
/// `None`.
pub fn schedules((p, v, m, g): Sizes) -> Vec<(Option<ScheduleKind>, Schedule)> {
    let config = |kind, num_chunks| ScheduleConfig {
        kind,
        num_stages: p,
        num_chunks,
        num_micro_batches: m,
    };
    let training = ScheduleKind::ALL.into_iter().filter_map(|kind| {
        let config = match kind {
            ScheduleKind::Interleaved { .. } if p.min(v) < 2 || m < p => return None,
            ScheduleKind::Interleaved { .. } => config(ScheduleKind::Interleaved { group_size: Some(g) }, v),
            _ => config(kind, 1),
        };
        Some((Some(config.kind), config.init().unwrap()))
    });
    let forward = config(ScheduleKind::GPipe, v).forward_only().unwrap();
    training.chain([(None, forward)]).collect()
}
