//! Metrics of the last step for Prometheus, over HTTP.
//!
//! [`TrainingMetrics`] is what a run says of itself; [`MetricsServer`] serves it as `/metrics`, in the text format,
//! version 0.0.4. Both are small, and ours: `prometheus-client` writes the OpenMetrics format, and a server of HTTP
//! would bring a runtime.

mod http;
mod server;
mod text;
mod training;

pub use server::{CONTENT_TYPE, MAX_CONNECTIONS, MAX_REQUEST_BYTES, MetricsServer, PrometheusError, TIME_LIMIT};
pub use text::{Family, Kind, Sample, encode};
pub use training::TrainingMetrics;
