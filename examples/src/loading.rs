//! [`load`]: the checkpoint whose model a program uses without training it, the same one on every rank; and
//! [`Loaded::model`], this rank's part of the model.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail, ensure};
use burn::tensor::Device;
use burn_megatron::checkpoint::{Checkpoint, CheckpointError};
use burn_megatron::context::ParallelContext;
use burn_megatron::launch::World;
use burn_megatron::pipeline_parallel::LayerLayout;
use burn_megatron::training::load_parameters;
use burn_megatron_data::programs::TokenizerArguments;
use models::family::adapt_stage;
use models::huggingface::HuggingFaceModel;
use models::registry::{Family, FamilyProgram, run_with_family};
use models::{ModelFamily, Objective};

use crate::arguments::{ParallelArguments, USUAL_FOLDER};
use crate::run_tokenizer::RunTokenizer;
use crate::saved_state::ModelState;

/// The file that Hugging Face's folders have.
const CONFIG_NAME: &str = "config.json";

/// The most that the first rank tells of the checkpoint that it has found: a path, or why it has none.
const MAX_FOUND_BYTES: usize = 1 << 20;

/// Returns why a model of a family cannot be asked for text.
pub(crate) fn does_not_continue(family: &str) -> String {
    format!("a model of the family {family} does not predict the next token: it continues and scores no text")
}

/// Returns the first rank's text on every rank.
///
/// # Communication
/// Two broadcasts over the world, of 8 bytes and of the text.
pub(crate) fn share_text(text: String, context: &ParallelContext) -> anyhow::Result<String> {
    let world = context.world_group();
    let mut text = text.into_bytes();
    let mut length = [text.len() as i64];
    world.broadcast(&mut length, 0)?;
    let length = usize::try_from(length[0])
        .ok()
        .filter(|length| *length <= MAX_FOUND_BYTES);
    let length = length.with_context(|| format!("rank 0 tells more than {MAX_FOUND_BYTES} bytes of the checkpoint"))?;
    text.resize(length, 0);
    world.broadcast(&mut text, 0)?;
    String::from_utf8(text).context("what rank 0 has found")
}

/// A checkpoint that is open.
pub(crate) struct Loaded {
    checkpoint: Checkpoint,
    source: PathBuf,
    /// The folder that was written for it, on the first rank of each node.
    temporary: Option<Temporary>,
}

impl Loaded {
    pub(crate) fn checkpoint(&self) -> &Checkpoint {
        &self.checkpoint
    }

    /// Reads this rank's part of the model, and the tokenizer; then removes what was written for it.
    ///
    /// # Communication
    /// A barrier of all ranks.
    ///
    /// # Errors
    /// When the model continues no text, or does not fit the layout, or the tokenizer the model; when something cannot
    /// be read.
    pub(crate) fn model<C: ModelFamily>(
        self,
        parallel: &ParallelArguments,
        tokenizer: &TokenizerArguments,
        context: &ParallelContext,
        device: &Device,
    ) -> anyhow::Result<LoadedModel<C>> {
        let checkpoint = &self.checkpoint;
        let state = ModelState::<C>::of(checkpoint)?;
        let config = state.model.with_usual_padding();
        ensure!(config.objective() == Objective::NextToken, does_not_continue(C::NAME));
        config.validate(context.config())?;
        let tokenizer = RunTokenizer::of_model(tokenizer, checkpoint, &self.source, config.vocab_size())?;
        let sizes = parallel.layer_sizes(config.n_layers())?;
        let layers = parallel.stages.layers(sizes)?;
        let mut chunks = config.init_stage(&layers, device, context)?;
        if let Some(adapters) = &state.adapters {
            chunks = adapt_stage(&config, chunks, adapters, device, context)?;
        }
        let chunks = load_parameters(chunks, checkpoint, context)?;
        let is_trained_here = state.imported_from.is_none();
        let iteration = is_trained_here.then(|| checkpoint.iteration());
        let source = self.finish(context)?;
        Ok(LoadedModel {
            config,
            layers,
            chunks,
            tokenizer,
            source,
            iteration,
        })
    }

    /// Removes what was written for it, after all ranks have read. Returns what was loaded.
    fn finish(self, context: &ParallelContext) -> anyhow::Result<PathBuf> {
        context.world_group().barrier()?;
        let Self {
            checkpoint,
            source,
            temporary,
        } = self;
        drop(checkpoint);
        drop(temporary);
        Ok(source)
    }
}

/// A rank's part of a model that is not trained.
pub(crate) struct LoadedModel<C: ModelFamily> {
    pub(crate) config: C,
    pub(crate) layers: LayerLayout,
    /// The chunks of this rank's stage, without autodiff.
    pub(crate) chunks: Vec<C::Stage>,
    pub(crate) tokenizer: RunTokenizer,
    /// The folder or file that was loaded.
    pub(crate) source: PathBuf,
    /// The iteration of training after which it was saved; none of another program's files.
    pub(crate) iteration: Option<u64>,
}

