//! Looks at checkpoints: what is in one, whether it is whole, the same as one file, and to and from Hugging Face's
//! files.
//!
//! ```text
//! cargo run --release --example checkpoint -- inspect checkpoints             # the latest in the folder
//! cargo run --release --example checkpoint -- inspect checkpoints/iter_0000020 --json
//! cargo run --release --example checkpoint -- verify checkpoints
//! cargo run --release --example checkpoint -- convert checkpoints one_file
//! cargo run --release --example checkpoint -- convert checkpoints gpt2_files --to huggingface
//! cargo run --release --example checkpoint -- convert gpt2_files imported --from huggingface
//! cargo run --release --example checkpoint -- convert gpt2_files imported --from huggingface --adapter peft_files
//! cargo run --release --example checkpoint -- convert checkpoints peft_files --to peft
//! ```

mod inspect;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use burn_megatron::checkpoint::Checkpoint;
use burn_megatron_data::programs;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Parser, Subcommand, ValueEnum};
use examples::arguments::parse_size;
use examples::carried_tokenizer::{CarriedTokenizer, carried_files};
use examples::figures::bytes;
use examples::saved_state::{FamilyState, ModelState};
use models::ModelFamily;
use models::huggingface::{
    AdapterFiles, ExportConfig, ExportType, HuggingFaceModel, NamedBytes, export_adapters, export_with,
};
use models::registry::{Family, FamilyProgram, run_with_family};

use inspect::{count_text, describe, figures};

/// Inspect, verify and convert checkpoints
#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Print what a checkpoint holds: iteration, layout, state, files with their checksums, arrays
    Inspect {
        /// A checkpoint, or a folder of checkpoints, of which the latest is meant
        checkpoint: PathBuf,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Compare all checksums, and check that each element of each array is there exactly once; exit code 1 if not
    Verify {
        /// A checkpoint, or a folder of checkpoints, of which the latest is meant
        checkpoint: PathBuf,
    },
    /// Write a checkpoint again as one safetensors file, every array whole and under its name; or export it, or import
    /// one, with the tokenizer's files
    Convert {
        /// A checkpoint, or a folder of checkpoints, of which the latest is meant; with --from, a folder with
        /// config.json and model.safetensors or model.safetensors.index.json
        checkpoint: PathBuf,
        /// The folder of checkpoints to write to, made if it is not there, in which nothing is replaced; with --to, the
        /// folder to make
        output: PathBuf,
        /// Export the parameters, for other programs
        #[arg(long, value_name = "FORMAT")]
        to: Option<Format>,
        /// Import the parameters of another program: pretrain_gpt begins with them by --load and --finetune
        #[arg(long, value_name = "FORMAT", conflicts_with = "to")]
        from: Option<ImportFormat>,
        /// Import low-rank adapters of the model, too: a folder with peft's adapter_config.json and
        /// adapter_model.safetensors
        #[arg(long, value_name = "DIR", requires = "from")]
        adapter: Option<PathBuf>,
        /// The type of the exported numbers
        #[arg(long, value_parser = exported_type(), default_value = "f32", requires = "to")]
        dtype: ExportType,
        /// The most bytes of numbers in an exported file, as in 500MB: where there are more, several files are written,
        /// and model.safetensors.index.json
        #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "5GB", requires = "to")]
        max_shard_size: u64,
    },
}

/// How other programs store a model.
#[derive(Clone, Copy, ValueEnum)]
enum Format {
    /// Hugging Face's files: config.json and model.safetensors; what low-rank adapters add to weights is added
    Huggingface,
    /// peft's files of low-rank adapters: adapter_config.json and adapter_model.safetensors, in their own type
    Peft,
}

/// How other programs store a model that is imported.
#[derive(Clone, Copy, ValueEnum)]
enum ImportFormat {
    /// Hugging Face's files: config.json and model.safetensors
    Huggingface,
}

/// Parses the type of exported numbers.
fn exported_type() -> impl TypedValueParser<Value = ExportType> {
    PossibleValuesParser::new(["f32", "bf16", "f16"]).map(|name| match name.as_str() {
        "bf16" => ExportType::Bf16,
        "f16" => ExportType::F16,
        _ => ExportType::F32,
    })
}

fn main() -> ExitCode {
    match run(&Arguments::parse().command) {
        Ok(text) => {
            print!("{text}");
            ExitCode::SUCCESS
        }
        Err(error) => programs::failed(&error),
    }
}

