//! Kernel sets and launches.
