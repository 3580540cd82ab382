//! Finding and using the CUDA driver and NVRTC.
