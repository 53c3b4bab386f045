//! The store hbase from the command line, against a real HBase.
//!
//! `cargo xtask test` starts the server, builds the driver and names them in the environment;
//! without them this test is ignored.

use crate::common::{Ran, folder, program, workload};
use serval_conformance::variable;

#[test]
#[ignore = "needs SERVAL_TEST_HBASE SERVAL_TEST_HBASE_DRIVER"]
fn a_buffered_load_is_complete_and_a_run_verifies_it() {
    let (Some(address), Some(driver)) = (variable("SERVAL_TEST_HBASE"), variable("SERVAL_TEST_HBASE_DRIVER"))
    else {
        return;
    };
    let (host, port) = address.rsplit_once(':').unwrap();
    let place = folder();
    let hbase = |words: &str, port: &str| {
        let mut ran = program();
        ran.current_dir(place.path()).args(words.split_whitespace());
        ran.args(["-P", &workload("workloadf"), "-threads", "4"]);
        for (name, value) in [
            ("hbase.zookeeper.quorum", host),
            ("hbase.zookeeper.property.clientPort", port),
            ("hbase.driver", &driver),
            ("hbase.namespace", &format!("serval_{}", std::process::id())),
            ("recordcount", "1000"),
            ("operationcount", "1000"),
            ("dataintegrity", "true"),
            ("writebuffer.size", "1MB"),
        ] {
            ran.args(["-p", &format!("{name}={value}")]);
        }
        Ran::of(ran.output().unwrap())
    };
    // A run creates no table.
    let ran = hbase("run hbase", port).expect(3);
    assert!(ran.stderr.contains("there is no table"), "{}", ran.stderr);
    // YCSB's names of the store.
    let load = hbase("load hbase2 --result r", port).expect(0);
    assert_eq!(load.value("[INSERT], Return=OK,"), 1000.0);
    // Clients write the whole buffer when they close.
    assert_eq!(load.value("[CLEANUP], Operations,"), 4.0);
    assert_eq!(crate::common::counted(&place.path().join("r"), "FLUSH", "OK"), 4);
    let run = hbase("run site.ycsb.db.hbase2.HBaseClient2", port).expect(0);
    assert_eq!(run.value("[VERIFY], Return=OK,"), 1000.0);
    assert_eq!(run.value("[READ], Return=OK,"), 1000.0);
    let ran = hbase("run hbase", "1").expect(3);
    assert!(ran.stderr.contains("hbase.zookeeper.property.clientPort"), "{}", ran.stderr);
}
