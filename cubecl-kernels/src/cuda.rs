//! CubeCL's internals on CUDA: the server that executes launches, its stream, and the addresses of buffers. For code
//! that queues calls of other libraries between kernel launches.
//!
//! CubeCL 0.10 gives no stream, but its server prints it; [`compute_stream`] reads it there. That takes a process with
//! one stream only, which [`use_one_stream`] sees to.

use std::fmt::Write;
use std::sync::Arc;

use cubecl::config::{CubeClRuntimeConfig, RuntimeConfig};
use cubecl::cuda::{CudaDevice, CudaRuntime};
use cubecl::device::Device;
use cubecl::server::{Binding, ComputeServer};
use cubecl::stream_id::StreamId;
use cubecl_common::device_handle::DeviceHandle;
use cudarc::driver::sys::CUstream;

/// What executes a device's launches, one after another, on a thread of its own.
pub type Server = <CudaRuntime as cubecl::Runtime>::Server;

/// Lets CubeCL compute on one stream, whichever thread launches. Without effect when CubeCL has been used already,
/// which [`compute_stream`] then refuses.
pub fn use_one_stream() {
    let mut state = CubeClRuntimeConfig::storage().lock();
    if state.is_none() {
        let mut config = CubeClRuntimeConfig::from_current_dir().override_from_env();
        config.streaming.max_streams = 1;
        *state = Some(Arc::new(config));
    }
}

/// Returns what executes the device's launches.
pub fn server(device: &CudaDevice) -> DeviceHandle<Server> {
    DeviceHandle::new(device.to_id())
}

/// Returns where on the device a buffer begins. Called on the server's thread.
///
/// # Errors
/// When CubeCL has no memory for it.
pub fn address(server: &mut Server, buffer: Binding) -> Result<u64, String> {
    let resource = server.get_resource(buffer, StreamId::current());
    let resource = resource.map_err(|error| format!("CubeCL has no memory for it: {error:?}"))?;
    Ok(resource.resource().ptr)
}

/// Returns the stream that the server computes on. Called on the server's thread.
///
/// # Errors
/// When the server has several streams, or does not print them as this version of CubeCL does.
pub fn compute_stream(server: &mut Server) -> Result<CUstream, String> {
    // Makes the stream, if nothing has been launched yet.
    let flushed = server.flush(StreamId::current());
    flushed.map_err(|error| format!("CubeCL cannot flush: {error:?}"))?;
    let mut text = String::new();
    write!(text, "{server:?}").map_err(|error| error.to_string())?;
    parse_stream(&text).map(|address| address as CUstream)
}

/// Returns the address of the first stream of a server's printed pool.
fn parse_stream(text: &str) -> Result<usize, String> {
    let unexpected = |what: &str| {
        format!(
            "CubeCL prints its streams in another way than version 0.10 ({what}): other libraries' calls cannot be \
             ordered after them"
        )
    };
    let pool = text.find("max_streams: ").ok_or_else(|| unexpected("no max_streams"))?;
    let number: String = text[pool + "max_streams: ".len()..]
        .chars()
        .take_while(char::is_ascii_digit)
        .collect();
    if number != "1" {
        return Err(format!(
            "CubeCL computes on up to {number} streams, expected 1: choose the device (cuda::choose) before the first \
             tensor is made"
        ));
    }
    let (_, stream) = text
        .split_once("Stream { sys: 0x")
        .ok_or_else(|| unexpected("no stream"))?;
    let digits: String = stream.chars().take_while(char::is_ascii_hexdigit).collect();
    usize::from_str_radix(&digits, 16).map_err(|_| unexpected("no address"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stream_is_read_from_what_the_server_prints() {
        let text = "CudaServer { ctx: CudaContext { .. }, streams: MultiStream { streams: StreamPool { streams: [Some(\
            StreamWrapper { stream: Stream { sys: 0x55aa10, errors: [] }, cursor: 3 }), Some(StreamWrapper { stream: \
            Stream { sys: 0x77 } })], factory: F, max_streams: 1 }, max_streams: 1 } }";
        assert_eq!(parse_stream(text), Ok(0x55_aa10));
        let error = parse_stream(&text.replace("max_streams: 1", "max_streams: 128")).expect_err("there are many");
        assert!(
            error.contains("128 streams, expected 1") && error.contains("cuda::choose"),
            "{error}"
        );
        assert!(parse_stream("CudaServer").is_err());
    }
}
