//! `cross_entropy` against its host version, on one shard and on several.

use anyhow::ensure;
use burn::tensor::{DType, Int, Tensor};
use cubecl_kernels::cross_entropy::{Statistics, cross_entropy, host};
use libtest_mimic::Trial;

use crate::support::compare::{backward, dot, expect_close, expect_rounded, expect_slopes, normal, over};
use crate::support::layouts::{Layout, layouts, matrix, vector};
use crate::support::setting::{Claim, Setting, plain, trials_of};

pub fn trials() -> Vec<Trial> {
    let mut trials = trials_of::<MatchesTheHost>();
    trials.extend(trials_of::<ShardsMakeTheWhole>());
    trials.extend(trials_of::<StandsExtremeLogits>());
    trials.extend(trials_of::<LeavesLogitsThatOthersHold>());
    trials.push(plain(
        "host::cross_entropy_gradients_are_slopes_of_the_losses",
        gradients_are_slopes,
    ));
    trials
}

/// A vocabulary that is one shard, padding included.
struct MatchesTheHost;

impl Claim for MatchesTheHost {
    const NAME: &'static str = "cross_entropy_matches_the_host";

    fn check(setting: &Setting) -> anyhow::Result<()> {
        let shapes = (1usize..9, 1usize..90, 0usize..6, layouts());
        let edges = [(1, 1, 0), (1, 53, 0), (9, 1, 0), (9, 1, 3)];
        let edges = edges.map(|(rows, valid, padding)| (rows, valid, padding, Layout::Contiguous));
        over(edges, 14, shapes, |(rows, valid, padding, layout)| {
            check_one(setting, rows, [valid, valid + padding], layout)
        })?;
        // Longer than the cube that reads it is wide.
        check_one(setting, 2, [3000, 3001], Layout::Contiguous)?;
        check_one(setting, 3, [2048, 2048], Layout::Contiguous)?;
        // GPT-2's vocabulary, padded.
        check_one(setting, 2, [50_257, 50_304], Layout::Contiguous)
    }
}

fn check_one(setting: &Setting, rows: usize, [valid, columns]: [usize; 2], layout: Layout) -> anyhow::Result<()> {
    // Logits of padding are larger than all others: they must not count.
    let mut logits: Vec<f64> = normal(rows * columns, 1).iter().map(|x| 3.0 * x).collect();
    for row in logits.chunks_exact_mut(columns) {
        row[valid..].fill(100.0);
    }
    let logits = setting.rounded(&logits);
    let gradient = normal(rows, 2);
    // One target in five is in another shard, before or after this one.
    let targets: Vec<i64> = (0..rows)
        .map(|row| match row % 5 {
            3 => [-2, valid as i64, valid as i64 + 40][row % 3],
            _ => (row * 7919 % valid) as i64,
        })
        .collect();
    let shard = host::Shard {
        logits: &logits,
        columns,
        valid,
    };
    let statistics = shard.statistics(&targets);
    let leaf = matrix(setting, &logits, [rows, columns], layout).require_grad();
    let (loss, found) = with_statistics(leaf.clone(), setting.integers(&targets), valid)?;
    expect_statistics(found, &statistics)?;
    // Differences of numbers up to 10.
    expect_close("loss", loss.clone(), &statistics.losses(), 8.0, 10.0)?;
    let gradients = backward(vec![[loss, in_computed_type(setting, &gradient)]]);
    let actual = leaf.grad(&gradients).expect("tracked");
    let gradient = setting.computed().rounded(&gradient);
    let expected = shard.backward(&targets, &statistics, &gradient);
    // The exponential's argument, a difference of numbers up to 20, has roundings of these.
    expect_rounded("gradient", actual, &expected, 32.0, 1.0)
}

/// Returns the losses of a vocabulary that is one shard, and its statistics.
fn with_statistics(
    logits: Tensor<2>,
    targets: Tensor<1, Int>,
    valid: usize,
) -> anyhow::Result<(Tensor<1>, Statistics)> {
    let mut found = None;
    let loss = cross_entropy(logits, targets, valid, |own| {
        found = Some(own.clone());
        own
    })?;
    Ok((loss, found.expect("it was combined")))
}

fn expect_statistics(actual: Statistics, expected: &host::Statistics) -> anyhow::Result<()> {
    expect_close("maximum", actual.maximum, &expected.maximum, 0.0, 0.0)?;
    expect_close("target", actual.target, &expected.target, 0.0, 0.0)?;
    // The arguments of the exponentials are differences of up to 20, and there may be thousands of terms.
    expect_close("sum", actual.sum, &expected.sum, 40.0, 0.0)
}

