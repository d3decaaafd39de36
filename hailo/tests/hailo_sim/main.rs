//! hailo-sim against its specification, over real sockets: one test for each behaviour H1 to H27,
//! whose name begins with its number.
//!
//! Nothing here depends on how fast the machine is: a request that must be caught in the middle is
//! held there by a planned hang, order is read from the log, and times are the planned ones.

#[cfg(test)]
mod client;
#[cfg(test)]
mod failures;
#[cfg(test)]
mod memory;
#[cfg(test)]
mod process;
#[cfg(test)]
mod queue;
#[cfg(test)]
mod wire;
