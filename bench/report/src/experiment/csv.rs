//! Points as CSV: a line for each operation at each point, repeats merged.

use super::{
    costs,
    load::{LoadMetric, LoadTimes, Point, Spread},
    view::View,
};
use crate::csv::table;
use serval_result::experiment::Curve;
use std::io::Write;

/// The columns, separated by commas. Later versions add columns at the end only.
pub const COLUMNS: &str = "\
    experiment,curve,store,binding,workload,at,point,offered_per_s,clients,repeats,duration_s,\
    throughput_per_s,throughput_min_per_s,throughput_max_per_s,operations,failed_operations,\
    unfinished_operations,flags,operation,count,failed,response_mean_us,response_mean_min_us,\
    response_mean_max_us,response_p50_us,response_p95_us,response_p95_min_us,response_p95_max_us,\
    response_p99_us,response_p99_min_us,response_p99_max_us,response_p999_us,response_max_us,\
    service_mean_us,service_mean_min_us,service_mean_max_us,service_p50_us,service_p95_us,\
    service_p99_us,service_p999_us,service_max_us,client_cpu_us_per_operation,\
    store_cpu_us_per_operation,network_bytes_per_operation,client_memory_bytes,store_memory_bytes,\
    saturation_per_s";

fn micros(ns: f64) -> String {
    format!("{:.3}", ns / 1000.0)
}

fn spread(Spread { value, low, high }: Spread) -> [String; 3] {
    [value, low, high].map(micros)
}

fn response(times: Option<&LoadTimes>) -> Vec<String> {
    let Some(times) = times else { return vec![String::new(); 12] };
    let mut fields = Vec::from(spread(times.mean));
    fields.push(micros(times.p50.value));
    fields.extend(spread(times.p95));
    fields.extend(spread(times.p99));
    fields.extend([micros(times.p999.value), micros(times.max_ns as f64)]);
    fields
}

fn service(times: Option<&LoadTimes>) -> Vec<String> {
    let Some(times) = times else { return vec![String::new(); 8] };
    let mut fields = Vec::from(spread(times.mean));
    fields.extend([times.p50, times.p95, times.p99, times.p999].map(|spread| micros(spread.value)));
    fields.push(micros(times.max_ns as f64));
    fields
}

/// Writes the lines.
pub(super) fn write(view: &View<'_>, out: impl Write) -> Result<(), ::csv::Error> {
    let mut records = Vec::new();
    for part in view.parts {
        let document = &part.experiment.document;
        for (curve, results) in document.curves.iter().zip(&part.loaded.curves) {
            for point in &results.points {
                let records_of = |metric| record(&document.title, curve, point, metric);
                records.extend(point.metrics.iter().map(records_of));
            }
        }
    }
    table(out, COLUMNS, records)
}

fn record(experiment: &str, curve: &Curve, point: &Point, metric: &LoadMetric) -> Vec<String> {
    let optional =
        |number: Option<f64>, decimals: usize| number.map_or(String::new(), |n| format!("{n:.decimals$}"));
    let mut fields = vec![
        experiment.to_owned(),
        curve.name.clone(),
        curve.store.clone(),
        curve.binding.clone(),
        curve.workload.clone(),
        curve.at.map_or(String::new(), |at| at.to_string()),
        point.place.to_string(),
        optional(point.target, 1),
        point.clients.to_string(),
        point.repeats.to_string(),
        format!("{:.3}", point.duration_s),
    ];
    let Spread { value, low, high } = point.throughput;
    fields.extend([value, low, high].map(|rate| format!("{rate:.1}")));
    fields.extend([point.operations, point.failed, point.unfinished].map(|n| n.to_string()));
    fields.extend([point.flag_words().join("; "), metric.name.clone()]);
    fields.extend([metric.count, metric.failed].map(|n| n.to_string()));
    fields.extend(response(metric.response.as_ref()));
    fields.extend(service(metric.service.as_ref()));
    let cpu = [point.client.as_ref(), point.store.as_ref()].map(costs::cpu_ns);
    fields.extend(cpu.map(|ns| optional(ns.map(|ns| ns / 1000.0), 3)));
    fields.push(optional(costs::network(point), 1));
    let memory = [point.client.as_ref(), point.store.as_ref()].map(costs::memory);
    fields.extend(memory.map(|bytes| optional(bytes, 0)));
    fields.push(optional(curve.saturation.as_ref().map(|s| s.throughput), 1));
    fields
}