/// Opens what `--load` names, or the latest checkpoint of the usual folder.
///
/// Hugging Face's files are written as a checkpoint into the folder for temporary files, once on each node.
///
/// # Communication
/// Broadcasts of what rank 0 has found; for Hugging Face's files a barrier.
///
/// # Errors
/// When there is nothing to load, or it cannot be read; rank 0's words on every rank.
pub(crate) fn load(given: Option<&Path>, world: &World, context: &ParallelContext) -> anyhow::Result<Loaded> {
    let found = (world.rank() == 0).then(|| find(given));
    let text = match &found {
        None => String::new(),
        Some(Ok(Found { path, is_foreign })) => {
            let kind = if *is_foreign { "foreign" } else { "own" };
            let path = path.to_str().context("the path of --load is no text")?;
            format!("{kind} {path}")
        }
        Some(Err(error)) => format!("failure {error:#}"),
    };
    let text = share_text(text, context)?;
    let (kind, rest) = text.split_once(' ').context("what rank 0 has found")?;
    match (kind, found) {
        (_, Some(Err(error))) => Err(error),
        ("failure", _) => bail!("rank 0: {rest}"),
        ("foreign", _) => import(Path::new(rest), world, context),
        _ => Ok(Loaded {
            checkpoint: Checkpoint::open(rest)?,
            source: rest.into(),
            temporary: None,
        }),
    }
}

/// Finding of rank 0.
struct Found {
    path: PathBuf,
    is_foreign: bool,
}

fn find(given: Option<&Path>) -> anyhow::Result<Found> {
    let own = |path| Found {
        path,
        is_foreign: false,
    };
    let Some(folder) = given else {
        let found = Checkpoint::latest(USUAL_FOLDER)?.map(|checkpoint| own(checkpoint.path().to_owned()));
        return found.with_context(|| {
            format!(
                "there is no checkpoint in the folder {USUAL_FOLDER} here: give --load with a folder of checkpoints, \
                 as pretrain_gpt --save writes them, or of Hugging Face's files"
            )
        });
    };
    ensure!(folder.is_dir(), "--load {}: there is no such folder", folder.display());
    match Checkpoint::find(folder) {
        Ok(checkpoint) => Ok(own(checkpoint.path().to_owned())),
        Err(CheckpointError::NoCheckpoint { .. }) if folder.join(CONFIG_NAME).exists() => Ok(Found {
            path: folder.to_owned(),
            is_foreign: true,
        }),
        Err(CheckpointError::NoCheckpoint { .. }) => bail!(
            "--load {}: there is no checkpoint, nor {CONFIG_NAME} of Hugging Face's files",
            folder.display()
        ),
        Err(error) => Err(error.into()),
    }
}

/// Writes Hugging Face's files as a checkpoint, once on each node, and opens it.
fn import(files: &Path, world: &World, context: &ParallelContext) -> anyhow::Result<Loaded> {
    let name = match world.rank() {
        0 => {
            let folder = tempfile::Builder::new().prefix("imported-checkpoint-").tempdir();
            let folder = folder.map(tempfile::TempDir::keep).unwrap_or_default();
            folder.to_string_lossy().into_owned()
        }
        _ => String::new(),
    };
    let name = share_text(name, context)?;
    ensure!(!name.is_empty(), "rank 0 has no folder for temporary files");
    let output = PathBuf::from(name);
    let mut temporary = None;
    let mut written = Ok(());
    if world.local_rank() == 0 {
        temporary = Some(Temporary(output.clone()));
        written = write(files, &output);
    }
    // Also after a failure: the others wait here.
    context.world_group().barrier()?;
    written?;
    Ok(Loaded {
        checkpoint: Checkpoint::find(&output)?,
        source: files.to_owned(),
        temporary,
    })
}

fn write(files: &Path, output: &Path) -> anyhow::Result<()> {
    run_with_family(Family::of_files(files)?.name, Import { files, output })?
}

/// Writes Hugging Face's files as a checkpoint.
struct Import<'a> {
    files: &'a Path,
    output: &'a Path,
}

impl FamilyProgram for Import<'_> {
    type Output = anyhow::Result<()>;

    fn run<C: ModelFamily>(self) -> anyhow::Result<()> {
        let model = HuggingFaceModel::<C>::open(self.files)?;
        for remark in model.remarks() {
            eprintln!("note: {remark}");
        }
        // The tokenizer is read from the folder itself, or is another one that the flags name.
        let state = ModelState::imported(model.config().clone(), self.files, None);
        model.write_checkpoint(self.output, serde_json::to_value(state)?)?;
        Ok(())
    }
}

/// A folder that is removed in the end.
struct Temporary(PathBuf);

impl Drop for Temporary {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.0) {
            tracing::warn!(%error, "cannot remove {}", self.0.display());
        }
    }
}
