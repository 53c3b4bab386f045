//! Unknown property names.

use crate::properties as p;
use serval_model::properties::{Catalog, Fault, NameFault, NameKind, Properties};
use serval_scripts::Script;
use serval_stores::StoreInfo;

/// Checks property names against all tables and the script's own. Returns faults and warnings.
pub fn names(
    properties: &Properties,
    store: &StoreInfo,
    script: Option<&Script>,
    strict: bool,
) -> (Vec<Fault>, Vec<Fault>) {
    let tables = p::catalog();
    let tables = tables.tables().iter().copied().chain(script.map(|script| script.table));
    let found = properties.check_names(&Catalog::new(tables), crate::foreign_properties::PROPERTIES);
    if !store.passes_on() {
        let is_fault = |kind| kind == NameKind::Slip || (strict && kind == NameKind::Unknown);
        let (faults, warnings): (Vec<_>, Vec<_>) = found.into_iter().partition(|found| is_fault(found.kind));
        let faults_of = |found: Vec<NameFault>| found.into_iter().map(|found| found.fault).collect();
        return (faults_of(faults), faults_of(warnings));
    }
    // A driver may know any name, so a probable misspelling is only a warning.
    let slips =
        found.iter().filter(|found| found.kind == NameKind::Slip).map(|NameFault { fault, .. }| Fault {
            problem: format!("{} It is passed to the driver", fault.problem),
            ..fault.clone()
        });
    // A name that a built-in store ignores may have an effect in the driver.
    let stores = || serval_stores::STORES.iter().flat_map(|info| info.properties.properties);
    let of_a_store = |name: &str| stores().any(|own| own.name == name);
    let own = found.iter().filter(|found| match found.kind {
        NameKind::Ignored => !of_a_store(&found.name),
        NameKind::ReadAsFalse => true,
        NameKind::Slip | NameKind::Unknown => false,
    });
    (Vec::new(), slips.chain(own.map(|found| found.fault.clone())).collect())
}
