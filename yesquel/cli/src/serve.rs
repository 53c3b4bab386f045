//! `yesquel serve`: a storage server, until a signal ends it.

use crate::{
    failure::CliError,
    metrics,
    process::{self, ServerSignals, SignalRequest, StandardError},
    show,
};
use clap::{ArgGroup, Args, ValueEnum, value_parser};
use std::{
    fmt,
    io::IsTerminal,
    path::PathBuf,
    sync::{
        Arc,
        mpsc::{Receiver, Sender, SyncSender, channel, sync_channel},
    },
    thread,
    time::{SystemTime, UNIX_EPOCH},
};
use tracing_subscriber::EnvFilter;
use yesquel::{
    Address, AddressError, Addresses, CLIENTS_MAX, CertificateFiles, DEFAULT_PORT, Durability,
    EngineSettings, GROUPS_MAX, JoinOptions, LeafPlacement, LogOptions, PeerOptions, ReloadSummary,
    SOCKET_MODE, SecretFiles, SecretReloader, Server, ServerId, StopFlag, Techniques, tls::date,
};

/// When writes reach the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum DurabilityName {
    /// Before the write is acknowledged
    Sync,
    /// Within --sync-interval, which is the most that can be lost
    Interval,
    /// When the operating system writes it
    None,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum LogFormat {
    /// Lines of text
    Text,
    /// One JSON object per line
    Json,
}

#[derive(Debug, Args)]
#[command(group(ArgGroup::new("where").required(true).args(["data", "in_memory"])))]
pub(crate) struct ServeArguments {
    /// Data folder; created if missing
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Keep all data in memory only
    #[arg(long)]
    in_memory: bool,
    /// Address to listen on: host:port, host (port 7411), or the path of a Unix socket, with a slash (./name); may be repeated
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1")]
    listen: Vec<Address>,
    /// Address by which clients and other servers reach this server [default: the address of --listen that most can reach]
    #[arg(long, value_name = "ADDRESS")]
    advertise: Option<Address>,
    /// Permissions of Unix sockets, as for chmod: 0660 admits the file's group
    #[arg(long, value_name = "MODE", default_value_t = FileMode(SOCKET_MODE), value_parser = mode)]
    socket_mode: FileMode,
    /// PEM file of the server's certificate and its chain; encrypts TCP connections. SIGHUP makes the server read the
    /// files of certificates, keys and credentials again
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// PEM file of the certificate's private key
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// File with the credentials of which clients must present one, one a line
    #[arg(long, value_name = "FILE", env = "YESQUEL_CREDENTIAL_FILE")]
    credential_file: Option<PathBuf>,
    /// When a write is on disk. `interval` and `none` acknowledge it before it is written to the log
    #[arg(long, value_enum, default_value_t = DurabilityName::Sync)]
    durability: DurabilityName,
    /// Writes that `--durability interval` can lose to a crash or a killed process, milliseconds
    #[arg(long, value_name = "MS", default_value_t = 100)]
    sync_interval: u64,
    /// Memory budget of nodes, such as 4G; at least 1M. The groups get equal parts of it [default: unlimited]
    #[arg(long, value_name = "BYTES", value_parser = memory)]
    memory: Option<usize>,
    /// Log size that starts a checkpoint, such as 64M; at least 64K. In a large store the log
    /// grows to half of the last checkpoint
    #[arg(long, value_name = "BYTES", default_value = "64M", value_parser = checkpoint_every)]
    checkpoint_every: usize,
    /// Accesses per second above which a node is split; 0: never
    #[arg(long, value_name = "COUNT", default_value_t = EngineSettings::default().node_load_max)]
    node_load_max: u64,
    /// Where new leaves of databases with several groups are created: at the group of the leaf that is split, at each
    /// group in turn, or at the least-loaded group
    #[arg(long, value_enum, default_value_t = LeafPlacementName::Local)]
    placement: LeafPlacementName,
    /// Number of groups that this machine hosts at least, each with a log of its own. A data folder that has fewer gets
    /// further ones; one that has more keeps them
    #[arg(long, value_name = "COUNT", default_value_t = 1)]
    #[arg(value_parser = value_parser!(u16).range(1..=i64::from(GROUPS_MAX)))]
    groups: u16,
    /// Longest time for which a transaction keeps its snapshot, seconds
    #[arg(long, value_name = "SECONDS", default_value_t = EngineSettings::default().snapshot_age_ms_max / 1_000)]
    #[arg(value_parser = value_parser!(u64).range(1..))]
    snapshot_age_max: u64,
    /// Largest number of connected clients
    #[arg(long, value_name = "COUNT", default_value_t = CLIENTS_MAX as u32)]
    #[arg(value_parser = value_parser!(u32).range(1..=1_000_000))]
    clients_max: u32,
    /// Join the cluster of these servers with a new data folder: one address, or several separated by commas. Later
    /// starts do not need it
    #[arg(long, value_name = "ADDRESS", requires = "token_file", conflicts_with_all = ["server", "in_memory"])]
    join: Option<Addresses>,
    /// File with the token that admits this machine, which `yesquel cluster add` has written
    #[arg(long, value_name = "FILE", requires = "join")]
    token_file: Option<PathBuf>,
    /// Start though the cluster has seen later records of this machine's log on disk: the folder is an older copy, and
    /// the newer one is lost
    #[arg(long)]
    accept_loss: bool,
    /// Number of this server among those that share databases by --peer [default: that of the data folder, or 0]
    #[arg(long, value_name = "NUMBER")]
    server: Option<u16>,
    /// Another server that shares databases with this one, as NUMBER=ADDRESS; may be repeated
    #[arg(long, value_name = "NUMBER=ADDRESS", value_parser = peer)]
    peer: Vec<(ServerId, Address)>,
    /// File with the credentials that servers accept from each other, one a line; they present the first
    #[arg(long, value_name = "FILE", env = "YESQUEL_PEER_CREDENTIAL_FILE")]
    peer_credential_file: Option<PathBuf>,
    /// PEM file of the certificates that sign those of other servers; encrypts the connections to them
    #[arg(long, value_name = "FILE")]
    peer_tls_ca: Option<PathBuf>,
    /// Address on which Prometheus can read metrics: host:port, at /metrics. Must be local, because metrics have neither encryption nor a credential
    #[arg(long, value_name = "ADDRESS")]
    metrics: Option<metrics::MetricsAddress>,
    /// Allow an address for metrics that other machines can reach
    #[arg(long, requires = "metrics")]
    metrics_public: bool,
    /// Techniques of the paper's section 4.5 to disable, to measure their effect
    #[arg(long, value_name = "TECHNIQUE", value_enum, value_delimiter = ',', hide_short_help = true)]
    #[arg(help_heading = "Research")]
    without: Vec<Technique>,
    /// Format of the server's log on standard error
    #[arg(long, value_enum, default_value_t = LogFormat::Text)]
    log_format: LogFormat,
}

