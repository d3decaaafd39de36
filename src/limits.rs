//! Every bound in the program, with its unit, why it has this value and what happens beyond it.
//!
//! Values a person may want to change are configuration keys; the ranges of those keys are here.

use std::time::Duration;

// --- Messages and bodies -------------------------------------------------------------------

/// Longest message a person may send, in bytes of UTF-8. The NPU sees about 5 KiB in all, the
/// largest fallback context in use about 64 KiB; beyond this the door answers 413.
pub const MESSAGE_BYTES_MAX: usize = 64 * 1024;

/// Longest HTTP request body, in bytes: a message of `MESSAGE_BYTES_MAX` with every byte escaped
/// as `\u00XX`, and room for the envelope. Beyond it the connection gets 413 and is closed.
pub const BODY_BYTES_MAX: usize = 6 * MESSAGE_BYTES_MAX + 4096;

/// Longest line on the terminal socket, in bytes; same reasoning as `BODY_BYTES_MAX`.
pub const FRAME_BYTES_MAX: usize = BODY_BYTES_MAX;

/// Longest line accepted from a model server, in bytes. A token is some 200 bytes of JSON; a tool
/// call or an error page may be longer. Beyond it the stream counts as broken.
pub const STREAM_LINE_BYTES_MAX: usize = 1024 * 1024;

/// Longest non-streamed body accepted from a model server (tags, errors), in bytes.
pub const SERVER_BODY_BYTES_MAX: usize = 1024 * 1024;

/// Longest answer kept, in bytes. At 8 tokens a second this is more than an hour of decoding; a
/// server that sends more is looping and is cut off.
pub const ANSWER_BYTES_MAX: usize = 256 * 1024;

// --- HTTP server -----------------------------------------------------------------------------

/// Connections served at once. One person has a browser, a phone and scripts; each connection
/// costs about 20 KiB. Further ones wait in the kernel's backlog.
pub const HTTP_CONNECTIONS_MAX: usize = 64;

/// A client must have sent its whole head within this time, against slow-loris clients.
pub const HTTP_HEAD_TIMEOUT: Duration = Duration::from_secs(10);

/// A client must have sent its whole body within this time.
pub const HTTP_BODY_TIMEOUT: Duration = Duration::from_secs(20);

/// Clients of the terminal socket served at once.
pub const TERMINAL_CLIENTS_MAX: usize = 16;

// --- Queues ------------------------------------------------------------------------------------

/// Turns waiting for their session. A person does not type faster than this; a script that does
/// gets "busy" and may try again.
pub const TURNS_WAITING_MAX: usize = 8;

/// Turns of all sessions in flight or waiting.
pub const TURNS_MAX: usize = 32;

/// Events of a turn that a slow reader may be behind before the turn waits for it.
pub const TURN_EVENTS_QUEUE: usize = 64;

/// Jobs queued for the database writer.
/// Some seconds of deltas at the fastest pace; beyond it the asker waits or is refused.
pub const STORE_QUEUE: usize = 256;

/// Happenings a reader of the broadcast may be behind before it is told that it missed some.
pub const EVENT_QUEUE: usize = 256;

/// Jobs waiting for one backend's slot. Beyond it a job is refused as overloaded.
pub const LEASE_WAITERS_MAX: usize = 32;

// --- Durability ------------------------------------------------------------------------------

/// A delta is shown once the database has it, but no later than this after it was decoded: the
/// person must not wait for a card that stalls. This is the window in which a crash may lose
/// shown text; the log and `/healthz` say when it was used.
pub const COMMIT_WAIT_MAX: Duration = Duration::from_millis(50);

/// Longest single database call, including a wait for a lock. Shutdown waits for it.
pub const STORE_BUSY_MAX: Duration = Duration::from_secs(2);

// --- Process life --------------------------------------------------------------------------------

/// Whole drain at shutdown. systemd's `TimeoutStopSec` is 20 s; beyond this the process says who
/// still runs and leaves with code 75.
pub const DRAIN_MAX: Duration = Duration::from_secs(15);

/// Time a running turn gets to finish at shutdown before it is cancelled.
pub const DRAIN_TURNS_MAX: Duration = Duration::from_secs(5);

// --- Context -------------------------------------------------------------------------------------

/// Tokens of the context kept free: the estimate of a prompt is pessimistic but not a proof.
/// From the provider specification: prompt + answer <= context - 64.
pub const CONTEXT_MARGIN_TOKENS: u32 = 64;

/// Context of the Hailo-10H models, fixed in the compiled model file.
pub const HAILO_CONTEXT_TOKENS: u32 = 2048;

/// Smallest context the window can work with: the identity block, one short question and a short
/// answer.
pub const CONTEXT_TOKENS_MIN: u32 = 512;

/// Tokens the identity block may take of every prompt.
pub const IDENTITY_TOKENS_MAX: u32 = 220;

/// Tokens the volatile block (time and the like) may take of every message.
pub const VOLATILE_TOKENS_MAX: u32 = 40;

const _: () = assert!(MESSAGE_BYTES_MAX < BODY_BYTES_MAX);
const _: () = assert!(DRAIN_TURNS_MAX.as_secs() < DRAIN_MAX.as_secs());
const _: () =
    assert!(IDENTITY_TOKENS_MAX + VOLATILE_TOKENS_MAX + CONTEXT_MARGIN_TOKENS < CONTEXT_TOKENS_MIN);
const _: () = assert!(CONTEXT_TOKENS_MIN <= HAILO_CONTEXT_TOKENS);
