//! Servers for the tests of `rest`: one that stores resources and records
//! requests, and one that replays a script.

use std::{
    collections::HashMap,
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
    thread,
};

/// State of the service.
#[derive(Default)]
struct State {
    resources: Mutex<HashMap<String, Vec<u8>>>,
    requests: Mutex<Vec<String>>,
    connections: AtomicUsize,
    open: Mutex<Vec<TcpStream>>,
    ended: AtomicBool,
}

/// A service: GET, PUT, POST, DELETE, and PATCH by RFC 7396. Dropping it closes its
/// port and connections.
pub(crate) struct Service {
    pub(crate) address: String,
    state: Arc<State>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Drop for Service {
    fn drop(&mut self) {
        self.state.ended.store(true, SeqCst);
        // Wakes the listener, which then notices the end.
        drop(TcpStream::connect(&self.address));
        self.thread.take().map(thread::JoinHandle::join);
        self.hang_up();
    }
}

impl Service {
    pub(crate) fn start() -> Service {
        Self::start_at("127.0.0.1:0")
    }

    pub(crate) fn start_at(address: &str) -> Service {
        let listener = TcpListener::bind(address).unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let state = Arc::new(State::default());
        let shared = Arc::clone(&state);
        let thread = thread::spawn(move || {
            for stream in listener.incoming() {
                if shared.ended.load(SeqCst) {
                    return;
                }
                let stream = stream.unwrap();
                shared.connections.fetch_add(1, SeqCst);
                shared.open.lock().unwrap().push(stream.try_clone().unwrap());
                let state = Arc::clone(&shared);
                thread::spawn(move || serve(stream, &state));
            }
        });
        Service { address, state, thread: Some(thread) }
    }

    /// Closes all connections.
    pub(crate) fn hang_up(&self) {
        for stream in self.state.open.lock().unwrap().drain(..) {
            let _ = stream.shutdown(std::net::Shutdown::Both);
        }
    }

    /// Returns the requests, byte for byte.
    pub(crate) fn requests(&self) -> Vec<String> {
        self.state.requests.lock().unwrap().clone()
    }

    /// Returns the number of connections accepted.
    pub(crate) fn connections(&self) -> usize {
        self.state.connections.load(SeqCst)
    }
}

/// Reads one request; `None` at the end of the connection.
fn request(stream: &mut TcpStream, rest: &mut Vec<u8>) -> Option<(String, String, Vec<u8>, String)> {
    let mut more = |rest: &mut Vec<u8>| {
        let mut buffer = [0; 1 << 16];
        let count = stream.read(&mut buffer).ok().filter(|count| *count > 0)?;
        rest.extend_from_slice(&buffer[..count]);
        Some(())
    };
    let head_end = loop {
        if let Some(at) = rest.windows(4).position(|window| window == b"\r\n\r\n") {
            break at + 4;
        }
        more(rest)?;
    };
    let head = String::from_utf8(rest[..head_end].to_vec()).unwrap();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap_or("0");
    let end = head_end + length.parse::<usize>().unwrap();
    while rest.len() < end {
        more(rest)?;
    }
    let body = rest[head_end..end].to_vec();
    let whole = String::from_utf8_lossy(&rest[..end]).into_owned();
    rest.drain(..end);
    let mut words = head.split(' ').map(str::to_owned);
    Some((words.next()?, words.next()?, body, whole))
}

fn serve(mut stream: TcpStream, state: &State) {
    let mut rest = Vec::new();
    while let Some((method, path, body, whole)) = request(&mut stream, &mut rest) {
        state.requests.lock().unwrap().push(whole);
        let mut resources = state.resources.lock().unwrap();
        let (code, body) = match (method.as_str(), resources.get_mut(&path)) {
            ("PUT" | "POST", _) => {
                resources.insert(path, body);
                ("201 Created", Vec::new())
            }
            (_, None) => ("404 Not Found", b"no such resource".to_vec()),
            ("PATCH", Some(resource)) => {
                *resource = patched(resource, &body);
                ("204 No Content", Vec::new())
            }
            ("GET", Some(resource)) => ("200 OK", resource.clone()),
            ("DELETE", _) => {
                resources.remove(&path);
                ("204 No Content", Vec::new())
            }
            _ => ("501 Not Implemented", Vec::new()),
        };
        drop(resources);
        let length = if code.starts_with("204") {
            String::new()
        } else {
            format!("Content-Length: {}\r\n", body.len())
        };
        let mut answer = format!("HTTP/1.1 {code}\r\n{length}\r\n").into_bytes();
        answer.extend(body);
        if stream.write_all(&answer).is_err() {
            return;
        }
    }
}

fn patched(resource: &[u8], patch: &[u8]) -> Vec<u8> {
    let mut whole: serde_json::Map<String, serde_json::Value> = serde_json::from_slice(resource).unwrap();
    let patch: serde_json::Map<String, serde_json::Value> = serde_json::from_slice(patch).unwrap();
    whole.extend(patch);
    serde_json::to_vec(&whole).unwrap()
}

/// For [`scripted`]: send nothing more and keep the connection open.
pub(crate) const FOR_EVER: &[u8] = b"for ever";

/// Returns the address of a server that replays scripts. Connection number i gets script number
/// i: its pieces are sent one by one, after one request, or after one request each if all
/// pieces are whole answers. Then the connection is closed.
pub(crate) fn scripted(connections: &[&[&'static [u8]]]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let connections: Vec<Vec<&'static [u8]>> = connections.iter().map(|pieces| pieces.to_vec()).collect();
    thread::spawn(move || {
        let mut held = Vec::new();
        for pieces in connections {
            let Ok((mut stream, _)) = listener.accept() else { return };
            stream.set_nodelay(true).unwrap();
            let mut rest = Vec::new();
            for (number, piece) in pieces.iter().enumerate() {
                if *piece == FOR_EVER {
                    held.push(stream.try_clone().unwrap());
                    break;
                }
                if number == 0 || piece.starts_with(b"HTTP/") {
                    request(&mut stream, &mut rest);
                }
                let _ = stream.write_all(piece);
            }
        }
        // Waits until the client disconnects.
        for mut stream in held {
            let _ = stream.read(&mut [0]);
        }
    });
    address
}

/// Returns the address of a server that answers the first connection's request without reading all
/// of it, and answers the second one's correctly. The first connection stays open while the
/// returned thread's value exists.
pub(crate) fn hasty(first: &'static [u8], second: &'static [u8]) -> (String, thread::JoinHandle<TcpStream>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let thread = thread::spawn(move || {
        let mut held = listener.accept().unwrap().0;
        let _ = held.read(&mut [0; 100]);
        held.write_all(first).unwrap();
        let mut stream = listener.accept().unwrap().0;
        request(&mut stream, &mut Vec::new());
        stream.write_all(second).unwrap();
        held
    });
    (address, thread)
}