/// Where new leaves are created.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum LeafPlacementName {
    /// At the group of the leaf that is split
    Local,
    /// At each group of the database in turn
    Spread,
    /// At the least-loaded group, if the load of the leaf's group is clearly higher
    Load,
}

/// What can be taken away for research.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Technique {
    /// Without it a split moves the upper half of a node away
    RightSplits,
    /// Without it the client whose write meets a full leaf splits it in its transaction; nothing is split by load
    DelegatedSplits,
    /// Without it transactions conflict if they write into the same node
    CommutativeOperations,
}

/// Returns all techniques but these.
fn techniques(without: &[Technique]) -> Techniques {
    Techniques {
        right_splits: !without.contains(&Technique::RightSplits),
        delegated_splits: !without.contains(&Technique::DelegatedSplits),
        commutative_operations: !without.contains(&Technique::CommutativeOperations),
    }
}

/// Parses a size in bytes, with K, M or G for powers of 1,024.
fn size(text: &str) -> Result<usize, String> {
    let wrong = || format!("'{text}' is no size: write a number of bytes, or one with K, M or G");
    let (digits, unit) = match text.char_indices().last() {
        Some((at, 'k' | 'K')) => (&text[..at], 1 << 10),
        Some((at, 'm' | 'M')) => (&text[..at], 1 << 20),
        Some((at, 'g' | 'G')) => (&text[..at], 1 << 30),
        _ => (text, 1),
    };
    digits.parse::<usize>().ok().and_then(|number| number.checked_mul(unit)).ok_or_else(wrong)
}

/// Parses a size with a minimum, which error messages show as `shown`.
fn at_least(text: &str, least: usize, shown: &str) -> Result<usize, String> {
    match size(text)? {
        size if size < least => Err(format!("'{text}' is too little: at least {shown}")),
        size => Ok(size),
    }
}

/// Less memory hardly holds the catalog.
fn memory(text: &str) -> Result<usize, String> {
    at_least(text, 1 << 20, "1M")
}

/// The minimum size of a log segment.
fn checkpoint_every(text: &str) -> Result<usize, String> {
    at_least(text, 64 << 10, "64K")
}

/// Mode of a file, as chmod takes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FileMode(u32);

impl fmt::Display for FileMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04o}", self.0)
    }
}

fn mode(text: &str) -> Result<FileMode, String> {
    let digits = text.bytes().all(|digit| matches!(digit, b'0'..=b'7'));
    let mode = u32::from_str_radix(text, 8).ok().filter(|mode| digits && *mode <= 0o777);
    mode.map(FileMode).ok_or_else(|| format!("'{text}' is no mode: write three octal digits, such as 660"))
}

