//! Write buffered until the commit.

use yesquel_wire::Expect;

/// Write buffered until the commit.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct BufferedWrite {
    /// The value; `None` deletes the key.
    pub(crate) value: Option<Box<[u8]>>,
    pub(crate) expect: Expect,
}

impl BufferedWrite {
    pub(crate) fn len(&self) -> usize {
        self.value.as_ref().map_or(0, |value| value.len())
    }
}
