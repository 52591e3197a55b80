//! [`SuggestConfig`]: the machine, by three numbers, and what a rank has room for.

use super::super::explain::Explanation;
use super::super::mesh::Mesh;
use super::super::traffic::TrafficKind;

/// By what plans are judged.
#[derive(Clone, Debug)]
pub struct SuggestConfig {
    pub(super) parameter_bytes: Option<usize>,
    operations_per_second: f64,
    bytes_per_second: f64,
    latency_secs: f64,
}

impl Default for SuggestConfig {
    fn default() -> Self {
        Self::new()
    }
}

impl SuggestConfig {
    /// Returns the settings: any number of bytes, and a GPU of a node, with 1e14 operations and 1e11 bytes per second
    /// and 1e-5 seconds for each collective.
    pub fn new() -> Self {
        Self {
            parameter_bytes: None,
            operations_per_second: 1e14,
            bytes_per_second: 1e11,
            latency_secs: 1e-5,
        }
    }

    /// Sets the bytes of parameters that a rank has room for. Gradients and an optimizer's state are multiples of them.
    pub fn with_parameter_bytes(self, bytes: usize) -> Self {
        Self {
            parameter_bytes: Some(bytes),
            ..self
        }
    }

    /// Sets the arithmetic operations that a rank makes in a second.
    ///
    /// # Panics
    /// When it is not finite, or not above 0.
    pub fn with_operations_per_second(self, operations_per_second: f64) -> Self {
        assert!(
            operations_per_second.is_finite() && operations_per_second > 0.0,
            "operations_per_second must be finite and above 0, got {operations_per_second}"
        );
        Self {
            operations_per_second,
            ..self
        }
    }

    /// Sets the bytes that a rank sends in a second.
    ///
    /// # Panics
    /// When it is not finite, or not above 0.
    pub fn with_bytes_per_second(self, bytes_per_second: f64) -> Self {
        assert!(
            bytes_per_second.is_finite() && bytes_per_second > 0.0,
            "bytes_per_second must be finite and above 0, got {bytes_per_second}"
        );
        Self {
            bytes_per_second,
            ..self
        }
    }

    /// Sets the seconds that a collective takes however few its bytes are.
    ///
    /// # Panics
    /// When it is not finite, or below 0.
    pub fn with_latency_secs(self, latency_secs: f64) -> Self {
        assert!(
            latency_secs.is_finite() && latency_secs >= 0.0,
            "latency_secs must be finite and not negative, got {latency_secs}"
        );
        Self { latency_secs, ..self }
    }

    /// Returns the seconds that a step takes if nothing is overlapped: its operations, and for each collective of n
    /// bytes on p ranks the latency and the time of (p - 1) / p · n bytes, or twice that if it is an all-reduce.
    pub fn seconds(&self, explanation: &Explanation, mesh: &Mesh) -> f64 {
        let communication = explanation.traffic.iter().map(|row| {
            let ranks = mesh.shape().size(row.axis) as f64;
            let passes = match row.kind {
                TrafficKind::AllReduce => 2.0,
                TrafficKind::AllGather | TrafficKind::ReduceScatter | TrafficKind::AllToAll => 1.0,
            };
            let bytes = passes * (ranks - 1.0) / ranks * row.bytes as f64;
            row.count as f64 * self.latency_secs + bytes / self.bytes_per_second
        });
        explanation.operations as f64 / self.operations_per_second + communication.sum::<f64>()
    }
}
