//! hailo-sim against its specification, over real sockets: one test for each behaviour H1 to H27.
