//! `ollama-sim` over real sockets: each behaviour of the specification (`o01` to `o16`), the calls
//! without a model, every fault at every phase, and the shared parts on this simulator's wire.

#[cfg(test)]
mod behaviours;
#[cfg(test)]
mod calls;
#[cfg(test)]
mod client;
#[cfg(test)]
mod faults;
#[cfg(test)]
mod process;
