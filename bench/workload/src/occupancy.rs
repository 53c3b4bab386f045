//! Constant occupancy (Sears and van Ingen, "Fragmentation in Large Object
//! Repositories", CIDR 2007): records that fill a share of a disk, and operations
//! that overwrite it several times.

use crate::{
    core::{CoreWorkload, field_lengths, override_counts, properties::FIELD_COUNT},
    files::InputFiles,
};
use serval_model::properties::{Kind, Properties, Property, PropertyTable, Reader, units::counted};

/// Number of times that the store is overwritten.
pub const STORAGE_AGES: Property = Property::ycsb(
    "storageages",
    Kind::COUNT,
    "Number of times that all records are rewritten: operationcount becomes this times the number of \
     records.",
)
.default("10");
/// Size of the disk.
pub const DISK_SIZE: Property = Property::ycsb("disksize", Kind::Size, "Capacity of the store's disk.")
    .default("100000000")
    .unit("bytes");
/// Share of the disk to fill.
pub const OCCUPANCY: Property =
    Property::ycsb("occupancy", Kind::FRACTION, "Share of the disk that records fill.").default("0.9");

/// Properties of constant occupancy, besides the core workload's.
pub const PROPERTIES: PropertyTable = PropertyTable {
    heading: "constant occupancy workload",
    properties: &[&STORAGE_AGES, &DISK_SIZE, &OCCUPANCY],
};

/// Overrides recordcount, insertcount and operationcount by values from the disk's
/// size and occupancy. Reports faults to the caller's reader; returns the overridden
/// settings, for a warning.
pub fn derive_counts(
    properties: &mut Properties,
    files: &dyn InputFiles,
) -> Result<Option<String>, serval_model::properties::Faults> {
    let before = properties.clone();
    let mut reader = Reader::new(&before);
    let ages = reader.count(&STORAGE_AGES);
    let disk = reader.size(&DISK_SIZE);
    let occupancy = reader.number(&OCCUPANCY);
    let fields = reader.count(&FIELD_COUNT);
    let length = field_lengths(&mut reader, files).map_or(1.0, |lengths| lengths.mean());
    let records = (occupancy * (disk as f64 / (length * fields as f64))) as u64;
    if records == 0 {
        reader.fault(
            &DISK_SIZE,
            "holds not a single record: make disksize or occupancy larger, or records smaller",
        );
    }
    reader.finish()?;
    let overruled: Vec<&str> = ["recordcount", "insertcount", "operationcount"]
        .into_iter()
        .filter(|name| before.get(name).is_some())
        .collect();
    override_counts(properties, records, ages.saturating_mul(records));
    Ok((!overruled.is_empty()).then(|| {
        let records = counted(records, "record");
        format!("{} overruled by disksize and occupancy: {records}", overruled.join(", "))
    }))
}

/// Constant occupancy: the core workload with other counts.
pub type ConstantOccupancyWorkload = CoreWorkload;
