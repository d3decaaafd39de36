//! The listener of a simulated process: one thread a connection, and the ways a process ends.
//!
//! A crash resets every connection and refuses new ones until the process is "restarted" on the
//! same port. A drain closes the listener and lets running requests finish. A stop ends all.

use std::{
    collections::BTreeMap,
    fmt, io,
    net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream},
    os::fd::OwnedFd,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use rustix::net::{
    AddressFamily, SocketFlags, SocketType, bind, listen, socket_with,
    sockopt::set_socket_reuseaddr,
};

use super::{
    clock::Halt,
    wire::{Conn, reset},
};

/// Connections which may wait to be accepted; what std uses.
const BACKLOG: i32 = 128;
/// How long a dead process tries to keep its port.
const REBIND_FOR: Duration = Duration::from_secs(2);
/// Pause between two looks at an order while the process is down.
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// What a connection's thread runs.
pub type Serve = Arc<dyn Fn(Conn) + Send + Sync>;

/// Locks a mutex whatever happened to its last holder: a simulator's state stays readable after a
/// thread panicked, so that the test can say what it saw.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A running listener. Dropping it stops it and waits for its threads.
pub struct Server {
    shared: Arc<Shared>,
    accepting: Option<JoinHandle<()>>,
}

/// A hand on the listener for its own connections.
#[derive(Clone)]
pub struct Handle(Weak<Shared>);

#[derive(Clone, Copy, PartialEq)]
enum Order {
    Run,
    Crash(Duration),
    Close,
}

struct Shared {
    addr: SocketAddr,
    serve: Serve,
    inner: Mutex<Inner>,
    /// Notified when a connection ends.
    ended: Condvar,
}

struct Inner {
    order: Order,
    halt: Halt,
    next_id: u64,
    open: BTreeMap<u64, TcpStream>,
    threads: Vec<JoinHandle<()>>,
}

impl Server {
    /// Listens on `127.0.0.1:port` (0 = any free port).
    ///
    /// # Errors
    /// When the port is taken or a thread cannot be started.
    pub fn start(port: u16, serve: Serve) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))?;
        let shared = Arc::new(Shared {
            addr: listener.local_addr()?,
            serve,
            inner: Mutex::new(Inner {
                order: Order::Run,
                halt: Halt::default(),
                next_id: 1,
                open: BTreeMap::new(),
                threads: Vec::new(),
            }),
            ended: Condvar::new(),
        });
        let for_thread = Arc::clone(&shared);
        let accepting = thread::Builder::new()
            .name("accept".into())
            .spawn(move || for_thread.lives(listener))?;
        Ok(Self { shared, accepting: Some(accepting) })
    }

    /// Where it listens.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.shared.addr
    }

    /// A hand for others.
    #[must_use]
    pub fn handle(&self) -> Handle {
        Handle(Arc::downgrade(&self.shared))
    }

    /// Closes the listener, wakes idle connections with an end of input, and waits at most `limit`
    /// of real time for running requests. Returns whether all have ended.
    pub fn drain(&mut self, limit: Duration) -> bool {
        lock(&self.shared.inner).order = Order::Close;
        self.join_accepting();
        let deadline = Instant::now() + limit;
        let mut inner = lock(&self.shared.inner);
        for stream in inner.open.values() {
            let _ = stream.shutdown(Shutdown::Read);
        }
        while !inner.open.is_empty() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            inner = self
                .shared
                .ended
                .wait_timeout(inner, left)
                .map_or_else(|poisoned| poisoned.into_inner().0, |(inner, _)| inner);
        }
        true
    }

    /// Ends everything and waits for the threads.
    pub fn stop(&mut self) {
        {
            let mut inner = lock(&self.shared.inner);
            inner.order = Order::Close;
            inner.halt.set();
        }
        self.join_accepting();
        let threads = {
            let mut inner = lock(&self.shared.inner);
            inner.halt.set();
            for stream in inner.open.values() {
                let _ = stream.shutdown(Shutdown::Both);
            }
            std::mem::take(&mut inner.threads)
        };
        for thread in threads {
            let _ = thread.join();
        }
    }

    fn join_accepting(&mut self) {
        if let Some(accepting) = self.accepting.take() {
            self.shared.wake();
            let _ = accepting.join();
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Server").field(&self.shared.addr).finish()
    }
}

impl Handle {
    /// The process dies: every connection is reset, nothing is accepted for `down` of real time,
    /// then a new life begins on the same port. Does nothing while it is already down.
    pub fn crash(&self, down: Duration) {
        let Some(shared) = self.0.upgrade() else { return };
        {
            let mut inner = lock(&shared.inner);
            if inner.order != Order::Run {
                return;
            }
            inner.order = Order::Crash(down);
            inner.halt.set();
            inner.open.values().for_each(reset);
        }
        shared.wake();
    }

