//! What the real tensorboard package reads from a folder that this crate wrote. Ignored if no Python has the package:
//! neither the one that `BURN_MEGATRON_PYTHON` names nor `python3`.

#[path = "tensorboard/mod.rs"]
mod package;

use std::fs;
use std::path::Path;

use burn_megatron_monitoring::scalars::Scalar;
use burn_megatron_monitoring::tensorboard::{Histogram, SummaryWriter, SummaryWriterConfig, Value};
use libtest_mimic::{Arguments, Failed, Trial};

fn main() {
    let arguments = Arguments::from_args();
    let name = "the_real_tensorboard_reads_what_is_written";
    let python = package::python_for(name);
    let is_absent = python.is_none();
    let test = move || read_back(&python.unwrap_or_default());
    libtest_mimic::run(&arguments, vec![Trial::test(name, test).with_ignored_flag(is_absent)]).exit();
}

fn scalar(tag: &'static str, value: f64, step: u64) -> Scalar {
    Scalar {
        tag: tag.into(),
        value,
        step,
    }
}

fn read_back(python: &Path) -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let mut writer = SummaryWriter::create(folder.path(), SummaryWriterConfig::default())?;
    writer.scalars(&[
        scalar("lm loss", 4.5, 1),
        scalar("grad-norm", 0.25, 1),
        scalar("lm loss vs samples", 4.5, 16),
    ]);
    // Steps that no checkpoint has, and that are done again: nothing that was written is lost.
    writer.scalars(&[scalar("lm loss", 3.5, 2), scalar("lm loss", 2.5, 3)]);
    drop(writer);
    // File names are sorted, and this must be read after the first: another second, or number.
    let mut writer = SummaryWriter::create(folder.path(), SummaryWriterConfig::default())?;
    writer.scalars(&[scalar("lm loss", 3.25, 2), scalar("lm loss", f64::NAN, 3)]);
    writer.value("samples", Value::Text("Es war einmal 𝄞".to_owned()), 3);
    let histogram = Histogram::of(&[1.0, 2.0, 3.0, 4.0], 2).ok_or("no histogram")?;
    writer.value("lengths", Value::Histogram(histogram), 3);
    drop(writer);
    let files = fs::read_dir(folder.path())?.count();
    if files != 2 {
        return Err(format!("{files} files").into());
    }
    let (read, errors) = package::read(python, folder.path())?;
    let expected = "version 2.0\n\
        scalar 'grad-norm' 1 0.25\n\
        scalar 'lm loss' 1 4.5\n\
        scalar 'lm loss' 2 3.5\n\
        scalar 'lm loss' 3 2.5\n\
        scalar 'lm loss' 2 3.25\n\
        scalar 'lm loss' 3 nan\n\
        scalar 'lm loss vs samples' 16 4.5\n\
        text 'samples' 3 Es war einmal 𝄞\n\
        histogram 'lengths' 3 1.0 4.0 4.0 10.0 [2.5, 4.0] [2.0, 2.0]\n";
    if read == expected {
        return Ok(());
    }
    Err(format!("read:\n{read}\nexpected:\n{expected}\n{errors}").into())
}
