//! Checkpoints that are broken or of another run: refused by every rank, by name, and left as they are.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use anyhow::{Context as _, ensure};
use burn_megatron::checkpoint::{Checkpoint, CheckpointConfig, CheckpointWriter};
use burn_megatron::collectives::ProcessGroup;
use tempfile::TempDir;

use tests::program::training_text;
use tests::training::{Training, names, of_step};

/// Steps of the run whose checkpoints are broken; it saves after half of them, too.
const STEPS: u64 = 6;
const LAYOUT: &str = "--world-size 2 --use-distributed-optimizer";

/// A run's checkpoints, each test with its own copy.
struct Sample {
    folder: TempDir,
}

impl Sample {
    fn new() -> anyhow::Result<Self> {
        static ORIGINAL: OnceLock<Result<TempDir, String>> = OnceLock::new();
        let original = ORIGINAL.get_or_init(|| train().map_err(|error| format!("{error:#}")));
        let original = original.as_ref().map_err(|error| anyhow::anyhow!("{error}"))?;
        let sample = Self {
            folder: TempDir::new()?,
        };
        for (path, bytes) in files(&original.path().join("save"))? {
            let path = sample.save().join(path);
            fs::create_dir_all(path.parent().context("a file is in a folder")?)?;
            fs::write(path, bytes)?;
        }
        Ok(sample)
    }

    fn save(&self) -> PathBuf {
        self.folder.path().join("save")
    }

    fn newest(&self) -> PathBuf {
        of_step(&self.save(), STEPS)
    }

    /// Removes the newest, and returns the one before it.
    fn go_back(&self) -> anyhow::Result<String> {
        fs::remove_dir_all(self.newest())?;
        Ok(of_step(&self.save(), STEPS / 2).display().to_string())
    }

    /// Returns a run that resumes from the newest checkpoint and saves to the same folder.
    fn resume(&self, flags: &str) -> anyhow::Result<Training> {
        let training = Training::new(self.folder.path(), STEPS, LAYOUT)?;
        let training = training.with(flags).with("--save-interval 3");
        Ok(training
            .with_path("--save", &self.save())
            .with_path("--load", &self.save()))
    }

    /// The run must fail with these words, and leave all as it is.
    fn expect_refusal(&self, training: &Training, words: &[&str]) -> anyhow::Result<()> {
        let before = files(&self.save())?;
        let ended = training.start()?.end()?;
        ended.expect_code(1)?;
        let summary = ended.stderr.lines().any(|line| line.contains("failed first"));
        ensure!(summary, "the launcher names no rank:\n{}", ended.stderr);
        let failure = ended.stderr.lines().find(|line| line.contains("] failed: "));
        let failure = failure.with_context(|| format!("no rank says why:\n{}", ended.stderr))?;
        for word in words {
            ensure!(failure.contains(word), "{word:?} is not in: {failure}");
        }
        ensure!(!ended.stdout.contains("step "), "it trains:\n{}", ended.stdout);
        let after = files(&self.save())?;
        ensure!(after == before, "it changes the folder: {:?}", names(&self.save()));
        Ok(())
    }
}

fn train() -> anyhow::Result<TempDir> {
    let folder = TempDir::new()?;
    let training = Training::new(folder.path(), STEPS, LAYOUT)?.with("--save-interval 3");
    training.with_path("--save", &folder.path().join("save")).run()?;
    Ok(folder)
}

/// Every file below a folder but the lock, with its bytes.
fn files(folder: &Path) -> anyhow::Result<BTreeMap<PathBuf, Vec<u8>>> {
    let mut files = BTreeMap::new();
    for name in names(folder).into_iter().filter(|name| name != ".lock") {
        for file in names(&folder.join(&name)) {
            let path = Path::new(&name).join(file);
            let bytes = fs::read(folder.join(&path))?;
            files.insert(path, bytes);
        }
    }
    Ok(files)
}

type Damage = fn(&Path) -> anyhow::Result<()>;

pub fn bad_checkpoints_are_named_and_left_alone() -> anyhow::Result<()> {
    let shard = |path: &Path| path.join("rank_00001.safetensors");
    let bytes = fs::metadata(shard(&Sample::new()?.newest()))?.len();
    let missing = format!("rank_00001.safetensors is missing: expected {bytes} bytes, written by rank 1");
    let truncated = format!("rank_00001.safetensors has {} bytes: expected {bytes}", bytes - 1);
    let damages: [(Damage, &str); 4] = [
        (
            |path| Ok(fs::remove_file(path.join("rank_00001.safetensors"))?),
            &missing,
        ),
        (
            |path| {
                let shard = fs::File::options()
                    .write(true)
                    .open(path.join("rank_00001.safetensors"))?;
                let bytes = shard.metadata()?.len();
                Ok(shard.set_len(bytes - 1)?)
            },
            &truncated,
        ),
        (
            |path| {
                let shard = path.join("rank_00001.safetensors");
                let mut bytes = fs::read(&shard)?;
                let last = bytes.len() - 1;
                bytes[last] ^= 1;
                Ok(fs::write(shard, bytes)?)
            },
            "rank_00001.safetensors has been altered: bytes 0 to",
        ),
        (
            |path| {
                let index = path.join("index.json");
                let text = fs::read_to_string(&index)?;
                Ok(fs::write(index, text.replacen("\"version\":1", "\"version\":2", 1))?)
            },
            "index.json has format version 2: expected at most 1",
        ),
    ];
    for (damage, words) in damages {
        let sample = Sample::new()?;
        damage(&sample.newest())?;
        let training = sample.resume("")?;
        let place = sample.newest().display().to_string();
        sample
            .expect_refusal(&training, &[&place, words])
            .with_context(|| words.to_owned())?;
    }
    Ok(())
}

