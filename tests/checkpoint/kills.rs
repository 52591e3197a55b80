//! Kills at random moments of a job that does nothing but save: the last checkpoint that was reported stays whole.

use std::fs;
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use burn_megatron::checkpoint::{Checkpoint, CheckpointConfig, CheckpointWriter};
use burn_megatron::collectives::ProcessGroup;
use burn_megatron::random::RandomStream;
use libtest_mimic::Failed;
use tempfile::TempDir;
use tests::processes::send;

use crate::checkpoint::layouts::{latest, names, start};
use crate::checkpoint::{FIRST, arrays};
use tests::job::expect;

const NUM_KILLS: usize = 20;
const SEED: u64 = 5;
/// The longest time between the first save and the kill: some tens of saves.
const LONGEST_MILLIS: f64 = 300.0;

pub fn kills_leave_a_whole_checkpoint() -> Result<(), Failed> {
    let folder = TempDir::new()?;
    let mut random = vec![0.0; 2 * NUM_KILLS];
    RandomStream::new(SEED, "kills").fill_uniform(0, 1.0, &mut random);
    let mut first = 1;
    let mut num_left = 0;
    for (number, random) in random.as_chunks::<2>().0.iter().enumerate() {
        // The values are from -1 to 1.
        let [wait, victim] = random.map(|value| value.abs());
        let job = start("save_for_ever", 2, folder.path(), &[(FIRST, &first.to_string())])?;
        job.wait_until_ready(2)?;
        sleep(Duration::from_secs_f64(wait * LONGEST_MILLIS / 1000.0));
        let victim = match (victim * 3.0) as usize {
            0 => job.launcher.id(),
            1 => job.pid("pid-0")?,
            _ => job.pid("pid-1")?,
        };
        send(victim, libc::SIGKILL);
        let notes = job.folder.path().to_owned();
        let saved = read_last_note(&notes)?;
        let ended = job.end()?;
        expect(!ended.status.success(), "the job is killed")?;

        let context = |error: &dyn std::fmt::Display| Failed::from(format!("kill {number}, saved {saved}: {error}"));
        let name = format!("iter_{saved:07}");
        let reported = Checkpoint::open(folder.path().join(name)).map_err(|error| context(&error))?;
        expect(
            reported.state()["first"] == first,
            "it is that of the job that was killed",
        )?;
        for checkpoint in [reported, latest(folder.path())?] {
            checkpoint.verify().map_err(|error| context(&error))?;
            arrays::check(&checkpoint, 0, 1).map_err(|error| context(&error))?;
        }
        let left = names(folder.path())?;
        num_left += left.iter().filter(|name| name.contains(".partial-")).count();
        // The next writer removes what is left; the next job goes back a little, if it can, and replaces what is there.
        let group = ProcessGroup::single();
        drop(CheckpointWriter::new(group, folder.path(), CheckpointConfig::new())?);
        let left = names(folder.path())?;
        let is_clean = left.iter().all(|name| name == ".lock" || name.starts_with("iter_"));
        expect(is_clean, &format!("kill {number} leaves {left:?}"))?;
        first = (saved - 1).max(1);
    }
    // Most of the time a save is under way; a killed rank 0 cannot tidy up.
    expect(num_left > 0, "no kill has met a save under way")
}

/// The last iteration that was reported before the kill, or a moment after it.
fn read_last_note(folder: &Path) -> Result<u64, Failed> {
    Ok(fs::read_to_string(folder.join("saved"))?.parse()?)
}
