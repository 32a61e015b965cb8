//! Which crate may name which: the arrows of ARCHITECTURE.md, checked on every `Cargo.toml`.

/// Each crate of this workspace, and those it may depend on (dev- and build-dependencies included).
///
/// Nothing may depend on duramen-cli, duramen-sim, duramen-bench, duramen-powercut, duramen-nemesis or
/// tickets. `duramen` re-exports what the command line needs of the engine.
const ARROWS: &[(&str, &[&str])] = &[
    ("duramen-disk", &[]),
    ("duramen-derive", &[]),
    ("duramen-engine", &["duramen-disk"]),
    ("duramen", &["duramen-engine", "duramen-disk", "duramen-derive"]),
    ("duramen-repl", &["duramen", "duramen-engine", "duramen-disk"]),
    ("duramen-lab", &["duramen-disk"]),
    ("duramen-proto", &["duramen"]),
    ("duramen-client", &["duramen", "duramen-proto"]),
    // The client for its tests only.
    ("duramen-server", &["duramen", "duramen-proto", "duramen-client"]),
    (
        "duramen-cli",
        &["duramen", "duramen-lab", "duramen-proto", "duramen-client", "duramen-repl", "duramen-server"],
    ),
    (
        "duramen-bench",
        &[
            "duramen",
            "duramen-engine",
            "duramen-disk",
            "duramen-lab",
            "duramen-proto",
            "duramen-client",
            "duramen-server",
        ],
    ),
    ("duramen-sim", &["duramen", "duramen-engine", "duramen-repl", "duramen-disk", "duramen-derive"]),
    (
        "duramen-powercut",
        &[
            "duramen",
            "duramen-engine",
            "duramen-disk",
            "duramen-derive",
            "duramen-proto",
            "duramen-client",
            "duramen-server",
        ],
    ),
    ("duramen-nemesis", &["duramen", "duramen-disk", "duramen-proto", "duramen-client"]),
    ("tickets", &["duramen"]),
];

/// Crates that are never published.
const UNPUBLISHED: &[&str] =
    &["duramen-sim", "duramen-bench", "duramen-powercut", "duramen-nemesis", "tickets"];

/// Takes (path, text) of each crate's manifest.
pub(crate) fn violations(manifests: &[(String, String)]) -> Vec<String> {
    manifests.iter().flat_map(|(path, text)| manifest_violations(path, text)).collect()
}

fn manifest_violations(path: &str, text: &str) -> Vec<String> {
    let Some(name) = package_name(text) else {
        return vec![format!("{path}: no `name = \"...\"` under [package]")];
    };
    let Some((_, allowed)) = ARROWS.iter().find(|(known, _)| *known == name) else {
        return vec![format!("{path}: {name} is unknown: add it to ARROWS in {}", file!())];
    };
    let mut found = Vec::new();
    for dependency in our_dependencies(text) {
        // Itself: cargo allows that for tests only, to give them its features.
        if dependency != name && !allowed.contains(&dependency.as_str()) {
            found.push(format!("{path}: {name} depends on {dependency}; it may only on {allowed:?}"));
        }
    }
    if UNPUBLISHED.contains(&name.as_str()) && !text.contains("publish = false") {
        found.push(format!("{path}: {name} must say `publish = false`"));
    }
    if !text.contains("[lints]\nworkspace = true") {
        found.push(format!("{path}: {name} must inherit the lints: `[lints]` and `workspace = true`"));
    }
    found
}

fn package_name(text: &str) -> Option<String> {
    let package = text.split("[package]").nth(1)?;
    let line = package.lines().find(|line| line.starts_with("name"))?;
    line.split('"').nth(1).map(str::to_owned)
}

/// Names in every table of dependencies that are crates of this workspace, renamed ones by their real name.
fn our_dependencies(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut in_dependencies = false;
    for line in text.lines().map(|line| line.split('#').next().unwrap_or_default().trim()) {
        if let Some(table) = line.strip_prefix('[') {
            let table = table.trim_end_matches(']');
            in_dependencies = table.contains("dependencies");
            // `[dependencies.duramen-disk]`
            found.extend(
                table.rsplit_once("dependencies.").map(|(_, name)| name.trim_matches('"').to_owned()),
            );
        } else if in_dependencies {
            let key = line.split(['=', '.', ' ']).next().unwrap_or_default();
            let renamed = line.split_once("package").and_then(|(_, rest)| rest.split('"').nth(1));
            found.push(renamed.unwrap_or(key).trim_matches('"').to_owned());
        }
    }
    found.retain(|name| name == "duramen" || name.starts_with("duramen-"));
    found
}

#[cfg(test)]
fn manifest(name: &str, dependencies: &str) -> Vec<(String, String)> {
    let text = format!(
        "[package]\nname = \"{name}\"\npublish = false\n\n[lints]\nworkspace = true\n\n{dependencies}\n"
    );
    vec![("Cargo.toml".to_owned(), text)]
}

#[test]
fn an_arrow_against_the_grain_is_found() {
    let check = |name: &str, dependencies: &str, count: usize| {
        let found = violations(&manifest(name, dependencies));
        assert_eq!(found.len(), count, "{name}: {dependencies}: {found:?}");
    };
    check("duramen-engine", "[dependencies]\nduramen-disk.workspace = true\nrustix = \"1\"", 0);
    check("duramen-engine", "[dependencies]\nduramen.workspace = true", 1);
    check("duramen-engine", "[dependencies]\n# duramen.workspace = true", 0);
    check("duramen-engine", "[dev-dependencies]\nduramen-sim = { path = \"../duramen-sim\" }", 1);
    check("duramen-cli", "[dependencies]\nduramen.workspace = true\nduramen-engine.workspace = true", 1);
    check("duramen-disk", "[dependencies.duramen-engine]\nworkspace = true", 1);
    check("duramen-lab", "[dependencies]\nduramen.workspace = true", 1);
    check("duramen-disk", "[target.'cfg(unix)'.dependencies]\nengine = { package = \"duramen-engine\" }", 1);
    check("duramen-sim", "[dependencies]\nduramen-cli.workspace = true", 1);
    check("duramen-derive", "[dependencies]\nduramen.workspace = true", 1);
    check("duramen", "[dev-dependencies]\nduramen = { path = \".\", features = [\"async\"] }", 0);
    check("duramen-stranger", "", 1);
}

#[test]
fn a_manifest_without_the_lints_or_with_a_way_out_is_found() {
    let text = "[package]\nname = \"duramen-sim\"\n".to_owned();
    assert_eq!(violations(&[("Cargo.toml".to_owned(), text)]).len(), 2);
}
