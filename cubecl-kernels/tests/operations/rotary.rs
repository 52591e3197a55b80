//! `rotary` against its host version.

use anyhow::ensure;
use burn::tensor::{DType, Device, Tensor, TensorData};
use cubecl_kernels::precision::compute_type;
use cubecl_kernels::rotary::host::{self, HostAngles};
use cubecl_kernels::rotary::tables::{RotaryScaling, tables};
use cubecl_kernels::rotary::{RotaryAngles, RotaryHeads, RotaryLayout, rotary};
use libtest_mimic::Trial;
use proptest::sample::select;

use crate::support::compare::{backward, dot, expect_close, expect_rounded, expect_slopes, normal, over};
use crate::support::setting::{Claim, Setting, plain, trials_of};

pub fn trials() -> Vec<Trial> {
    let mut trials = trials_of::<MatchesTheHost>();
    trials.extend(trials_of::<SplitMovesNumbers>());
    trials.extend(trials_of::<GradientTurnsBack>());
    trials.extend(trials_of::<TakesNothing>());
    let runs_kernels = |trial: &Trial| trial.name().starts_with("cuda");
    trials.extend(trials_of::<MissingAnglesGiveZeros>().into_iter().filter(runs_kernels));
    trials.push(plain(
        "flex::rotary_names_a_position_without_angles",
        names_a_position_without_angles,
    ));
    trials.push(plain(
        "host::rotary_gradients_are_slopes_of_the_output",
        gradients_are_slopes,
    ));
    trials
}

/// A projection, and what of it is rotated.
#[derive(Clone, Copy, Debug)]
struct Case {
    tokens: usize,
    heads: RotaryHeads,
    d_head: usize,
    /// At most `d_head`, and even; 0 where there are no angles.
    rotated: usize,
    layout: RotaryLayout,
}

impl Case {
    fn shape(&self) -> [usize; 4] {
        [self.tokens, self.heads.groups, self.heads.queries + 2, self.d_head]
    }

    fn split_shape(&self) -> [usize; 3] {
        [self.tokens, self.heads.total(), self.d_head]
    }

    fn elements(&self) -> usize {
        self.shape().iter().product()
    }

    /// Angles of more positions than there are tokens, in another order, as in the type that is computed in.
    fn angles(&self, wide: &Setting) -> Option<HostAngles> {
        if self.rotated == 0 {
            return None;
        }
        let rows = self.tokens + 3;
        let (cosine, sine) = tables(rows, self.rotated, 100.0, &RotaryScaling::None);
        let position = |token: usize| ((7 * token + 2) % rows) as i64;
        Some(HostAngles {
            cosine: wide.rounded(&cosine),
            sine: wide.rounded(&sine),
            positions: (0..self.tokens).map(position).collect(),
            rotated: self.rotated,
            layout: self.layout,
        })
    }
}

/// The host's angles on a device. The positions are part of a longer tensor.
fn on_device(setting: &Setting, angles: &HostAngles) -> RotaryAngles {
    let half = angles.rotated / 2;
    let rows = angles.cosine.len() / half;
    let wide = setting.computed();
    let positions = match angles.positions.len() {
        0 => setting.integers(&[]),
        count => {
            let positions = [&[-1], &angles.positions[..], &[1 << 20]].concat();
            setting.integers(&positions).narrow(0, 1, count)
        }
    };
    RotaryAngles {
        cosine: wide.view(&angles.cosine, [rows, half]),
        sine: wide.view(&angles.sine, [rows, half]),
        positions,
        layout: angles.layout,
    }
}

/// Odd and even sizes, of which a half is not always whole vectors; whole, partial and no rotation.
fn cases() -> impl proptest::strategy::Strategy<Value = Case> {
    use proptest::strategy::Strategy;
    let layouts = select(vec![RotaryLayout::Halves, RotaryLayout::Interleaved]);
    let heads = (1usize..4, 1usize..5);
    (1usize..9, heads, 1usize..40, 0usize..21, layouts).prop_map(|(tokens, (groups, queries), d_head, half, layout)| {
        Case {
            tokens,
            heads: RotaryHeads { groups, queries },
            d_head,
            rotated: 2 * half.min(d_head / 2),
            layout,
        }
    })
}

