//! Tests of `batch_size`: values by hand, bounds, and lengths of runs against counting them out.

use super::*;
use proptest::prelude::*;

fn ramp(start: usize, increment: usize, samples: u64, global: usize) -> BatchSizeSchedule {
    let ramp_up = BatchSizeRampUp {
        start,
        increment,
        samples,
    };
    BatchSizeSchedule::new(global, Some(ramp_up)).unwrap()
}

/// The steps of a run, by counting: the samples consumed before each, and its size.
fn count_out(schedule: &BatchSizeSchedule, train_samples: u64) -> Vec<(u64, u64)> {
    let mut steps = vec![];
    let mut consumed = 0;
    loop {
        let size = schedule.global_batch_size(consumed) as u64;
        if consumed + size > train_samples {
            return steps;
        }
        steps.push((consumed, size));
        consumed += size;
    }
}

#[test]
fn without_a_ramp_up_the_size_stays() {
    let schedule = BatchSizeSchedule::new(16, None).unwrap();
    for consumed in [0, 1, 16, u64::MAX] {
        assert_eq!(schedule.global_batch_size(consumed), 16);
    }
    assert_eq!(schedule.sizes().collect::<Vec<_>>(), [16]);
    assert_eq!(
        (schedule.num_steps(15), schedule.num_steps(16), schedule.num_steps(47)),
        (0, 1, 2)
    );
    assert_eq!(schedule.samples_of_steps(3), 48);
    assert_eq!(schedule.samples_of_steps(u64::MAX), u64::MAX);
}

#[test]
fn a_ramp_up_adds_its_increment_after_equal_shares_of_the_samples() {
    // Three increments over 100 samples: one each 33⅓.
    let schedule = ramp(4, 4, 100, 16);
    for (consumed, size) in [
        (0, 4),
        (33, 4),
        (34, 8),
        (66, 8),
        (67, 12),
        (99, 12),
        (100, 16),
        (u64::MAX, 16),
    ] {
        assert_eq!(schedule.global_batch_size(consumed), size, "at {consumed}");
    }
    assert_eq!(schedule.sizes().collect::<Vec<_>>(), [4, 8, 12, 16]);
}

#[test]
fn a_short_ramp_up_leaves_sizes_out() {
    // Increments after 2, 4, 6 and 8 samples.
    let schedule = ramp(4, 1, 8, 8);
    let sizes: Vec<_> = count_out(&schedule, 30).into_iter().map(|(_, size)| size).collect();
    assert_eq!(sizes, [4, 6, 8, 8]);
    assert_eq!(schedule.num_steps(30), 4);
}

#[test]
fn the_largest_numbers_do_not_overflow() {
    let largest = LIMIT - 1;
    let schedule = ramp(1, 1, largest as u64, largest);
    assert_eq!(schedule.global_batch_size(largest as u64 - 1), largest - 1);
    assert_eq!(schedule.global_batch_size(u64::MAX), largest);
    let schedule = ramp(1, largest - 1, largest as u64, largest);
    assert_eq!(schedule.num_steps(largest as u64), largest as u64);
    assert_eq!(schedule.samples_of_steps(u64::MAX), u64::MAX);
}

#[test]
fn impossible_ramp_ups_are_errors_with_neighbours() {
    let message = |global, ramp_up: Option<(usize, usize, u64)>| {
        let ramp_up = ramp_up.map(|(start, increment, samples)| BatchSizeRampUp {
            start,
            increment,
            samples,
        });
        BatchSizeSchedule::new(global, ramp_up).unwrap_err().to_string()
    };
    assert_eq!(
        message(0, None),
        "the global batch size must be at least 1 and below 2^32, got 0"
    );
    assert!(message(1 << 32, None).ends_with("got 4294967296"));
    for (ramp_up, name) in [((0, 4, 10), "start"), ((4, 0, 10), "increment"), ((4, 4, 0), "samples")] {
        let error = message(16, Some(ramp_up));
        assert!(
            error.starts_with(&format!("the {name} of")) && error.ends_with("got 0"),
            "{error}"
        );
    }
    assert_eq!(
        message(16, Some((16, 4, 10))),
        "a batch-size ramp-up must start below the global batch size 16, got 16"
    );
    assert_eq!(
        message(16, Some((4, 5, 10))),
        "a batch-size ramp-up must reach the global batch size in whole increments: 16 - 4 = 12 is no multiple of 5; \
         the nearest valid increments are 4 and 6"
    );
    assert!(message(16, Some((4, 20, 10))).ends_with("the nearest valid increments are 12"));
}

proptest! {
    #[test]
    fn what_is_left_of_a_run_does_not_depend_on_earlier_batches(
        start in 1usize..20, increment in 1usize..10, increments in 1usize..10, samples in 1u64..500,
        consumed in 0u64..1000, more in 0u64..1000,
    ) {
        let schedule = ramp(start, increment, samples, start + increment * increments);
        let (mut steps, mut at) = (0, consumed);
        while at + schedule.global_batch_size(at) as u64 <= consumed + more {
            at += schedule.global_batch_size(at) as u64;
            steps += 1;
        }
        prop_assert_eq!(schedule.num_steps_from(consumed, consumed + more), steps);
    }

    #[test]
    fn sizes_rise_by_whole_increments_from_the_first_to_the_full_one(
        start in 1usize..20,
        increment in 1usize..10,
        increments in 1usize..10,
        samples in 1u64..500,
    ) {
        let full = start + increment * increments;
        let schedule = ramp(start, increment, samples, full);
        let sizes: Vec<usize> = (0..=samples).map(|consumed| schedule.global_batch_size(consumed)).collect();
        let all: Vec<usize> = schedule.sizes().collect();
        prop_assert_eq!((sizes[0], all[0]), (start, start));
        prop_assert_eq!((sizes[samples as usize], all[increments]), (full, full));
        // The full size is not there before its time.
        prop_assert!(sizes[samples as usize - 1] < full);
        prop_assert!(sizes.iter().all(|size| all.contains(size)));
        prop_assert!(sizes.is_sorted());
    }

    #[test]
    fn lengths_are_those_of_counting_every_step(
        start in 1usize..20,
        increment in 1usize..10,
        increments in 1usize..10,
        samples in 1u64..300,
        train_samples in 0u64..1000,
    ) {
        let schedule = ramp(start, increment, samples, start + increment * increments);
        let steps = count_out(&schedule, train_samples);
        prop_assert_eq!(schedule.num_steps(train_samples), steps.len() as u64);
        for (step, (consumed, _)) in steps.iter().enumerate() {
            prop_assert_eq!(schedule.samples_of_steps(step as u64), *consumed);
        }
    }
}
