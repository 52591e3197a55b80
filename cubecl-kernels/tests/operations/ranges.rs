//! Ranges of buffers against their host version: nothing is computed, so the bits are the same.

use anyhow::ensure;
use cubecl_kernels::ranges::{BufferRange, RangeTarget, clear_ranges, gather_ranges, host, scatter_ranges};
use libtest_mimic::Trial;

use crate::support::compare::{expect_equal, normal, numbers};
use crate::support::layouts::{Layout, vector};
use crate::support::setting::{Claim, Setting, trials_of};

pub fn trials() -> Vec<Trial> {
    trials_of::<GatheredAndScattered>()
}

struct GatheredAndScattered;

impl Claim for GatheredAndScattered {
    const NAME: &'static str = "ranges_are_gathered_scattered_and_cleared";

    fn check(setting: &Setting) -> anyhow::Result<()> {
        // Where vectors begin and end, with a range that several cubes share; where none does; nothing.
        let cases = [
            vec![(0, 128..256), (1, 0..5120), (0, 0..64), (1, 6016..6144)],
            vec![(1, 3..14), (0, 7..7), (0, 1..2), (1, 5000..6000)],
            vec![(0, 5..5)],
        ];
        for ranges in cases {
            let ranges: Vec<BufferRange> = ranges
                .into_iter()
                .map(|(buffer, range)| BufferRange { buffer, range })
                .collect();
            for layout in [Layout::Contiguous, Layout::Part] {
                check_one(&setting.inner(setting.dtype), &ranges, layout)
                    .map_err(|error| error.context(format!("{ranges:?}, {layout:?}")))?;
            }
        }
        ensure!(
            gather_ranges(Vec::new(), &[])?.is_none(),
            "there is nothing without buffers"
        );
        Ok(())
    }
}

fn check_one(setting: &Setting, ranges: &[BufferRange], layout: Layout) -> anyhow::Result<()> {
    let before = [(300, 1), (6144, 2)].map(|(count, seed)| setting.rounded(&normal(count, seed)));
    let buffers = before.each_ref().map(|values| vector(setting, values, layout));
    let gathered = gather_ranges(buffers.to_vec(), ranges)?.expect("there are buffers");
    let expected = host::gather(&before, ranges);
    ensure!(gathered.dims() == [expected.len()], "{:?}", gathered.dims());
    expect_equal("what is gathered", &numbers(&gathered), &expected)?;

    let other: Vec<f64> = setting.rounded(&normal(expected.len() + 1, 3));
    let values = vector(setting, &other, layout);
    for (number, (buffer, before)) in buffers.into_iter().zip(before).enumerate() {
        let mut start = 1;
        let targets = ranges.iter().filter_map(|range| {
            start += range.range.len();
            let target = RangeTarget {
                range: range.range.clone(),
                start: start - range.range.len(),
            };
            (range.buffer == number).then_some(target)
        });
        let targets: Vec<RangeTarget> = targets.collect();
        let held = buffer.clone();
        let scattered = scatter_ranges(buffer, values.clone(), &targets)?;
        let mut expected = before.clone();
        host::scatter(&mut expected, &other, &targets);
        expect_equal("what is scattered", &numbers(&scattered), &expected)?;
        let ranges: Vec<_> = targets.into_iter().map(|target| target.range).collect();
        let cleared = clear_ranges(scattered, &ranges)?;
        for range in ranges {
            expected[range].fill(0.0);
        }
        expect_equal("what is cleared", &numbers(&cleared), &expected)?;
        expect_equal("the buffer that is held", &numbers(&held), &before)?;
    }
    Ok(())
}
