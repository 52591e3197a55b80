//! Trials that are functions.

use libtest_mimic::{Failed, Trial};

/// What a test returns.
pub trait Outcome {
    /// Returns it with all causes of a failure.
    fn outcome(self) -> Result<(), Failed>;
}

impl Outcome for Result<(), Failed> {
    fn outcome(self) -> Result<(), Failed> {
        self
    }
}

impl Outcome for anyhow::Result<()> {
    fn outcome(self) -> Result<(), Failed> {
        self.map_err(|error| format!("{error:#}").into())
    }
}

impl Outcome for () {
    fn outcome(self) -> Result<(), Failed> {
        Ok(())
    }
}

/// Returns a trial that runs a function.
pub fn trial<O: Outcome>(name: impl Into<String>, body: impl FnOnce() -> O + Send + 'static) -> Trial {
    Trial::test(name, move || body().outcome())
}

/// Returns a trial that counts as ignored, with the reason on stderr, where it cannot run.
pub fn trial_unless<O: Outcome>(lacks: Option<String>, name: &str, body: impl FnOnce() -> O + Send + 'static) -> Trial {
    if let Some(reason) = &lacks {
        eprintln!("{name} is ignored: {reason}");
    }
    trial(name, body).with_ignored_flag(lacks.is_some())
}

/// Trials that are functions, each with the function's name.
#[macro_export]
macro_rules! trials {
    ($($module:ident => [$($name:ident),* $(,)?]),* $(,)?) => {
        vec![$($($crate::trials::trial(stringify!($name), $module::$name)),*),*]
    };
}
