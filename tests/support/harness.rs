//! Runs a case in real processes and judges how they end.
//!
//! Trials describe their jobs with [`Job`]. The program is started again as a job's launcher and as each of its ranks,
//! and is that by [`act`], with what the [`Ranks`] of the case's room do.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, anyhow, ensure};
use burn_megatron::launch::{Environment, JoinConfig, Launcher, World, install_panic_hook, report_and_exit};
use libtest_mimic::{Failed, Trial};

use crate::job::launch;
use crate::processes::isolate;
use crate::program::{end, start};

const CASE: &str = "BURN_MEGATRON_TEST_CASE";
const WORLD_SIZE: &str = "BURN_MEGATRON_TEST_WORLD_SIZE";
/// Longer than any job takes on a busy machine; the launcher's own limits are far below.
const JOB_LIMIT: Duration = Duration::from_secs(300);

/// A case with its settings, as text between processes: `room name key=value …`.
#[derive(Clone, Debug, PartialEq)]
pub struct Case {
    /// The module that plays it.
    pub room: String,
    /// What the ranks know it by.
    pub name: String,
    settings: BTreeMap<String, String>,
}

impl Case {
    pub fn new(room: &str, name: &str) -> Self {
        Self {
            room: room.to_owned(),
            name: name.to_owned(),
            settings: BTreeMap::new(),
        }
    }

    /// Adds a setting.
    pub fn with(mut self, key: &str, value: impl ToString) -> Self {
        self.settings.insert(key.to_owned(), value.to_string());
        self
    }

    pub fn setting<T: std::str::FromStr>(&self, key: &str) -> anyhow::Result<T> {
        let text = self
            .settings
            .get(key)
            .ok_or_else(|| anyhow!("case {} has no setting {key}", self.name))?;
        text.parse().map_err(|_| anyhow!("case {}: {key}={text}", self.name))
    }

    fn to_text(&self) -> String {
        let mut text = format!("{} {}", self.room, self.name);
        for (key, value) in &self.settings {
            let _ = write!(text, " {key}={value}");
        }
        text
    }

    fn from_text(text: &str) -> Self {
        let mut words = text.split(' ');
        let mut next = || words.next().unwrap_or_default();
        let mut case = Self::new(next(), next());
        for (key, value) in words.filter_map(|word| word.split_once('=')) {
            case = case.with(key, value);
        }
        case
    }
}

/// What the ranks of a room's cases do.
#[derive(Clone, Copy)]
pub struct Ranks {
    /// What a rank does before it joins the job.
    pub before_join: fn(&Case) -> anyhow::Result<()>,
    /// What a rank pretends about its place.
    pub change_environment: fn(&Case, &mut Environment),
    pub run: fn(&Case, &World) -> anyhow::Result<()>,
}

/// A case, its number of ranks, and how it must end.
#[derive(Clone)]
pub struct Job {
    case: Case,
    world_size: usize,
    ends_within: Duration,
    file: Option<FileSetting>,
}

/// A setting, and what makes the file that it names.
type FileSetting = (
    &'static str,
    Arc<dyn Fn(&Case) -> anyhow::Result<PathBuf> + Send + Sync>,
);

pub struct JobEnd {
    /// The launcher's exit code.
    pub code: i32,
    /// Everything that launcher and ranks printed.
    pub output: String,
    /// From start to end.
    pub duration: Duration,
}

impl JobEnd {
    /// Checks that all of `messages` were printed.
    pub fn expect(&self, messages: &[&str]) -> Result<(), Failed> {
        match messages.iter().find(|message| !self.output.contains(**message)) {
            Some(message) => Err(format!("the output lacks {message:?}\n{}", self.output).into()),
            None => Ok(()),
        }
    }
}

impl Job {
    pub fn new(case: Case, world_size: usize) -> Self {
        Self {
            case,
            world_size,
            ends_within: JOB_LIMIT,
            file: None,
        }
    }

