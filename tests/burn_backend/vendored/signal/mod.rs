pub use super::*;

mod blackman_window;
mod hamming_window;
mod hann_window;
