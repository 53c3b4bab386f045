//! Properties of the layers before stores.

use crate::delay::{Delay, SplitMix};
use serval_model::{
    StoreInfo,
    properties::{
        Kind, Origin, Properties, Property, PropertyTable, Reader,
        units::{format_duration, format_size, parse_duration},
    },
};
use std::{path::PathBuf, time::Duration};

/// Size of a client's buffer, bytes.
pub const SIZE: Property = Property::serval(
    "writebuffer.size",
    Kind::Size,
    "Size of the write buffer of each client, for any store: bytes of keys, field names and values. 0: no \
     buffer. Inserts, updates and deletes return BATCHED_OK once they are in the buffer, and reads do not \
     look into it. For hbase it is writebuffersize with clientbuffering, for accumulo \
     accumulo.batchWriterSize. FLUSH in the results is the sending.",
)
.default("0")
.unit("bytes");
/// How long a write may wait in the buffer.
pub const LATENCY: Property = Property::serval(
    "writebuffer.latency",
    Kind::MILLISECONDS,
    "Longest time for which a write waits in the buffer before the whole buffer is sent. 0: until the \
     buffer is full, or the client has nothing more to do.",
)
.default("0")
.unit("ms");

/// Delay after which other clients see a write.
pub const DELAY: Property = Property::serval(
    "visibility.delay",
    Kind::Text,
    "Artificial lag, to test measurements of lag: other clients see a write only this long after it was \
     acknowledged, and the previous value before that. constant:50ms, or exponential:50ms for a mean. \
     Applies to clients of this process; each write reads its record first.",
);
/// Whether clients see their own writes at once.
pub const OWN: Property = Property::serval(
    "visibility.own",
    Kind::Choice(&["now", "delayed"]),
    "When the writing client sees its own writes: at once (now), or as the others do (delayed).",
)
.default("now");
/// Seed of the delays.
pub const SEED: Property =
    Property::serval("visibility.seed", Kind::COUNT, "Seed of the delays that visibility.delay draws.")
        .default("1");
/// File of the delays.
pub const LOG: Property = Property::serval(
    "visibility.log",
    Kind::Path,
    "CSV file of each write's delay: key, acknowledged_ns on the system's monotonic clock, delay_ns.",
);

/// Properties of the layers before any store.
pub const PROPERTIES: PropertyTable = PropertyTable {
    heading: "write buffer and visibility",
    properties: &[&SIZE, &LATENCY, &DELAY, &OWN, &SEED, &LOG],
};

/// Distribution of a delay.
#[derive(Debug, Clone, Copy)]
pub(super) struct DelayLaw(Delay);

impl DelayLaw {
    fn parse(text: &str) -> Result<DelayLaw, String> {
        let law = text.trim().split_once(':').ok_or("is no law")?;
        let spread = ["constant", "exponential"].into_iter().find(|spread| *spread == law.0.trim());
        let spread = spread.ok_or_else(|| format!("there is no law '{}'", law.0.trim()))?;
        let mean = Duration::from_nanos(parse_duration(law.1, 1_000_000)?);
        Ok(DelayLaw(Delay { mean, spread }))
    }

    /// Draws the next delay, ns.
    pub(super) fn draw_ns(self, random: &mut SplitMix) -> u64 {
        u64::try_from(self.0.draw(random).as_nanos()).unwrap_or(u64::MAX)
    }

    fn words(self) -> String {
        let mean = u64::try_from(self.0.mean.as_nanos()).unwrap_or(u64::MAX);
        format!("{}:{}", self.0.spread, format_duration(mean))
    }
}

/// Settings of a delayed view.
#[derive(Debug, Clone)]
pub(super) struct ViewSettings {
    pub(super) law: DelayLaw,
    pub(super) sees_own: bool,
    pub(super) seed: u64,
    pub(super) log: Option<PathBuf>,
}

/// Settings of a write buffer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct BufferSettings {
    /// Size in bytes, above zero.
    pub(super) size: u64,
    /// Longest wait of a write, ns; `u64::MAX` for no limit.
    pub(super) latency_ns: u64,
}

/// Settings of the layers before a store.
#[derive(Debug, Clone, Default)]
pub struct WrapperSettings {
    pub(super) buffer: Option<BufferSettings>,
    pub(super) view: Option<ViewSettings>,
}

/// Returns whether a store's own client has a write buffer, which `writebuffer.*` then controls.
fn has_its_own(info: &StoreInfo) -> bool {
    info.properties.properties.iter().any(|property| property.name == SIZE.name)
}

