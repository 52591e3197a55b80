//! [`Engine`]: on rank 0, the thread that steps the generator; and [`EngineHandle`], by which the HTTP thread gives it
//! jobs and takes their tokens.
//!
//! Jobs are taken and cancelled between steps. The tokens of a job wait in a channel that has no limit, for a slow
//! client must not hold up the batch: there are no more of them than the job asks for.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use burn_megatron::launch::StopFlag;
use burn_megatron_data::tokenizer::Tokenizer;
use models::generation::{GenerationError, GenerationEvent, GenerationRequest, Generator, RequestError, RequestId};
use parking_lot::Mutex;
use tokio::sync::{mpsc, watch};

/// How long rank 0 waits for a job before it steps: the other ranks wait for it, and it looks at the stop flag.
const IDLE_WAIT: Duration = Duration::from_millis(200);

/// What the server is doing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Taking requests.
    Serving,
    /// Finishing what runs: it was asked to stop.
    Draining,
    /// Nothing computes any more, for this reason.
    Ended(String),
}

/// How much there is to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Load {
    /// Outputs in the batch.
    pub(super) running: usize,
    /// Outputs that wait for their place.
    pub(super) waiting: usize,
    /// Pages of the cache.
    pub(super) num_pages: usize,
    /// Those that no output has.
    pub(super) free_pages: usize,
}

/// What comes of a job.
#[derive(Debug)]
pub(super) enum JobEvent {
    /// It was taken, whole.
    Accepted,
    /// It was not, and nothing of it was computed.
    Refused(RequestError),
    /// A token of the continuation of one of its prompts.
    Token {
        /// The prompt's place in the job.
        prompt: usize,
        event: GenerationEvent,
    },
    /// The server ends before the job does.
    Ended(String),
}

enum Command {
    Submit {
        job: u64,
        requests: Vec<GenerationRequest>,
        events: mpsc::UnboundedSender<JobEvent>,
    },
    Cancel {
        job: u64,
    },
}

/// The engine, for the threads that talk to clients.
#[derive(Clone)]
pub(super) struct EngineHandle {
    commands: Sender<Command>,
    next_job: Arc<AtomicU64>,
    phase: watch::Receiver<Phase>,
    load: Arc<Mutex<Load>>,
    tokenizer: Arc<dyn Tokenizer>,
    max_seq_length: usize,
}

impl EngineHandle {
    /// Hands in the continuations of some prompts; all of them are taken, or none.
    pub(super) fn submit(&self, requests: Vec<GenerationRequest>) -> Job {
        let id = self.next_job.fetch_add(1, Ordering::Relaxed);
        let (events, receiver) = mpsc::unbounded_channel();
        let submit = Command::Submit {
            job: id,
            requests,
            events,
        };
        // An engine that has ended drops the sender of events with it, and the job ends.
        let _ = self.commands.send(submit);
        Job {
            id,
            commands: self.commands.clone(),
            events: receiver,
        }
    }

    pub(super) fn phase(&self) -> Phase {
        self.phase.borrow().clone()
    }

    /// The phase, to wait for another one.
    pub(super) fn watch_phase(&self) -> watch::Receiver<Phase> {
        self.phase.clone()
    }

    pub(super) fn load(&self) -> Load {
        *self.load.lock()
    }

    pub(super) fn tokenizer(&self) -> &Arc<dyn Tokenizer> {
        &self.tokenizer
    }

    pub(super) fn max_seq_length(&self) -> usize {
        self.max_seq_length
    }
}

/// A job that was handed in. What is left of it is cancelled when it is dropped.
pub(super) struct Job {
    id: u64,
    commands: Sender<Command>,
    events: mpsc::UnboundedReceiver<JobEvent>,
}

impl Job {
    /// Waits for the next event.
    pub(super) async fn next(&mut self) -> JobEvent {
        let ended = || JobEvent::Ended("the server has ended".to_owned());
        self.events.recv().await.unwrap_or_else(ended)
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        // Of a job that is complete, or an engine that has ended, nothing is left.
        let _ = self.commands.send(Command::Cancel { job: self.id });
    }
}

/// A job that runs.
struct Running {
    requests: Vec<RequestId>,
    /// Samples that have not ended.
    samples_left: usize,
    events: mpsc::UnboundedSender<JobEvent>,
}

/// Steps the generator.
pub(super) struct Engine<'a> {
    generator: &'a mut Generator,
    commands: Receiver<Command>,
    phase: watch::Sender<Phase>,
    load: Arc<Mutex<Load>>,
    jobs: HashMap<u64, Running>,
    /// Of each request, its job and the prompt's place in it.
    places: HashMap<RequestId, (u64, usize)>,
}