    /// Resets connection `id`, as its peer sees it when the process closes it hard.
    pub fn reset(&self, id: u64) {
        if let Some(shared) = self.0.upgrade()
            && let Some(stream) = lock(&shared.inner).open.get(&id)
        {
            reset(stream);
        }
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Handle")
    }
}

impl Shared {
    /// Accepts, life after life, until the order is to close.
    fn lives(self: Arc<Self>, first: TcpListener) {
        let mut listener = Some(first);
        while let Some(current) = listener.take() {
            let order = self.accept(&current);
            drop(current);
            let Order::Crash(down) = order else { return };
            // The port stays ours: a bound socket that does not listen refuses like a closed one,
            // and nobody else can be given the number meanwhile.
            let Some(kept) = self.keep_port() else { return };
            let until = Instant::now() + down;
            while Instant::now() < until && !self.closing() {
                thread::sleep(LOOK_EVERY);
            }
            if self.closing() {
                return;
            }
            if listen(&kept, BACKLOG).is_err() {
                return;
            }
            listener = Some(TcpListener::from(kept));
            let mut inner = lock(&self.inner);
            if inner.order == Order::Close {
                return;
            }
            inner.order = Order::Run;
            inner.halt = Halt::default();
        }
    }

    fn accept(self: &Arc<Self>, listener: &TcpListener) -> Order {
        loop {
            let accepted = listener.accept();
            let mut inner = lock(&self.inner);
            if inner.order != Order::Run {
                if let Ok((stream, _)) = accepted {
                    reset(&stream);
                }
                return inner.order;
            }
            match accepted {
                Ok((stream, _)) => self.spawn(&mut inner, stream),
                // Out of descriptors, or the peer left in the queue: neither ends a server.
                Err(_) => thread::sleep(LOOK_EVERY),
            }
        }
    }

    fn spawn(self: &Arc<Self>, inner: &mut Inner, stream: TcpStream) {
        let Ok(second) = stream.try_clone() else { return };
        let id = inner.next_id;
        inner.next_id += 1;
        inner.open.insert(id, second);
        inner.threads.retain(|thread| !thread.is_finished());
        let conn = Conn::new(stream, id, inner.halt.clone(), Handle(Arc::downgrade(self)));
        let shared = Arc::clone(self);
        let spawned = thread::Builder::new().name(format!("conn-{id}")).spawn(move || {
            let _ended = Ended { shared: &shared, id };
            (shared.serve)(conn);
        });
        match spawned {
            Ok(thread) => inner.threads.push(thread),
            Err(_) => drop(inner.open.remove(&id)),
        }
    }

    fn closing(&self) -> bool {
        lock(&self.inner).order == Order::Close
    }

    /// A socket bound to our port which does not listen.
    fn keep_port(&self) -> Option<OwnedFd> {
        let until = Instant::now() + REBIND_FOR;
        loop {
            let bound = bound(&self.addr);
            if bound.is_ok() || Instant::now() >= until || self.closing() {
                return bound.ok();
            }
            thread::sleep(LOOK_EVERY);
        }
    }

    /// Makes a blocked accept return, so that it sees its order.
    fn wake(&self) {
        let _ = TcpStream::connect_timeout(&self.addr, Duration::from_millis(200));
    }
}

fn bound(addr: &SocketAddr) -> rustix::io::Result<OwnedFd> {
    let socket = socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    set_socket_reuseaddr(&socket, true)?;
    bind(&socket, addr)?;
    Ok(socket)
}

