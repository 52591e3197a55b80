//! The server's page in a real browser: what a person types is asked, and what is generated appears.

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};
use tests::browser::Browser;
use tests::served::Served;

use crate::launch::serving::{KEY, POSITIONS, folder, generate};

/// The classes and the text of the line under the answer.
const SAID: &str = "at('figures').className + '|' + at('figures').textContent";
/// A prompt that a page would show as something else if it took it for HTML, and an output that takes a while.
const ENDLESS: &str = "<b id=\"bold\">é</b>";

/// A person without the key is refused in words, generates a text with it, and stops another.
pub fn a_person_generates_text_in_a_browser() -> anyhow::Result<()> {
    let folder = folder()?;
    let expected = generate(folder.path(), "--greedy --out-seq-length 12")?;
    let expected = expected.first().context("an output")?;
    let count = expected["tokens"].as_array().map_or(0, Vec::len);
    let served = Served::start(
        folder.path(),
        &format!("--dtype f64 --cache-tokens {POSITIONS}"),
        Some(KEY),
    )?;
    let mut browser = Browser::open(&format!("http://{}/", served.address()))?;
    browser.expect(
        "at('state').textContent",
        &json!("checkpoints: ok, 0 running, 0 waiting"),
    )?;
    for (field, text) in [("prompt", "fn ma"), ("max_tokens", "12"), ("temperature", "0")] {
        browser.write(field, text)?;
    }
    browser.click("go")?;
    browser.expect("at('figures').className", &json!("bad"))?;
    let said = browser.value(SAID)?;
    ensure!(said.as_str().is_some_and(|said| said.contains("key")), "{said}");

    browser.write("key", KEY)?;
    browser.press("Enter", true)?;
    browser.expect("at('made').textContent", &expected["text"])?;
    browser.expect("at('text').getAttribute('aria-busy')", &json!("false"))?;
    ensure!(browser.value("at('given').textContent")? == "fn ma");
    let said = browser.value(SAID)?;
    let words = said.as_str().unwrap_or_default();
    let reason = expected["finish_reason"].as_str().context("a reason")?;
    ensure!(
        words.starts_with(&format!("|{count} tokens in ")) && words.ends_with(&format!("; ended by {reason}")),
        "{said} {expected}"
    );

    browser.write("prompt", ENDLESS)?;
    browser.write("max_tokens", &(POSITIONS / 2).to_string())?;
    browser.click("go")?;
    browser.expect("at('made').childNodes.length > 5", &Value::Bool(true))?;
    ensure!(browser.value("at('given').textContent")? == ENDLESS && browser.value("at('bold')")?.is_null());
    browser.press("Escape", false)?;
    browser.expect(SAID, &json!("|stopped"))?;
    served.expect_figure("running", 0)?;
    browser.close()
}
