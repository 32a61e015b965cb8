//! The findings as JSON: every fact with its source, `null` where it is unknown.

use std::path::Path;

use duramen::probe::{
    Burst, Device, DeviceKind, Fact, Layer, Medium, MemoryLimit, Mounted, Part, Report, Trust, Weakness,
    WriteCache,
};
use duramen::{Document, Value, doc};

use super::advice::{self, Advice};
use super::{Findings, build};
use crate::bench::strategies::{counters_as_json, row_as_json};

/// Everything, in one document.
pub(super) fn of(findings: &Findings) -> Document {
    let examined = &findings.examined;
    let report = &examined.report;
    let why_not = findings.cannot_keep();
    let mut out = doc! {
        "directory": report.path.display().to_string(),
        "verdict": doc! {
            "trust": trust_name(examined.verdict.trust),
            "reason": examined.verdict.reason.as_str(),
            "keeps_disk": why_not.is_none(),
            "why_not": why_not.map_or(Value::Null, Value::from),
        },
        "layers": list(&report.layers, layer),
        "gaps": report.gaps.iter().map(|gap| Value::from(gap.as_str())).collect::<Vec<_>>(),
        "weaknesses": list(&report.weaknesses, weakness),
        "space": space(report),
        "direct": fact(examined.direct(), |align| Value::Map(doc! {
            "memory_bytes": u64::from(align.memory_bytes),
            "offset_bytes": u64::from(align.offset_bytes),
        })),
        "atomic_write_bytes_max": number(examined.atomic_write_bytes_max()),
        "machine": machine(report),
        "build": build_facts(),
        "advice": list(&advice::of(report, &examined.verdict), advice_as_json),
    };
    if let Some(witness) = &examined.witness {
        out.set("witness", burst(&witness.burst));
    }
    if let Some(why) = findings.unmeasured() {
        out.set("not_measured", why);
    }
    out.set("syncs", list(&findings.rows(), row_as_json));
    out.set("device_counters", counters_as_json(&findings.counted_by));
    if let Some(budget) = findings.budget() {
        out.set(
            "budget",
            doc! {
                "way": budget.way.name(),
                "commits_a_second_alone": budget.alone,
                "commits_a_second_16_writers_guess": budget.together_guess,
            },
        );
    }
    out
}

fn list<T>(items: &[T], each: impl Fn(&T) -> Document) -> Vec<Value> {
    items.iter().map(|item| Value::Map(each(item))).collect()
}

fn fact<T>(fact: &Fact<T>, value: impl Fn(&T) -> Value) -> Value {
    let told = fact.value.as_ref().map_or(Value::Null, value);
    Value::Map(doc! { "value": told, "source": fact.source.as_str() })
}

fn number(given: &Fact<u64>) -> Value {
    fact(given, |value| Value::from(*value))
}

fn flag(given: &Fact<bool>) -> Value {
    fact(given, |value| Value::from(*value))
}

fn text(given: &Fact<String>) -> Value {
    fact(given, |value| Value::from(value.as_str()))
}

fn path(path: &Path) -> Value {
    Value::from(path.display().to_string())
}

fn layer(layer: &Layer) -> Document {
    let mut out = doc! { "depth": u64::from(layer.depth) };
    match &layer.part {
        Part::Mounted(mounted) => mounted_facts(mounted, &mut out),
        Part::Device(device) => device_facts(device, &mut out),
    }
    out
}

fn mounted_facts(mounted: &Mounted, out: &mut Document) {
    out.set("kind", "file system");
    out.set("path", path(&mounted.path));
    out.set("file_system", text(&mounted.file_system));
    out.set("class", format!("{:?}", mounted.class).to_lowercase());
    out.set("mount_point", fact(&mounted.mount_point, |point| path(point)));
    out.set("mounted_from", text(&mounted.mounted_from));
    out.set("options", fact(&mounted.options, |options| Value::from(options.join(","))));
    out.set("read_only", flag(&mounted.read_only));
    out.set("journal", flag(&mounted.journal));
    out.set("error_count", number(&mounted.error_count));
    out.set("no_copy_on_write", flag(&mounted.no_copy_on_write));
}

fn device_facts(device: &Device, out: &mut Document) {
    out.set("kind", "device");
    out.set("name", device.name.as_str());
    out.set("number", device.number.to_string());
    out.set("device", kind_name(&device.kind));
    out.set("medium", fact(&device.medium, |medium| Value::from(medium_name(*medium))));
    out.set("model", text(&device.model));
    out.set("vendor", text(&device.vendor));
    out.set("size_bytes", number(&device.size_bytes));
    out.set("read_only", flag(&device.read_only));
    out.set("write_cache", fact(&device.write_cache, |cache| Value::from(cache_name(*cache))));
    out.set("fua", flag(&device.fua));
    out.set("rotational", flag(&device.rotational));
    out.set("logical_block_bytes", number(&device.logical_block_bytes));
    out.set("physical_block_bytes", number(&device.physical_block_bytes));
    out.set("minimum_io_bytes", number(&device.minimum_io_bytes));
    out.set("optimal_io_bytes", number(&device.optimal_io_bytes));
    out.set("misaligned", flag(&device.misaligned));
    out.set("atomic_write_bytes_max", number(&device.atomic_write_bytes_max));
    out.set("scheduler", text(&device.scheduler));
}

