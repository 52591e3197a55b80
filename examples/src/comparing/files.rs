//! `OutputFolder`: the files that a comparison leaves: table and losses, for programs and as pictures.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;

use super::jobs::RunSummary;
use super::judge::Verdict;
use super::plot;
use super::report::{Comparison, Report};

/// The folder that files go to.
pub struct OutputFolder {
    path: PathBuf,
}

impl OutputFolder {
    /// Makes the folder if it is not there, and writes a file to it and removes it again.
    pub fn create(path: &Path) -> anyhow::Result<Self> {
        std::fs::create_dir_all(path)
            .and_then(|()| tempfile::NamedTempFile::new_in(path))
            .with_context(|| format!("cannot write to --output {}", path.display()))?;
        Ok(Self { path: path.to_owned() })
    }

    /// Writes all files.
    pub fn write(&self, report: &Report) -> anyhow::Result<()> {
        let files = [
            ("comparison.csv", report.comparison_csv()),
            ("losses.csv", report.losses_csv()),
            (
                "losses.svg",
                plot::losses_svg(report).context("cannot draw losses.svg")?,
            ),
            (
                "table.svg",
                report
                    .table()
                    .to_svg(&report.setting)
                    .context("cannot draw table.svg")?,
            ),
        ];
        for (name, content) in files {
            let path = self.path.join(name);
            std::fs::write(&path, content).with_context(|| format!("cannot write {}", path.display()))?;
        }
        Ok(())
    }

    /// A line that names the files.
    pub fn describe(&self) -> String {
        format!(
            "table and curves: {}/{{comparison,losses}}.csv, {{table,losses}}.svg",
            self.path.display()
        )
    }
}

impl Report {
    /// The table, for programs.
    fn comparison_csv(&self) -> String {
        let mut csv = String::from(
            "layout,ranks,same_start,loss_difference,gradient_difference,parameter_difference,parity,tokens_per_second,\
             ratio_to_one_rank,peak_memory_bytes_per_rank,communication_bytes_per_step,first_failure\n",
        );
        let one = self.reference.cost();
        let reference = Verdict {
            same_start: true,
            ..Verdict::default()
        };
        let layouts = self
            .comparisons
            .iter()
            .map(|Comparison { summary, verdict }| (summary, verdict));
        for (run, verdict) in std::iter::once((&self.reference, &reference)).chain(layouts) {
            let cost = run.cost();
            let _ = writeln!(
                csv,
                "{},{},{},{:e},{:e},{:e},{},{},{},{},{},{}",
                run.name,
                run.world_size,
                verdict.same_start,
                verdict.worst_loss,
                verdict.worst_gradient,
                verdict.worst_parameter,
                if verdict.holds() { "holds" } else { "broken" },
                cost.tokens_per_second,
                cost.tokens_per_second / one.tokens_per_second,
                cost.peak_memory_bytes,
                cost.communication_bytes,
                quoted(verdict.first_failure.as_deref().unwrap_or_default()),
            );
        }
        csv
    }

    /// Returns every step's loss: a column per run, with enough digits to tell numbers apart.
    fn losses_csv(&self) -> String {
        let runs: Vec<&RunSummary> = std::iter::once(&self.reference)
            .chain(self.comparisons.iter().map(|comparison| &comparison.summary))
            .collect();
        let mut csv = String::from("step");
        for run in &runs {
            let _ = write!(csv, ",{}", run.name);
        }
        csv.push('\n');
        for (index, whole) in self.reference.metrics.iter().enumerate() {
            let _ = write!(csv, "{}", whole.step);
            for run in &runs {
                let _ = write!(csv, ",{}", run.metrics[index].loss);
            }
            csv.push('\n');
        }
        csv
    }
}

/// A field of a CSV file that may hold commas.
fn quoted(text: &str) -> String {
    if text.is_empty() {
        String::new()
    } else {
        format!("\"{}\"", text.replace('"', "\"\""))
    }
}

#[cfg(test)]
mod tests {
    use super::super::report::tests::report;

    #[test]
    fn csv_fields_hold_what_they_hold() {
        let csv = report().comparison_csv();
        let lines: Vec<&str> = csv.lines().collect();
        assert!(
            lines[1].starts_with("one rank,1,true,0e0,0e0,0e0,holds,400,1,5120,10,"),
            "{csv}"
        );
        assert!(lines[2].starts_with("tp2,2,true,1.5e-7,0e0,0e0,holds,"), "{csv}");
        assert!(
            lines[3].ends_with(",\"rank 1, step 1: gradient of \"\"w\"\", say\""),
            "{csv}"
        );
        let losses = report().losses_csv();
        assert_eq!(
            losses.lines().nth(3),
            Some("3,1.6666666666666667,1.6666666666666667,1.6666676666666667")
        );
    }
}