/// One of each; heads of whole vectors; rows for several blocks, and for several turns of a unit.
fn edges() -> Vec<Case> {
    let case = |tokens, groups, queries, d_head, rotated| {
        [RotaryLayout::Halves, RotaryLayout::Interleaved].map(|layout| Case {
            tokens,
            heads: RotaryHeads { groups, queries },
            d_head,
            rotated,
            layout,
        })
    };
    let cases = [
        case(1, 1, 1, 2, 2),
        case(1, 1, 1, 1, 0),
        case(3, 2, 4, 64, 64),
        case(3, 1, 1, 64, 16),
        case(5, 3, 1, 48, 16),
        case(2, 2, 3, 24, 24),
        case(2, 2, 1, 20, 12),
        case(1500, 1, 1, 8, 8),
    ];
    cases.into_iter().flatten().collect()
}

struct MatchesTheHost;

impl Claim for MatchesTheHost {
    const NAME: &'static str = "rotary_matches_the_host";

    fn check(setting: &Setting) -> anyhow::Result<()> {
        let wide = setting.inner(compute_type(setting.dtype));
        over(edges(), 24, cases(), |case| {
            let input = setting.rounded(&normal(case.elements(), 1));
            let gradient = setting.rounded(&normal(case.elements(), 2));
            let angles = case.angles(&wide);
            let leaf = setting.view(&input, case.shape()).require_grad();
            let output = rotary(leaf.clone(), angles.as_ref().map(|angles| on_device(setting, angles)))?;
            ensure!(output.dims() == case.split_shape(), "{:?}", output.dims());
            // Two products, and a sum of which numbers of up to 4 may cancel.
            let expected = host::forward(&input, case.heads, case.d_head, angles.as_ref());
            expect_rounded("output", output.clone(), &expected, 2.0, 4.0)?;
            let gradients = backward(vec![[output, setting.view(&gradient, case.split_shape())]]);
            let expected = host::backward(&gradient, case.heads, case.d_head, angles.as_ref());
            let actual = leaf.grad(&gradients).expect("tracked");
            ensure!(actual.dims() == case.shape(), "{:?}", actual.dims());
            expect_rounded("gradient", actual, &expected, 2.0, 4.0)
        })
    }
}

/// Without angles the same bits are at other places, forward and backward.
struct SplitMovesNumbers;

impl Claim for SplitMovesNumbers {
    const NAME: &'static str = "rotary_without_angles_moves_numbers";

    fn check(setting: &Setting) -> anyhow::Result<()> {
        for [tokens, groups, queries, d_head] in [[3, 2, 3, 5], [2, 1, 1, 16], [1100, 3, 2, 8]] {
            let heads = RotaryHeads { groups, queries };
            let shape = [tokens, groups, queries + 2, d_head];
            let input = setting.rounded(&normal(shape.iter().product(), 1));
            let leaf = setting.tensor(&input, shape).require_grad();
            let output = rotary(leaf.clone(), None)?;
            // By hand: heads of the output, and where they come from.
            let values = output.to_data().iter::<f64>().collect::<Vec<_>>();
            let at = |head: usize| &values[head * d_head..][..d_head];
            let of = |group: usize, head: usize| &input[(group * (queries + 2) + head) * d_head..][..d_head];
            ensure!(at(0) == of(0, 0), "the first query");
            ensure!(
                at(groups * queries - 1) == of(groups - 1, queries - 1),
                "the last query"
            );
            ensure!(at(groups * queries) == of(0, queries), "the first key");
            ensure!(at(heads.total() - 1) == of(groups - 1, queries + 1), "the last value");
            expect_close(
                "output",
                output.clone(),
                &host::forward(&input, heads, d_head, None),
                0.0,
                0.0,
            )?;
            // What comes back where it was is the input.
            let gradients = backward(vec![[output.clone(), output.detach()]]);
            expect_close("gradient", leaf.grad(&gradients).expect("tracked"), &input, 0.0, 0.0)?;
        }
        Ok(())
    }
}

/// A rotation keeps lengths, so that its gradient for its own output is its input: without the host's version.
struct GradientTurnsBack;

impl Claim for GradientTurnsBack {
    const NAME: &'static str = "rotary_gradient_turns_back";

