//! Prints lines, and draws a progress bar on the launcher's terminal from rank 0, whose own output is a pipe to the
//! launcher.
//!
//! The launcher tells its terminal's width in the environment; rank 0's `Progress` asks for it.

use std::io::{self, IsTerminal, Write};

use indicatif::{ProgressDrawTarget, TermLike};

/// Set for the ranks when the launcher's output is a terminal: its width in columns.
const COLUMNS: &str = "BURN_MEGATRON_TERMINAL_COLUMNS";

/// Set for the ranks when the launcher's input is a terminal.
const INPUT: &str = "BURN_MEGATRON_TERMINAL_INPUT";

/// Returns what to tell the ranks of this process's terminal, if its output or its input is one.
pub fn environment() -> Vec<(&'static str, String)> {
    let (_, columns) = console::Term::stdout().size();
    let output = io::stdout().is_terminal().then(|| (COLUMNS, columns.to_string()));
    let input = io::stdin().is_terminal().then(|| (INPUT, "1".to_owned()));
    output.into_iter().chain(input).collect()
}

/// Whether a person types what rank 0 reads: into this process's terminal, or the launcher's.
pub fn has_input() -> bool {
    io::stdin().is_terminal() || std::env::var_os(INPUT).is_some()
}

/// Prints a line. A closed standard output does not end the program.
pub fn say(text: &str) {
    let _ = writeln!(io::stdout(), "{text}");
}

/// Returns where to draw a bar: this process's terminal, or the launcher's; none if neither is one.
pub fn draw_target() -> Option<ProgressDrawTarget> {
    if io::stdout().is_terminal() {
        return Some(ProgressDrawTarget::stdout());
    }
    let columns = std::env::var(COLUMNS).ok()?.parse().ok()?;
    Some(ProgressDrawTarget::term_like(Box::new(LaunchersTerminal { columns })))
}

/// A terminal at the other end of the pipe. Output travels in whole lines, which a carriage return ends too.
#[derive(Debug)]
struct LaunchersTerminal {
    columns: u16,
}

impl LaunchersTerminal {
    fn write(text: &str) -> io::Result<()> {
        io::stdout().write_all(text.as_bytes())
    }

    fn escape(count: usize, direction: char) -> io::Result<()> {
        match count {
            0 => Ok(()),
            _ => Self::write(&format!("\x1b[{count}{direction}")),
        }
    }
}

impl TermLike for LaunchersTerminal {
    fn width(&self) -> u16 {
        self.columns
    }

    fn move_cursor_up(&self, count: usize) -> io::Result<()> {
        Self::escape(count, 'A')
    }

    fn move_cursor_down(&self, count: usize) -> io::Result<()> {
        Self::escape(count, 'B')
    }

    fn move_cursor_right(&self, count: usize) -> io::Result<()> {
        Self::escape(count, 'C')
    }

    fn move_cursor_left(&self, count: usize) -> io::Result<()> {
        Self::escape(count, 'D')
    }

    fn write_line(&self, text: &str) -> io::Result<()> {
        Self::write(&format!("{text}\n"))
    }

    /// Ends with a carriage return, so that the launcher passes it on now. Padding would then overwrite the line from
    /// its beginning, and is left out: the line was cleared.
    fn write_str(&self, text: &str) -> io::Result<()> {
        if text.bytes().all(|byte| byte == b' ') {
            Ok(())
        } else {
            Self::write(&format!("{text}\r"))
        }
    }

    fn clear_line(&self) -> io::Result<()> {
        Self::write("\r\x1b[2K\r")
    }

    fn flush(&self) -> io::Result<()> {
        io::stdout().flush()
    }
}
