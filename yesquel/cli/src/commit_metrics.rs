//! Metrics of the commit protocol between groups, for Prometheus.

use prometheus_client::{
    encoding::{DescriptorEncoder, EncodeMetric},
    metrics::{MetricType, counter::ConstCounter, gauge::ConstGauge},
};
use std::fmt;
use yesquel::status::{CommitProtocolStatus, RecoveryCounts, ServerStatus, TransactionStatus};

/// Writes the metrics of a server's status.
pub(crate) fn encode(status: &ServerStatus, encoder: &mut DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
    transactions(&status.transactions, encoder)?;
    ages(&status.commit_protocol, encoder)?;
    recoveries(&status.commit_protocol, encoder)?;
    messages(&status.commit_protocol, encoder)
}

fn transactions(
    transactions: &TransactionStatus,
    encoder: &mut DescriptorEncoder<'_>,
) -> Result<(), fmt::Error> {
    for (name, help, value) in [
        ("yesquel_queued_prepares", "Requests for a vote that are queued", transactions.queued),
        ("yesquel_transaction_ends", "Ends of transactions of several groups, kept", transactions.ends),
        ("yesquel_remembered_clients", "Clients whose transactions are remembered", transactions.clients),
    ] {
        let gauge = ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX));
        gauge.encode(encoder.encode_descriptor(name, help, None, MetricType::Gauge)?)?;
    }
    for (name, help, value) in [
        ("yesquel_prepares_queued", "Requests for a vote that were ever queued", transactions.queued_total),
        (
            "yesquel_contradictions",
            "Decisions that contradict the end of their transaction: an alarm",
            transactions.contradictions,
        ),
    ] {
        let counter = ConstCounter::new(value);
        counter.encode(encoder.encode_descriptor(name, help, None, MetricType::Counter)?)?;
    }
    Ok(())
}

fn ages(protocol: &CommitProtocolStatus, encoder: &mut DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
    let horizon = ConstGauge::new(i64::try_from(protocol.horizon_age_ms).unwrap_or(i64::MAX));
    horizon.encode(encoder.encode_descriptor(
        "yesquel_horizon_age_milliseconds",
        "Transactions that began before this time may not vote any more; 0: all may",
        None,
        MetricType::Gauge,
    )?)?;
    let mut undecided = encoder.encode_descriptor(
        "yesquel_transactions_undecided_by_age",
        "Prepared and not decided, by the time since the vote",
        None,
        MetricType::Gauge,
    )?;
    protocol.undecided_by_age.iter().try_for_each(|bucket| {
        let up_to = if bucket.up_to == u64::MAX { "+Inf".to_owned() } else { bucket.up_to.to_string() };
        let count = ConstGauge::new(i64::try_from(bucket.count).unwrap_or(i64::MAX));
        count.encode(undecided.encode_family(&[("up_to_milliseconds", up_to)])?)
    })
}

fn recoveries(
    protocol: &CommitProtocolStatus,
    encoder: &mut DescriptorEncoder<'_>,
) -> Result<(), fmt::Error> {
    let recoveries = &protocol.recoveries;
    let by_cause = [
        ("waiter", recoveries.waiter),
        ("connection", recoveries.connection),
        ("client", recoveries.client),
        ("age", recoveries.age),
    ];
    let mut started = encoder.encode_descriptor(
        "yesquel_recoveries_started",
        "Transactions whose other participants were asked for their votes, by the cause",
        None,
        MetricType::Counter,
    )?;
    by_cause.iter().try_for_each(|(cause, counts)| {
        ConstCounter::new(counts.started).encode(started.encode_family(&[("cause", *cause)])?)
    })?;
    let mut ended = encoder.encode_descriptor(
        "yesquel_recoveries_ended",
        "Ends of these transactions, by the cause and who has found them",
        None,
        MetricType::Counter,
    )?;
    by_cause.iter().try_for_each(|(cause, counts)| {
        let RecoveryCounts { committed, aborted, by_client, .. } = *counts;
        [("commit", committed), ("abort", aborted), ("client", by_client)].iter().try_for_each(
            |(result, count)| {
                let labels = [("cause", *cause), ("result", *result)];
                ConstCounter::new(*count).encode(ended.encode_family(&labels)?)
            },
        )
    })
}

fn messages(protocol: &CommitProtocolStatus, encoder: &mut DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
    let mut messages = encoder.encode_descriptor(
        "yesquel_commit_messages",
        "Requests of commits that were received, by their kind",
        None,
        MetricType::Counter,
    )?;
    let counts = &protocol.messages;
    for (kind, count) in [
        ("commit", counts.commits),
        ("prepare", counts.prepares),
        ("decide", counts.decisions),
        ("stage", counts.stages),
        ("resolve", counts.vote_questions),
        ("outcome", counts.outcome_questions),
    ] {
        ConstCounter::new(count).encode(messages.encode_family(&[("kind", kind)])?)?;
    }
    let mut commits = encoder.encode_descriptor(
        "yesquel_commits_of_groups",
        "Commits of several groups, by their number, each counted at the first group only",
        None,
        MetricType::Counter,
    )?;
    protocol.by_groups.iter().try_for_each(|bucket| {
        ConstCounter::new(bucket.count).encode(commits.encode_family(&[("up_to", bucket.up_to)])?)
    })?;
    let refused = ConstCounter::new(protocol.refused_prepared);
    refused.encode(encoder.encode_descriptor(
        "yesquel_prepares_refused",
        "Requests for a vote that were refused because of another prepared transaction",
        None,
        MetricType::Counter,
    )?)
}
