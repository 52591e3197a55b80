//! [`SummaryWriter`]: an event file that a thread of its own writes.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::error::TensorBoardError;
use super::event::{Event, Value};
use super::file::EventFile;
use crate::scalars::Scalar;

/// How events are written.
#[derive(Clone, Copy, Debug)]
pub struct SummaryWriterConfig {
    /// Events that may wait for the disk; one more is left out. Megatron-LM's `--tensorboard-queue-size`.
    pub queue_size: usize,
    /// The longest time that an event waits before other programs see it.
    pub flush_interval: Duration,
}

impl Default for SummaryWriterConfig {
    fn default() -> Self {
        Self {
            queue_size: 1000,
            flush_interval: Duration::from_secs(2),
        }
    }
}

/// Writes to an event file, on a thread of its own: training waits for no disk.
///
/// What cannot be written ends no training: the first failure is one warning in the log that names the file, and from
/// then on nothing is written. When the disk is too slow, events are left out, with one warning too. When dropped, what
/// is in the queue is written.
///
/// Where training continues in a new file, the steps since the checkpoint are there twice. TensorBoard shows the later
/// ones: its loader drops, of each tag, what has the step of a newer value or a larger one. An event that says so
/// (`SessionLog.START`) would make other readers drop all scalars of larger steps, also those whose step is a number of
/// samples.
#[derive(Debug)]
pub struct SummaryWriter {
    /// `None` once it is being closed.
    queue: Option<SyncSender<Event>>,
    thread: Option<JoinHandle<()>>,
    path: PathBuf,
    left_out: u64,
}

impl SummaryWriter {
    /// Creates an event file in a folder, which is made if there is none.
    ///
    /// # Errors
    /// As [`EventFile::create`]; when no thread can be started.
    pub fn create(folder: &Path, config: SummaryWriterConfig) -> Result<Self, TensorBoardError> {
        Self::over(EventFile::create(folder)?, config)
    }

    pub(super) fn over(file: EventFile, config: SummaryWriterConfig) -> Result<Self, TensorBoardError> {
        let path = file.path().to_owned();
        let (queue, events) = sync_channel(config.queue_size);
        let thread = thread::Builder::new()
            .name("tensorboard".to_owned())
            .spawn(move || run(file, &events, config.flush_interval));
        match thread {
            Ok(thread) => Ok(Self {
                queue: Some(queue),
                thread: Some(thread),
                path,
                left_out: 0,
            }),
            Err(source) => Err(TensorBoardError::Thread { path, source }),
        }
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes scalars. Those of one step follow each other in one event.
    pub fn scalars(&mut self, scalars: &[Scalar]) {
        for of_one in scalars.chunk_by(|one, next| one.step == next.step) {
            self.send(Event::Values {
                step: signed(of_one[0].step),
                values: of_one
                    .iter()
                    .map(|scalar| (scalar.tag.to_string(), Value::Scalar(scalar.value)))
                    .collect(),
            });
        }
    }

    /// Writes a text of a step, shown as Markdown, under the tag `NAME/text_summary`, as PyTorch's
    /// `SummaryWriter.add_text` does. See [`verbatim`](super::verbatim) for a text that is no Markdown.
    pub fn text(&mut self, name: &str, text: &str, step: u64) {
        self.value(&format!("{name}/text_summary"), Value::Text(text.to_owned()), step);
    }

    /// Writes a value of a step: text, or a histogram.
    pub fn value(&mut self, tag: &str, value: Value, step: u64) {
        self.send(Event::Values {
            step: signed(step),
            values: vec![(tag.to_owned(), value)],
        });
    }

    fn send(&mut self, event: Event) {
        let Some(queue) = &self.queue else {
            return;
        };
        // A thread that has ended has said why.
        if let Err(TrySendError::Full(_)) = queue.try_send(event) {
            if self.left_out == 0 {
                let path = self.path.display();
                tracing::warn!(%path, "the disk is too slow for TensorBoard's events: some are left out");
            }
            self.left_out += 1;
        }
    }
}

impl Drop for SummaryWriter {
    fn drop(&mut self) {
        self.queue = None;
        if let Some(thread) = self.thread.take() {
            // A panic there has been printed.
            let _ = thread.join();
        }
    }
}

/// Writes what comes until the queue is closed or a write fails.
fn run(mut file: EventFile, events: &Receiver<Event>, flush_interval: Duration) {
    if let Err(error) = write_all(&mut file, events, flush_interval) {
        tracing::warn!("{error}: training continues without TensorBoard");
    }
}

fn write_all(file: &mut EventFile, events: &Receiver<Event>, flush_interval: Duration) -> Result<(), TensorBoardError> {
    // When the oldest event that is not flushed has waited long enough.
    let mut due: Option<Instant> = None;
    loop {
        let event = match due {
            None => events.recv().map_err(|_| RecvTimeoutError::Disconnected),
            Some(due) => events.recv_timeout(due.saturating_duration_since(Instant::now())),
        };
        match event {
            Ok(event) => {
                file.append(&event)?;
                due.get_or_insert_with(|| Instant::now() + flush_interval);
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return file.sync(),
        }
        if due.is_some_and(|due| due <= Instant::now()) {
            file.flush()?;
            due = None;
        }
    }
}

fn signed(step: u64) -> i64 {
    i64::try_from(step).unwrap_or(i64::MAX)
}
