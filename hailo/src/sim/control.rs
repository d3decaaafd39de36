//! The control port: a second listener, so that the product's port stays true to the wire.
//!
//! | call | does |
//! |---|---|
//! | `GET /__sim/state` | the simulator's state |
//! | `GET /__sim/log` | the kept log entries as a JSON array |
//! | `POST /__sim/fault` | adds a fault, written as in a scenario file |
//! | `POST /__sim/reset` | forgets counters, log, faults and the place in the script |

use std::{io, sync::Arc};

use serde_json::{Value, json};

use super::{
    log::Entry,
    scenario::Fault,
    server::Server,
    wire::{Conn, Head},
};

/// Longest head on the control port; a browser's fits.
const HEAD_BOUND: usize = 16 * 1024;

/// What a simulator lets the control port do.
pub trait Controlled: Send + Sync + 'static {
    /// The state as JSON.
    fn state_json(&self) -> Value;
    /// The kept log entries.
    fn entries(&self) -> Vec<Entry>;
    /// Plans a fault.
    fn add_fault(&self, fault: Fault);
    /// Forgets counters, log, faults and the place in the script.
    fn reset(&self);
}

/// Serves the control port on `127.0.0.1:port` (0 = any).
///
/// # Errors
/// When the port is taken.
pub fn start(port: u16, sim: Arc<dyn Controlled>) -> io::Result<Server> {
    Server::start(port, Arc::new(move |conn| serve(conn, sim.as_ref())))
}

fn serve(mut conn: Conn, sim: &dyn Controlled) {
    while let Ok(head) = conn.read_head(HEAD_BOUND) {
        let Ok(body) = conn.read_body(&head) else { return };
        let (status, reason, value) = answer(sim, &head, &body);
        let body = value.to_string();
        let headers = [("Content-Type", "application/json")];
        if conn.write_answer(status, reason, &headers, body.as_bytes()).is_err()
            || head.wants_close()
        {
            return;
        }
    }
}

fn answer(sim: &dyn Controlled, head: &Head, body: &[u8]) -> (u16, &'static str, Value) {
    match (head.method.as_str(), head.path.as_str()) {
        ("GET", "/__sim/state") => (200, "OK", sim.state_json()),
        ("GET", "/__sim/log") => (200, "OK", json!(sim.entries())),
        ("POST", "/__sim/fault") => match serde_json::from_slice::<Fault>(body) {
            Ok(fault) => {
                sim.add_fault(fault);
                (200, "OK", json!({"ok": true}))
            }
            Err(error) => (400, "Bad Request", json!({"error": error.to_string()})),
        },
        ("POST", "/__sim/reset") => {
            sim.reset();
            (200, "OK", json!({"ok": true}))
        }
        _ => (404, "Not Found", json!({"error": "no such control"})),
    }
}
