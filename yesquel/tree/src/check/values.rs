//! Check of long values: their nodes have all pieces, and name the cell as their owner.

use super::{QUESTIONS_AT_ONCE, TreeCheck, fault::TreeFault, node::LargeCell};
use crate::TreeError;
use std::collections::BTreeMap;
use yesquel_client::RequestError;
use yesquel_model::{NodeId, ServerId};
use yesquel_transport::Transport;
use yesquel_wire::{
    Answer, CellValue, Cells, LargeValue, NODE_PIECES, OWNER_ATTRIBUTE, PIECE_BYTES, Question, Scan,
    ValueOwner,
};

/// What is asked about a long value.
#[derive(Debug, Clone, PartialEq, Eq)]
enum ValueQuestion {
    /// The lengths of the pieces of a node.
    Pieces(NodeId),
    /// An attribute that names the owner, and its expected value.
    Owner(NodeId, u16, Vec<u8>),
}

impl ValueQuestion {
    fn node(&self) -> NodeId {
        let (ValueQuestion::Pieces(node) | ValueQuestion::Owner(node, ..)) = self;
        *node
    }

    fn question(&self) -> Question<'_> {
        match self {
            ValueQuestion::Pieces(node) => {
                let scan = Scan { value_bytes_max: 0, ..Scan::all() };
                Question::Scan { node: *node, scan: scan.into() }
            }
            ValueQuestion::Owner(node, id, _) => Question::Attribute { node: *node, id: *id },
        }
    }
}

/// Returns the expected lengths of the pieces of a node, `number` counted from zero.
fn lengths(length: u64, number: u64) -> impl Iterator<Item = u64> {
    let (piece, pieces) = (PIECE_BYTES as u64, NODE_PIECES as u64);
    let first = number * pieces;
    (first..first + pieces)
        .map(move |at| length.saturating_sub(at * piece).min(piece))
        .take_while(|bytes| *bytes > 0)
}

/// Whether a node has the pieces that it should.
fn has_pieces(cells: &Cells<'_>, expected: impl Iterator<Item = u64>) -> bool {
    let expected = (0u32..).zip(expected);
    cells
        .iter()
        .map(|(key, value)| match value {
            CellValue::Length(length) => Some((key.to_vec(), length)),
            CellValue::Bytes(_) | CellValue::Large(_) => None,
        })
        .eq(expected.map(|(number, length)| Some((number.to_be_bytes().to_vec(), length))))
}

impl<T: Transport> TreeCheck<'_, T> {
    /// Checks long values.
    pub(super) async fn check_values(&mut self, cells: Vec<LargeCell>) -> Result<(), TreeError> {
        let mut open: BTreeMap<ServerId, Vec<(usize, ValueQuestion)>> = BTreeMap::new();
        for (at, cell) in cells.iter().enumerate() {
            self.counts.long_values += 1;
            let nodes = cell.large.ids(self.tree.root.tree).map(ValueQuestion::Pieces);
            let first = cell.large.first_node(self.tree.root.tree);
            let (server, nodes_of) = (cell.owner, cell.large.nodes());
            let owner = ValueOwner { server, nodes: nodes_of, key: cell.key.clone() };
            let owner =
                owner.attributes().into_iter().map(|(id, value)| ValueQuestion::Owner(first, id, value));
            for question in nodes.chain(owner) {
                let batch = open.entry(cell.large.server).or_default();
                batch.push((at, question));
                if batch.len() == QUESTIONS_AT_ONCE {
                    let batch = std::mem::take(batch);
                    self.ask_values(&cells, cell.large.server, &batch).await?;
                }
            }
        }
        for (server, batch) in open {
            self.ask_values(&cells, server, &batch).await?;
        }
        Ok(())
    }

    async fn ask_values(
        &mut self,
        cells: &[LargeCell],
        server: ServerId,
        batch: &[(usize, ValueQuestion)],
    ) -> Result<(), TreeError> {
        if batch.is_empty() {
            return Ok(());
        }
        let questions: Vec<Question<'_>> = batch.iter().map(|(_, question)| question.question()).collect();
        let reply = self.read(server, &questions).await?;
        let mut answers = reply.answers().ok_or(RequestError::UnexpectedAnswer)?.iter();
        for (at, question) in batch {
            let (LargeCell { key, large, .. }, node) = (&cells[*at], question.node());
            let answer = answers.next().ok_or(RequestError::UnexpectedAnswer)?;
            let fault = match (question, answer) {
                (ValueQuestion::Pieces(_), Answer::Cells(cells)) => {
                    let number = node.local.0 - large.first.0;
                    (!has_pieces(&cells, lengths(large.length, number)))
                        .then(|| TreeFault::Pieces { node, key: key.clone() })
                }
                (ValueQuestion::Pieces(_), _) => Some(TreeFault::Pieces { node, key: key.clone() }),
                (ValueQuestion::Owner(_, id, _), Answer::Absent) if *id == OWNER_ATTRIBUTE => {
                    self.counts.without_owner += 1;
                    None
                }
                (ValueQuestion::Owner(..), Answer::Absent) => {
                    // A value without any of them has no owner, which is no fault.
                    let is_named = self.has_owner(large).await?;
                    is_named.then(|| TreeFault::Owner { node, key: key.clone() })
                }
                (ValueQuestion::Owner(_, _, expected), Answer::Value(value)) => {
                    (value != &**expected).then(|| TreeFault::Owner { node, key: key.clone() })
                }
                // The node is missing, which the question for its pieces reports.
                (ValueQuestion::Owner(..), Answer::Moved(_)) => None,
                (ValueQuestion::Owner(..), _) => return Err(RequestError::UnexpectedAnswer.into()),
            };
            self.faults.extend(fault);
        }
        Ok(())
    }

    /// Whether a long value names an owner.
    async fn has_owner(&self, large: &LargeValue) -> Result<bool, TreeError> {
        let node = large.first_node(self.tree.root.tree);
        let reply = self.read(large.server, &[Question::Attribute { node, id: OWNER_ATTRIBUTE }]).await?;
        let answers = reply.answers().ok_or(RequestError::UnexpectedAnswer)?;
        Ok(matches!(answers.iter().next(), Some(Answer::Value(_))))
    }
}
