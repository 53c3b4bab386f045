//! Random scripts on both engines.

use yesquel_differential::{random, script};
use yesquel_seeds::check_steps;

#[test]
fn random_scripts_give_the_same_results() {
    check_steps(200, random::steps, script::run);
}
