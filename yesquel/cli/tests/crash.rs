//! A server that is killed repeatedly by SIGKILL while client processes write with SQL:
//! acknowledged transactions survive, no transaction survives in part, and clients continue on
//! their connections.
//!
//! The server is killed after a random number of acknowledgements. `KILLS=100` sets the number of
//! kills, `SEED=7` repeats the same random numbers.

#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

mod support;

use rusqlite::{Connection, Error, ErrorCode, OpenFlags};
use rustix::process::Signal;
use std::{
    collections::HashSet,
    env,
    fmt::Write as _,
    io::{BufRead, BufReader, Read, stdin},
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command, Stdio},
    sync::{
        Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    thread,
    time::{Duration, SystemTime},
};
use support::Process;
use yesquel_seeds::Random;

const KILLS: u64 = 12;
const CLIENTS: usize = 8;
const ACCOUNTS: i64 = 40;
const MONEY: i64 = 100;
/// Bytes of log between checkpoints: some tens of transactions.
const CHECKPOINT_EVERY: u64 = 64 << 10;

const SCHEMA: &str = "
    CREATE TABLE progress(client INTEGER PRIMARY KEY, n INTEGER NOT NULL);
    CREATE TABLE account(id INTEGER PRIMARY KEY, money INTEGER NOT NULL);
    CREATE TABLE done(id INTEGER PRIMARY KEY AUTOINCREMENT, client, n, name TEXT UNIQUE, more);
    CREATE INDEX by_client ON done(client, n);
    CREATE TABLE part(id INTEGER PRIMARY KEY, done NOT NULL REFERENCES done(id), number);
    CREATE INDEX by_done ON part(done);";

/// Marks a test process as a client; the value is the server's address.
const SOCKET: &str = "CRASH_SOCKET";
const NUMBER: &str = "CRASH_NUMBER";

fn open(socket: &Path) -> Connection {
    assert!(yesquel_sqlite::is_linked());
    let name = format!("file:yesquel://{}/crash", socket.display());
    let connection = Connection::open_with_flags(name, OpenFlags::default()).unwrap();
    assert!(connection.path().unwrap().starts_with("yesquel:"));
    connection.busy_timeout(Duration::from_secs(60)).unwrap();
    connection.execute_batch("PRAGMA foreign_keys=ON").unwrap();
    connection
}

/// A writing process.
struct Client {
    connection: Connection,
    number: i64,
    random: Random,
}

impl Client {
    /// Runs a transaction; returns the id of its row.
    fn transact(&mut self, n: i64) -> Result<i64, Error> {
        let mut draw = |below: i64| self.random.next(below as u64) as i64;
        let (from, to, sum) = (draw(ACCOUNTS), draw(ACCOUNTS), draw(10));
        let (parts, more) = (1 + n % 3, draw(2_000));
        let connection = &self.connection;
        connection.execute_batch(if draw(8) == 0 { "BEGIN IMMEDIATE" } else { "BEGIN" })?;
        let sql = "INSERT INTO done(client, n, name, more) VALUES(?, ?, ?, zeroblob(?))";
        let name = format!("{} of {}", n, self.number);
        connection.prepare_cached(sql)?.execute((self.number, n, name, more))?;
        let id = connection.last_insert_rowid();
        for part in 0..parts {
            let sql = "INSERT INTO part(done, number) VALUES(?, ?)";
            connection.prepare_cached(sql)?.execute([id, part])?;
        }
        for (id, sum) in [(from, -sum), (to, sum)] {
            let sql = "UPDATE account SET money=money+? WHERE id=?";
            assert_eq!(connection.prepare_cached(sql)?.execute([sum, id])?, 1);
        }
        // The row exists, so unless the server is down exactly one row changes.
        let sql = "UPDATE progress SET n=? WHERE client=? AND n=?";
        assert_eq!(connection.prepare_cached(sql)?.execute([n, self.number, n - 1])?, 1);
        connection.execute_batch("COMMIT")?;
        Ok(id)
    }

    /// Returns the number of the last committed transaction, once the server answers.
    fn progress(&self, is_over: &AtomicBool) -> Option<i64> {
        while !is_over.load(SeqCst) {
            let sql = "SELECT n FROM progress WHERE client=?";
            let found = self
                .connection
                .prepare_cached(sql)
                .and_then(|mut statement| statement.query_row([self.number], |row| row.get(0)));
            match found {
                Ok(n) => return Some(n),
                Err(error) => assert!(is_of_a_kill(&error), "{error:?}"),
            }
        }
        None
    }

