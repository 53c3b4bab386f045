//! System programs that the tests need: looked for, and installed when
//! missing and allowed.

use std::env;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::Result;
use crate::children::Children;

/// What a program is needed for; a step asks for all programs of a purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// A Redis for the store's tests and benchmarks.
    Redis,
    /// A PostgreSQL for the store's tests.
    Postgres,
    /// Two MariaDBs for the tests of the store mysql.
    Mysql,
    /// memcacheds for the store's tests.
    Memcached,
    /// A Cassandra for the store's tests.
    Cassandra,
    /// etcds for the store's tests.
    Etcd,
    /// An nginx for the tests of the store rest.
    Rest,
    /// What stands in for a MongoDB in the store's tests.
    Mongodb,
    /// An HBase for the store's tests.
    Hbase,
    /// ZooKeepers for the store's tests.
    Zookeeper,
    /// YCSB's own classes, which the workload is compared with.
    Java,
    /// Fuzzing of what Yesquel reads.
    Fuzz,
    /// What Yesquel's server asks of the system, written down.
    Trace,
    /// SQLite's own tests.
    Tcl,
    /// Reports as a browser shows them.
    Browser,
}

/// A program and how Debian provides it.
struct Program {
    name: &'static str,
    packages: &'static [&'static str],
    purpose: Purpose,
}

const PROGRAMS: &[Program] = &[
    Program { name: "redis-server", packages: &["redis-server", "redis-tools"], purpose: Purpose::Redis },
    // Certificates for the server that speaks TLS.
    Program { name: "openssl", packages: &["openssl"], purpose: Purpose::Redis },
    Program { name: "initdb", packages: &["postgresql"], purpose: Purpose::Postgres },
    Program { name: "pg_basebackup", packages: &["postgresql"], purpose: Purpose::Postgres },
    Program { name: "postgres", packages: &["postgresql"], purpose: Purpose::Postgres },
    // The certificate of its TLS. A crate that makes certificates would be
    // compiled by everyone; this program comes with the server anyway.
    Program { name: "openssl", packages: &["openssl"], purpose: Purpose::Postgres },
    Program { name: "mariadbd", packages: &["mariadb-server"], purpose: Purpose::Mysql },
    Program { name: "mariadb-install-db", packages: &["mariadb-server"], purpose: Purpose::Mysql },
    Program { name: "openssl", packages: &["openssl"], purpose: Purpose::Mysql },
    Program { name: "memcached", packages: &["memcached"], purpose: Purpose::Memcached },
    // Cassandra 5 runs on Java 11 and 17; Debian 12's default is 17.
    Program { name: "java", packages: &["default-jdk-headless"], purpose: Purpose::Cassandra },
    // It makes the certificate of the server's TLS.
    Program { name: "keytool", packages: &["default-jdk-headless"], purpose: Purpose::Cassandra },
    Program { name: "mvn", packages: &["maven"], purpose: Purpose::Cassandra },
    Program { name: "etcd", packages: &["etcd-server"], purpose: Purpose::Etcd },
    Program { name: "openssl", packages: &["openssl"], purpose: Purpose::Etcd },
    // For the build, not for the server: the store's driver makes its messages
    // with it, and with definitions that come in the second package.
    Program { name: "protoc", packages: &["protobuf-compiler", "libprotobuf-dev"], purpose: Purpose::Etcd },
    Program { name: "nginx", packages: &["nginx-light"], purpose: Purpose::Rest },
    Program { name: "openssl", packages: &["openssl"], purpose: Purpose::Rest },
    Program { name: "java", packages: &["default-jdk-headless"], purpose: Purpose::Mongodb },
    // Java runs the stand-in's source only where there is its compiler too.
    Program { name: "javac", packages: &["default-jdk-headless"], purpose: Purpose::Mongodb },
    Program { name: "mvn", packages: &["maven"], purpose: Purpose::Mongodb },
    Program { name: "openssl", packages: &["openssl"], purpose: Purpose::Mongodb },
    Program { name: "java", packages: &["default-jdk-headless"], purpose: Purpose::Hbase },
    // The server is started by a Java source of ours.
    Program { name: "javac", packages: &["default-jdk-headless"], purpose: Purpose::Hbase },
    Program { name: "mvn", packages: &["maven"], purpose: Purpose::Hbase },
    Program { name: "java", packages: &["default-jdk-headless"], purpose: Purpose::Zookeeper },
    // Its classes, which Debian keeps beside this script.
    Program { name: "zkServer.sh", packages: &["zookeeper"], purpose: Purpose::Zookeeper },
    Program { name: "openssl", packages: &["openssl"], purpose: Purpose::Zookeeper },
    Program { name: "java", packages: &["default-jdk-headless"], purpose: Purpose::Java },
    // A runtime without the compiler cannot run the tests' Java sources.
    Program { name: "javac", packages: &["default-jdk-headless"], purpose: Purpose::Java },
    Program { name: "mvn", packages: &["maven"], purpose: Purpose::Java },
    // libFuzzer comes as C++ sources.
    Program { name: "c++", packages: &["g++"], purpose: Purpose::Fuzz },
    Program { name: "strace", packages: &["strace"], purpose: Purpose::Trace },
    Program { name: "chromium", packages: &["chromium"], purpose: Purpose::Browser },
    Program { name: "cc", packages: &["gcc", "libc6-dev"], purpose: Purpose::Tcl },
    Program { name: "xz", packages: &["xz-utils"], purpose: Purpose::Tcl },
    // Two that are no programs: they are looked for by their full names.
    Program { name: "/usr/include/tcl8.6/tcl.h", packages: &["tcl8.6-dev"], purpose: Purpose::Tcl },
    Program { name: "/usr/include/zlib.h", packages: &["zlib1g-dev"], purpose: Purpose::Tcl },
];

