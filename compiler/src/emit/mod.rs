//! What leaves the compiler: cubins and listings through NVIDIA's tools where they are found, and kernel-set files.

pub mod ptxas;
