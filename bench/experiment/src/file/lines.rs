//! Properties of an experiment file, and of the workload files that it names.

use serval_model::properties::{Faults, Origin, Properties};
use serval_plan::properties as p;
use std::path::PathBuf;

/// Name, value and origin of a property.
pub type PropertyLine = (String, String, Origin);

/// Returns the name of a value in a list of names; empty if the list does not have it.
pub fn name_of<T: PartialEq>(names: &[(&'static str, T)], value: &T) -> &'static str {
    names.iter().find(|(_, known)| known == value).map_or("", |(name, _)| name)
}

/// Returns the value of a name in a list of names.
///
/// # Errors
///
/// A message with all names of the list, if `text` is not one of them.
pub fn value_of<T: Copy>(names: &[(&'static str, T)], text: &str) -> Result<T, String> {
    let found = names.iter().find(|(name, _)| *name == text).map(|(_, value)| *value);
    found.ok_or_else(|| {
        let names: Vec<&str> = names.iter().map(|(name, _)| *name).collect();
        format!("'{text}' is not one of {}", names.join(", "))
    })
}

/// Sets the properties of these lines.
pub(crate) fn set_lines(properties: &mut Properties, lines: &[PropertyLine]) {
    for (name, value, origin) in lines {
        properties.set(name.clone(), value.clone(), origin.clone());
    }
}

/// Adds the properties of a workload file to an entry, except those that `overridden` names or the entry sets
/// itself.
pub(crate) fn add_workload_file(
    lines: &mut Vec<PropertyLine>,
    path: PathBuf,
    origin: &Option<Origin>,
    overridden: &dyn Fn(&str) -> bool,
) -> Result<(), Faults> {
    let mut all = Properties::new();
    if serval_scripts::is_script(&path.to_string_lossy()) {
        let origin = origin.clone().unwrap_or(Origin::Program("the experiment"));
        let path = std::path::absolute(&path).unwrap_or(path);
        all.set(p::WORKLOAD.name, path.to_string_lossy(), origin);
    } else {
        all.load_file(&path)?;
    }
    let is_own = |name: &str| lines.iter().any(|(own, _, _)| own == name);
    let added: Vec<PropertyLine> = all
        .iter()
        .filter(|(name, _)| !overridden(name) && !is_own(name))
        .map(|(name, setting)| (name.to_owned(), setting.value.clone(), setting.origin.clone()))
        .collect();
    lines.extend(added);
    Ok(())
}
