//! Any of YCSB's Java bindings, in the driver process of `drivers/java`, which loads the
//! given class and calls `site.ycsb.DB` as YCSB does.

use crate::StoreInfo;
use serval_driver::{CONNECTIONS, Driver, GRACE, TIMEOUT};
use serval_model::properties::{Faults, Kind, Properties, Property, PropertyTable, Reader};
use std::{
    env,
    ffi::OsString,
    path::{Path, PathBuf},
    process::Command,
};

/// The class of the binding.
pub const CLASS: Property = Property::serval(
    "java.class",
    Kind::Text,
    "Class of the binding, for example site.ycsb.db.RedisClient (--class, and YCSB's -db).",
);
/// Its class path.
pub const CLASS_PATH: Property = Property::serval(
    "java.classpath",
    Kind::Text,
    "Class path of the binding, separated by colons; FOLDER/* stands for all jars of a folder \
     (--classpath, and YCSB's -cp). YCSB's own core is appended.",
);
/// Arguments of the virtual machine.
pub const ARGUMENTS: Property = Property::serval(
    "java.args",
    Kind::Text,
    "Arguments of the virtual machine, separated by spaces, for example -Xmx4g (YCSB's -jvm-args).",
);
pub(crate) const PROGRAM: Property = Property::serval(
    "java.program",
    Kind::Path,
    "The java program, version 17 or later. If unset: that of JAVA_HOME, or the one on PATH.",
);
const FOLDER: Property = Property::serval(
    "java.driver",
    Kind::Path,
    "Folder of serval-java-driver.jar and its lib. If unset: drivers/java/target, beside or above the \
     program or the working directory.",
);

/// Description of this store.
pub const INFO: StoreInfo = StoreInfo {
    name: "java",
    aliases: &[],
    summary: "Any YCSB binding, by its jar and class, in a driver process",
    details: "A Java process hosts the class as YCSB does: one instance and one thread per client, init, \
              cleanup, all properties passed on. Service time is measured in that process around the \
              call, as in YCSB; DRIVER-HOP is the way there and back. Needs Java 17 and the driver, built \
              once by 'mvn -f drivers/java package'. The output of the binding goes to standard error.",
    time_series: true,
    keeps_records: true,
    batches: true,
    updates_insert: false,
    behind_driver: true,
    properties: PropertyTable {
        heading: "java",
        properties: &[&CLASS, &CLASS_PATH, &ARGUMENTS, &PROGRAM, &FOLDER, &CONNECTIONS, &TIMEOUT, &GRACE],
    },
};

/// The driver that `drivers/java` builds.
const JARS: Jars = Jars {
    property: &FOLDER,
    jar: "serval-java-driver.jar",
    built: "drivers/java/target",
    build: "mvn -f drivers/java package",
};

/// Opens the store.
#[derive(Debug)]
pub struct Java;

impl Java {
    /// Reads the properties. Does not start the driver.
    pub fn open(properties: &Properties) -> Result<Driver, Faults> {
        let mut reader = Reader::new(properties);
        let class = reader.optional_text(&CLASS).filter(|class| !class.trim().is_empty());
        if class.is_none() {
            reader.fault_overall(
                "nothing says which binding: set java.class (--class) to its class and java.classpath (--classpath) to \
                 its jars",
            );
        }
        let machine = JvmOptions::of(&mut reader, &JARS);
        let shown = format!("java {}", class.unwrap_or_default());
        let command = move || machine.command(&[], &["serval.driver.Main", "ycsb"]);
        Driver::program(command, shown, properties, reader)
    }
}

/// Jars of a Java driver, as Maven builds them.
pub(crate) struct Jars {
    /// Property for their folder.
    pub(crate) property: &'static Property,
    /// The driver's jar; its dependencies are in `lib` next to it.
    pub(crate) jar: &'static str,
    /// Maven's output folder, relative to the sources.
    pub(crate) built: &'static str,
    /// The command that builds it.
    pub(crate) build: &'static str,
}

/// Options of the Java virtual machine of a driver.
#[derive(Debug)]
pub(crate) struct JvmOptions {
    program: PathBuf,
    arguments: Vec<String>,
    class_path: OsString,
}

impl JvmOptions {
    /// Reads the properties of Java; missing programs are faults.
    pub(crate) fn of(reader: &mut Reader<'_>, jars: &Jars) -> Self {
        let class_path = reader.optional_text(&CLASS_PATH).unwrap_or_default();
        let missing: Vec<&str> = class_path
            .split(':')
            .filter(|entry| !entry.is_empty() && !Path::new(entry.trim_end_matches('*')).exists())
            .collect();
        if !missing.is_empty() {
            reader.fault(&CLASS_PATH, format!("there is no {}", missing.join(", ")));
        }
        let (program, driver) = (program(reader), driver_class_path(reader, jars));
        let arguments = reader
            .optional_text(&ARGUMENTS)
            .unwrap_or_default()
            .split_whitespace()
            .map(str::to_owned)
            .collect();
        let mut all = OsString::from(&class_path);
        if !class_path.is_empty() {
            all.push(":");
        }
        all.push(driver);
        JvmOptions { program, arguments, class_path: all }
    }

    /// Returns the command that starts a driver. The user's arguments come last, so that
    /// they take precedence.
    pub(crate) fn command(&self, arguments: &[&str], main: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.args(arguments).args(&self.arguments).arg("-cp").arg(&self.class_path).args(main);
        command
    }
}

/// Returns the java program; a fault if there is none.
fn program(reader: &mut Reader<'_>) -> PathBuf {
    let is_there = |path: &PathBuf| path.is_file();
    if let Some(path) = reader.path(&PROGRAM) {
        if !is_there(&path) {
            reader.fault(&PROGRAM, "there is no such program");
        }
        return path;
    }
    let home = env::var_os("JAVA_HOME").map(|home| PathBuf::from(home).join("bin/java"));
    let path = env::var_os("PATH").unwrap_or_default();
    let found = home
        .filter(is_there)
        .or_else(|| env::split_paths(&path).map(|folder| folder.join("java")).find(is_there));
    found.unwrap_or_else(|| {
        reader.fault_overall(
            "there is no Java: no java on PATH and no JAVA_HOME. Install Java 17 or later (Debian's default-jre-headless), \
             or set java.program",
        );
        PathBuf::new()
    })
}

/// Returns the driver's class path; a fault if it was not built.
fn driver_class_path(reader: &mut Reader<'_>, jars: &Jars) -> OsString {
    let Jars { property, jar, build, .. } = jars;
    let found = match reader.path(property) {
        Some(folder) => {
            let there = folder.join(jar).is_file();
            if !there {
                reader.fault(property, format!("there is no {jar}"));
            }
            there.then_some(folder)
        }
        None => {
            let found = search(jars);
            if found.is_none() {
                reader.fault_overall(format!(
                    "the Java driver is not there: build it with '{build}' (Java 17 and Maven), or set {} to its folder",
                    property.name
                ));
            }
            found
        }
    };
    let folder = found.unwrap_or_default();
    let mut class_path = OsString::from(folder.join(jar));
    class_path.push(":");
    class_path.push(folder.join("lib/*"));
    class_path
}

/// Finds the driver's folder next to or above the program or the working directory.
fn search(jars: &Jars) -> Option<PathBuf> {
    let starts = [env::current_exe().ok(), env::current_dir().ok()];
    starts.iter().flatten().flat_map(|start| start.ancestors()).find_map(|folder| {
        [folder.join(jars.built), folder.to_owned()]
            .into_iter()
            .find(|folder| folder.join(jars.jar).is_file())
    })
}
