//! Nothing: this package is its test binaries, `operations` and `cuda_compile`.