    fn run(&mut self, is_over: &AtomicBool) {
        let mut n = 0;
        while !is_over.load(SeqCst) {
            println!("@tried {}", n + 1);
            match self.transact(n + 1) {
                Ok(id) => {
                    n += 1;
                    println!("@done {n} {id}");
                    continue;
                }
                Err(error) if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy) => {}
                Err(error) => assert!(is_of_a_kill(&error), "{error:?}"),
            }
            if !self.connection.is_autocommit() {
                self.connection.execute_batch("ROLLBACK").unwrap();
            }
            let Some(found) = self.progress(is_over) else { return };
            assert!(found == n || found == n + 1, "{found}, after {n}");
            n = found;
        }
    }
}

/// Returns whether the error is the consequence of a kill; such errors have a message.
fn is_of_a_kill(error: &Error) -> bool {
    let code = match error {
        Error::SqliteFailure(error, Some(_)) | Error::SqlInputError { error, .. } => error.code,
        _ => return false,
    };
    // A snapshot does not survive a crash.
    matches!(code, ErrorCode::SystemIoFailure | ErrorCode::CannotOpen | ErrorCode::DatabaseBusy)
}

/// Main function of a client process; does nothing in the parent process.
#[test]
fn writing_client() {
    let (Ok(socket), Ok(number)) = (env::var(SOCKET), env::var(NUMBER)) else { return };
    let (seed, number) = number.split_once(' ').unwrap();
    let (seed, number): (u64, i64) = (seed.parse().unwrap(), number.parse().unwrap());
    let connection = open(Path::new(&socket));
    let random = Random::new(seed.wrapping_mul(CLIENTS as u64).wrapping_add(number as u64));
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            // Until the parent closes standard input.
            let _ = stdin().read_to_end(&mut Vec::new());
            is_over.store(true, SeqCst);
        });
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            Client { connection, number, random }.run(&is_over);
        }));
        if outcome.is_err() {
            std::process::exit(1);
        }
    });
}

/// Reported progress of a client.
#[derive(Debug, Clone, Default)]
struct Progress {
    tried: i64,
    done: i64,
    has_ended: bool,
}

#[derive(Default)]
struct World {
    reports: Mutex<(Vec<Progress>, HashSet<i64>)>,
    changed: Condvar,
}

impl World {
    fn reports(&self) -> MutexGuard<'_, (Vec<Progress>, HashSet<i64>)> {
        self.reports.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn progress(&self) -> Vec<Progress> {
        self.reports().0.clone()
    }

    /// Reads the output of a client.
    fn hear(&self, client: usize, said: ChildStdout) {
        for line in BufReader::new(said).lines().map_while(Result::ok) {
            let Some((_, line)) = line.split_once('@') else { continue };
            let mut words = line.split(' ');
            let (what, mut number) =
                (words.next().unwrap(), || words.next().unwrap().parse::<i64>().unwrap());
            let mut reports = self.reports();
            if what == "tried" {
                reports.0[client].tried = number();
            } else {
                reports.0[client].done = number();
                let id = number();
                assert!(reports.1.insert(id), "{id} was given twice");
            }
            self.changed.notify_all();
        }
        self.reports().0[client].has_ended = true;
        self.changed.notify_all();
    }

    /// Waits for this number of further acknowledgements, including one per client.
    fn wait_for(&self, more: i64, each: i64) {
        let before = self.progress();
        let total = |all: &[Progress]| all.iter().map(|progress| progress.done).sum::<i64>();
        let until = total(&before) + more;
        let waits = |reports: &mut (Vec<Progress>, HashSet<i64>)| {
            let are_behind = reports.0.iter().zip(&before).any(|(now, before)| now.done < before.done + each);
            (total(&reports.0) < until || are_behind) && !reports.0.iter().any(|progress| progress.has_ended)
        };
        let patience = Duration::from_secs(60);
        let (reports, late) = self.changed.wait_timeout_while(self.reports(), patience, waits).unwrap();
        assert!(!reports.0.iter().any(|progress| progress.has_ended), "a client has failed");
        assert!(!late.timed_out(), "clients make no progress: {:?}", reports.0);
    }
}

fn start(place: &Path, socket: &Path) -> Process {
    let mut command = Command::new(env!("CARGO_BIN_EXE_yesquel"));
    command.arg("serve").arg("--data").arg(place.join("data")).arg("--listen").arg(socket);
    command.args(["--durability", "sync", "--checkpoint-every", &CHECKPOINT_EVERY.to_string()]);
    let server = Process::spawn(&mut command);
    server.wait_until_ready();
    server
}

fn client(socket: &Path, seed: u64, number: usize) -> Child {
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(["--exact", "writing_client", "--nocapture"]);
    command.env(SOCKET, socket).env(NUMBER, format!("{seed} {number}"));
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap()
}

