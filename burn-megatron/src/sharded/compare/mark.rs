//! [`mark`]: names for parts of a program, which a trace gives with the operations in them.

use std::fmt::Display;

use super::recorder;

/// Runs a part of a program under a name, `encoder.0` for example, which [`compare`](super::compare) gives with the
/// operations in it. Names of parts inside parts are joined with a dot. Returns what `run` returns.
///
/// Does nothing else, and does not format the name, unless operations are traced on this thread.
///
/// # Example
/// ```
/// use burn_megatron::sharded::mark;
///
/// let sum = (0..3).map(|layer| mark(format_args!("layers.{layer}"), || layer * 2)).sum::<usize>();
/// assert_eq!(sum, 6);
/// ```
pub fn mark<T>(name: impl Display, run: impl FnOnce() -> T) -> T {
    if !recorder::is_recording() {
        return run();
    }
    recorder::enter(name.to_string());
    struct Leave;
    impl Drop for Leave {
        fn drop(&mut self) {
            recorder::leave();
        }
    }
    let _leave = Leave;
    run()
}
