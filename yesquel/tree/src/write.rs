//! A write that waits for the commit.

use yesquel_wire::Expect;

/// A write that waits.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Write {
    /// The value; `None`: the key is to go.
    pub(crate) value: Option<Box<[u8]>>,
    pub(crate) expect: Expect,
}

impl Write {
    pub(crate) fn len(&self) -> usize {
        self.value.as_ref().map_or(0, |value| value.len())
    }
}
