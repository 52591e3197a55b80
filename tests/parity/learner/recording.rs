//! A logger that keeps every metric of every batch and epoch.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use burn::train::logger::MetricLogger;
use burn::train::metric::store::{EpochSummary, MetricsUpdate, Split};
use burn::train::metric::{MetricDefinition, MetricId, NumericEntry};

/// A metric of one batch, or of an epoch.
#[derive(Clone, Debug)]
pub struct Entry {
    pub split: Split,
    pub epoch: usize,
    pub metric: String,
    pub value: NumericEntry,
}

impl Entry {
    /// The samples that the value is of, as the metric counts them.
    pub fn count(&self) -> usize {
        match self.value {
            NumericEntry::Value(_) | NumericEntry::Final(_) => 1,
            NumericEntry::Aggregated { count, .. } => count,
        }
    }
}

/// What was logged. Clones share it.
#[derive(Clone, Default)]
pub struct Recording(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    names: HashMap<MetricId, String>,
    entries: Vec<Entry>,
}

impl Recording {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("no logger panics")
    }

    pub fn entries(&self) -> Vec<Entry> {
        self.state().entries.clone()
    }

    /// The number of the last epoch of a split, 0 if there is none.
    pub fn epochs(&self, split: &Split) -> usize {
        let entries = self.entries();
        let epochs = entries
            .iter()
            .filter(|entry| entry.split == *split)
            .map(|entry| entry.epoch);
        epochs.max().unwrap_or_default()
    }
}

impl MetricLogger for Recording {
    fn log(&mut self, update: MetricsUpdate, epoch: usize, split: &Split) {
        let mut state = self.state();
        for update in update.entries_numeric {
            let Some(value) = update.numeric_entry else { continue };
            let entry = Entry {
                split: split.clone(),
                epoch,
                metric: state.names[&update.entry.metric_id].clone(),
                value,
            };
            state.entries.push(entry);
        }
    }

    fn read_numeric(&mut self, name: &str, epoch: usize, split: &Split) -> Result<Vec<NumericEntry>, String> {
        let entries = self.entries().into_iter();
        let wanted = entries.filter(|entry| (&*entry.metric, entry.epoch, &entry.split) == (name, epoch, split));
        Ok(wanted.map(|entry| entry.value).collect())
    }

    fn log_metric_definition(&mut self, definition: MetricDefinition) {
        self.state()
            .names
            .insert(definition.metric_id, definition.name.to_string());
    }

    fn log_epoch_summary(&mut self, _summary: EpochSummary) {}
}