/// Checks everything at one snapshot.
fn check(connection: &Connection, world: &World) {
    let number = |sql: &str| connection.query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap();
    // The first statement may fail because the server was replaced.
    let look = || connection.query_row("SELECT count(*) FROM progress", [], |row| row.get::<_, i64>(0));
    let clients = look().or_else(|error| if is_of_a_kill(&error) { look() } else { Err(error) });
    assert_eq!(clients.unwrap(), CLIENTS as i64);
    let before = world.progress();
    connection.execute_batch("BEGIN").unwrap();
    let mut statement = connection.prepare("SELECT n FROM progress ORDER BY client").unwrap();
    let found: Vec<i64> =
        statement.query_map([], |row| row.get(0)).unwrap().collect::<Result<_, _>>().unwrap();
    drop(statement);
    let ids: Vec<i64> = world.reports().1.iter().copied().collect();
    for (client, n) in found.iter().enumerate() {
        assert!(*n >= before[client].done, "client {client}: {n}, and acknowledged {}", before[client].done);
        let all = format!("FROM done INDEXED BY by_client WHERE client={client}");
        assert_eq!(number(&format!("SELECT count(*) {all}")), *n);
        assert_eq!(number(&format!("SELECT coalesce(max(n), 0) {all}")), *n);
        assert_eq!(number(&format!("SELECT count(DISTINCT n) {all}")), *n);
    }
    let parts: i64 = found.iter().map(|n| (1..=*n).map(|n| 1 + n % 3).sum::<i64>()).sum();
    assert_eq!(number("SELECT count(*) FROM part NOT INDEXED"), parts);
    assert_eq!(number("SELECT sum(money) FROM account"), ACCOUNTS * MONEY);
    assert_eq!(number("SELECT count(*) FROM pragma_foreign_key_check"), 0);
    if !ids.is_empty() {
        assert!(
            number("SELECT seq FROM sqlite_sequence WHERE name='done'") >= number("SELECT max(id) FROM done")
        );
    }
    let whole: String = connection.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(whole, "ok");
    connection.execute_batch("COMMIT").unwrap();
    // The output of ended clients has been read completely.
    for (n, progress) in found.iter().zip(world.progress()) {
        assert!(*n <= progress.tried || !progress.has_ended, "{n}, of {}", progress.tried);
    }
}

fn variable(name: &str, otherwise: impl FnOnce() -> u64) -> u64 {
    env::var(name).map_or_else(|_| otherwise(), |text| text.parse().unwrap())
}

fn chance() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_millis() as u64
}

#[test]
fn transactions_acknowledged_to_processes_survive_kills() {
    let (kills, seed) = (variable("KILLS", || KILLS), variable("SEED", chance));
    println!("{kills} kills, SEED={seed}");
    let place = tempfile::tempdir().unwrap();
    let socket: PathBuf = place.path().join("socket");
    let mut server = start(place.path(), &socket);
    let connection = open(&socket);
    let mut rows = String::new();
    (0..CLIENTS).for_each(|client| write!(rows, "INSERT INTO progress VALUES({client}, 0);").unwrap());
    (0..ACCOUNTS).for_each(|id| write!(rows, "INSERT INTO account VALUES({id}, {MONEY});").unwrap());
    connection.execute_batch(&format!("{SCHEMA} BEGIN; {rows} COMMIT")).unwrap();
    let world = World::default();
    world.reports().0 = vec![Progress::default(); CLIENTS];
    let mut random = Random::new(seed);
    let mut clients: Vec<Child> = (0..CLIENTS).map(|number| client(&socket, seed, number)).collect();
    thread::scope(|scope| {
        // Never wait for them in vain.
        let mut inputs: Vec<_> = clients.iter_mut().map(|client| client.stdin.take()).collect();
        for (number, client) in clients.iter_mut().enumerate() {
            let (world, said) = (&world, client.stdout.take().unwrap());
            scope.spawn(move || world.hear(number, said));
        }
        for kill in 0..kills {
            // Sometimes all of them continue by themselves.
            world.wait_for(random.next(60) as i64, i64::from(kill % 4 == 0));
            server.signal(Signal::KILL);
            server.wait();
            server = start(place.path(), &socket);
            // On the same connection.
            check(&connection, &world);
        }
        world.wait_for(CLIENTS as i64, 1);
        inputs.clear();
    });
    for client in &mut clients {
        assert!(client.wait().unwrap().success());
    }
    check(&connection, &world);
    // And on a new one.
    check(&open(&socket), &world);
    server.terminate();
}
