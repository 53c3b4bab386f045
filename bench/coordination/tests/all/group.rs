//! Races between events of a group.

use serval_coordination::{
    clock::Exchange,
    group::{Group, GroupAction, GroupEvent, GroupSettings, Loss, OnLost},
};

const SECOND: u64 = 1_000_000_000;

/// Returns a group of two that has formed, in a phase of both.
fn entering() -> Group {
    let settings = GroupSettings { clients: 2, on_lost: OnLost::Continue, ..GroupSettings::default() };
    let (mut group, mut actions) = (Group::new(settings, 0), Vec::new());
    for client in 0..2 {
        assert_eq!(group.join(0, &mut actions), Some(client));
        let exchange = Exchange { asked: 0, answered: 5, received: 10 };
        group.on(client, GroupEvent::Clock(exchange), 10, &mut actions);
    }
    group.prepare(10, |_| true, None, &mut actions);
    assert_eq!(actions, [GroupAction::Complete]);
    group
}

#[test]
fn a_client_asked_to_finish_before_the_start_is_not_waited_for() {
    let (mut group, mut actions) = (entering(), Vec::new());
    group.on(1, GroupEvent::Left, 20, &mut actions);
    group.on(0, GroupEvent::Entered, 30, &mut actions);
    let Some(&GroupAction::Propose { attempt, at }) = actions.first() else { panic!("{actions:?}") };
    group.on(0, GroupEvent::Agreed(attempt), 40, &mut actions);
    assert!(actions.contains(&GroupAction::Confirm { attempt, at }), "{actions:?}");
    group.on(0, GroupEvent::Left, 50, &mut actions);
    assert!(matches!(actions.last(), Some(GroupAction::Over(end)) if end.lost.is_empty()), "{actions:?}");
}

#[test]
fn a_silent_client_is_lost_exactly_at_the_timeout() {
    let (mut group, mut actions) = (entering(), Vec::new());
    let mut lost = None;
    // One client sends a message every half second, the other none.
    for step in 1..40 {
        let now = step * SECOND / 2;
        while lost.is_none() && group.wake_at() <= now {
            let at = group.wake_at();
            group.tick(at, &mut actions);
            lost = actions.iter().find_map(|action| match action {
                GroupAction::Dismiss(lost) => Some((lost.client, lost.why.clone(), lost.at)),
                _ => None,
            });
        }
        group.on(0, GroupEvent::Heard, now, &mut actions);
    }
    let (client, why, at) = lost.unwrap();
    assert_eq!((client, why), (1, Loss::Silent));
    // Its last message arrived at 10 ns.
    let timeout = GroupSettings::default().timeout;
    assert!((timeout + 10..=timeout + timeout / 64 + 10).contains(&at), "{at}");
}