/// What may be done about a missing program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Missing {
    /// Install its packages.
    Install,
    /// Report it.
    Report,
}

/// Sees to it that all programs of a purpose are there; says where they are
/// or what is missing and why.
pub(crate) fn provide(children: &Children, purpose: Purpose, missing: Missing) -> Result<String> {
    let needed: Vec<&Program> = PROGRAMS.iter().filter(|program| program.purpose == purpose).collect();
    let absent = absent(&needed);
    if !absent.is_empty() {
        let wanted = packages(&absent);
        match missing {
            Missing::Report => {
                return Err(format!(
                    "no {} on PATH (Debian packages: {})",
                    names(&absent),
                    wanted.join(", ")
                ));
            }
            Missing::Install => install(children, &wanted)
                .map_err(|error| format!("no {} on PATH, and {error}", names(&absent)))?,
        }
    }
    let still_absent = self::absent(&needed);
    if !still_absent.is_empty() {
        return Err(format!(
            "no {} on PATH, although {} is installed",
            names(&still_absent),
            packages(&still_absent).join(", ")
        ));
    }
    Ok(needed
        .iter()
        .filter_map(|program| find(program.name))
        .map(|path| path.display().to_string())
        .collect::<Vec<_>>()
        .join(", "))
}

/// Where a program is: on PATH, or where Debian keeps servers. A file that is
/// named in full need not be one.
pub(crate) fn find(program: &str) -> Option<PathBuf> {
    if program.starts_with('/') {
        return Some(PathBuf::from(program)).filter(|file| file.is_file());
    }
    let path = env::var_os("PATH")?;
    let folders = env::split_paths(&path).chain(server_folders());
    folders.map(|folder| folder.join(program)).find(|file| {
        file.metadata().is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
    })
}

/// Folders of servers that are not on everybody's PATH, newest versions first.
fn server_folders() -> Vec<PathBuf> {
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut folders: Vec<PathBuf> = versions.map(|version| version.path().join("bin")).collect();
    folders.sort_by_key(|folder| {
        let version = folder.parent().and_then(|folder| folder.file_name()?.to_str()?.parse::<u32>().ok());
        std::cmp::Reverse(version)
    });
    folders.push("/usr/sbin".into());
    folders.push("/usr/share/zookeeper/bin".into());
    folders
}

fn absent<'a>(programs: &[&'a Program]) -> Vec<&'a Program> {
    programs.iter().filter(|program| find(program.name).is_none()).copied().collect()
}

fn names(programs: &[&Program]) -> String {
    let names: Vec<&str> = programs.iter().map(|program| program.name).collect();
    names.join(", ")
}

/// The packages of some programs, each once.
fn packages(programs: &[&Program]) -> Vec<&'static str> {
    let mut packages: Vec<&str> = Vec::new();
    for package in programs.iter().flat_map(|program| program.packages) {
        if !packages.contains(package) {
            packages.push(package);
        }
    }
    packages
}

/// Installs packages of Debian's.
pub(crate) fn install(children: &Children, packages: &[&str]) -> Result<()> {
    if find("apt-get").is_none() {
        return Err("there is no apt-get to install it with".to_owned());
    }
    let sudo = if rustix::process::geteuid().is_root() {
        false
    } else if find("sudo").is_some() && children.run(Command::new("sudo").args(["-n", "true"]))?.success() {
        true
    } else {
        return Err(format!("only root may install it: apt-get install {}", packages.join(" ")));
    };
    let mut updated = false;
    if !known(children, packages)? {
        apt_get(children, sudo, &["update"])?;
        updated = true;
    }
    let mut install = vec!["install", "--yes", "--no-install-recommends"];
    install.extend(packages);
    match apt_get(children, sudo, &install) {
        // An old list names versions that the mirror no longer has.
        Err(_stale) if !updated && children.interrupted().is_none() => {
            apt_get(children, sudo, &["update"])?;
            apt_get(children, sudo, &install)
        }
        outcome => outcome,
    }
}

/// Whether apt's lists name all the packages.
fn known(children: &Children, packages: &[&str]) -> Result<bool> {
    let mut command = Command::new("apt-cache");
    command.args(["show", "--no-all-versions"]).args(packages);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    Ok(children.run(&mut command)?.success())
}

fn apt_get(children: &Children, sudo: bool, arguments: &[&str]) -> Result<()> {
    // Through env, because sudo passes none of our variables on. In runlevel
    // 1 the packages' scripts start no service: ours run on ports of our
    // choice, and the machine stays as it was.
    let mut command = Command::new(if sudo { "sudo" } else { "env" });
    if sudo {
        command.args(["-n", "env"]);
    }
    command
        .args(["DEBIAN_FRONTEND=noninteractive", "RUNLEVEL=1", "apt-get"])
        .args(["-o", "DPkg::Lock::Timeout=120"])
        .args(arguments);
    children.check(&mut command)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_found_where_the_path_says() {
        assert!(find("sh").is_some());
        assert!(find("no-such-program").is_none());
    }

    #[test]
    fn a_package_of_two_programs_is_asked_for_once() {
        let java: Vec<&Program> =
            PROGRAMS.iter().filter(|program| program.purpose == Purpose::Java).collect();
        assert_eq!(packages(&java), ["default-jdk-headless", "maven"]);
    }
}
