//! Random scripts on both engines.

use yesquel_differential::{random, script};
use yesquel_seeds::check_steps;

#[test]
fn scripts_drawn_by_chance_come_to_the_same() {
    check_steps(200, random::steps, script::run);
}
