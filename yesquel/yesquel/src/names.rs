//! Names of databases and maps, while the home group cannot be reached: they are read from a copy at
//! another machine. `docs/yesquel/cluster/directory.md`, "Copies of names", has the rules.

use crate::{
    Error, Store,
    any_transport::AnyTransport,
    catalog::Catalog,
    name_knowledge::{NameSource, milliseconds},
};
use std::{collections::BTreeSet, sync::atomic::Ordering::Relaxed, time::Duration};
use yesquel_model::{ServerId, Timestamp};
use yesquel_transport::{Patience, block_on};
use yesquel_wire::status::{DirectoryStatus, MachineState};

/// Time for which the home group is asked before a copy is, if it was not reached a moment ago.
const PATIENCE_AFTER_FAILURE: Duration = Duration::from_millis(100);
/// How long a failure counts.
const FAILURE_COUNTS: Duration = Duration::from_secs(5);
/// Time for which the group of a copy is asked.
const PATIENCE_WITH_COPY: Duration = Duration::from_secs(2);
/// Groups that are asked for a copy, at most.
const GROUPS_MAX: usize = 16;
/// Complete copies that are asked for a name, at most.
const COPIES_MAX: usize = 3;

/// Why the home group was not reached, and whether it may answer if it is given more time.
struct HomeFailure {
    why: String,
    may_answer: bool,
}

impl Store {
    /// Returns whether the copy of names at a group has exactly those of the home group. This reads all of
    /// them.
    pub fn is_name_copy_current(&self, group: ServerId) -> Result<bool, Error> {
        block_on(self.catalog().is_copied(group))
    }

    /// Sets how long the home group is asked for names before a copy of them at another machine is read.
    /// Default: 2 s. If the group did not answer a moment ago, it is 100 ms at most.
    pub fn set_home_patience(&self, patience: Duration) {
        self.inner.names.patience_ms.store(milliseconds(patience), Relaxed);
    }

    fn uptime_ms(&self) -> u64 {
        milliseconds(self.uptime())
    }