/// Does what is asked, and returns what there is to say.
fn run(command: &Command) -> anyhow::Result<String> {
    match command {
        Command::Inspect { checkpoint, json } => {
            let checkpoint = Checkpoint::find(checkpoint)?;
            Ok(if *json {
                format!("{:#}\n", figures(&checkpoint))
            } else {
                describe(&checkpoint)
            })
        }
        Command::Verify { checkpoint } => {
            let checkpoint = Checkpoint::find(checkpoint)?;
            checkpoint.verify()?;
            Ok(format!(
                "{}: whole, {} in {}, {}\n",
                checkpoint.path().display(),
                count_text(checkpoint.arrays().len(), "array"),
                count_text(checkpoint.files().len(), "file"),
                bytes(checkpoint.files().iter().map(|file| file.bytes).sum()),
            ))
        }
        Command::Convert {
            checkpoint,
            output,
            to,
            from,
            adapter,
            dtype,
            max_shard_size,
        } => {
            let written = match (to, from) {
                (Some(format), _) => {
                    let checkpoint = Checkpoint::find(checkpoint)?;
                    let options = ExportConfig {
                        dtype: *dtype,
                        max_shard_bytes: *max_shard_size,
                        adapters: None,
                    };
                    let FamilyState { family } = FamilyState::of(&checkpoint)?;
                    let path = checkpoint.path().display().to_string();
                    let program = Export {
                        checkpoint,
                        output,
                        format: *format,
                        options,
                    };
                    run_with_family(&family, program).context(path)??;
                    output.clone()
                }
                (None, Some(ImportFormat::Huggingface)) => import(checkpoint, adapter.as_deref(), output)?,
                (None, None) => Checkpoint::find(checkpoint)?.write_unsharded(output)?,
            };
            Ok(format!("{}\n", written.display()))
        }
    }
}

/// Writes a checkpoint as Hugging Face's files, or its adapters as peft's.
struct Export<'a> {
    checkpoint: Checkpoint,
    output: &'a Path,
    format: Format,
    options: ExportConfig,
}

impl FamilyProgram for Export<'_> {
    type Output = anyhow::Result<()>;

    fn run<C: ModelFamily>(self) -> anyhow::Result<()> {
        let ModelState {
            model,
            imported_from,
            adapters,
            ..
        } = ModelState::<C>::of(&self.checkpoint)?;
        if matches!(self.format, Format::Peft) {
            let path = self.checkpoint.path();
            let adapters = adapters.with_context(|| format!("{} has no low-rank adapters", path.display()))?;
            let base = imported_from.map_or_else(String::new, |folder| folder.display().to_string());
            return Ok(export_adapters(
                &self.checkpoint,
                &model,
                &adapters,
                &base,
                self.output,
            )?);
        }
        let tokenizer = carried_files(&self.checkpoint)?;
        let options = ExportConfig {
            adapters,
            ..self.options
        };
        Ok(export_with(
            &self.checkpoint,
            &model,
            self.output,
            &options,
            &tokenizer,
        )?)
    }
}

/// Writes a model in Hugging Face's files as a checkpoint, and returns its folder.
fn import(files: &Path, adapter: Option<&Path>, output: &Path) -> anyhow::Result<PathBuf> {
    let program = Import { files, adapter, output };
    run_with_family(Family::of_files(files)?.name, program)?
}

/// Writes Hugging Face's files as a checkpoint.
struct Import<'a> {
    files: &'a Path,
    adapter: Option<&'a Path>,
    output: &'a Path,
}

impl FamilyProgram for Import<'_> {
    type Output = anyhow::Result<PathBuf>;

    fn run<C: ModelFamily>(self) -> anyhow::Result<PathBuf> {
        let model = HuggingFaceModel::<C>::open(self.files)?;
        let note = |remarks: &[String]| remarks.iter().for_each(|remark| eprintln!("note: {remark}"));
        note(model.remarks());
        let tokenizer = CarriedTokenizer::of_folder(self.files, model.config().vocab_size())?;
        let mut state = ModelState::imported(model.config().clone(), self.files, tokenizer.state);
        let mut arrays = Vec::new();
        if let Some(adapter) = self.adapter {
            let adapter = AdapterFiles::open(adapter, model.config())?;
            note(adapter.remarks());
            state.adapters = Some(adapter.config().clone());
            arrays = adapter.arrays()?;
        }
        arrays.extend(tokenizer.arrays.iter().map(NamedBytes::as_array));
        Ok(model.write_checkpoint_with_arrays(self.output, serde_json::to_value(state)?, arrays)?)
    }
}
