//! Clients' own connections to a driver: two named pipes for each, in a folder that
//! only this user can enter.

use super::link::ConnectionEnds;
use rustix::{
    fs::{CWD, FileType, Mode, OFlags, mknodat, open},
    io::Errno,
    process::{Pid, geteuid, test_kill_process},
};
use std::{
    env, fs, io,
    os::{
        fd::OwnedFd,
        unix::fs::{DirBuilderExt, MetadataExt},
    },
    path::{Path, PathBuf},
    process,
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

/// Prefix of the folders' names; the process id and a number follow.
const PREFIX: &str = "serval-driver-";

/// Age from which the folder of a missing process is stale. A folder is used only while clients
/// connect, and containers that share it do not see each other's processes.
const STALE_AGE: Duration = Duration::from_secs(3600);

/// Removes this user's folders of processes that were killed.
fn remove_stale(place: &Path) {
    let folders = fs::read_dir(place).into_iter().flatten().flatten();
    for folder in folders {
        let name = folder.file_name();
        let process =
            name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.split('-').next()?.parse().ok());
        let Some(process) = process.and_then(Pid::from_raw) else { continue };
        let ours = fs::symlink_metadata(folder.path()).is_ok_and(|meta| {
            let age = meta.modified().ok().and_then(|at| at.elapsed().ok()).unwrap_or_default();
            meta.is_dir() && meta.uid() == geteuid().as_raw() && age > STALE_AGE
        });
        if ours && test_kill_process(process) == Err(Errno::SRCH) {
            let _ = fs::remove_dir_all(folder.path());
        }
    }
}

/// A folder for pipes, removed with everything in it when it is dropped.
#[derive(Debug)]
pub(super) struct PipeFolder {
    folder: String,
}

impl PipeFolder {
    /// Creates a folder among the system's temporary ones. Returns `None` if that
    /// fails; clients then share a connection.
    pub(super) fn new() -> Option<PipeFolder> {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        if count == 0 {
            remove_stale(&env::temp_dir());
        }
        let folder = env::temp_dir().join(format!("{PREFIX}{}-{count}", process::id()));
        let folder = folder.into_os_string().into_string().ok()?;
        // Fails if another user has created a folder of this name.
        fs::DirBuilder::new().mode(0o700).create(&folder).is_ok().then_some(PipeFolder { folder })
    }

    /// Creates the pipes of a client.
    pub(super) fn client(&self, client: u32) -> io::Result<ClientPipes> {
        let path = |what: &str| format!("{}/{client}-{what}", self.folder);
        let (requests, answers) = (path("requests"), path("answers"));
        for path in [&requests, &answers] {
            mknodat(CWD, path.as_str(), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)?;
        }
        // Opening an end blocks until the other is open, so Serval opens its ends
        // first. It holds the requests' pipe open for reading until the driver does.
        let opened = |path: &str, how| open(path, how | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty());
        let held = opened(&requests, OFlags::RDWR)?;
        let from = opened(&answers, OFlags::RDONLY)?;
        Ok(ClientPipes { requests, answers, held, from })
    }
}

impl Drop for PipeFolder {
    fn drop(&mut self) {
        // If this fails, an empty temporary folder is left.
        let _ = fs::remove_dir_all(PathBuf::from(&self.folder));
    }
}

/// A client's two pipes, with Serval's ends open.
#[derive(Debug)]
pub(super) struct ClientPipes {
    requests: String,
    answers: String,
    held: OwnedFd,
    from: OwnedFd,
}

impl ClientPipes {
    /// Returns the path of the pipe that the driver reads.
    pub(super) fn requests(&self) -> &str {
        &self.requests
    }

    /// Returns the path of the pipe that the driver writes.
    pub(super) fn answers(&self) -> &str {
        &self.answers
    }

    /// Returns Serval's ends. Call it once the driver has opened its own; from now on
    /// a driver's exit closes the connection.
    pub(super) fn meet(self) -> io::Result<ConnectionEnds> {
        let how = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let requests = open(self.requests.as_str(), how, Mode::empty())?;
        // Not earlier: without a writer the driver would read the end of the pipe.
        drop(self.held);
        for path in [&self.requests, &self.answers] {
            // If this fails, they are removed with the folder.
            let _ = fs::remove_file(path);
        }
        Ok(ConnectionEnds { requests, answers: self.from })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{process::Command, time::SystemTime};

    #[test]
    fn folders_of_ended_processes_are_removed_and_others_kept() {
        let place = tempfile::tempdir().unwrap();
        let mut ended = Command::new("true").spawn().unwrap();
        ended.wait().unwrap();
        let names = [ended.id().to_string(), process::id().to_string(), "x".to_owned(), "0".to_owned()];
        let folders = names.map(|process| place.path().join(format!("{PREFIX}{process}-0")));
        for folder in &folders {
            fs::create_dir(folder).unwrap();
            fs::write(folder.join("0-requests"), "").unwrap();
        }
        remove_stale(place.path());
        assert!(folders.iter().all(|folder| folder.exists()), "they are new");
        for folder in &folders {
            fs::File::open(folder).unwrap().set_modified(SystemTime::now() - 2 * STALE_AGE).unwrap();
        }
        remove_stale(place.path());
        assert_eq!(folders.map(|folder| folder.exists()), [false, true, true, true]);
    }
}