pub fn checkpoints_of_other_models_are_refused_before_ranks_start() -> anyhow::Result<()> {
    let sample = Sample::new()?;
    let expect_refusal = |training: Training, words: &str| -> anyhow::Result<()> {
        let ended = training.start()?.end()?;
        ended.expect_code(2)?;
        ensure!(
            ended.stderr.contains("iter_0000006 is of another model: ") && ended.stderr.contains(words),
            "{}",
            ended.stderr
        );
        Ok(())
    };
    expect_refusal(
        sample.resume("")?.with_other("--hidden-size", "48"),
        "--hidden-size is 32 there and 48 here",
    )?;
    let checkpoint = Checkpoint::open(sample.newest())?;
    let mut state = checkpoint.state().clone();
    let size = state["model"]["vocab_size"]
        .as_u64()
        .context("the state has the vocabulary's size")?;
    state["model"]["vocab_size"] = (size - 44).into();
    CheckpointWriter::new(ProcessGroup::single(), sample.save(), CheckpointConfig::new())?.save(
        STEPS,
        Vec::new(),
        state,
    )?;
    let words = format!(
        "its vocabulary has {} rows, and this run's tokenizer {size} tokens",
        size - 44
    );
    expect_refusal(sample.resume("--tokenizer-type ByteTokenizer")?, &words)
}

pub fn other_text_is_refused_unless_allowed() -> anyhow::Result<()> {
    let sample = Sample::new()?;
    let half = sample.go_back()?;
    let other = training_text().join("../collectives").display().to_string();
    for (flag, value, words) in [
        ("--data-path", other.as_str(), "the text (by its hash) is"),
        // Thousands of epochs, shuffled together.
        (
            "--train-iters",
            "20000",
            "the number of samples to train on is 48 there and 160000 here, which takes other epochs",
        ),
    ] {
        let changed = sample.resume("")?.with_other("--load", &half).with_other(flag, value);
        sample.expect_refusal(
            &changed,
            &[&half, "was made with other samples", words, "--allow-data-change"],
        )?;
    }
    let changed = sample.resume("")?.with_other("--load", &half);
    let ended = changed
        .with_other("--data-path", &other)
        .with("--allow-data-change")
        .run()?;
    ensure!(ended.resumed_after() == Some(STEPS / 2), "{}", ended.stdout);
    Ok(())
}

/// Within the epoch the samples are the same.
pub fn run_is_made_longer_and_shorter() -> anyhow::Result<()> {
    let sample = Sample::new()?;
    let longer = sample.resume("")?.with_other("--train-iters", &(STEPS + 4).to_string());
    let words = "made with other schedules: the end of the learning rate's decay, in samples, is 48 there and 80 here";
    sample.expect_refusal(&longer, &[words, "--override-opt-param-scheduler"])?;
    let ended = longer.with("--override-opt-param-scheduler --exit-interval 4").run()?;
    ensure!(ended.resumed_after() == Some(STEPS), "{}", ended.stdout);
    ensure!(
        ended.stopped()? == (STEPS + 2, "the step is a multiple of --exit-interval"),
        "{}",
        ended.stdout
    );
    let shorter = sample.resume("--override-opt-param-scheduler")?;
    let ended = shorter.with_other("--train-iters", "1").run()?;
    let words = format!("nothing is left to train on after step {}", STEPS + 2);
    ensure!(ended.stdout.contains(&words), "{}", ended.stdout);
    Ok(())
}

pub fn other_schedule_is_refused_unless_asked_for() -> anyhow::Result<()> {
    let sample = Sample::new()?;
    let half = sample.go_back()?;
    let changed = sample
        .resume("")?
        .with_other("--load", &half)
        .with_other("--lr", "0.02");
    let words = [
        &half,
        "was made with other schedules: --lr is 0.01 there and 0.02 here",
        "--override-opt-param-scheduler",
    ];
    sample.expect_refusal(&changed, &words)?;
    let ended = changed.with("--override-opt-param-scheduler").run()?;
    ensure!(ended.resumed_after() == Some(STEPS / 2), "{}", ended.stdout);
    Ok(())
}

/// Half the samples in batches of 8, and the other half in batches of 4.
pub fn run_goes_on_with_another_batch_size_to_its_last_sample() -> anyhow::Result<()> {
    let sample = Sample::new()?;
    let half = sample.go_back()?;
    let smaller = sample
        .resume("")?
        .with_other("--load", &half)
        .with_other("--global-batch-size", "4")
        .with_other("--train-iters", &(2 * STEPS).to_string());
    let ended = smaller.run()?;
    ensure!(ended.resumed_after() == Some(STEPS / 2), "{}", ended.stdout);
    let steps: Vec<u64> = smaller.losses()?.into_keys().collect();
    let expected: Vec<u64> = (STEPS / 2 + 1..=STEPS / 2 + STEPS).collect();
    ensure!(steps == expected, "steps {steps:?}, expected {expected:?}");
    let done = sample.resume("")?.run()?;
    let words = format!("nothing is left to train on after step {}", STEPS / 2 + STEPS);
    ensure!(done.stdout.contains(&words), "{}", done.stdout);
    Ok(())
}