fn space(report: &Report) -> Document {
    let space = &report.space;
    let inodes =
        fact(&space.inodes, |inodes| Value::Map(doc! { "free": inodes.free, "total": inodes.total }));
    doc! {
        "free_bytes": number(&space.free_bytes),
        "total_bytes": number(&space.total_bytes),
        "block_bytes": number(&space.block_bytes),
        "inodes": inodes,
    }
}

fn machine(report: &Report) -> Document {
    let machine = &report.machine;
    let limit = fact(&machine.memory_limit, |limit| match limit {
        MemoryLimit::Unlimited => Value::from("unlimited"),
        MemoryLimit::Bytes(bytes) => Value::from(*bytes),
    });
    doc! {
        "kernel": text(&machine.kernel_release),
        "memory_bytes": number(&machine.memory_bytes),
        "memory_available_bytes": number(&machine.memory_available_bytes),
        "memory_limit": limit,
        "container": flag(&machine.container),
        "hypervisor": flag(&machine.hypervisor),
        "sync_swallower": flag(&machine.sync_swallower),
    }
}

fn weakness(weakness: &Weakness) -> Document {
    doc! {
        "kind": format!("{:?}", weakness.kind),
        "effect": format!("{:?}", weakness.effect()),
        "reason": weakness.reason.as_str(),
        "source": weakness.source.as_str(),
        "layer": weakness.layer.map_or(Value::Null, |index| Value::from(index as u64)),
    }
}

fn advice_as_json(advice: &Advice) -> Document {
    let steps: Vec<Value> = advice.steps.iter().map(|step| Value::from(step.as_str())).collect();
    doc! { "about": advice.about.as_str(), "steps": steps, "cost": advice.cost }
}

fn burst(burst: &Burst) -> Document {
    let ratio = |ratio: Option<f64>| ratio.map_or(Value::Null, Value::from);
    doc! {
        "commits": u64::from(burst.commits),
        "flushes_per_sync": ratio(burst.flushes_per_sync()),
        "writes_per_sync": ratio(burst.writes_per_sync()),
        "bytes_per_sync": ratio(burst.bytes_per_sync()),
        "p50_ns": burst.latency.p50_ns,
    }
}

fn build_facts() -> Document {
    let build = build::this();
    let mut out = doc! {
        "version": env!("CARGO_PKG_VERSION"),
        "profile": build.profile,
        "opt_level": build.opt_level,
        "debug_assertions": build.debug_assertions,
        "target": build.target.as_str(),
    };
    if let Some(warning) = build.warning() {
        out.set("warning", warning);
    }
    out
}

pub(crate) fn trust_name(trust: Trust) -> &'static str {
    match trust {
        Trust::Unsafe => "unsafe",
        Trust::Unknown => "unknown",
        Trust::Plausible => "plausible",
        Trust::Verified => "verified",
    }
}

pub(super) fn kind_name(kind: &DeviceKind) -> String {
    let of = |name: &str, fact: &Fact<String>| match &fact.value {
        Some(value) => format!("{name} {value}"),
        None => name.to_owned(),
    };
    match kind {
        DeviceKind::Partition { .. } => "partition".to_owned(),
        DeviceKind::Loop { .. } => "loop".to_owned(),
        DeviceKind::Mapper { purpose, .. } => of("device mapper", purpose),
        DeviceKind::Md { level, .. } => of("software RAID", level),
        DeviceKind::Bcache { cache_mode } => of("bcache", cache_mode),
        DeviceKind::Zram => "zram".to_owned(),
        DeviceKind::Ram => "RAM disk".to_owned(),
        DeviceKind::Nvme { .. } => "NVMe".to_owned(),
        DeviceKind::Scsi { .. } => "SCSI or SATA".to_owned(),
        DeviceKind::Virtio => "virtio".to_owned(),
        DeviceKind::Xen => "Xen".to_owned(),
        DeviceKind::Mmc => "MMC".to_owned(),
        DeviceKind::Pmem => "persistent memory".to_owned(),
        DeviceKind::NetworkDisk => "network disk".to_owned(),
        DeviceKind::Other => "of unknown kind".to_owned(),
    }
}

pub(super) fn medium_name(medium: Medium) -> &'static str {
    match medium {
        Medium::Physical => "physical",
        Medium::Virtual => "virtual",
        Medium::Remote => "remote",
        Medium::Memory => "memory",
    }
}

pub(super) fn cache_name(cache: WriteCache) -> &'static str {
    match cache {
        WriteCache::Volatile => "volatile",
        WriteCache::WriteThrough => "write through",
    }
}