    fn check(setting: &Setting) -> anyhow::Result<()> {
        let wide = setting.inner(compute_type(setting.dtype));
        over(edges(), 8, cases(), |case| {
            let input = setting.rounded(&normal(case.elements(), 1));
            let angles = case.angles(&wide);
            let leaf = setting.tensor(&input, case.shape()).require_grad();
            let output = rotary(leaf.clone(), angles.as_ref().map(|angles| on_device(setting, angles)))?;
            let gradients = backward(vec![[output.clone(), output.detach()]]);
            // The output's rounding, turned back, and the result's; numbers are up to 5.
            expect_close("gradient", leaf.grad(&gradients).expect("tracked"), &input, 4.0, 5.0)
        })
    }
}

struct TakesNothing;

impl Claim for TakesNothing {
    const NAME: &'static str = "rotary_takes_nothing";

    fn check(setting: &Setting) -> anyhow::Result<()> {
        for [tokens, groups, d_head, rotated] in [[0, 2, 4, 4], [3, 0, 4, 2], [3, 2, 0, 0], [0, 0, 0, 0]] {
            let case = Case {
                tokens,
                heads: RotaryHeads { groups, queries: 2 },
                d_head,
                rotated,
                layout: RotaryLayout::Halves,
            };
            let angles = case.angles(&setting.inner(compute_type(setting.dtype)));
            let leaf = setting.tensor(&[], case.shape()).require_grad();
            let output = rotary(leaf.clone(), angles.as_ref().map(|angles| on_device(setting, angles)))?;
            ensure!(output.dims() == case.split_shape(), "{:?}", output.dims());
            let gradients = backward(vec![[output, setting.tensor(&[], case.split_shape())]]);
            let found = leaf.grad(&gradients).expect("tracked").dims();
            ensure!(found == case.shape(), "{found:?}");
        }
        Ok(())
    }
}

/// Kernels read nothing but the tables.
struct MissingAnglesGiveZeros;

impl Claim for MissingAnglesGiveZeros {
    const NAME: &'static str = "rotary_gives_zeros_for_positions_without_angles";

    fn check(setting: &Setting) -> anyhow::Result<()> {
        let case = Case {
            tokens: 4,
            heads: RotaryHeads { groups: 1, queries: 1 },
            d_head: 6,
            rotated: 4,
            layout: RotaryLayout::Halves,
        };
        let mut angles = case
            .angles(&setting.inner(compute_type(setting.dtype)))
            .expect("it is rotated");
        let rows = angles.cosine.len() / 2;
        angles.positions = vec![rows as i64, -1, 1 << 30, rows as i64 - 1];
        let input = setting.rounded(&normal(case.elements(), 1));
        let output = rotary(setting.tensor(&input, case.shape()), Some(on_device(setting, &angles)))?;
        let expected = host::forward(&input, case.heads, case.d_head, Some(&angles));
        ensure!(expected[..4] == [0.0; 4] && expected[4..6] == input[4..6]);
        expect_rounded("output", output, &expected, 2.0, 4.0)
    }
}

fn names_a_position_without_angles() -> anyhow::Result<()> {
    for (position, word) in [(5i64, "got 5"), (-1, "got -1")] {
        let turn = || {
            let device = Device::flex();
            let positions = TensorData::new(vec![0, position], [2]);
            let angles = RotaryAngles {
                cosine: Tensor::zeros([5, 1], &device),
                sine: Tensor::zeros([5, 1], &device),
                positions: Tensor::from_data(positions, &device),
                layout: RotaryLayout::Halves,
            };
            rotary(Tensor::<4>::zeros([2, 1, 3, 2], &device), Some(angles)).map(|output| output.dims())
        };
        let Err(panic) = std::panic::catch_unwind(turn) else {
            anyhow::bail!("position {position} is taken");
        };
        let message = panic.downcast_ref::<String>().cloned().unwrap_or_default();
        ensure!(
            message.contains("token 1") && message.contains("below 5") && message.contains(word),
            "{message:?}"
        );
    }
    Ok(())
}

fn gradients_are_slopes() -> anyhow::Result<()> {
    for case in edges().into_iter().filter(|case| case.elements() < 300) {
        let setting = Setting::flex(DType::F64);
        let angles = case.angles(&setting);
        let (input, gradient) = (normal(case.elements(), 1), normal(case.elements(), 2));
        let found = host::backward(&gradient, case.heads, case.d_head, angles.as_ref());
        expect_slopes("input", &found, &input, |input| {
            dot(
                &host::forward(input, case.heads, case.d_head, angles.as_ref()),
                &gradient,
            )
        })?;
    }
    Ok(())
}
