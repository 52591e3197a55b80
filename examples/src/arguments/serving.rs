//! Flags of the server: where it listens, who may ask, and how much.

use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use anyhow::ensure;
use clap::Args;

use super::GeneratorArguments;
use super::generation::ensure_at_least_one;

/// Everything that the server takes.
#[derive(Args, Clone, Debug)]
pub struct ServerArguments {
    #[command(flatten)]
    pub generator: GeneratorArguments,
    #[command(flatten)]
    pub listening: ListeningArguments,
    #[command(flatten)]
    pub limits: LimitArguments,
}

/// Where the server listens, and who may ask.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Server")]
pub struct ListeningArguments {
    /// Address to listen on; 0.0.0.0 for all of this machine, which then needs --api-key
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1")]
    pub host: IpAddr,
    /// Port to listen on; 0 for a free one, which is printed
    #[arg(long, value_name = "PORT", default_value_t = 5000)]
    pub port: u16,
    /// What clients must send as `Authorization: Bearer KEY`; the environment does not show it to other users, a
    /// command line does
    #[arg(long, value_name = "KEY", env = "BURN_MEGATRON_API_KEY", hide_env_values = true)]
    pub api_key: Option<ApiKey>,
    /// The model's name for clients [default: the name of the folder of --load]
    #[arg(long, value_name = "NAME")]
    pub served_model_name: Option<String>,
}

/// How much clients may ask for.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Server's limits")]
pub struct LimitArguments {
    /// Bytes of a request's body
    #[arg(long, value_name = "N", default_value_t = 1 << 20)]
    pub max_body_bytes: usize,
    /// Tokens of a prompt [default: the model's positions]
    #[arg(long, value_name = "N")]
    pub max_prompt_tokens: Option<usize>,
    /// Requests that are served or wait, at most; more are answered 429
    #[arg(long, value_name = "N", default_value_t = 256)]
    pub max_requests: usize,
    /// Outputs that wait for a place in the batch or for room in the cache, at most; a request beyond that is answered
    /// 429
    #[arg(long, value_name = "N", default_value_t = 256)]
    pub max_waiting: usize,
    /// Open connections
    #[arg(long, value_name = "N", default_value_t = 1024)]
    pub max_connections: usize,
    /// The longest time from a request to its last token
    #[arg(long, value_name = "SECONDS", default_value_t = 600.0)]
    pub request_timeout_secs: f64,
    /// The longest time that a client takes to send the head of a request, and again its body, or to take what it gets
    #[arg(long, value_name = "SECONDS", default_value_t = 10.0)]
    pub client_timeout_secs: f64,
    /// The longest time for requests to be finished, after SIGTERM or Ctrl-C
    #[arg(long, value_name = "SECONDS", default_value_t = 30.0)]
    pub drain_timeout_secs: f64,
}

/// A secret that is not printed.
#[derive(Clone, PartialEq, Eq)]
pub struct ApiKey(String);

impl ApiKey {
    pub fn secret(&self) -> &str {
        &self.0
    }
}

impl From<String> for ApiKey {
    fn from(secret: String) -> Self {
        Self(secret)
    }
}

impl fmt::Debug for ApiKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("ApiKey(..)")
    }
}

impl ServerArguments {
    /// Finds what is wrong with the flags before any rank is started.
    ///
    /// # Errors
    /// The first rule that is broken, with the values and valid ones.
    pub fn validate(&self) -> anyhow::Result<()> {
        self.generator.validate()?;
        self.generator.validate_one_model(
            "the server has one queue, of one batch: start a server for each replica, on a port of its own",
        )?;
        self.limits.validate()?;
        let ListeningArguments { host, api_key, .. } = &self.listening;
        ensure!(
            api_key.as_ref().is_none_or(|key| !key.secret().is_empty()),
            "--api-key must have a character at least"
        );
        ensure!(
            host.is_loopback() || api_key.is_some(),
            "--host {host} opens the server to other machines: set BURN_MEGATRON_API_KEY to a secret that clients must \
             send, or listen on 127.0.0.1"
        );
        Ok(())
    }
}

impl LimitArguments {
    fn validate(&self) -> anyhow::Result<()> {
        ensure_at_least_one(&[
            ("--max-body-bytes", self.max_body_bytes),
            ("--max-prompt-tokens", self.max_prompt_tokens.unwrap_or(1)),
            ("--max-requests", self.max_requests),
            ("--max-connections", self.max_connections),
        ])?;
        for (flag, seconds, least) in [
            ("--request-timeout-secs", self.request_timeout_secs, 0.1),
            ("--client-timeout-secs", self.client_timeout_secs, 0.1),
            ("--drain-timeout-secs", self.drain_timeout_secs, 0.0),
        ] {
            ensure!(
                (least..=86400.0).contains(&seconds),
                "{flag} must be between {least} and 86400, got {seconds}"
            );
        }
        Ok(())
    }

    /// The longest time from a request to its last token.
    pub fn request_timeout(&self) -> Duration {
        Duration::from_secs_f64(self.request_timeout_secs)
    }

    /// The longest time that a client takes for the head of a request, its body, or what it gets.
    pub fn client_timeout(&self) -> Duration {
        Duration::from_secs_f64(self.client_timeout_secs)
    }

    /// The longest time for requests to be finished when the server is to end.
    pub fn drain_timeout(&self) -> Duration {
        Duration::from_secs_f64(self.drain_timeout_secs)
    }
}