/// Ranks' shards give the losses and gradients of the whole vocabulary.
struct ShardsMakeTheWhole;

impl Claim for ShardsMakeTheWhole {
    const NAME: &'static str = "cross_entropy_of_shards_is_that_of_the_whole";

    fn check(setting: &Setting) -> anyhow::Result<()> {
        const ROWS: usize = 6;
        // Valid columns and all columns of each; the third has padding alone.
        const SHARDS: [[usize; 2]; 4] = [[11, 11], [16, 19], [0, 5], [1, 4]];
        let vocabulary: usize = SHARDS.iter().map(|[valid, _]| valid).sum();
        let mut whole = setting.rounded(&normal(ROWS * vocabulary, 1));
        // A row that a shard knows nothing of, and one of which a single shard knows something.
        whole[..11].fill(f64::NEG_INFINITY);
        whole[vocabulary + 1..2 * vocabulary].fill(f64::NEG_INFINITY);
        let targets: [i64; ROWS] = [11, 0, 10, 26, 27, 15];
        let gradient = normal(ROWS, 2);
        let all = host::Shard {
            logits: &whole,
            columns: vocabulary,
            valid: vocabulary,
        };
        let total = all.statistics(&targets);

        let mut first = 0;
        let shards = SHARDS.map(|[valid, columns]| {
            let rows = (0..ROWS).flat_map(|row| {
                let start = row * vocabulary + first;
                let padding = std::iter::repeat_n(f64::NAN, columns - valid);
                whole[start..start + valid].iter().copied().chain(padding)
            });
            let logits: Vec<f64> = rows.collect();
            let targets: Vec<i64> = targets.iter().map(|target| target - first as i64).collect();
            first += valid;
            (logits, targets)
        });
        let here = setting.inner(setting.dtype);
        let each = shards.iter().zip(SHARDS).map(|((logits, targets), [valid, columns])| {
            let logits = here.tensor(logits, [ROWS, columns]);
            Ok(with_statistics(logits, here.integers(targets), valid)?.1)
        });
        let statistics: Vec<Statistics> = each.collect::<anyhow::Result<_>>()?;
        for (rank, ((logits, targets), [valid, columns])) in shards.iter().zip(SHARDS).enumerate() {
            let leaf = setting.tensor(logits, [ROWS, columns]).require_grad();
            let numbers = setting.integers(targets);
            let loss = cross_entropy(leaf.clone(), numbers, valid, |own| {
                let mut ranks = statistics.clone();
                ranks[rank] = own;
                combine(ranks)
            })?;
            expect_close("loss", loss.clone(), &total.losses(), 8.0, 10.0)?;
            let gradients = backward(vec![[loss, in_computed_type(setting, &gradient)]]);
            let actual = leaf.grad(&gradients).expect("tracked");
            let shard = host::Shard { logits, columns, valid };
            let expected = shard.backward(targets, &total, &gradient);
            expect_rounded(&format!("gradient of shard {rank}"), actual, &expected, 32.0, 1.0)?;
        }
        Ok(())
    }
}

/// What the ranks of a group do: the largest maximum, and sums of what follows from it.
fn combine(ranks: Vec<Statistics>) -> Statistics {
    let maxima = ranks.iter().map(|rank| rank.maximum.clone());
    let maximum = maxima.reduce(|a, b| a.max_pair(b)).expect("there is a rank");
    let terms = ranks.into_iter().map(|rank| {
        let sum = rank.sum * (rank.maximum - maximum.clone()).exp();
        (sum, rank.target)
    });
    let (sum, target) = terms.reduce(|a, b| (a.0 + b.0, a.1 + b.1)).expect("there is a rank");
    Statistics { maximum, sum, target }
}

/// Neither −∞ nor large numbers make NaN, and a row of −∞ has a sum of 0.
struct StandsExtremeLogits;

impl Claim for StandsExtremeLogits {
    const NAME: &'static str = "cross_entropy_stands_extreme_logits";