/// Parses another server's number and address.
fn peer(text: &str) -> Result<(ServerId, Address), String> {
    let wrong = || format!("'{text}' is no server: write its number and its address, as in 1=host:7411");
    let (number, address) = text.split_once('=').ok_or_else(wrong)?;
    let number = number.parse().map_err(|_| wrong())?;
    Ok((ServerId(number), address.parse().map_err(|error: AddressError| error.to_string())?))
}

fn begin_log(format: LogFormat) {
    let filter = EnvFilter::try_from_env("YESQUEL_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(|| StandardError);
    // The subscriber would report them on standard error, and panic if that fails.
    let log = log.log_internal_errors(false);
    match format {
        LogFormat::Text => log.with_ansi(std::io::stderr().is_terminal()).with_target(false).init(),
        LogFormat::Json => log.json().init(),
    }
}

/// How long after a crash clients can report the snapshots that they hold: as long as a silent
/// machine's are kept. A client reports with its next request, at the latest.
const RETURN_MS: u64 = 10_000;

pub(crate) fn run(arguments: &ServeArguments) -> Result<(), CliError> {
    begin_log(arguments.log_format);
    process::end_on_panic();
    // Before anything starts that must stop cleanly.
    let signals = ServerSignals::new()?;
    let files = arguments.secret_files();
    let secrets = files.read()?;
    let peers =
        PeerOptions { servers: arguments.peer.clone(), credential: secrets.peers, tls: secrets.peer_tls };
    let settings = EngineSettings {
        server: ServerId(arguments.server.unwrap_or_default()),
        memory_bytes_max: arguments.memory.unwrap_or(usize::MAX),
        node_load_max: arguments.node_load_max,
        snapshot_age_ms_max: arguments.snapshot_age_max.saturating_mul(1_000),
        return_ms: RETURN_MS,
        techniques: techniques(&arguments.without),
        ..EngineSettings::default()
    };
    let options = LogOptions {
        durability: match arguments.durability {
            DurabilityName::Sync => Durability::Sync,
            DurabilityName::Interval => Durability::Interval(arguments.sync_interval),
            DurabilityName::None => Durability::None,
        },
        checkpoint_bytes: arguments.checkpoint_every as u64,
    };
    let metrics = arguments.metrics.as_ref();
    let metrics = metrics.map(|address| address.listen(arguments.metrics_public)).transpose()?;
    let join = arguments.join.as_ref().zip(arguments.token_file.as_ref());
    let ending = StopFlag::default();
    let events = receive_signals(signals, &ending)?;
    let listen = yesquel::ListenOptions {
        addresses: arguments.listen.clone(),
        socket_mode: arguments.socket_mode.0,
        tls: secrets.tls,
        certificate_expires_s: secrets.certificate_expires_s,
        credential: secrets.clients,
        peers,
        clients_max: arguments.clients_max as usize,
        advertised: arguments.advertise.clone(),
        join: join.map(|(addresses, token_file)| JoinOptions {
            addresses: addresses.to_vec(),
            token_file: token_file.clone(),
        }),
        has_group_of_folder: arguments.server.is_none(),
        placement: match arguments.placement {
            LeafPlacementName::Local => LeafPlacement::Local,
            LeafPlacementName::Spread => LeafPlacement::Spread,
            LeafPlacementName::Load => LeafPlacement::Load,
        },
        accepts_loss: arguments.accept_loss,
        groups: arguments.groups,
        ending: ending.clone(),
    };
    let server = match Server::start(arguments.data.as_deref(), settings, options, listen) {
        // It waited for other servers when the signal came.
        Err(_) if ending.is_set() => return Ok(()),
        Err(yesquel::Error::Connect(error)) => return Err(CliError::Peer(error)),
        server => Arc::new(server?),
    };
    server.on_fatal({
        let sender = events.sender;
        move |error| {
            // The process may be ending already.
            let _ = sender.send(ServeEvent::Fatal(error));
        }
    });
    metrics.map(|listeners| metrics::serve(listeners, &server)).transpose()?;
    let _trimming = crate::trim::begin(&server)?;
    for address in server.addresses() {
        // Clients without a port use this one.
        let is_usual = matches!(address, Address::Tcp { port: DEFAULT_PORT, .. });
        tracing::info!(%address, usual_port = is_usual, "listening");
    }
    for status in server.statuses() {
        tracing::info!(
            group = status.server,
            durability = status.durability,
            nodes = status.trees.iter().map(|tree| tree.leaves + tree.inner).sum::<u64>(),
            memory = show::bytes(status.memory.bytes),
            records = status.log.lsn,
            "ready"
        );
    }
    let reloads = serve_reloads(server.reloader().clone(), files)?;
    // The thread of the signals keeps the channel open.
    for event in &events.receiver {
        match event {
            // If one waits already, it reads what the files have now.
            ServeEvent::Signal(SignalRequest::Reload) => drop(reloads.try_send(())),
            ServeEvent::Signal(SignalRequest::End(signal)) => {
                tracing::info!(signal, "ending");
                break;
            }
            ServeEvent::Fatal(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Starts a thread that reads the files of certificates and credentials again when it is asked to. A disk
/// that does not answer must not keep a signal from ending the server.
fn serve_reloads(reloader: SecretReloader, files: SecretFiles) -> Result<SyncSender<()>, CliError> {
    let (sender, receiver) = sync_channel(1);
    let thread = thread::Builder::new().name("yesquel-reload".to_owned());
    thread.spawn(move || receiver.iter().for_each(|()| reload(&reloader, &files)))?;
    Ok(sender)
}

/// Reads the files of certificates and credentials again.
fn reload(reloader: &SecretReloader, files: &SecretFiles) {
    let ReloadSummary { closed, client_credentials, server_credentials, authorities, certificate_expires_s } =
        match reloader.reload(files) {
            Ok(summary) => summary,
            Err(error) => {
                let what = "certificates and credentials cannot be read: the former stay in force";
                return tracing::error!(%error, "{what}");
            }
        };
    let expires = certificate_expires_s.map(date);
    tracing::info!(
        closed,
        client_credentials,
        server_credentials,
        authorities,
        certificate_expires = expires.as_deref(),
        "certificates and credentials were read again"
    );
    let now_s = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    if certificate_expires_s.is_some_and(|expires_s| expires_s <= now_s) {
        tracing::warn!(
            certificate_expires = expires.as_deref(),
            "the server's certificate has expired: renew it"
        );
    }
    if closed.is_none() {
        tracing::warn!(
            "the thread of the sockets does not answer: connections of removed credentials may be open"
        );
    }
}

impl ServeArguments {
    fn secret_files(&self) -> SecretFiles {
        let certificate = self.tls_cert.clone().zip(self.tls_key.clone());
        SecretFiles {
            certificate: certificate.map(|(certificate, key)| CertificateFiles { certificate, key }),
            credentials: self.credential_file.clone(),
            peer_credentials: self.peer_credential_file.clone(),
            peer_signers: self.peer_tls_ca.clone(),
        }
    }
}

/// What a running server reacts to.
enum ServeEvent {
    Signal(SignalRequest),
    Fatal(yesquel::Error),
}

/// Where events arrive.
struct ServeEvents {
    sender: Sender<ServeEvent>,
    receiver: Receiver<ServeEvent>,
}

/// Starts a thread that waits for signals. One that ends the server also sets a flag, which interrupts
/// the start.
fn receive_signals(mut signals: ServerSignals, ending: &StopFlag) -> Result<ServeEvents, CliError> {
    let (sender, receiver) = channel();
    let (signalled, ending) = (sender.clone(), ending.clone());
    let thread = thread::Builder::new().name("yesquel-signals".to_owned());
    thread.spawn(move || {
        for request in signals.requests() {
            if let SignalRequest::End(_) = request {
                ending.set();
            }
            if signalled.send(ServeEvent::Signal(request)).is_err() {
                return;
            }
        }
    })?;
    Ok(ServeEvents { sender, receiver })
}

#[cfg(test)]
mod tests {
    use super::{FileMode, checkpoint_every, memory, mode, size};

    #[test]
    fn sizes_have_units() {
        assert_eq!(
            [size("7"), size("2k"), size("64M"), size("4G")],
            [Ok(7), Ok(2048), Ok(64 << 20), Ok(4 << 30)]
        );
        for wrong in ["", "k", "1.5G", "-1", "99999999999G", "10é"] {
            assert!(size(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn unusable_settings_are_refused() {
        for little in ["0", "1K", "1023K"] {
            assert_eq!(memory(little), Err(format!("'{little}' is too little: at least 1M")));
        }
        assert_eq!(memory("1M"), Ok(1 << 20));
        assert_eq!(checkpoint_every("63K"), Err("'63K' is too little: at least 64K".to_owned()));
        assert_eq!(checkpoint_every("64K"), Ok(64 << 10));
    }

    #[test]
    fn modes_are_octal() {
        assert_eq!([mode("660"), mode("0600")], [Ok(FileMode(0o660)), Ok(FileMode(0o600))]);
        assert_eq!(mode("0640").map(|mode| mode.to_string()), Ok("0640".to_owned()));
        for wrong in ["", "rw", "+660", "668", "1777"] {
            assert!(mode(wrong).is_err(), "{wrong}");
        }
    }
}
