//! Requests that come to the wrong place are repeated where the group is.

use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    future::ready,
    time::Duration,
};
use yesquel_client::{Client, CommitError, RequestError, Writes};
use yesquel_model::{GroupEpoch, NodeId, ServerId, Timestamp, TreeId, TxnId};
use yesquel_transport::{Attempt, GroupRoute, LossCause, LostCall, ReplyHandler, Transport, block_on};
use yesquel_wire::{
    Correction, Destination, Expect, GroupLocation, NodeOperation, Reply, Request, WriteOperation,
};

const GROUPS: [ServerId; 2] = [ServerId(0), ServerId(1)];

fn epoch(index: u64) -> GroupEpoch {
    GroupEpoch { index, ..GroupEpoch::FIRST }
}

/// A reply of the script.
enum Scripted {
    Corrected(Correction<'static>),
    Lost(LossCause),
}

/// Machines that answer by a script first, and then serve each request.
#[derive(Default)]
struct Machines {
    script: RefCell<VecDeque<Scripted>>,
    routes: RefCell<Vec<GroupRoute<String>>>,
    /// Destinations of the requests, and the transactions of those that commit.
    sent: RefCell<Vec<(Destination, Option<TxnId>)>>,
    pauses: RefCell<Vec<Duration>>,
    decisions: Cell<usize>,
}

impl Machines {
    fn new(script: impl IntoIterator<Item = Scripted>) -> Machines {
        let routes = GROUPS.map(|group| {
            let mut route = GroupRoute::new(group, Some("first".to_owned()));
            route.greeted(epoch(5));
            route
        });
        let (script, routes) = (RefCell::new(script.into_iter().collect()), RefCell::new(routes.into()));
        Machines { script, routes, ..Machines::default() }
    }

    fn epochs(&self) -> Vec<u64> {
        self.sent.borrow().iter().map(|(destination, _)| destination.epoch.index).collect()
    }

    /// Commits a write at some groups.
    fn commit(&self, groups: &[ServerId]) -> (Result<Timestamp, CommitError>, u64) {
        let client = Client::new(self, 1);
        let mut writes = Writes::new();
        for group in groups {
            let node = NodeId::root(TreeId::new(1).unwrap(), *group);
            let write = WriteOperation::Put { key: b"k", value: b"v", is_large: false, expect: Expect::Any };
            writes.push(&NodeOperation { node, write });
        }
        let committed = block_on(client.commit(None, &writes));
        (committed, client.counters().counts().repeated)
    }
}

impl Transport for Machines {
    fn call<'a>(
        &'a self,
        group: ServerId,
        request: &[u8],
    ) -> impl Future<Output = Result<Vec<u8>, LostCall>> + use<'a> {
        let request = Request::decode(request).unwrap();
        let txn = match request {
            Request::Commit { txn, .. } | Request::Prepare { txn, .. } => Some(txn),
            _ => None,
        };
        let destination = self.routes.borrow()[usize::from(group.0)].destination();
        self.sent.borrow_mut().push((destination, txn));
        let mut reply = Vec::new();
        match self.script.borrow_mut().pop_front() {
            Some(Scripted::Lost(cause)) => {
                return ready(Err(LostCall { place: "there".to_owned(), cause, why: String::new() }));
            }
            Some(Scripted::Corrected(correction)) => Reply::Corrected(correction).write(&mut reply),
            None => match request {
                Request::Commit { .. } => Reply::Committed(Timestamp(9)).write(&mut reply),
                Request::Prepare { .. } => Reply::Voted(Timestamp(9)).write(&mut reply),
                Request::Take { .. } => Reply::Taken(3).write(&mut reply),
                _ => Reply::Done.write(&mut reply),
            },
        }
        ready(Ok(reply))
    }

    fn send(&self, _: ServerId, _: &[u8], _: ReplyHandler) {
        self.decisions.set(self.decisions.get() + 1);
    }

    fn correct(&self, group: ServerId, correction: &Correction<'_>, attempt: Attempt) -> bool {
        self.routes.borrow_mut()[usize::from(group.0)].correct(correction, attempt, true)
    }

    fn pause(&self, time: Duration) -> impl Future<Output = ()> {
        self.pauses.borrow_mut().push(time);
        ready(())
    }

    fn home_group(&self) -> ServerId {
        GROUPS[1]
    }
}

