//! `hailo-sim`: hailo-ollama's wire behaviour and pace, without the device.