/// Takes the connection out of the table when its thread ends, by a panic too.
struct Ended<'a> {
    shared: &'a Shared,
    id: u64,
}

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        lock(&self.shared.inner).open.remove(&self.id);
        self.shared.ended.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::{ErrorKind, Read, Write},
        sync::mpsc,
    };

    use super::*;

    /// Sends each connection to the test, which then plays the server by hand.
    fn by_hand() -> (Server, mpsc::Receiver<Conn>) {
        let (sender, receiver) = mpsc::channel();
        let server = Server::start(
            0,
            Arc::new(move |conn: Conn| {
                let halt = conn.halt().clone();
                let _ = sender.send(conn);
                while !halt.is_set() {
                    thread::sleep(LOOK_EVERY);
                }
            }),
        );
        (server.unwrap(), receiver)
    }

    fn until(what: impl Fn() -> bool) {
        let deadline = Instant::now() + Duration::from_secs(10);
        while !what() {
            assert!(Instant::now() < deadline, "waited in vain");
            thread::sleep(LOOK_EVERY);
        }
    }

    #[test]
    fn heads_and_bodies_are_read_in_any_pieces() {
        let (server, conns) = by_hand();
        let mut client = TcpStream::connect(server.addr()).unwrap();
        let mut conn = conns.recv().unwrap();
        let request = "POST /a?b=c HTTP/1.1\r\nX-Name:  v \r\nTransfer-Encoding: chunked\r\n\r\n\
                       3;x=y\r\nabc\r\nA\r\n0123456789\r\n0\r\nTrailer: t\r\n\r\n\
                       GET /b HTTP/1.1\r\nContent-Length: 2\r\n\r\nok";
        let writer = thread::spawn(move || {
            for byte in request.bytes() {
                client.write_all(&[byte]).unwrap();
            }
            client
        });
        let head = conn.read_head(4096).unwrap();
        assert_eq!((head.method.as_str(), head.path.as_str()), ("POST", "/a"));
        assert_eq!(head.header("x-name"), Some("v"));
        assert_eq!(conn.read_body(&head).unwrap(), b"abc0123456789");
        let head = conn.read_head(4096).unwrap();
        assert_eq!(conn.read_body(&head).unwrap(), b"ok");
        writer.join().unwrap();
    }

    #[test]
    fn a_head_beyond_its_bound_and_a_head_of_another_protocol_are_refused() {
        use super::super::wire::ReadError;
        let (server, conns) = by_hand();
        let mut client = TcpStream::connect(server.addr()).unwrap();
        let mut conn = conns.recv().unwrap();
        client.write_all(format!("GET / HTTP/1.1\r\nX: {}", "x".repeat(5000)).as_bytes()).unwrap();
        assert!(matches!(conn.read_head(4096), Err(ReadError::TooLarge)));
        let mut client = TcpStream::connect(server.addr()).unwrap();
        let mut conn = conns.recv().unwrap();
        client.write_all(b"\x16\x03\x01 hello\r\n\r\n").unwrap();
        assert!(matches!(conn.read_head(4096), Err(ReadError::Malformed(_))));
    }

    #[test]
    fn an_end_is_a_fin_or_a_reset_as_ordered() {
        let (server, conns) = by_hand();
        let mut bytes = [0; 16];
        let mut client = TcpStream::connect(server.addr()).unwrap();
        conns.recv().unwrap().close();
        assert_eq!(client.read(&mut bytes).unwrap(), 0);
        let mut client = TcpStream::connect(server.addr()).unwrap();
        conns.recv().unwrap().reset();
        assert_eq!(client.read(&mut bytes).unwrap_err().kind(), ErrorKind::ConnectionReset);
    }

    #[test]
    fn a_peer_that_left_is_noticed_without_reading() {
        let (server, conns) = by_hand();
        let mut client = TcpStream::connect(server.addr()).unwrap();
        let conn = conns.recv().unwrap();
        let witness = conn.witness().unwrap();
        client.write_all(b"unread").unwrap();
        assert!(!conn.peer_gone());
        drop(client);
        // Unread bytes hide a FIN from a peek; a reset is seen in any case.
        let mut client = TcpStream::connect(server.addr()).unwrap();
        let second = conns.recv().unwrap();
        assert!(!second.peer_gone());
        client.flush().unwrap();
        drop(client);
        until(|| second.peer_gone());
        drop(witness);
    }

    #[test]
    fn a_crash_resets_all_refuses_for_a_while_and_comes_back_on_the_same_port() {
        let (server, conns) = by_hand();
        let mut first = TcpStream::connect(server.addr()).unwrap();
        let conn = conns.recv().unwrap();
        conn.server().crash(Duration::from_millis(300));
        let mut bytes = [0; 16];
        assert_eq!(first.read(&mut bytes).unwrap_err().kind(), ErrorKind::ConnectionReset);
        assert!(conn.halt().is_set());
        until(|| {
            TcpStream::connect(server.addr())
                .is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused)
        });
        until(|| TcpStream::connect(server.addr()).is_ok());
        assert!(!conns.recv().unwrap().halt().is_set());
    }

    #[test]
    fn a_drain_wakes_idle_connections_and_waits_for_busy_ones() {
        let mut server = Server::start(
            0,
            Arc::new(|mut conn: Conn| {
                if conn.read_head(4096).is_ok() {
                    thread::sleep(Duration::from_millis(50));
                    conn.write_answer(200, "OK", &[], b"late").unwrap();
                    conn.close();
                }
            }),
        )
        .unwrap();
        let _idle = TcpStream::connect(server.addr()).unwrap();
        let mut busy = TcpStream::connect(server.addr()).unwrap();
        busy.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
        until(|| lock(&server.shared.inner).open.len() == 2);
        assert!(server.drain(Duration::from_secs(10)));
        let mut text = String::new();
        busy.read_to_string(&mut text).unwrap();
        assert!(text.ends_with("late"), "{text}");
        assert!(TcpStream::connect(server.addr()).is_err());
    }
}