fn located(index: u64) -> Scripted {
    let location = GroupLocation { group: GROUPS[0], epoch: epoch(index), address: "next" };
    Scripted::Corrected(Correction::WrongGroup(Some(location)))
}

const NOWHERE: Scripted = Scripted::Corrected(Correction::WrongGroup(None));

/// Within the same transaction, at once, and under the same number.
#[test]
fn a_commit_is_repeated_with_the_epoch_of_the_reply() {
    let machines = Machines::new([located(6), located(8)]);
    let (committed, repeated) = machines.commit(&GROUPS[..1]);
    assert_eq!((committed, repeated), (Ok(Timestamp(9)), 2));
    assert_eq!(machines.epochs(), [5, 6, 8]);
    assert!(machines.pauses.borrow().is_empty());
    let sent = machines.sent.borrow();
    assert!(sent.iter().all(|(_, txn)| *txn == Some(TxnId { client: 1, number: 1 })), "{sent:?}");
}

#[test]
fn the_leader_of_a_higher_term_is_followed() {
    let not_leader = |term, leader| Scripted::Corrected(Correction::NotLeader { term, leader });
    let machines = Machines::new([not_leader(3, "b"), not_leader(2, "a"), not_leader(4, "c")]);
    assert_eq!(machines.commit(&GROUPS[..1]), (Ok(Timestamp(9)), 3));
    assert_eq!(machines.routes.borrow()[0].address().unwrap(), "c");
    // The second reply told nothing new.
    assert_eq!(machines.pauses.borrow().len(), 1);
}

/// Machines with stale copies send a client in a circle, but not for ever: it knows then that
/// nothing has happened.
#[test]
fn a_request_is_repeated_eight_times_with_growing_pauses() {
    for stale in [|| NOWHERE, || located(5), || located(4)] {
        let machines = Machines::new(std::iter::repeat_with(stale).take(9));
        let (committed, repeated) = machines.commit(&GROUPS[..1]);
        let Err(CommitError::Failed(RequestError::Lost(lost))) = &committed else { panic!("{committed:?}") };
        assert_eq!((lost.cause, repeated), (LossCause::Misdirected, 8));
        let pauses = machines.pauses.borrow();
        assert!(pauses.is_sorted_by(|one, next| one < next), "{pauses:?}");
        assert!(pauses.iter().sum::<Duration>() < Duration::from_secs(6), "{pauses:?}");
        // Nor is a server asked for the outcome.
        assert_eq!(machines.sent.borrow().len(), 9);
    }
    let machines = Machines::new(std::iter::repeat_with(|| NOWHERE).take(8));
    assert_eq!(machines.commit(&GROUPS[..1]), (Ok(Timestamp(9)), 8));
}

/// A machine tells the largest epoch, which the group itself refuses.
#[test]
fn a_wrong_epoch_is_forgotten_within_the_transaction() {
    let machines = Machines::new([located(u64::MAX), NOWHERE, NOWHERE, NOWHERE, NOWHERE, located(7)]);
    assert_eq!(machines.commit(&GROUPS[..1]), (Ok(Timestamp(9)), 6));
    let wrong = u64::MAX;
    assert_eq!(machines.epochs(), [5, wrong, wrong, wrong, wrong, 0, 7]);
}

#[test]
fn a_vote_that_no_server_examined_is_no_vote() {
    // The requests for votes go out first, then the first one is repeated.
    let script = [located(6)].into_iter().chain([located(9)]);
    let machines = Machines::new(script);
    let (committed, _) = machines.commit(&GROUPS);
    assert_eq!((committed, machines.decisions.get()), (Ok(Timestamp(9)), 2));
    let numbers: Vec<u64> =
        machines.sent.borrow().iter().filter_map(|(_, txn)| txn.map(|txn| txn.number)).collect();
    assert!(numbers.iter().all(|number| *number == 1), "{numbers:?}");
    let machines = Machines::new(std::iter::repeat_with(|| NOWHERE).take(18));
    let (committed, _) = machines.commit(&GROUPS);
    assert!(matches!(committed, Err(CommitError::Failed(RequestError::Lost(_)))), "{committed:?}");
}

/// A repeated request whose reply is lost may have been done.
#[test]
fn the_loss_of_a_repeated_request_is_a_loss() {
    let machines = Machines::new([located(6), Scripted::Lost(LossCause::Other)]);
    let (committed, _) = machines.commit(&GROUPS[..1]);
    assert!(matches!(committed, Err(CommitError::Unknown(_))), "{committed:?}");
}
