//! Greetings that name a cluster, and requests that come to the wrong place.

use crate::support::{GROUP, Raw, in_memory, lookup, root};
use std::net::TcpStream;
use yesquel_model::{ClusterId, GroupEpoch, KeyRange, ServerId, Timestamp, TxnId};
use yesquel_server::ManualTime;
use yesquel_wire::{
    ByteWriter, Correction, Destination, GroupLocation, NewNode, NodeKind, NodeOperation, Operations, Reply,
    Request, WriteOperation,
    greeting::{Denial, Hello, Role, VERSIONS, Welcome},
};

fn at(index: u64) -> GroupEpoch {
    GroupEpoch { index, ..GroupEpoch::FIRST }
}

/// Asks, with a destination, and returns the reply.
fn ask(client: &mut Raw, group: u16, epoch: GroupEpoch, request: &[u8]) -> Vec<u8> {
    client.ask_at(Destination { group: ServerId(group), epoch }, request)
}

fn correction(reply: &[u8]) -> Correction<'_> {
    Correction::of(reply).unwrap_or_else(|| panic!("{:?}", Reply::decode(reply)))
}

fn located(group: u16, epoch: GroupEpoch, address: &str) -> Correction<'_> {
    Correction::WrongGroup(Some(GroupLocation { group: ServerId(group), epoch, address }))
}

fn is_answered(reply: &[u8]) -> bool {
    matches!(Reply::decode(reply), Ok(Reply::Answers { .. }))
}

#[test]
fn a_request_for_a_group_elsewhere_is_answered_with_what_is_known_of_it() {
    let served = in_memory(&ManualTime::default());
    let mut client = Raw::new(served.address, 1);
    for epoch in [GroupEpoch::UNKNOWN, at(1), at(u64::MAX)] {
        assert_eq!(correction(&ask(&mut client, 7, epoch, &lookup())), Correction::WrongGroup(None));
    }
    served.core.set_location(ServerId(7), "other:7411");
    let known = located(7, GroupEpoch::UNKNOWN, "other:7411");
    for epoch in [GroupEpoch::UNKNOWN, at(1), at(u64::MAX)] {
        assert_eq!(correction(&ask(&mut client, 7, epoch, &lookup())), known);
    }
    assert_eq!(served.core.status().requests.wrong_group, 6);
}

#[test]
fn a_lower_epoch_is_answered_with_the_own_entry() {
    let served = in_memory(&ManualTime::default());
    served.core.set_address("here:7411");
    let mut client = Raw::new(served.address, 1);
    assert!(is_answered(&ask(&mut client, 0, at(1), &lookup())));
    let old = located(0, at(1), "here:7411");
    assert_eq!(correction(&ask(&mut client, 0, GroupEpoch::UNKNOWN, &lookup())), old);
    served.core.raise_epoch(at(9));
    let new = located(0, at(9), "here:7411");
    for epoch in [GroupEpoch::UNKNOWN, at(1), at(8)] {
        assert_eq!(correction(&ask(&mut client, 0, epoch, &lookup())), new);
    }
    assert!(is_answered(&ask(&mut client, 0, at(9), &lookup())));
    // An epoch never falls.
    served.core.raise_epoch(at(5));
    assert!(is_answered(&ask(&mut client, 0, at(9), &lookup())));
    let recovered = GroupEpoch { era: 1, index: 2 };
    served.core.raise_epoch(recovered);
    assert_eq!(correction(&ask(&mut client, 0, at(9), &lookup())), located(0, recovered, "here:7411"));
}

/// No message makes a group refuse others.
#[test]
fn a_higher_epoch_is_refused_alone() {
    let served = in_memory(&ManualTime::default());
    let mut client = Raw::new(served.address, 1);
    let largest = GroupEpoch { era: u32::MAX, index: u64::MAX };
    for epoch in [at(2), at(u64::MAX), largest] {
        assert_eq!(correction(&ask(&mut client, 0, epoch, &lookup())), Correction::WrongGroup(None));
        assert!(is_answered(&client.ask(lookup())));
    }
    assert_eq!(served.core.status().requests.wrong_group, 3);
}

/// Neither is it carried out, nor are its bytes decoded.
#[test]
fn nothing_of_a_request_at_the_wrong_place_is_examined() {
    let served = in_memory(&ManualTime::default());
    let mut client = Raw::new(served.address, 1);
    let new = NewNode { kind: NodeKind::Leaf, fence: KeyRange::all() };
    let created = Operations::encode(&[NodeOperation { node: root(), write: WriteOperation::Create(new) }]);
    let operations = Operations::decode(&created).unwrap();
    let (txn, birth) = (TxnId { client: 1, number: 1 }, crate::support::birth());
    let (snapshot, seen, lease, staged) = (None, Timestamp::ZERO, 0, None);
    let mut commit = Vec::new();
    let request = Request::Commit { txn, birth, snapshot, seen, lease, staged, operations };
    request.write(&mut ByteWriter(&mut commit));
    let mut inspect = Vec::new();
    Request::Inspect { tree: None }.write(&mut ByteWriter(&mut inspect));
    let trees = served.core.status().trees.len();
    for request in [&commit[..], &inspect, &[], b"no request"] {
        let reply = ask(&mut client, 0, GroupEpoch::UNKNOWN, request);
        assert_eq!(correction(&reply), located(0, at(1), ""));
    }
    assert_eq!(served.core.status().trees.len(), trees);
    // The same transaction, under the same number.
    let reply = client.ask(commit);
    assert!(matches!(Reply::decode(&reply), Ok(Reply::Committed(_))), "{:?}", Reply::decode(&reply));
    assert_eq!(served.core.status().trees.len(), trees + 1);
}

#[test]
fn a_client_of_another_cluster_is_refused() {
    let served = in_memory(&ManualTime::default());
    let own = served.core.membership().cluster;
    let greet = |cluster: Option<ClusterId>| {
        let hello = Hello { versions: VERSIONS, client: 9, credential: b"", role: Role::Client, cluster };
        let mut raw = Raw::ungreeted(TcpStream::connect(served.address).unwrap());
        raw.greet(&hello)
    };
    for cluster in [None, Some(own)] {
        let Welcome::Served { membership, epoch, .. } = greet(cluster) else { panic!("{cluster:?}") };
        assert_eq!((membership, epoch), (served.core.membership(), GROUP.epoch));
    }
    let other = ClusterId([7; 16]);
    assert_eq!(greet(Some(other)), Welcome::Refused(Denial::OtherCluster(own)));
}