impl<'a> Engine<'a> {
    /// Returns an engine that is ready, and the handle to it.
    pub(super) fn new(generator: &'a mut Generator) -> (Self, EngineHandle) {
        let (sender, commands) = channel();
        let (phase, watched) = watch::channel(Phase::Serving);
        let load = Arc::new(Mutex::new(Load::default()));
        let handle = EngineHandle {
            commands: sender,
            next_job: Arc::default(),
            phase: watched,
            load: load.clone(),
            tokenizer: generator.tokenizer().clone(),
            max_seq_length: generator.max_seq_length(),
        };
        let engine = Self {
            generator,
            commands,
            phase,
            load,
            jobs: HashMap::new(),
            places: HashMap::new(),
        };
        engine.report_load();
        (engine, handle)
    }

    /// Serves until it is asked to stop and the jobs are done, or `drain_timeout` is over. Jobs that are left then, or
    /// after an error, are ended with the reason.
    ///
    /// # Communication
    /// A step of the generator after each of its steps, and at least every `IDLE_WAIT`.
    ///
    /// # Errors
    /// The generator's: it is to be given up then.
    pub(super) fn run(&mut self, stop: &StopFlag, drain_timeout: Duration) -> Result<(), GenerationError> {
        let done = self.serve(stop, drain_timeout);
        let reason = match &done {
            Ok(()) => "the server was asked to stop".to_owned(),
            Err(error) => format!("the model cannot compute any more: {error}"),
        };
        self.phase.send_replace(Phase::Ended(reason.clone()));
        for running in std::mem::take(&mut self.jobs).into_values() {
            let _ = running.events.send(JobEvent::Ended(reason.clone()));
        }
        while let Ok(command) = self.commands.try_recv() {
            if let Command::Submit { events, .. } = command {
                let _ = events.send(JobEvent::Ended(reason.clone()));
            }
        }
        done
    }

    fn serve(&mut self, stop: &StopFlag, drain_timeout: Duration) -> Result<(), GenerationError> {
        let mut deadline = None;
        loop {
            if deadline.is_none() && stop.is_set() {
                deadline = Some(Instant::now() + drain_timeout);
                self.phase.send_replace(Phase::Draining);
            }
            if deadline.is_some_and(|deadline| self.jobs.is_empty() || Instant::now() >= deadline) {
                return Ok(());
            }
            self.take_commands();
            let events = self.generator.step()?;
            // First, so that a client that has its token finds the figures that go with it.
            self.report_load();
            for event in events {
                self.pass_on(event);
            }
        }
    }

    /// Takes all commands that are there; waits for one if there is nothing to compute.
    fn take_commands(&mut self) {
        if self.generator.is_idle() {
            match self.commands.recv_timeout(IDLE_WAIT) {
                Ok(command) => self.take(command),
                Err(RecvTimeoutError::Timeout) => {}
                // All handles are gone; only the stop flag ends the engine.
                Err(RecvTimeoutError::Disconnected) => std::thread::sleep(IDLE_WAIT),
            }
        }
        while let Ok(command) = self.commands.try_recv() {
            self.take(command);
        }
    }

    fn take(&mut self, command: Command) {
        match command {
            Command::Submit { job, requests, events } => self.submit(job, requests, events),
            Command::Cancel { job } => self.cancel(job),
        }
    }

    fn submit(&mut self, job: u64, requests: Vec<GenerationRequest>, events: mpsc::UnboundedSender<JobEvent>) {
        let mut taken = Vec::with_capacity(requests.len());
        let mut samples_left = 0;
        for request in requests {
            let samples = request.num_samples;
            match self.generator.submit(request) {
                Ok(id) => taken.push(id),
                Err(error) => {
                    for id in taken {
                        self.generator.cancel(id);
                    }
                    // A client that has left does not care.
                    let _ = events.send(JobEvent::Refused(error));
                    return;
                }
            }
            samples_left += samples;
        }
        for (prompt, id) in taken.iter().enumerate() {
            self.places.insert(*id, (job, prompt));
        }
        let _ = events.send(JobEvent::Accepted);
        let running = Running {
            requests: taken,
            samples_left,
            events,
        };
        self.jobs.insert(job, running);
    }

    fn cancel(&mut self, job: u64) {
        let Some(running) = self.jobs.remove(&job) else {
            return;
        };
        for request in running.requests {
            self.places.remove(&request);
            self.generator.cancel(request);
        }
        self.report_load();
    }

    fn pass_on(&mut self, event: GenerationEvent) {
        let Some((job, prompt)) = self.places.get(&event.request).copied() else {
            return;
        };
        let Some(running) = self.jobs.get_mut(&job) else {
            return;
        };
        running.samples_left -= usize::from(event.finished.is_some());
        let is_complete = running.samples_left == 0;
        // If nothing receives any more, the job's end has been handed in as well.
        let _ = running.events.send(JobEvent::Token { prompt, event });
        if is_complete && let Some(running) = self.jobs.remove(&job) {
            for request in running.requests {
                self.places.remove(&request);
            }
        }
    }

    fn report_load(&self) {
        let [running, waiting] = self.generator.num_samples();
        let cache = self.generator.cache_use();
        let load = Load {
            running,
            waiting,
            num_pages: cache.map_or(0, |cache| cache.num_pages),
            free_pages: cache.map_or(0, |cache| cache.free_pages),
        };
        *self.load.lock() = load;
    }
}