    fn check(setting: &Setting) -> anyhow::Result<()> {
        const COLUMNS: usize = 12;
        let large = if setting.dtype == DType::F16 { 6e4 } else { 1e30 };
        let mut logits = setting.rounded(&normal(4 * COLUMNS, 1));
        logits[..COLUMNS].fill(f64::NEG_INFINITY);
        logits[COLUMNS..COLUMNS + 5].fill(f64::NEG_INFINITY);
        logits[2 * COLUMNS] = large;
        logits[2 * COLUMNS + 1] = -large;
        logits[3 * COLUMNS..].fill(-large);
        let logits = setting.rounded(&logits);
        let targets = [0, 7, 0, 11];
        let shard = host::Shard {
            logits: &logits,
            columns: COLUMNS,
            valid: COLUMNS,
        };
        let here = setting.inner(setting.dtype);
        let tensor = here.tensor(&logits, [4, COLUMNS]);
        let (_, statistics) = with_statistics(tensor, here.integers(&targets), COLUMNS)?;
        expect_statistics(statistics, &shard.statistics(&targets))?;

        // The first row has no loss: nothing is possible in it.
        let (logits, targets) = (&logits[COLUMNS..], &targets[1..]);
        let shard = host::Shard { logits, ..shard };
        let leaf = setting.tensor(logits, [3, COLUMNS]).require_grad();
        let numbers = setting.integers(targets);
        let loss = cross_entropy(leaf.clone(), numbers, COLUMNS, |own| own)?;
        let statistics = shard.statistics(targets);
        expect_close("loss", loss.clone(), &statistics.losses(), 8.0, 4.0)?;
        let gradient = [1.0, -2.0, 0.5];
        let gradients = backward(vec![[loss, in_computed_type(setting, &gradient)]]);
        let actual = leaf.grad(&gradients).expect("tracked");
        let expected = shard.backward(targets, &statistics, &gradient);
        expect_rounded("gradient", actual, &expected, 32.0, 1.0)
    }
}

/// The logits may be overwritten with the gradient only if nothing else holds them.
struct LeavesLogitsThatOthersHold;

impl Claim for LeavesLogitsThatOthersHold {
    const NAME: &'static str = "cross_entropy_leaves_logits_that_others_hold";

    fn check(setting: &Setting) -> anyhow::Result<()> {
        let numbers = setting.rounded(&normal(40, 1));
        for (layout, is_held) in [
            (Layout::Contiguous, true),
            (Layout::Contiguous, false),
            (Layout::Part, true),
            (Layout::Transposed, true),
        ] {
            let leaf = matrix(setting, &numbers, [4, 10], layout).require_grad();
            // The product is held by the graph alone, which does not keep it for the product's own gradient.
            let logits = if is_held {
                leaf.clone()
            } else {
                leaf.clone().mul_scalar(1.0)
            };
            let whole = host::Statistics {
                maximum: vec![2.5; 4],
                sum: vec![9.0; 4],
                target: vec![0.0; 4],
            };
            let [maximum, sum, target] =
                [&whole.maximum, &whole.sum, &whole.target].map(|values| in_computed_type(setting, values));
            let statistics = Statistics { maximum, sum, target };
            let loss = cross_entropy(logits, setting.integers(&[1; 4]), 10, |_| statistics)?;
            let gradients = backward(vec![[loss, in_computed_type(setting, &[1.0; 4])]]);
            let result = leaf.grad(&gradients).expect("tracked");
            let shard = host::Shard {
                logits: &numbers,
                columns: 10,
                valid: 10,
            };
            let expected = shard.backward(&[1; 4], &whole, &[1.0; 4]);
            expect_rounded("gradient", result, &expected, 32.0, 1.0)?;
            let after: Vec<f64> = leaf.into_data().iter::<f64>().collect();
            ensure!(after == numbers, "{layout:?}: logits that are held were written over");
        }
        Ok(())
    }
}

fn gradients_are_slopes() -> anyhow::Result<()> {
    let logits = normal(24, 1);
    let (targets, gradient) = ([1, 7, 4], normal(3, 2));
    fn shard(logits: &[f64]) -> host::Shard<'_> {
        host::Shard {
            logits,
            columns: 8,
            valid: 8,
        }
    }
    let losses = |logits: &[f64]| dot(&shard(logits).statistics(&targets).losses(), &gradient);
    let statistics = shard(&logits).statistics(&targets);
    let actual = shard(&logits).backward(&targets, &statistics, &gradient);
    expect_slopes("logits", &actual, &logits, losses)
}

/// A vector of the type that is computed in, as losses are.
fn in_computed_type(setting: &Setting, values: &[f64]) -> Tensor<1> {
    vector(&setting.computed(), values, Layout::Contiguous)
}
