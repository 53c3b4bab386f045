//! Nodes of a barrier without a coordinator: ephemeral nodes of a folder, and lists of names.

use super::{Directory, DirectoryError, EPHEMERAL, PERSISTENT};
use zookeeper_client::{Error, OneshotWatcher};

/// Names, and the version of their node; `None` if there is no node.
pub(crate) type List = (Vec<String>, Option<i32>);

impl Directory {
    /// Creates an ephemeral node in a folder, and the folder if it is missing.
    pub(crate) async fn create_ephemeral(&self, folder: &str, name: &str) -> Result<(), DirectoryError> {
        let folder = self.path(folder);
        self.ask("make a barrier", self.session.mkdir(&folder, &PERSISTENT)).await?;
        let path = format!("{folder}/{name}");
        let creating = self.session.create(&path, b"", &EPHEMERAL);
        self.ask_unless("join a barrier", &[Error::NodeExists], creating).await.map(drop)
    }

    /// Returns the nodes of a folder in order of creation.
    pub(crate) async fn names(&self, folder: &str) -> Result<Vec<String>, DirectoryError> {
        let folder = self.path(folder);
        let listing = self.session.list_children(&folder);
        let names = self.ask_unless("read a barrier", &[Error::NoNode], listing).await?;
        let mut numbered = Vec::new();
        for name in names.into_iter().flatten() {
            let path = format!("{folder}/{name}");
            if let Some(stat) = self.ask("read a barrier", self.session.check_stat(&path)).await? {
                numbered.push((stat.czxid, name));
            }
        }
        numbered.sort();
        Ok(numbered.into_iter().map(|(_, name)| name).collect())
    }

    /// Returns the names of a list, its node's version and a watcher of the node.
    pub(crate) async fn list_of(&self, list: &str) -> Result<(List, OneshotWatcher), DirectoryError> {
        let path = self.path(list);
        loop {
            let asking = self.session.check_and_watch_stat(&path);
            let (stat, changed) = self.ask("read a barrier", asking).await?;
            if stat.is_none() {
                return Ok(((Vec::new(), None), changed));
            }
            // There is no data if the node was removed in between.
            let reading = self.session.get_data(&path);
            if let Some((data, stat)) = self.ask_unless("read a barrier", &[Error::NoNode], reading).await? {
                return Ok(((self.decode(&path, &data)?, Some(stat.version)), changed));
            }
        }
    }

    /// Writes a list, unless its node has another version: then another client has written it.
    pub(crate) async fn write_list(
        &self,
        list: &str,
        names: &[String],
        version: Option<i32>,
    ) -> Result<(), DirectoryError> {
        let path = self.path(list);
        let data = serde_json::to_vec(names).unwrap_or_default();
        let writing = async {
            match version {
                Some(_) => self.session.set_data(&path, &data, version).await.map(drop),
                None => self.session.create(&path, &data, &PERSISTENT).await.map(drop),
            }
        };
        let expected = [Error::NoNode, Error::NodeExists, Error::BadVersion];
        self.ask_unless("open a barrier", &expected, writing).await.map(drop)
    }
}