    /// Reads names at the home group. While it cannot be reached, reads them in a copy that has all of
    /// them: `suffices` says whether a copy that names no more than this has.
    ///
    /// An answer of the home group counts, whatever it says.
    pub(crate) fn read_names<T>(
        &self,
        read: impl AsyncFn(Catalog<'_>) -> Result<T, Error>,
        suffices: impl Fn(&T) -> bool,
    ) -> Result<(T, NameSource), Error> {
        let catalog = self.catalog();
        if !self.transport().has_others(self.home_group()) {
            return Ok((block_on(read(catalog))?, NameSource::Home));
        }
        let HomeFailure { why, may_answer } = match self.read_at_home(&read)? {
            Ok(found) => return Ok((found, NameSource::Home)),
            Err(failure) => failure,
        };
        if let Some(found) = self.read_copy(&read, &suffices)? {
            return Ok((found, NameSource::Copy));
        }
        if may_answer {
            // Busy, perhaps, and there is no other way.
            return Ok((block_on(read(catalog))?, NameSource::Home));
        }
        Err(Error::HomeGroupUnreachable(why))
    }

    fn transport(&self) -> &AnyTransport {
        self.inner.trees.client().transport()
    }

    /// Reads names at the home group, unless that takes too long.
    fn read_at_home<T>(
        &self,
        read: &impl AsyncFn(Catalog<'_>) -> Result<T, Error>,
    ) -> Result<Result<T, HomeFailure>, Error> {
        let names = &self.inner.names;
        let failed_at_ms = names.failed_at_ms.load(Relaxed);
        let has_failed =
            failed_at_ms > 0 && self.uptime_ms().saturating_sub(failed_at_ms) < milliseconds(FAILURE_COUNTS);
        let patience = Duration::from_millis(names.patience_ms.load(Relaxed));
        let patience = if has_failed { patience.min(PATIENCE_AFTER_FAILURE) } else { patience };
        let patience = Patience::begin(patience);
        let failure = match block_on(read(self.catalog())) {
            Ok(found) => {
                if names.failed_at_ms.swap(0, Relaxed) > 0 {
                    self.inner.trees.use_spare_numbers(None);
                }
                return Ok(Ok(found));
            }
            Err(Error::HomeGroupUnreachable(why)) => HomeFailure { why, may_answer: false },
            Err(Error::Interrupted(why)) if patience.is_lost() => HomeFailure { why, may_answer: true },
            Err(error) => return Err(error),
        };
        names.failed_at_ms.store(self.uptime_ms().saturating_add(1), Relaxed);
        Ok(Err(failure))
    }

    /// Reads names in the first copy that has them; `None`: none of the machines that answer has them.
    fn read_copy<T>(
        &self,
        read: &impl AsyncFn(Catalog<'_>) -> Result<T, Error>,
        suffices: &impl Fn(&T) -> bool,
    ) -> Result<Option<T>, Error> {
        let home = self.home_group();
        let mut groups = self.transport().others(home);
        let (mut asked, mut has_directory, mut copies) = (BTreeSet::new(), false, 0);
        let mut slow = Vec::new();
        while asked.len() < GROUPS_MAX && copies < COPIES_MAX {
            let Some(group) = groups.iter().copied().find(|group| !asked.contains(group)) else { break };
            asked.insert(group);
            let patience = Patience::begin(PATIENCE_WITH_COPY);
            let answer = block_on(self.read_copy_at(group, read));
            match answer {
                Ok(Some(Ok(found))) if suffices(&found) => {
                    // The home group issues none now.
                    self.inner.trees.use_spare_numbers(Some(group));
                    return Ok(Some(found));
                }
                Ok(answer) => copies += usize::from(answer.is_some()),
                // The caller has cancelled.
                Err(error @ Error::Interrupted(_)) if !patience.is_lost() => return Err(error),
                Err(_) => {
                    slow.extend(patience.is_lost().then_some(group));
                    continue;
                }
            }
            drop(patience);
            if !has_directory {
                let directory = block_on(self.inner.trees.client().directory(group)).ok();
                let directory = directory.and_then(|json| serde_json::from_slice(&json).ok());
                has_directory = directory.is_some();
                let others = directory.map(|directory| groups_with_copies(&directory, home));
                groups.extend(others.unwrap_or_default());
            }
        }
        // They may be busy, or start: there is no other way.
        for group in slow {
            match block_on(self.read_copy_at(group, read)) {
                Ok(Some(Ok(found))) if suffices(&found) => {
                    self.inner.trees.use_spare_numbers(Some(group));
                    return Ok(Some(found));
                }
                Err(error @ Error::Interrupted(_)) => return Err(error),
                _ => {}
            }
        }
        Ok(None)
    }

    /// Reads names in the copy at a group; `None`: it has none that can be used. Fails if the group does
    /// not answer.
    async fn read_copy_at<T>(
        &self,
        group: ServerId,
        read: &impl AsyncFn(Catalog<'_>) -> Result<T, Error>,
    ) -> Result<Option<Result<T, Error>>, Error> {
        let copy = self.catalog().copied_at(group);
        let until = match copy.copied_until().await {
            // The group has no catalog.
            Err(Error::NoMap(_)) => None,
            until => until?,
        };
        // A copy without the last change of this process names what the process has dropped.
        let changed = Timestamp(self.inner.names.changed.load(Relaxed));
        if until.is_none_or(|until| until < changed) {
            return Ok(None);
        }
        match read(copy).await {
            Err(error @ (Error::Unavailable(_) | Error::Disconnected(_) | Error::Interrupted(_))) => {
                Err(error)
            }
            answer => Ok(Some(answer)),
        }
    }
}

/// Returns the groups at which machines keep copies: the first one of each that does not have the home
/// group.
fn groups_with_copies(directory: &DirectoryStatus, home: ServerId) -> Vec<ServerId> {
    if directory.machines.is_empty() {
        let groups = directory.groups.iter().map(|known| ServerId(known.group));
        return groups.filter(|group| *group != home).collect();
    }
    let serving = directory.machines.iter().filter(|machine| {
        machine.state == MachineState::Serving && !machine.all_groups().any(|group| group == home.0)
    });
    serving.map(|machine| ServerId(machine.group)).collect()
}
