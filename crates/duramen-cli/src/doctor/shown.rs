//! The findings as text, layer by layer: what was found, what it means, what to do.

use duramen::probe::{Device, Fact, Layer, Mounted, Part, Trust};
use duramen_lab::measure::Strategy;

use super::facts::{cache_name, kind_name, medium_name, trust_name};
use super::{Examined, Findings, advice, build};
use crate::bench::table;
use crate::numbers::{bytes, grouped};
use crate::output::printable;

/// The most that a sync of a 4 KiB record writes by itself: record, metadata and journal, twice in a mirror.
const ALONE_BYTES_MAX: f64 = 64.0 * 1024.0;

/// The lines of the report: the verdict last, except for advice and budget.
pub(super) fn lines(findings: &Findings) -> Vec<String> {
    let mut lines = Vec::new();
    lines.extend(where_it_lies(&findings.examined).iter().map(|(name, text)| field(name, text)));
    lines.push(field("build", &build::this().describe()));
    lines.extend(build::this().warning().map(|warning| field("", &warning)));
    measured(findings, &mut lines);
    levels(findings, &mut lines);
    verdict(findings, &mut lines);
    advised(findings, &mut lines);
    lines.extend(budget(findings).map(|text| field("budget", &text)));
    lines
}

/// Expected commit rates.
///
/// A single writer waits for a sync per commit. Sixteen share syncs: during one sync the others gather, so
/// that at least half of them are in the next.
fn budget(findings: &Findings) -> Option<String> {
    if findings.examined.verdict.trust == Trust::Unsafe {
        return Some("no durable commits here".to_owned());
    }
    let budget = findings.budget()?;
    Some(format!(
        "about {} durable commits/s from one writer ({}); from 16, who share syncs, at a guess {}: that was not measured",
        grouped(budget.alone),
        budget.way.name(),
        grouped(budget.together_guess)
    ))
}

fn field(name: &str, text: &str) -> String {
    format!("{name:<10}{}", printable(text))
}

/// Names and texts; a name is empty where the previous text continues.
pub(super) fn where_it_lies(examined: &Examined) -> Vec<(&'static str, String)> {
    let report = &examined.report;
    let mut told = vec![("directory", report.path.display().to_string())];
    for Layer { depth, part } in &report.layers {
        let indent = "  ".repeat(*depth as usize);
        let (name, text) = match part {
            Part::Mounted(mounted) => ("on", mounted_line(mounted)),
            Part::Device(device) => ("device", device_line(device)),
        };
        told.push((name, format!("{indent}{text}")));
    }
    told.extend(report.gaps.iter().map(|gap| ("unseen", gap.clone())));
    told.push(("direct", direct_line(examined)));
    let space = &report.space;
    if let (Some(free), Some(total)) = (space.free_bytes.value, space.total_bytes.value) {
        told.push(("space", format!("{} free of {}", bytes(free), bytes(total))));
    }
    let machine = &report.machine;
    let is = |given: &Fact<bool>, word: &str| given.is(&true).then(|| word.to_owned());
    let mut parts: Vec<String> =
        machine.kernel_release.value.iter().map(|release| format!("kernel {release}")).collect();
    parts.extend(machine.memory_bytes.value.map(|count| format!("{} of memory", bytes(count))));
    parts.extend(is(&machine.hypervisor, "a virtual machine"));
    parts.extend(is(&machine.container, "inside a container"));
    told.push(("machine", parts.join(", ")));
    told
}

/// The required alignment of direct writes.
fn direct_line(examined: &Examined) -> String {
    let direct = examined.direct();
    match direct.value {
        Some(align) if align.offset_bytes == 0 => format!("O_DIRECT is refused ({})", direct.source),
        Some(align) => format!(
            "O_DIRECT wants memory aligned to {} bytes, offset and length to {} ({})",
            align.memory_bytes, align.offset_bytes, direct.source
        ),
        None => format!("what O_DIRECT wants is unknown: {}", direct.source),
    }
}

fn mounted_line(mounted: &Mounted) -> String {
    let system = mounted.file_system.value.as_deref().unwrap_or("unknown file system");
    let point = mounted.mount_point.value.as_ref().map(|point| format!(" at {}", point.display()));
    let from = mounted.mounted_from.value.as_ref().map(|from| format!(" from {from}"));
    let options = mounted.options.value.as_ref().map(|options| format!(" ({})", options.join(",")));
    let journal = if mounted.journal.is(&false) { ", no journal" } else { "" };
    let parts = [point, from, options].into_iter().flatten().collect::<String>();
    format!("{system}{parts}{journal}")
}

