//! System programs that the tests need: found, or installed where permitted.

use std::env;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::Result;
use crate::children::Children;

/// Purpose of a program; a step requests all programs of a purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProgramPurpose {
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
    /// A MongoDB-compatible server for the store's tests.
    Mongodb,
    /// An HBase for the store's tests.
    Hbase,
    /// ZooKeepers for the store's tests.
    Zookeeper,
    /// YCSB's own classes, which the workload is compared with.
    Java,
    /// Fuzzing of what Yesquel reads.
    Fuzz,
    /// Traces of the system calls of Yesquel's server.
    Trace,
    /// Yesquel's own servers: Cargo builds them, and they need no program.
    Yesquel,
    /// Network namespaces and their faults, and wrong clocks.
    Network,
    /// SQLite's own tests.
    Tcl,
    /// Reports as a browser shows them.
    Browser,
}

/// A program and how Debian provides it.
struct Program {
    name: &'static str,
    packages: &'static [&'static str],
    purpose: ProgramPurpose,
}

const PROGRAMS: &[Program] = &[
    Program {
        name: "redis-server",
        packages: &["redis-server", "redis-tools"],
        purpose: ProgramPurpose::Redis,
    },
    // Certificates for the server that speaks TLS.
    Program { name: "openssl", packages: &["openssl"], purpose: ProgramPurpose::Redis },
    Program { name: "initdb", packages: &["postgresql"], purpose: ProgramPurpose::Postgres },
    Program { name: "pg_basebackup", packages: &["postgresql"], purpose: ProgramPurpose::Postgres },
    Program { name: "postgres", packages: &["postgresql"], purpose: ProgramPurpose::Postgres },
    // For the certificate of its TLS. A crate for certificates would cost every build; the server's
    // package depends on this program anyway.
    Program { name: "openssl", packages: &["openssl"], purpose: ProgramPurpose::Postgres },
    Program { name: "mariadbd", packages: &["mariadb-server"], purpose: ProgramPurpose::Mysql },
    Program { name: "mariadb-install-db", packages: &["mariadb-server"], purpose: ProgramPurpose::Mysql },
    Program { name: "openssl", packages: &["openssl"], purpose: ProgramPurpose::Mysql },
    Program { name: "memcached", packages: &["memcached"], purpose: ProgramPurpose::Memcached },
    // Cassandra 5 runs on Java 11 and 17; Debian 12's default is 17.
    Program { name: "java", packages: &["default-jdk-headless"], purpose: ProgramPurpose::Cassandra },
    // It makes the certificate of the server's TLS.
    Program { name: "keytool", packages: &["default-jdk-headless"], purpose: ProgramPurpose::Cassandra },
    Program { name: "mvn", packages: &["maven"], purpose: ProgramPurpose::Cassandra },
    Program { name: "etcd", packages: &["etcd-server"], purpose: ProgramPurpose::Etcd },
    Program { name: "openssl", packages: &["openssl"], purpose: ProgramPurpose::Etcd },
    // For the build, not for the server: the store's driver generates its messages with it, from
    // definitions in the second package.
    Program {
        name: "protoc",
        packages: &["protobuf-compiler", "libprotobuf-dev"],
        purpose: ProgramPurpose::Etcd,
    },
    Program { name: "nginx", packages: &["nginx-light"], purpose: ProgramPurpose::Rest },
    Program { name: "openssl", packages: &["openssl"], purpose: ProgramPurpose::Rest },
    Program { name: "java", packages: &["default-jdk-headless"], purpose: ProgramPurpose::Mongodb },
    // Java runs a source file only if the compiler is installed.
    Program { name: "javac", packages: &["default-jdk-headless"], purpose: ProgramPurpose::Mongodb },
    Program { name: "mvn", packages: &["maven"], purpose: ProgramPurpose::Mongodb },
    Program { name: "openssl", packages: &["openssl"], purpose: ProgramPurpose::Mongodb },
    Program { name: "java", packages: &["default-jdk-headless"], purpose: ProgramPurpose::Hbase },
    // A Java source of this project starts the server.
    Program { name: "javac", packages: &["default-jdk-headless"], purpose: ProgramPurpose::Hbase },
    Program { name: "mvn", packages: &["maven"], purpose: ProgramPurpose::Hbase },
    Program { name: "java", packages: &["default-jdk-headless"], purpose: ProgramPurpose::Zookeeper },
    // For its classes, which Debian's package keeps beside this script.
    Program { name: "zkServer.sh", packages: &["zookeeper"], purpose: ProgramPurpose::Zookeeper },
    Program { name: "openssl", packages: &["openssl"], purpose: ProgramPurpose::Zookeeper },
    Program { name: "java", packages: &["default-jdk-headless"], purpose: ProgramPurpose::Java },
    // A runtime without the compiler cannot run the tests' Java sources.
    Program { name: "javac", packages: &["default-jdk-headless"], purpose: ProgramPurpose::Java },
    Program { name: "mvn", packages: &["maven"], purpose: ProgramPurpose::Java },
    // libFuzzer comes as C++ sources.
    Program { name: "c++", packages: &["g++"], purpose: ProgramPurpose::Fuzz },
    Program { name: "strace", packages: &["strace"], purpose: ProgramPurpose::Trace },
    Program { name: "ip", packages: &["iproute2"], purpose: ProgramPurpose::Network },
    Program { name: "tc", packages: &["iproute2"], purpose: ProgramPurpose::Network },
    Program { name: "nft", packages: &["nftables"], purpose: ProgramPurpose::Network },
    Program { name: "nsenter", packages: &["util-linux"], purpose: ProgramPurpose::Network },
    Program { name: "faketime", packages: &["faketime"], purpose: ProgramPurpose::Network },
    Program { name: "chromium", packages: &["chromium"], purpose: ProgramPurpose::Browser },
    Program { name: "cc", packages: &["gcc", "libc6-dev"], purpose: ProgramPurpose::Tcl },
    Program { name: "xz", packages: &["xz-utils"], purpose: ProgramPurpose::Tcl },
    // Two files that are not programs, found by their full paths.
    Program { name: "/usr/include/tcl8.6/tcl.h", packages: &["tcl8.6-dev"], purpose: ProgramPurpose::Tcl },
    Program { name: "/usr/include/zlib.h", packages: &["zlib1g-dev"], purpose: ProgramPurpose::Tcl },
];

/// Action for a missing program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Missing {
    /// Install its packages.
    Install,
    /// Report it.
    Report,
}

/// Makes sure that all programs of a purpose are installed. Returns their paths, or an error with
/// the missing ones and the reason.
pub(crate) fn provide(children: &Children, purpose: ProgramPurpose, missing: Missing) -> Result<String> {
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

/// Finds a program on PATH or where Debian keeps servers. A full path may name any file.
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

/// Debian's folders of servers outside PATH, newest versions first.
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
        // An outdated list names versions that the mirror no longer has.
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
    // Through env, because sudo passes no environment variables on. In runlevel 1 the packages'
    // scripts start no service: the servers of xtask run on ports of their own, and the machine
    // stays unchanged.
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
            PROGRAMS.iter().filter(|program| program.purpose == ProgramPurpose::Java).collect();
        assert_eq!(packages(&java), ["default-jdk-headless", "maven"]);
    }
}
