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

// --- Configuration ---------------------------------------------------------------------------

/// Largest configuration file, in bytes; the full commented default is about 12 KiB. A larger
/// file is the wrong one and is refused unread.
pub const CONFIG_BYTES_MAX: usize = 256 * 1024;

/// Levels of lists and mappings in a configuration file. Ours need 3; `plugins` may nest. Deeper
/// files are refused.
pub const CONFIG_DEPTH_MAX: usize = 16;

/// Problems of a configuration file told at once. Nobody mends more in one go, and a file of
/// nothing but mistakes must not keep the program busy looking for the nearest key.
pub const CONFIG_PROBLEMS_MAX: usize = 200;

// --- HTTP server -----------------------------------------------------------------------------

/// Connections served at once. One person has a browser, a phone and scripts; each connection
/// costs about 20 KiB. Further ones wait in the kernel's backlog.
pub const HTTP_CONNECTIONS_MAX: usize = 64;

/// A connection is not sent away for a newcomer before it is this old: what its client sent right
/// behind it has been read by then. A flood gets `HTTP_CONNECTIONS_MAX` places in this time.
pub const HTTP_SETTLE: Duration = Duration::from_millis(100);

/// A client must have sent its whole head within this time, against slow-loris clients.
pub const HTTP_HEAD_TIMEOUT: Duration = Duration::from_secs(10);

/// A client must have sent its whole body within this time.
pub const HTTP_BODY_TIMEOUT: Duration = Duration::from_secs(20);

/// Longest request head, in bytes. Browsers with many cookies stay below; beyond it 431.
pub const HTTP_HEAD_BYTES_MAX: usize = 16 * 1024;

/// How much of a body that is too long is read and thrown away, in bytes: a client that still
/// sends would see a reset instead of the 413. Beyond it the connection is closed.
pub const HTTP_DISCARD_BYTES_MAX: usize = 16 * 1024 * 1024;

/// A client must take some bytes of its answer within this time; beyond it the connection is
/// closed and the turn goes on into the log.
pub const DOOR_WRITE_TIMEOUT: Duration = Duration::from_secs(30);

/// Rest before accepting again after the kernel refused a connection (no descriptors left).
pub const ACCEPT_PAUSE: Duration = Duration::from_millis(250);

/// Time connections get to take the end of their answers at shutdown: the turns' own grace, and
/// a moment for the last frame.
pub const DOOR_DRAIN_MAX: Duration = Duration::from_secs(7);

/// WebSockets served at once, of the connections above. Each costs about 30 KiB; the rest of the
/// places is for requests. One more is answered 503.
pub const SOCKETS_MAX: usize = 56;

/// Largest WebSocket message, in bytes: CashCode's bound. Beyond it the socket is closed (1009).
pub const SOCKET_MESSAGE_BYTES_MAX: usize = 1024 * 1024;

/// How long a WebSocket may be silent before it is asked whether it lives, from CashCode; shorter
/// than what routers keep a silent connection for.
pub const SOCKET_PING_AFTER: Duration = Duration::from_secs(20);

/// How long a WebSocket's client may take to answer a ping before it is closed (1011), from
/// CashCode: a phone that changes networks needs some seconds.
pub const SOCKET_PONG_MAX: Duration = Duration::from_secs(20);

/// How long a WebSocket's client may take to answer our close before the connection is dropped.
pub const SOCKET_CLOSE_MAX: Duration = Duration::from_secs(1);

/// Sessions one connection may follow. A browser tab shows one and keeps a few; beyond it the one
/// followed longest is let go.
pub const FOLLOWED_MAX: usize = 32;

/// Turns a reader may be behind. Their text is kept once for all readers; beyond it the reader's
/// connection is closed with a reason.
pub const TURNS_BEHIND_MAX: usize = 64;

/// Clients of the terminal socket served at once.
pub const TERMINAL_CLIENTS_MAX: usize = 16;

/// Lines of history told at once, from the seed: a page on a phone.
pub const HISTORY_LINES_MAX: usize = 200;

/// Lines of history told when the client does not say how many, from the seed.
pub const HISTORY_LINES_DEFAULT: usize = 20;

/// Client ids of messages remembered for each session: a message that is sent again after a lost
/// connection is found among them. A client has a few on their way; beyond it one that comes again
/// is asked again.
pub const MESSAGE_IDS_KEPT: usize = 64;

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