fn device_line(device: &Device) -> String {
    let mut parts = vec![kind_name(&device.kind)];
    parts.extend(device.model.value.clone());
    parts.extend(device.medium.value.map(|medium| medium_name(medium).to_owned()));
    parts.extend(device.size_bytes.value.map(bytes));
    parts.push(match device.write_cache.value {
        Some(cache) => format!("cache {}", cache_name(cache)),
        None => "cache unknown".to_owned(),
    });
    parts.push(match device.fua.value {
        Some(true) => "FUA".to_owned(),
        Some(false) => "no FUA".to_owned(),
        None => "FUA unknown".to_owned(),
    });
    parts.extend(device.rotational.is(&true).then(|| "rotating".to_owned()));
    let blocks = (device.logical_block_bytes.value, device.physical_block_bytes.value);
    if let (Some(logical), Some(physical)) = blocks {
        parts.push(format!("blocks {logical}/{physical}"));
    }
    parts.extend(device.scheduler.value.as_ref().map(|scheduler| format!("scheduler {scheduler}")));
    format!("{}: {}", device.name, parts.join(", "))
}

fn measured(findings: &Findings, lines: &mut Vec<String>) {
    if let Some(why) = findings.unmeasured() {
        lines.push(field("syncs", &format!("not measured: {why}")));
    } else {
        lines.push(format!("syncs of 4 KiB records, {} rounds", super::ROUNDS));
        lines.extend(table::of(&findings.rows()).to_string().lines().map(str::to_owned));
        lines.push(table::counters(&findings.counted_by));
    }
    let Some(witness) = &findings.examined.witness else { return };
    let burst = &witness.burst;
    let count =
        |given: Option<f64>| given.map_or_else(|| "not counted".to_owned(), |count| format!("{count:.1}"));
    let text = format!(
        "{} syncs; the disks counted for each: flushes {}, writes {}, KiB {}",
        burst.commits,
        count(burst.flushes_per_sync()),
        count(burst.writes_per_sync()),
        count(burst.bytes_per_sync().map(|bytes| bytes / 1024.0))
    );
    lines.push(field("witness", &text));
    lines.extend(others(burst.bytes_per_sync()).map(|text| field("", text)));
}

/// What the count of written bytes means for the times: it includes the writes of all programs. A sync of a
/// 4 KiB record makes one write of it, and some file systems one of metadata and a journal.
fn others(bytes_per_sync: Option<f64>) -> Option<&'static str> {
    Some(match bytes_per_sync? {
        bytes if bytes >= ALONE_BYTES_MAX => {
            "other programs write to this disk now: the times above are too long; measure again when it is quiet"
        }
        _ => "no other program wrote much meanwhile: the times above are those of the disk",
    })
}

/// Which failure each level survives here.
fn levels(findings: &Findings, lines: &mut Vec<String>) {
    let disk = match findings.examined.verdict.trust {
        Trust::Unsafe => "does NOT survive a power cut here",
        Trust::Unknown => "survives a power cut only if what cannot be seen below honours flush",
        Trust::Plausible | Trust::Verified => "survives a power cut, if the disk honours flush",
    };
    lines.push(field("levels", "memory: survives nothing; process: survives kill -9, not a power cut"));
    lines.push(field("", &format!("disk: {disk}")));
}

fn verdict(findings: &Findings, lines: &mut Vec<String>) {
    let name = trust_name(findings.examined.verdict.trust).to_uppercase();
    let cannot_keep = findings.cannot_keep();
    let said = cannot_keep.map_or_else(String::new, |why| format!("; level disk cannot be kept: {why}"));
    lines.push(field("verdict", &format!("{name}: {}{said}", findings.examined.verdict.reason)));
    let flush = findings.summary(Strategy::ZeroedFdatasync);
    if let (Some(sync), Some(write)) = (flush, findings.summary(Strategy::NoSync))
        && findings.examined.verdict.trust >= Trust::Unknown
    {
        let times = sync.p50 / write.p50.max(1);
        let text = format!("a sync takes {times}x as long as a write: something below really waits");
        lines.extend((times >= 5).then(|| field("", &text)));
    }
    lines.extend(findings.examined.other_weaknesses().map(|reason| field("", reason)));
    lines.push(field("", "no test without cutting the power can prove that a disk keeps what it flushed"));
}

fn advised(findings: &Findings, lines: &mut Vec<String>) {
    for advice in advice::of(&findings.examined.report, &findings.examined.verdict) {
        lines.push(field("advice", &advice.about));
        lines.extend(advice.steps.iter().map(|step| field("", &format!("  {step}"))));
        lines.push(field("", &format!("  costs: {}", advice.cost)));
    }
}

#[cfg(test)]
mod tests {
    //! A count of bytes must lead to a conclusion.
    use super::*;

    #[test]
    fn writes_of_other_programs_make_the_times_doubtful() {
        assert_eq!(others(None), None, "a disk without counts tells nothing");
        assert!(others(Some(5.9 * 1024.0)).is_some_and(|text| text.contains("no other program")));
        assert!(others(Some(300.0 * 1024.0)).is_some_and(|text| text.contains("measure again")));
    }
}
