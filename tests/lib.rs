//! Nothing: this package is the test binary `parity`, in `main.rs`.
