//! A small text file with an address opens the database in programs that require a path.

use crate::{
    place::{OURS, Place, ready, script},
    suites::PYTHON,
};
use std::fs;

#[test]
#[ignore = "needs YESQUEL_TEST_PROGRAMS YESQUEL_TEST_STAND_IN"]
fn a_file_with_an_address_opens_the_database() {
    let Some(ready) = ready() else { return };
    for kind in OURS {
        let place = Place::new(&ready, kind);
        let Some(address) = place.address("shop") else { continue };
        // Text after the first line is for readers of the file.
        fs::write(place.folder.path().join("shop.db"), format!("{address}\r\n# the shop's database\n"))
            .unwrap();
        place.printed(place.command(PYTHON).arg(script("python/address_file.py")).arg(&address));
        // PHP's class accepts a path only.
        let said = place.printed(place.command("php").arg(script("php/address_file.php")).arg("shop.db"));
        assert_eq!(said, "2\n", "{kind:?}");
    }
}