    /// Adds a setting: the path of a file that `make` makes, or finds, when the job is run.
    pub fn with_file(
        mut self,
        key: &'static str,
        make: impl Fn(&Case) -> anyhow::Result<PathBuf> + Send + Sync + 'static,
    ) -> Self {
        self.file = Some((key, Arc::new(make)));
        self
    }

    /// Bounds the job's time.
    pub fn ends_within(mut self, limit: Duration) -> Self {
        self.ends_within = limit;
        self
    }

    /// A trial that passes when every rank does. With `--nocapture`, what the ranks say is shown then, too.
    pub fn succeeds(self, name: impl Into<String>) -> Trial {
        Trial::test(name, move || {
            let output = self.output().map_err(|error| format!("{error:#}"))?;
            if std::env::args().any(|argument| argument == "--nocapture") {
                print!("{output}");
            }
            Ok(())
        })
    }

    /// A trial that passes when the job fails and says all of `messages`.
    pub fn fails_with(self, name: impl Into<String>, messages: &[&'static str]) -> Trial {
        let messages = messages.to_vec();
        Trial::test(name, move || self.fails(&messages))
    }

    /// Runs it, and fails unless the job does, and says all of `messages`.
    pub fn fails(&self, messages: &[&str]) -> Result<(), Failed> {
        let end = self.run()?;
        if end.code == 0 {
            return Err(format!("the job succeeded\n{}", end.output).into());
        }
        end.expect(messages)
    }

    /// Runs it, and returns what it printed if every rank passes.
    pub fn output(&self) -> anyhow::Result<String> {
        let end = self.run_inner()?;
        ensure!(end.code == 0, "exit code {}\n{}", end.code, end.output);
        Ok(end.output)
    }

    pub fn run(&self) -> Result<JobEnd, Failed> {
        self.run_inner().map_err(|error| format!("{error:#}").into())
    }

    fn run_inner(&self) -> anyhow::Result<JobEnd> {
        let case = match &self.file {
            Some((key, make)) => self.case.clone().with(key, make(&self.case)?.display()),
            None => self.case.clone(),
        };
        let mut command = Command::new(std::env::current_exe()?);
        isolate(&mut command)
            .env(CASE, case.to_text())
            .env(WORLD_SIZE, self.world_size.to_string());
        let ended = end(start(&mut command)?, self.ends_within);
        let ended = ended.with_context(|| format!("the job {}", case.to_text()))?;
        Ok(JobEnd {
            code: ended.code.unwrap_or(-1),
            output: ended.stdout + &ended.stderr,
            duration: Duration::from_secs_f64(ended.seconds),
        })
    }
}

/// Returns the case that this process has been started for, if it is a launcher or a rank of one.
pub fn case() -> Option<Case> {
    std::env::var(CASE).ok().map(|text| Case::from_text(&text))
}

/// Is the launcher of a case, or, with RANK set, one of its ranks.
pub fn act(case: &Case, ranks: Ranks) -> ExitCode {
    if std::env::var_os("RANK").is_some() {
        return run_rank(case, ranks);
    }
    let world_size = std::env::var(WORLD_SIZE).ok().and_then(|size| size.parse().ok());
    launch(Launcher::new(world_size.unwrap_or(1)))
}

/// Joins the job and runs a case as one of its ranks.
fn run_rank(case: &Case, ranks: Ranks) -> ExitCode {
    let result = (ranks.before_join)(case).and_then(|()| {
        let mut environment = Environment::detect()?.context("a rank has an environment")?;
        (ranks.change_environment)(case, &mut environment);
        let timeout = Duration::from_secs_f64(case.setting("timeout_secs").unwrap_or(60.0));
        let options = JoinConfig {
            rendezvous_timeout: timeout,
            timeout,
            flight_recorder_folder: case.setting("records").ok(),
            ..JoinConfig::new()
        };
        Ok(World::join(&environment, &options)?)
    });
    let world = match result {
        Ok(world) => world,
        Err(error) => {
            eprintln!("{error:#}");
            return ExitCode::FAILURE;
        }
    };
    install_panic_hook(&world);
    match (ranks.run)(case, &world) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => report_and_exit(&world, error.as_ref()),
    }
}
