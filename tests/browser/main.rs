//! The page in a real browser against the real daemon: chromium through chromedriver, hailo-sim
//! as the model. `tests/run` installs both and builds what is started here.
//!
//! `house` starts and ends the programs, `page` is the person in front of the browser; the other
//! files are what that person does.
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests start programs, write files and end by panicking"
)]

#[cfg(test)]
mod boards;
#[cfg(test)]
mod chat;
#[cfg(test)]
mod house;
#[cfg(test)]
mod keys;
#[cfg(test)]
mod libraries;
#[cfg(test)]
mod load;
#[cfg(test)]
mod look;
#[cfg(test)]
mod page;
#[cfg(test)]
mod reconnect;
#[cfg(test)]
mod sessions;
