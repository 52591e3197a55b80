//! [`Server`]: a server that is started to be measured.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::thread;

use anyhow::{Context as _, bail};

/// Comes before the server's address in what it prints.
const AT: &str = " at http://";

/// A server; killed with its ranks when it is dropped.
pub struct Server {
    process: Child,
    pub url: String,
}

impl Server {
    /// Starts the program that is next to this one, and waits until it takes requests.
    ///
    /// # Errors
    /// When it is not there, or ends.
    pub fn start(max_batch_size: usize, clients: usize, flags: &[String]) -> anyhow::Result<Self> {
        let program = std::env::current_exe()?.with_file_name("text_generation_server");
        let mut command = Command::new(&program);
        command
            .args(["--port", "0", "--max-batch-size", &max_batch_size.to_string()])
            .args(["--max-waiting", &clients.to_string()])
            .args(["--max-requests", &clients.to_string()])
            .args(flags)
            .stdin(Stdio::null())
            .stderr(Stdio::piped());
        let process = command.spawn().with_context(|| {
            let program = program.display();
            format!("cannot start {program}: cargo build --release --example text_generation_server makes it")
        })?;
        let mut server = Self {
            process,
            url: String::new(),
        };
        let printed = server.process.stderr.take().context("its stderr is a pipe")?;
        server.url = format!("http://{}", address(printed)?);
        Ok(server)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended; its ranks end with it.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Waits for the line with the address; what is printed after it is passed on.
fn address(printed: ChildStderr) -> anyhow::Result<String> {
    let mut lines = BufReader::new(printed).lines();
    let mut before = String::new();
    for line in lines.by_ref() {
        let line = line?;
        if let Some((_, address)) = line.split_once(AT) {
            let address = address.trim().to_owned();
            thread::spawn(move || lines.map_while(Result::ok).for_each(|line| eprintln!("{line}")));
            return Ok(address);
        }
        before += &line;
        before.push('\n');
    }
    bail!("the server has ended:\n{before}")
}