// --- Model servers ---------------------------------------------------------------------------

/// Gaps between tokens kept of each backend, for their percentiles: two minutes of decoding on the
/// NPU, in which the 99th percentile is the tenth longest. 4 KiB; older ones are forgotten.
pub const TOKEN_GAPS_KEPT: usize = 1024;

/// How long a server may accept connections without answering before it counts as hung and a
/// person is told how to restart it: the provider specification's 5A.7. The longest answer that
/// somebody else may have asked of it takes 146 s.
pub const HUNG_AFTER: Duration = Duration::from_secs(180);

/// How often what was learned of the model servers is written down, if it has changed. It saves
/// the next start some answers of learning; more often would wear the card for nothing.
pub const LEARNED_KEPT_EVERY: Duration = Duration::from_secs(600);

/// Longest run of the command that restarts a hung server; systemd itself kills after 90 s.
pub const RESTART_COMMAND_MAX: Duration = Duration::from_secs(120);

/// Free memory from which a CPU model is loaded ahead of its use, in bytes: the 1.9 GB that it
/// takes and something to live on, from the provider specification's 5A.9. Below it is loaded when
/// it is needed.
pub const PRELOAD_MEMORY_MIN: u64 = 2_500_000_000;

// --- Durability ------------------------------------------------------------------------------

/// A delta is shown once the database has it, but no later than this after it was decoded: the
/// person must not wait for a card that stalls. This is the window in which a crash may lose
/// shown text; the log and `/state` say when it was used.
pub const COMMIT_WAIT_MAX: Duration = Duration::from_millis(50);

/// Longest single database call, including a wait for a lock. Shutdown waits for it.
pub const STORE_BUSY_MAX: Duration = Duration::from_secs(2);

/// Text of writes kept in memory while the database cannot be written, in bytes. A turn is about
/// 2 KiB, so this is hours of talk on a full card. Beyond it new messages are refused and the
/// oldest shown deltas are replaced by a mark; ends of running turns are still kept.
pub const STORE_BACKLOG_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Slots of the writer's queue that only the ends of turns may use, so that no answer is lost
/// because shown deltas filled the queue. Twice the turns that can run.
pub const STORE_QUEUE_RESERVED: usize = 2 * TURNS_MAX;

/// Text in one transaction, in bytes. A slow card takes some 50 ms for it; what is beyond goes
/// into the next transaction, so that after an outage the backlog drains in slices.
pub const STORE_SLICE_BYTES: usize = 256 * 1024;

/// How often a refused write is tried again. Space returns when a person makes some.
pub const STORE_RETRY: Duration = Duration::from_secs(2);

/// Size of the write-ahead log at which it is folded into the database at the next pause, without
/// waiting for the idle flush, in bytes: SQLite's own default of 1,000 pages, some 80 turns.
pub const WAL_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// A pause of the writer: longer than the 140 ms between two tokens of the NPU, so that the fold
/// with its fsync falls between two answers and not into one.
pub const STORE_PAUSE: Duration = Duration::from_millis(500);

/// How far the log may outgrow `WAL_BYTES_MAX` where no pause comes, in bytes; then it is folded in
/// the middle of things. A start after a crash reads what is there: 16 MB are 0.2 s on a slow card.
pub const WAL_BYTES_WITHOUT_PAUSE: u64 = 12 * 1024 * 1024;

/// Largest database that is checked whole at every start, in bytes: 25 ms on a slow card. A
/// larger one is checked only if the last process did not close it.
pub const STORE_CHECK_BYTES: u64 = 2 * 1024 * 1024;

// --- Sessions -------------------------------------------------------------------------------

/// Longest name of a session, in bytes: the length that CashCode's clients use. A longer name is
/// refused.
pub const SESSION_ID_BYTES_MAX: usize = 64;

/// Characters of the first message that become a session's title: one line of a list.
pub const SESSION_TITLE_CHARS: usize = 40;

/// Longest title a person may give, in characters.
pub const SESSION_TITLE_CHARS_MAX: usize = 100;

/// Sessions told in one list, the most recently used.
pub const SESSIONS_LISTED_MAX: usize = 500;

/// Sessions whose recent turns stay in memory. Beyond it the longest unused is let go and read
/// again when it is needed.
pub const SESSIONS_OPEN_MAX: usize = 8;

