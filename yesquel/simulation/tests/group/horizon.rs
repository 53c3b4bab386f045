//! A group tells others its horizon when the record that raised it is on disk: they forget ends
//! because of it, for good.

use crate::support::Group;
use yesquel_model::{GroupEpoch, ServerId, Timestamp};
use yesquel_node::Durability;
use yesquel_wire::{HorizonReport, PeerReport};

/// The horizon that the group would report now.
fn reported(group: &mut Group) -> Timestamp {
    PeerReport::decode(&group.core.begin_report()).unwrap().horizon.horizon
}

#[test]
fn a_horizon_is_reported_when_its_record_is_on_disk() {
    let mut group = Group::new();
    // A group that has another one to report to raises its horizon.
    let (server, wall_ms, horizon) = (ServerId(3), group.now.wall_ms, HorizonReport::default());
    let report = PeerReport {
        server,
        wall_ms,
        oldest: [None; 2],
        more: false,
        horizon,
        epoch: GroupEpoch::FIRST,
        address: Box::default(),
        directory: 0,
        load: None,
    };
    group.core.end_report(group.now, group.now, &report.encode());
    // Horizons rise once a second at most.
    group.tick(120_000);
    let (raised, _) = group.core.engine().report();
    assert!(raised.horizon > Timestamp::ZERO);
    for _ in 0..4 {
        assert_eq!(reported(&mut group), Timestamp::ZERO, "its record is not on disk");
    }
    group.write();
    // The report that was made before is the first one.
    reported(&mut group);
    assert_eq!(reported(&mut group), raised.horizon);
    // A crash does not take it back.
    group.crash(Some(1), Durability::Sync);
    assert_eq!(group.core.engine().report().0.horizon, raised.horizon);
}
