//! Hailo-10H.