/// Past turns a window may hold at most. The NPU's context ends long before; a large context of
/// a fallback gains nothing from older small talk.
pub const WINDOW_TURNS_MAX: u32 = 48;

/// Turns of an epoch: at each multiple the window's start is found afresh, so that it is a
/// function of the last two epochs of the log alone and a restart finds the same one. Costs one
/// prefill in this many turns.
pub const WINDOW_EPOCH_TURNS: u64 = 64;

/// Text of past turns kept in memory for each session, in bytes: three bytes for each token of
/// the largest prompt that is worth sending. Older text is let go; the log keeps it.
pub const WINDOW_BYTES_MAX: usize = 256 * 1024;

// --- Body --------------------------------------------------------------------------------------

/// How far a file of the kernel is read, in bytes. `/proc/stat` of a machine with 128 processors
/// and `/proc/mounts` of one full of containers fit; what is wanted stands at their beginning.
pub const VITALS_FILE_BYTES_MAX: usize = 64 * 1024;

/// Entries of a directory of the kernel that are looked at. A Pi 5 has 5 hwmon devices; a machine
/// with more than this has its processor's among the first.
pub const VITALS_ENTRIES_MAX: usize = 256;

/// Shortest and longest look of the governor, in seconds: two readings apart at least, and no
/// longer than a bare board needs to come to rest.
pub const GOVERNOR_WINDOW_S: (f64, f64) = (10.0, 600.0);

/// Temperatures kept by the governor: the longest window at one reading a second. Beyond it the
/// oldest goes, and the governor looks less far.
pub const GOVERNOR_SAMPLES_MAX: usize = 601;

/// Beats kept for the charts, from the seed: half an hour at the default pulse.
pub const HISTORY_SAMPLES: usize = 60;

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

// --- Mood ----------------------------------------------------------------------------------------

/// Characters of a message that are looked at for its mood: what a person types in one go. A
/// pasted document must not decide how the companion feels.
pub const SENTIMENT_CHARS_MAX: usize = 2000;

/// Words in the longest entry of a lexicon; more would only slow the search down.
pub const LEXICON_ENTRY_WORDS_MAX: usize = 6;

/// Letters in the longest entry of a lexicon for a script without spaces.
pub const LEXICON_ENTRY_CHARS_MAX: usize = 10;

/// Nudges on their way to the mood. A turn gives two; beyond it one is lost, which a mood that
/// forgets half of everything in minutes survives.
pub const NUDGE_QUEUE: usize = 64;

const _: () = assert!(NUDGE_QUEUE >= 2 * TURNS_MAX);
const _: () = assert!(MESSAGE_BYTES_MAX < BODY_BYTES_MAX);
const _: () = assert!(BODY_BYTES_MAX <= SOCKET_MESSAGE_BYTES_MAX);
const _: () = assert!(SOCKETS_MAX < HTTP_CONNECTIONS_MAX);
const _: () = assert!(TURNS_MAX < TURNS_BEHIND_MAX);
const _: () = assert!(TURNS_MAX < MESSAGE_IDS_KEPT);
const _: () = assert!(MESSAGE_IDS_KEPT as u64 <= WINDOW_EPOCH_TURNS);
const _: () = assert!(SESSION_TITLE_CHARS <= SESSION_TITLE_CHARS_MAX);
const _: () = assert!(DRAIN_TURNS_MAX.as_secs() < DRAIN_MAX.as_secs());
const _: () = assert!(DRAIN_TURNS_MAX.as_secs() < DOOR_DRAIN_MAX.as_secs());
const _: () = assert!(DOOR_DRAIN_MAX.as_secs() < DRAIN_MAX.as_secs());
const _: () =
    assert!(IDENTITY_TOKENS_MAX + VOLATILE_TOKENS_MAX + CONTEXT_MARGIN_TOKENS < CONTEXT_TOKENS_MIN);
const _: () = assert!(CONTEXT_TOKENS_MIN <= HAILO_CONTEXT_TOKENS);
const _: () = assert!(STORE_QUEUE_RESERVED * 2 < STORE_QUEUE);
const _: () = assert!(WINDOW_TURNS_MAX as u64 <= WINDOW_EPOCH_TURNS);
const _: () = assert!(STORE_SLICE_BYTES >= MESSAGE_BYTES_MAX);
