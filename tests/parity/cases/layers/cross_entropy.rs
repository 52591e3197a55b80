//! `vocab_parallel_cross_entropy` against burn's log-softmax.

use anyhow::ensure;
use burn::tensor::activation::log_softmax;
use burn::tensor::{Int, Tensor};
use burn_megatron::parameters::Placement;
use burn_megatron::tensor_parallel::{VocabShard, vocab_parallel_cross_entropy};

use super::{BOTH_TYPES, Check, TENSOR, checks};
use crate::parity::cases::comparison::{Pass, Scene};

pub const CHECKS: &[Check] = checks! {
    cross_entropy_ignores_what_stands_in_the_padding: TENSOR, BOTH_TYPES;
    cross_entropy_of_huge_logits_is_finite_and_right: TENSOR, BOTH_TYPES;
    cross_entropy_of_equal_logits_is_the_logarithm_of_the_vocabulary: TENSOR, BOTH_TYPES;
};

/// Sizes of the vocabulary, plain and padded: without padding, with some, and with a rank that holds nothing else.
const VOCABULARIES: [(usize, usize); 4] = [(12, 12), (11, 12), (6, 12), (9, 12)];
const TOKENS: usize = 24;

/// A vocabulary over this rank's group.
struct Vocabulary<'a> {
    scene: &'a Scene,
    size: usize,
    shard: VocabShard,
}

impl<'a> Vocabulary<'a> {
    fn new(scene: &'a Scene, (size, padded): (usize, usize)) -> Self {
        Self {
            scene,
            size,
            shard: VocabShard::new(size, padded, scene.group()),
        }
    }

    /// Every token of the vocabulary, so some of every shard that has any.
    fn targets(&self) -> Tensor<1, Int> {
        let targets: Vec<i32> = (0..TOKENS).map(|token| (token * 5 % self.size) as i32).collect();
        self.scene.ids(&targets)
    }

    fn placement(&self) -> Placement {
        let rows = self.shard.rows();
        Placement::new([TOKENS, self.size], [0, self.shard.start()], [TOKENS, rows])
    }

    /// Each token's loss and the gradient of the logits, from logits whose padding is filled with `padding`.
    fn parallel(&self, logits: &[f64], padding: f64) -> Pass {
        let placement = self.placement();
        let mut local = vec![padding; placement.local_len()];
        for run in placement.runs() {
            let values = &logits[run.logical..run.logical + run.length];
            local[run.local..run.local + run.length].copy_from_slice(values);
        }
        let local = self.scene.tensor(local, [TOKENS, self.shard.rows()]);
        Pass::run(local, self.loss_gradient(), |logits| {
            vocab_parallel_cross_entropy(logits, self.targets(), self.shard, self.scene.group())
        })
    }

    /// The same from the whole vocabulary on one rank.
    fn serial(&self, logits: &[f64]) -> Pass {
        let logits = self.scene.tensor(logits.to_vec(), [TOKENS, self.size]);
        Pass::run(logits, self.loss_gradient(), |logits| {
            let scores = log_softmax(logits, 1).gather(1, self.targets().unsqueeze_dim::<2>(1));
            -scores.squeeze_dim::<1>(1)
        })
    }

    fn loss_gradient(&self) -> Tensor<1> {
        self.scene.tensor(self.scene.random("loss gradient", TOKENS), [TOKENS])
    }

    fn compare(&self, what: &str, logits: &[f64], padding: f64) -> anyhow::Result<Pass> {
        let what = format!("{what}, vocabulary {}", self.size);
        let parallel = self.parallel(logits, padding);
        let all = parallel.output.iter().chain(&parallel.input_gradient);
        ensure!(all.clone().all(|value| value.is_finite()), "{what}: not finite");
        let everything = Placement::whole([TOKENS]);
        // Losses and the gradient of the logits; that of the padding is checked to be zero.
        parallel.compare(self.scene, &what, &self.serial(logits), &self.placement(), &everything)?;
        Ok(parallel)
    }
}

fn each(scene: &Scene, check: impl Fn(Vocabulary) -> anyhow::Result<()>) -> anyhow::Result<()> {
    VOCABULARIES
        .into_iter()
        .try_for_each(|sizes| check(Vocabulary::new(scene, sizes)))
}

fn cross_entropy_ignores_what_stands_in_the_padding(scene: &Scene) -> anyhow::Result<()> {
    each(scene, |vocabulary| {
        let logits = scene.random("logits", TOKENS * vocabulary.size);
        let empty = vocabulary.compare("zero padding", &logits, 0.0)?;
        for padding in [1e30, -1e30, f64::INFINITY, f64::NAN] {
            let filled = vocabulary.compare("filled padding", &logits, padding)?;
            ensure!(filled.output == empty.output, "the padding {padding} changes the loss");
            let same = filled.input_gradient == empty.input_gradient;
            ensure!(same, "the padding {padding} changes the gradient");
        }
        Ok(())
    })
}

fn cross_entropy_of_huge_logits_is_finite_and_right(scene: &Scene) -> anyhow::Result<()> {
    each(scene, |vocabulary| {
        let size = vocabulary.size;
        let numbers = scene.random("logits", TOKENS * size);
        let shifted = |offset: f64| numbers.iter().map(|x| x + offset).collect::<Vec<_>>();
        vocabulary.compare("around 1e4", &shifted(1e4), 0.0)?;
        vocabulary.compare("around -1e4", &shifted(-1e4), 0.0)?;
        let spread: Vec<f64> = numbers.iter().map(|x| x * 1e4).collect();
        vocabulary.compare("spread over 1e4", &spread, 0.0)?;
        // One huge logit, on the target's rank or on another.
        let peak = |height: f64| {
            let mut logits = numbers.clone();
            for token in 0..TOKENS {
                logits[token * size + token % size] = height;
            }
            logits
        };
        vocabulary.compare("one at 1e4", &peak(1e4), 0.0)?;
        vocabulary.compare("one at -1e4", &peak(-1e4), 0.0)?;
        Ok(())
    })
}

/// A value that can be written down: the maximum and the sum count every token once, and padding not at all.
fn cross_entropy_of_equal_logits_is_the_logarithm_of_the_vocabulary(scene: &Scene) -> anyhow::Result<()> {
    each(scene, |vocabulary| {
        let size = vocabulary.size as f64;
        let parallel = vocabulary.parallel(&vec![3.0; TOKENS * vocabulary.size], 3.0);
        let everything = Placement::whole([TOKENS]);
        scene.close("loss", &parallel.output, &[size.ln(); TOKENS], &everything)?;
        let loss_gradient = scene.random("loss gradient", TOKENS);
        let targets = vocabulary.targets().into_data().iter::<i64>().collect::<Vec<_>>();
        let gradient: Vec<f64> = (0..TOKENS * vocabulary.size)
            .map(|index| {
                let (token, id) = (index / vocabulary.size, index % vocabulary.size);
                let hit = if targets[token] == id as i64 { 1.0 } else { 0.0 };
                loss_gradient[token] * (1.0 / size - hit)
            })
            .collect();
        scene.close("gradient", &parallel.input_gradient, &gradient, &vocabulary.placement())
    })
}
