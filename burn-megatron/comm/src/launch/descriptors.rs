//! File descriptors: how many this process may open.
//!
//! Linux gives a process 1024 of them at first, which it may raise up to a hard limit. Each connection takes one.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::error::LaunchError;

/// For what a process opens in addition to connections to ranks: files, libraries, devices.
const OTHERS: u64 = 128;

/// Raises the limit of this process as far as it may, which must be enough for `connections` at a time.
///
/// # Errors
/// [`LaunchError::TooFewDescriptors`] when it is not.
pub(super) fn make_room(connections: usize) -> Result<(), LaunchError> {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        ..limit
    };
    let allowed = match setrlimit(Resource::Nofile, raised) {
        Ok(()) => limit.maximum,
        Err(error) => {
            tracing::debug!(%error, "the limit of file descriptors stays");
            limit.current
        }
    };
    check(connections as u64 + OTHERS, allowed)
}

/// `allowed` is none where there is no limit.
fn check(needed: u64, allowed: Option<u64>) -> Result<(), LaunchError> {
    match allowed {
        Some(allowed) if allowed < needed => Err(LaunchError::TooFewDescriptors { needed, allowed }),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_few_are_refused_with_the_figure_that_is_needed() {
        check(300, None).unwrap();
        check(300, Some(300)).unwrap();
        let error = check(300, Some(299)).unwrap_err();
        assert!(
            error
                .to_string()
                .contains("needs 300 file descriptors, and may open 299"),
            "{error}"
        );
    }

    #[test]
    fn this_process_may_open_what_its_hard_limit_allows() {
        make_room(1).unwrap();
        let limit = getrlimit(Resource::Nofile);
        assert_eq!(limit.current, limit.maximum);
        let error = make_room(usize::MAX / 2).unwrap_err();
        assert!(matches!(error, LaunchError::TooFewDescriptors { .. }), "{error}");
    }
}
