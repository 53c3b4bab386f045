//! Where clients with ways of their own to a driver meet it: two named pipes
//! for each, in a folder that only we and the driver can enter.

use super::link::Ends;
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

/// What the names of folders begin with; the number of the process follows, and another.
const NAME: &str = "serval-driver-";

/// Age from which a folder may have been left. Who uses one does so when its clients connect; and
/// where containers share the folder a process that lives may be seen from its own only.
const LEFT: Duration = Duration::from_secs(3600);

/// Removes our folders of processes that are gone: one that was killed could not.
fn sweep(place: &Path) {
    let folders = fs::read_dir(place).into_iter().flatten().flatten();
    for folder in folders {
        let name = folder.file_name();
        let process = name.to_str().and_then(|name| name.strip_prefix(NAME)?.split('-').next()?.parse().ok());
        let Some(process) = process.and_then(Pid::from_raw) else { continue };
        let ours = fs::symlink_metadata(folder.path()).is_ok_and(|meta| {
            let age = meta.modified().ok().and_then(|at| at.elapsed().ok()).unwrap_or_default();
            meta.is_dir() && meta.uid() == geteuid().as_raw() && age > LEFT
        });
        if ours && test_kill_process(process) == Err(Errno::SRCH) {
            let _ = fs::remove_dir_all(folder.path());
        }
    }
}

/// A folder for pipes, removed with everything in it when it is dropped.
#[derive(Debug)]
pub(super) struct Meeting {
    folder: String,
}

impl Meeting {
    /// A folder of our own among the system's temporary ones. `None` if it
    /// cannot be had; clients then share a connection.
    pub(super) fn new() -> Option<Meeting> {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        if count == 0 {
            sweep(&env::temp_dir());
        }
        let folder = env::temp_dir().join(format!("{NAME}{}-{count}", process::id()));
        let folder = folder.into_os_string().into_string().ok()?;
        // Fails on a folder that somebody else has made under this name.
        fs::DirBuilder::new().mode(0o700).create(&folder).is_ok().then_some(Meeting { folder })
    }

    /// Pipes for a client.
    pub(super) fn place(&self, client: u32) -> io::Result<Place> {
        let path = |what: &str| format!("{}/{client}-{what}", self.folder);
        let (requests, answers) = (path("requests"), path("answers"));
        for path in [&requests, &answers] {
            mknodat(CWD, path.as_str(), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)?;
        }
        // Whoever opens an end waits for the other: ours are there first. The
        // one for requests is open both ways until the driver reads it.
        let opened = |path: &str, how| open(path, how | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty());
        let held = opened(&requests, OFlags::RDWR)?;
        let from = opened(&answers, OFlags::RDONLY)?;
        Ok(Place { requests, answers, held, from })
    }
}

impl Drop for Meeting {
    fn drop(&mut self) {
        // What cannot be removed is an empty folder among temporary ones.
        let _ = fs::remove_dir_all(PathBuf::from(&self.folder));
    }
}

/// Two pipes of which we hold our ends.
#[derive(Debug)]
pub(super) struct Place {
    requests: String,
    answers: String,
    held: OwnedFd,
    from: OwnedFd,
}

impl Place {
    /// The pipe that the driver reads.
    pub(super) fn requests(&self) -> &str {
        &self.requests
    }

    /// The pipe that it writes to.
    pub(super) fn answers(&self) -> &str {
        &self.answers
    }

    /// Our ends, when the driver says that it has opened its own. From now on
    /// its end is noticed.
    pub(super) fn meet(self) -> io::Result<Ends> {
        let how = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let requests = open(self.requests.as_str(), how, Mode::empty())?;
        // Not before: a pipe that nobody could write to would have ended.
        drop(self.held);
        for path in [&self.requests, &self.answers] {
            // They go with the folder if not now.
            let _ = fs::remove_file(path);
        }
        Ok(Ends { requests, answers: self.from })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{process::Command, time::SystemTime};

    #[test]
    fn folders_of_processes_that_are_gone_are_removed_and_others_stay() {
        let place = tempfile::tempdir().unwrap();
        let mut gone = Command::new("true").spawn().unwrap();
        gone.wait().unwrap();
        let names = [gone.id().to_string(), process::id().to_string(), "x".to_owned(), "0".to_owned()];
        let folders = names.map(|process| place.path().join(format!("{NAME}{process}-0")));
        for folder in &folders {
            fs::create_dir(folder).unwrap();
            fs::write(folder.join("0-requests"), "").unwrap();
        }
        sweep(place.path());
        assert!(folders.iter().all(|folder| folder.exists()), "they are new");
        for folder in &folders {
            fs::File::open(folder).unwrap().set_modified(SystemTime::now() - 2 * LEFT).unwrap();
        }
        sweep(place.path());
        assert_eq!(folders.map(|folder| folder.exists()), [false, true, true, true]);
    }
}
