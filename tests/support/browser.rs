//! A headless Chromium, and what a person does with one page of it. It is driven by Chromium's DevTools protocol, over
//! a socket instead of a port: messages in JSON, each ended by a zero byte.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::processes::{Marked, isolate, wait_until};
use crate::program::is_installed;

/// Longest wait for anything, on a busy machine.
const LIMIT: Duration = Duration::from_secs(60);
/// As distributions name it.
const PROGRAMS: [&str; 2] = ["chromium", "chromium-browser"];
/// Nothing of a person's, nothing over the network but the page.
const FLAGS: &str = "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-sync \
                     --disable-background-networking --disable-component-update --disable-dev-shm-usage \
                     --remote-debugging-pipe";
/// Chromium reads commands from descriptor 3 and answers on 4: both are the socket, which comes as stdin and stdout.
const DESCRIPTORS: &str = "exec \"$@\" 3<&0 4>&1 </dev/null >/dev/null";

/// A browser with one page. All its processes are killed when it is dropped.
pub struct Browser {
    job: Marked,
    /// What it stores.
    _profile: TempDir,
    connection: BufReader<UnixStream>,
    num_commands: u64,
    /// What commands to the page carry.
    session: Option<String>,
}

impl Browser {
    /// The Chromium in PATH.
    pub fn installed() -> Option<&'static str> {
        PROGRAMS.into_iter().find(|program| is_installed(program))
    }

    /// Starts it, and opens a page.
    pub fn open(url: &str) -> anyhow::Result<Self> {
        let program = Self::installed().context("no Chromium in PATH")?;
        let profile = tempfile::tempdir()?;
        let (ours, theirs) = UnixStream::pair()?;
        ours.set_read_timeout(Some(LIMIT))?;
        ours.set_write_timeout(Some(LIMIT))?;
        let mut command = Command::new("sh");
        isolate(&mut command)
            .args(["-c", DESCRIPTORS, "sh", program])
            .args(FLAGS.split_whitespace())
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .arg("about:blank")
            .env("HOME", profile.path())
            .stdin(Stdio::from(OwnedFd::from(theirs.try_clone()?)))
            .stdout(Stdio::from(OwnedFd::from(theirs)))
            .stderr(Stdio::null());
        let mut job = Marked::new(profile.path().display());
        job.start(&mut command)?;
        // Which holds their end of the socket.
        drop(command);
        let mut browser = Self {
            job,
            _profile: profile,
            connection: BufReader::new(ours),
            num_commands: 0,
            session: None,
        };
        let page = browser.command("Target.createTarget", json!({"url": url}))?;
        let page = json!({"targetId": page["targetId"], "flatten": true});
        let attached = browser.command("Target.attachToTarget", page)?;
        browser.session = attached["sessionId"].as_str().map(str::to_owned);
        let expected = json!([url, "complete"]);
        // Meanwhile the empty page gives way.
        let is_open = || (browser.value("[location.href, document.readyState]")).is_ok_and(|found| found == expected);
        ensure!(wait_until(LIMIT, is_open), "{url} does not open");
        Ok(browser)
    }

    fn command(&mut self, method: &str, parameters: Value) -> anyhow::Result<Value> {
        self.num_commands += 1;
        let mut message = json!({"id": self.num_commands, "method": method, "params": parameters});
        if let Some(session) = &self.session {
            message["sessionId"] = json!(session);
        }
        self.connection.get_mut().write_all(format!("{message}\0").as_bytes())?;
        loop {
            let mut answer = Vec::new();
            self.connection
                .read_until(0, &mut answer)
                .with_context(|| format!("Chromium does not answer {method}"))?;
            ensure!(
                answer.pop() == Some(0),
                "Chromium has ended before it answered {method}"
            );
            let mut answer: Value = serde_json::from_slice(&answer)?;
            // Others are events.
            if answer["id"] == self.num_commands {
                ensure!(answer["error"].is_null(), "{method} {parameters}: {}", answer["error"]);
                return Ok(answer["result"].take());
            }
        }
    }

    /// The value of an expression of JavaScript in the page.
    pub fn value(&mut self, expression: &str) -> anyhow::Result<Value> {
        let parameters = json!({"expression": expression, "returnByValue": true, "awaitPromise": true});
        let mut result = self.command("Runtime.evaluate", parameters)?;
        if let Some(exception) = result.get("exceptionDetails") {
            bail!("{expression}: {exception}");
        }
        Ok(result["result"]["value"].take())
    }

    /// Waits until an expression has a value.
    pub fn expect(&mut self, expression: &str, expected: &Value) -> anyhow::Result<()> {
        let mut found = Ok(Value::Null);
        let is_so = || {
            found = self.value(expression);
            !matches!(&found, Ok(found) if found != expected)
        };
        let in_time = wait_until(LIMIT, is_so);
        let found = found?;
        ensure!(in_time, "{expression} stays {found}, {expected} is expected");
        Ok(())
    }

    /// Presses the mouse's button in the middle of an element, which must be visible.
    pub fn click(&mut self, id: &str) -> anyhow::Result<()> {
        let middle = format!(
            "(() => {{ const element = document.getElementById({id:?}); element.scrollIntoView(); \
             const box = element.getBoundingClientRect(); \
             return [box.x + box.width / 2, box.y + box.height / 2, box.width * box.height]; }})()"
        );
        let place = self.value(&middle)?;
        ensure!(place[2].as_f64() > Some(0.0), "{id} is not visible");
        for kind in ["mousePressed", "mouseReleased"] {
            let event = json!({"type": kind, "x": place[0], "y": place[1], "button": "left", "clickCount": 1});
            self.command("Input.dispatchMouseEvent", event)?;
        }
        Ok(())
    }

    /// Types a text into a field, in place of what is there.
    pub fn write(&mut self, id: &str, text: &str) -> anyhow::Result<()> {
        self.click(id)?;
        self.value(&format!("document.getElementById({id:?}).select()"))?;
        self.command("Input.insertText", json!({"text": text}))?;
        Ok(())
    }

    /// Presses a key that writes nothing, with Ctrl or without.
    pub fn press(&mut self, key: &str, with_control: bool) -> anyhow::Result<()> {
        for kind in ["rawKeyDown", "keyUp"] {
            let event = json!({"type": kind, "key": key, "modifiers": if with_control { 2 } else { 0 }});
            self.command("Input.dispatchKeyEvent", event)?;
        }
        Ok(())
    }

    /// Ends it, and waits until it is gone.
    pub fn close(mut self) -> anyhow::Result<()> {
        self.session = None;
        self.command("Browser.close", json!({}))?;
        let status = self.job.launchers[0].wait_within(LIMIT)?;
        ensure!(
            status.is_some_and(|status| status.success()),
            "Chromium ends with {status:?}"
        );
        self.job.expect_end_within(LIMIT)
    }
}