/// Properties of a store's own write buffer, for which `writebuffer.*` are other names.
#[derive(Debug)]
pub struct OwnBuffer<'a> {
    /// Size of a client's buffer, bytes.
    pub size: &'a Property,
    /// How long a write may wait in the buffer.
    pub latency: &'a Property,
    /// Whether to buffer at all.
    pub switch: &'a Property,
}

impl OwnBuffer<'_> {
    /// Returns the properties with `writebuffer.*` translated to the store's own names. Giving
    /// both is a fault.
    pub fn of(&self, reader: &mut Reader<'_>) -> Properties {
        let mut properties = reader.properties().clone();
        for (general, own) in [(&SIZE, self.size), (&LATENCY, self.latency)] {
            let Some((_, setting)) = properties.setting(general) else { continue };
            let setting = setting.clone();
            if properties.has(own) {
                reader
                    .fault(general, format!("and {} are the same for this store: set one of them", own.name));
            }
            if general.name == SIZE.name {
                let buffers = reader.size(&SIZE) > 0;
                if properties.has(self.switch) && reader.flag(self.switch) != buffers {
                    let word = if buffers { "a buffer" } else { "none" };
                    reader.fault(general, format!("asks for {word}, and {} does not", self.switch.name));
                }
                let meant = Origin::Program("what writebuffer.size means here");
                properties.set(self.switch.name, buffers.to_string(), meant);
                if !buffers {
                    continue;
                }
            }
            properties.set(own.name, setting.value, setting.origin);
        }
        properties
    }
}

impl WrapperSettings {
    /// Reads the properties of a run on a store.
    pub fn read(reader: &mut Reader<'_>, info: &StoreInfo) -> WrapperSettings {
        let size = reader.size(&SIZE);
        let latency = reader.duration(&LATENCY);
        if size == 0 && !latency.is_zero() {
            reader.fault(&LATENCY, "has no effect without a buffer: set writebuffer.size");
        }
        let latency_ns = match u64::try_from(latency.as_nanos()) {
            Ok(0) | Err(_) => u64::MAX,
            Ok(ns) => ns,
        };
        let buffer = (size > 0 && !has_its_own(info)).then_some(BufferSettings { size, latency_ns });
        WrapperSettings { buffer, view: view(reader) }
    }

    /// Returns whether there is no layer.
    pub fn is_nothing(&self) -> bool {
        self.buffer.is_none() && self.view.is_none()
    }

    /// Returns the warning of an artificial lag, if there is one.
    pub fn warning(&self) -> Option<String> {
        self.view.as_ref().map(|view| {
            format!(
                "The store is made to lag on purpose: others see a write {} after its acknowledgement (visibility.delay).",
                view.law.words()
            )
        })
    }

    /// Returns the name of a property that asks for a layer, for commands that
    /// have none.
    pub fn asked_for(properties: &Properties) -> Option<&'static str> {
        PROPERTIES.properties.iter().map(|property| property.name).find(|name| properties.get(name).is_some())
    }

    /// Returns facts for the result.
    pub(super) fn describe(&self) -> Vec<(String, String)> {
        let mut facts = Vec::new();
        if let Some(BufferSettings { size, latency_ns }) = &self.buffer {
            facts.push((SIZE.name.to_owned(), format_size(*size)));
            let latency =
                if *latency_ns == u64::MAX { "without end".to_owned() } else { format_duration(*latency_ns) };
            facts.push((LATENCY.name.to_owned(), latency));
        }
        if let Some(ViewSettings { law, sees_own, seed, .. }) = &self.view {
            facts.push((DELAY.name.to_owned(), law.words()));
            facts.push((OWN.name.to_owned(), if *sees_own { "now" } else { "delayed" }.to_owned()));
            facts.push((SEED.name.to_owned(), seed.to_string()));
        }
        facts
    }
}

fn view(reader: &mut Reader<'_>) -> Option<ViewSettings> {
    let law = reader.optional_text(&DELAY).filter(|text| !text.trim().is_empty());
    let (sees_own, seed) = (reader.choice(&OWN) == "now", reader.count(&SEED));
    let log = reader.path(&LOG);
    let Some(text) = law else {
        for property in [&OWN, &SEED, &LOG] {
            if reader.given(property) {
                reader.fault(property, "has no effect without visibility.delay");
            }
        }
        return None;
    };
    match DelayLaw::parse(&text) {
        Ok(law) => Some(ViewSettings { law, sees_own, seed, log }),
        Err(problem) => {
            reader.fault(&DELAY, format!("{problem}: use constant:50ms or exponential:50ms"));
            None
        }
    }
}
