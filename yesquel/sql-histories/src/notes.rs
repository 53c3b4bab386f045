//! Notes of what a transaction does.

use yesquel_histories::ListOperation;

/// Where the operations of one transaction are noted as they happen.
pub trait OperationNotes {
    /// Returns a positive number that no other call, of any client, returns.
    fn number(&mut self) -> i64;
    /// Notes an operation. An append is noted before its statement, because the process may end while
    /// it runs.
    fn note(&mut self, operation: ListOperation);
    /// Returns the number of operations so far.
    fn operations(&self) -> usize;
    /// The transaction has rolled back to the savepoint at which it had so many operations; see
    /// [`take_back`].
    fn rolled_back(&mut self, to: usize);
    /// A statement has compared columns or indexes, and they were right.
    fn compared(&mut self);
}

/// Takes back the appends after so many operations, also from the lists that were read after them.
pub fn take_back(operations: &mut Vec<ListOperation>, to: usize) {
    let mut gone = Vec::new();
    for operation in operations.split_off(to) {
        match operation {
            ListOperation::Append { key, element } => gone.push((key, element)),
            ListOperation::Read { key, list } => {
                let list = list.map(|mut list| {
                    list.retain(|element| !gone.contains(&(key, *element)));
                    list
                });
                operations.push(ListOperation::Read { key, list });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_after_a_savepoint_stay_without_what_was_appended_after_it() {
        let mut operations = vec![
            ListOperation::append(1, 10),
            ListOperation::append(1, 11),
            ListOperation::append(2, 12),
            ListOperation::read(1, [9, 10, 11]),
        ];
        take_back(&mut operations, 1);
        assert_eq!(operations, [ListOperation::append(1, 10), ListOperation::read(1, [9, 10])]);
    }
}
