//! Numbers of attributes that servers read. Those of nodes of long values are numbers of their own.

/// Attribute of a leaf whose tree has its root at another group: that group, as two bytes, the low one
/// first.
pub const HOME_ATTRIBUTE: u16 = 2;

/// Attribute of a root: the groups at which the tree may have leaves, in two bytes each, the low one
/// first. A tree without it has all its nodes at the group of its root.
pub const GROUPS_ATTRIBUTE: u16 = 3;
