//! [`find`]: the checkpoint that a run continues from, the same one on every rank.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use burn_megatron::checkpoint::{Checkpoint, CheckpointError, ReadConfig};
use burn_megatron::context::ParallelContext;
use burn_megatron::launch::Environment;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::arguments::CheckpointArguments;
use crate::loading::share_text;
use crate::saved_state::RUN;

/// The checkpoint to continue from.
pub(super) struct FoundCheckpoint {
    /// None without `--load`, or if the folder has no checkpoint.
    pub(super) checkpoint: Option<Checkpoint>,
    /// The flags that say how it is taken.
    pub(super) arguments: CheckpointArguments,
}

/// Finds the checkpoint to continue from, the same one on every rank: of a run that a launcher has started again, the
/// last that it has saved itself, if there is one. If `--load` has none, the first rank warns.
///
/// # Communication
/// Two broadcasts over the world, of 8 bytes and of what the first rank has found.
///
/// # Errors
/// When there is no checkpoint although one must be there, or it cannot be read; the first rank's words on every rank.
pub(super) fn find(arguments: &CheckpointArguments, context: &ParallelContext) -> anyhow::Result<FoundCheckpoint> {
    if arguments.load.is_none() && arguments.save.is_none() {
        return Ok(FoundCheckpoint {
            checkpoint: None,
            arguments: arguments.clone(),
        });
    }
    // What the first rank sees counts: another may be saving, or a file system slow to show it.
    let here = (context.rank() == 0).then(|| find_here(arguments));
    let found = here.as_ref().map(|here| match here {
        Ok((checkpoint, is_own)) => Found::Checkpoint {
            path: checkpoint.as_ref().map(|checkpoint| checkpoint.path().to_owned()),
            is_own: *is_own,
        },
        Err(error) => Found::Failure(format!("rank 0: {error:#}")),
    });
    let (path, is_own) = match share(found, context)? {
        Found::Checkpoint { path, is_own } => (path, is_own),
        Found::Failure(what) => match here {
            Some(Err(error)) => return Err(error),
            _ => bail!(what),
        },
    };
    let checkpoint = match (here, path) {
        (Some(Ok((checkpoint, _))), _) => checkpoint,
        (_, None) => None,
        // The first rank has looked at every shard.
        (_, Some(path)) => Some(Checkpoint::open_with(path, ReadConfig::new().with_shards_later(true))?),
    };
    Ok(FoundCheckpoint {
        checkpoint,
        arguments: CheckpointArguments {
            // A run that has been started again continues.
            finetune: arguments.finetune && !is_own,
            ..arguments.clone()
        },
    })
}

/// What the first rank has found.
#[derive(Serialize, Deserialize)]
enum Found {
    Checkpoint {
        path: Option<PathBuf>,
        /// Whether it is of an earlier start of this run.
        is_own: bool,
    },
    Failure(String),
}

/// Returns what the first rank gives on every rank.
fn share(found: Option<Found>, context: &ParallelContext) -> anyhow::Result<Found> {
    let text = match &found {
        Some(found) => serde_json::to_string(found).context("what rank 0 has found")?,
        None => String::new(),
    };
    let text = share_text(text, context)?;
    serde_json::from_str(&text).context("what rank 0 has found")
}

/// The checkpoint, and whether it is of an earlier start of this run.
fn find_here(arguments: &CheckpointArguments) -> anyhow::Result<(Option<Checkpoint>, bool)> {
    if let Some(own) = find_own(arguments)? {
        return Ok((Some(own), true));
    }
    let Some(folder) = &arguments.load else {
        return Ok((None, false));
    };
    Ok((find_in(arguments, folder)?, false))
}

/// The last checkpoint in `--save` of a run that a launcher has started again, if this run has saved it: its begin may
/// have been refused, or it may have failed before.
fn find_own(arguments: &CheckpointArguments) -> anyhow::Result<Option<Checkpoint>> {
    let environment = Environment::detect()?.filter(|environment| environment.restarts() > 0);
    let (Some(environment), Some(folder)) = (environment, &arguments.save) else {
        return Ok(None);
    };
    let of_this_run = |checkpoint: &Checkpoint| {
        let run = checkpoint.state().get(RUN).and_then(Value::as_str);
        run.is_some() && run == environment.run()
    };
    Ok(Checkpoint::latest(folder)?.filter(of_this_run))
}

fn find_in(arguments: &CheckpointArguments, folder: &Path) -> anyhow::Result<Option<Checkpoint>> {
    // A path of one checkpoint means that one.
    let name = folder.file_name().and_then(OsStr::to_str);
    let names_one = name.is_some_and(|name| name.starts_with("iter_"));
    if arguments.finetune || arguments.exit_on_missing_checkpoint || names_one {
        return Ok(Some(Checkpoint::find(folder)?));
    }
    match Checkpoint::find(folder) {
        Ok(checkpoint) => Ok(Some(checkpoint)),
        Err(error @ CheckpointError::NoCheckpoint { .. }) => {
            tracing::warn!("starting from the beginning: {error}");
            Ok(None)
        }
        Err(error) => Err(error.into()),
    }
}
