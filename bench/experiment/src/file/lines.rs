//! Properties as an experiment file has them, and the properties of the files that it names.

use serval_model::properties::{Faults, Origin, Properties};
use serval_plan::properties as p;
use std::path::PathBuf;

/// The name of a property, its value, and where it was set.
pub type PropertyLine = (String, String, Origin);

/// The name of a value in a list of names.
pub fn name_of<T: PartialEq>(names: &[(&'static str, T)], value: &T) -> &'static str {
    names.iter().find(|(_, known)| known == value).map_or("", |(name, _)| name)
}

/// The value of a name in such a list; the problem if the list does not have it.
///
/// # Errors
///
/// The names that there are.
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

/// Adds what a workload's file says to the properties of an entry. A property that
/// `overridden` names, or that the entry sets itself, is left out.
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
