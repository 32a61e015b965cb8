//! What a registry shows of the crates that will be published: manifests, READMEs, licences, features.
//!
//! Sizes are checked by `scripts/packages`, which packs them.

/// The crates that will be published, once the format of documents is fixed.
pub(crate) const PUBLISHED_LATER: &[&str] =
    &["duramen-disk", "duramen-engine", "duramen-derive", "duramen", "duramen-lab", "duramen-cli"];

/// What says that a crate of this repository may not be published, and why.
const NOT_YET: &str = "# No crate is published before the format of documents is fixed: what a registry has, people have data in.\n\
     publish = false\n";

/// What every README says for as long as nothing is published.
const NOT_THERE_YET: &str = "not on crates.io yet";

/// A registry's bounds for keywords.
const KEYWORDS_MAX: usize = 5;
const KEYWORD_CHARS_MAX: usize = 20;

/// One crate as the registry will have it.
#[derive(Clone)]
pub(crate) struct Package {
    pub(crate) name: String,
    pub(crate) manifest: String,
    pub(crate) readme: String,
    /// `src/lib.rs`, or `src/main.rs` of a program.
    pub(crate) root: String,
}

/// Takes the manifest of the workspace, and those of all crates as (path, text).
pub(crate) fn publishing_violations(workspace: &str, manifests: &[(String, String)]) -> Vec<String> {
    let mut found = Vec::new();
    if !workspace.contains(NOT_YET) {
        found.push(format!(
            "Cargo.toml: nothing is published before the format of documents is fixed; put there:\n{NOT_YET}"
        ));
    }
    for (path, text) in manifests {
        let package = section(text, "package");
        let is_kept = |line: &&str| ["publish.workspace = true", "publish = false"].contains(line);
        if package.lines().filter(|line| line.starts_with("publish")).filter(is_kept).count() != 1 {
            found.push(format!("{path}: want `publish.workspace = true`, or `publish = false` for ever"));
        }
    }
    found
}

/// What the manifest lacks that a registry or the documentation's host asks for.
pub(crate) fn manifest_violations(package: &Package) -> Vec<String> {
    let (name, text) = (&package.name, &package.manifest);
    let mut found = Vec::new();
    let fields = section(text, "package");
    for wanted in [
        "description = \"",
        "license.workspace = true",
        "repository.workspace = true",
        "rust-version.workspace = true",
        "publish.workspace = true",
        "readme = \"README.md\"",
        "keywords = [",
        "categories = [",
        "include = [",
    ] {
        if !fields.lines().any(|line| line.starts_with(wanted)) {
            found.push(format!("{name}: no `{wanted}` under [package]"));
        }
    }
    let keywords: Vec<&str> = fields
        .lines()
        .find_map(|line| line.strip_prefix("keywords = "))
        .map(|list| list.split('"').skip(1).step_by(2).collect())
        .unwrap_or_default();
    if keywords.len() > KEYWORDS_MAX || keywords.iter().any(|word| word.len() > KEYWORD_CHARS_MAX) {
        found.push(format!(
            "{name}: a registry takes {KEYWORDS_MAX} keywords of {KEYWORD_CHARS_MAX} characters: {keywords:?}"
        ));
    }
    let host = section(text, "package.metadata.docs.rs");
    if !text.contains("[[bin]]") && !host.contains("rustdoc-args = [\"--cfg\", \"docsrs\"]") {
        found.push(format!("{name}: [package.metadata.docs.rs] does not set `docsrs`"));
    }
    found
}

/// Links that a registry's page cannot follow, or that name nothing here. `exists` takes a path from the
/// root of the repository.
pub(crate) fn readme_violations(
    package: &Package,
    repository: &str,
    exists: &dyn Fn(&str) -> bool,
) -> Vec<String> {
    let name = &package.name;
    let mut found = Vec::new();
    if !package.readme.contains(NOT_THERE_YET) {
        found.push(format!("{name}: its README does not say that it is {NOT_THERE_YET}"));
    }
    for target in targets(&package.readme) {
        let inside = target.strip_prefix(repository).and_then(|rest| rest.strip_prefix("/blob/HEAD/"));
        if !target.starts_with("https://") {
            found.push(format!(
                "{name}: its README links to {target}, which a registry's page does not have: write \
                 {repository}/blob/HEAD/..."
            ));
        } else if let Some(path) = inside
            && !exists(path.split('#').next().unwrap_or_default())
        {
            found.push(format!("{name}: its README links to {path}, which is not in the repository"));
        } else if inside.is_none() && target.starts_with(repository) && target != repository {
            found.push(format!("{name}: its README links to {target}: write {repository}/blob/HEAD/..."));
        }
    }
    found
}

/// Features without a row in the table of the crate's documentation, and rows without a feature.
pub(crate) fn feature_violations(package: &Package) -> Vec<String> {
    let name = &package.name;
    let features: Vec<&str> = section(&package.manifest, "features")
        .lines()
        .filter_map(|line| line.split_once(" = ["))
        .map(|(feature, _)| feature)
        .filter(|feature| !feature.starts_with('#'))
        .collect();
    let documented = documented_features(&package.root);
    let missing = features.iter().filter(|feature| !documented.contains(feature));
    let unknown = documented.iter().filter(|feature| !features.contains(feature));
    let missing =
        missing.map(|feature| format!("{name}: the table under `//! # Features` lacks `{feature}`"));
    let unknown = unknown.map(|feature| format!("{name}: `{feature}` is documented and is no feature"));
    missing.chain(unknown).collect()
}

/// The first cells of the table under `//! # Features`, without their backquotes.
fn documented_features(root: &str) -> Vec<&str> {
    let text = root.split_once("//! # Features\n").map_or("", |(_, rest)| rest);
    let lines = text.lines().take_while(|line| line.starts_with("//!") && !line.starts_with("//! #"));
    lines.filter_map(|line| line.strip_prefix("//! | `")?.split('`').next()).collect()
}

/// The lines of a table of a manifest.
fn section<'text>(manifest: &'text str, name: &str) -> &'text str {
    let header = format!("[{name}]\n");
    let text = match manifest.strip_prefix(&header) {
        Some(text) => text,
        None => manifest.split_once(&format!("\n{header}")).map_or("", |(_, text)| text),
    };
    text.split_once("\n[").map_or(text, |(section, _)| section)
}

/// Where the links and images of a page lead: inline ones and references, outside of code.
fn targets(markdown: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut in_code = false;
    for line in markdown.lines() {
        in_code ^= line.starts_with("```");
        if in_code {
            continue;
        }
        found.extend(line.split("](").skip(1).filter_map(|rest| rest.split([')', ' ']).next()));
        if line.starts_with('[') {
            found.extend(line.split_once("]: ").map(|(_, target)| target.trim()));
        }
        for attribute in ["src=\"", "href=\""] {
            found.extend(line.split(attribute).skip(1).filter_map(|rest| rest.split('"').next()));
        }
    }
    found
}

#[cfg(test)]
fn whole() -> Package {
    let manifest = "[package]\nname = \"x\"\ndescription = \"X\"\nlicense.workspace = true\n\
                    repository.workspace = true\nrust-version.workspace = true\npublish.workspace = true\n\
                    readme = \"README.md\"\nkeywords = [\"a\", \"b\"]\ncategories = [\"c\"]\n\
                    include = [\"/src\"]\n\n[package.metadata.docs.rs]\n\
                    rustdoc-args = [\"--cfg\", \"docsrs\"]\n\n[features]\n# Why.\nfast = []\n\n[dependencies]\n";
    let root =
        "//! X.\n//!\n//! # Features\n//!\n//! | feature | adds |\n//! |---|---|\n//! | `fast` | y |\n";
    Package {
        name: "x".to_owned(),
        manifest: manifest.to_owned(),
        readme: "X is not on crates.io yet. [A](https://example.org/x/blob/HEAD/a.md)\n".to_owned(),
        root: root.to_owned(),
    }
}

#[cfg(test)]
fn violations(package: &Package) -> Vec<String> {
    let mut found = manifest_violations(package);
    found.extend(readme_violations(package, "https://example.org/x", &|path| path == "a.md"));
    found.extend(feature_violations(package));
    found
}

#[test]
fn a_manifest_that_lacks_something_is_found() {
    assert_eq!(violations(&whole()), Vec::<String>::new());
    let check = |from: &str, to: &str| {
        let manifest = whole().manifest.replacen(from, to, 1);
        assert_eq!(violations(&Package { manifest, ..whole() }).len(), 1, "{from}");
    };
    check("description = \"X\"\n", "");
    check("readme = \"README.md\"\n", "");
    check("include = [", "exclude = [");
    check("\"docsrs\"", "\"other\"");
    check("[\"a\", \"b\"]", "[\"a\", \"b\", \"c\", \"d\", \"e\", \"f\"]");
    check("\"b\"", "\"longer-than-a-registry-takes\"");
    check("fast = []\n", "fast = []\nfaster = [\"fast\"]\n");
    check("fast = []\n", "");
}

#[test]
fn a_link_that_breaks_on_a_registry_is_found() {
    let check = |added: &str, count: usize| {
        let readme = format!("{}{added}\n", whole().readme);
        let found = violations(&Package { readme, ..whole() });
        assert_eq!(found.len(), count, "{added}: {found:?}");
    };
    check("[b](https://example.org/other)", 0);
    check("[b](docs/b.md)", 1);
    check("![b](b.png) and <img src=\"c.png\">", 2);
    check("[b]: docs/b.md", 1);
    check("[b](https://example.org/x/blob/HEAD/b.md)", 1);
    check("[b](https://example.org/x/blob/HEAD/a.md#part)", 0);
    check("[b](https://example.org/x/tree/main/a.md)", 1);
    check("```\n[b](docs/b.md)\n```", 0);
    let readme = "X.\n".to_owned();
    assert_eq!(
        violations(&Package { readme, ..whole() }).len(),
        1,
        "it does not say that it is not there yet"
    );
}

#[test]
fn a_crate_that_could_be_published_is_found() {
    let count = |workspace: &str, manifest: &str| {
        publishing_violations(workspace, &[("Cargo.toml".to_owned(), manifest.to_owned())]).len()
    };
    let kept = "[package]\npublish.workspace = true\n";
    assert_eq!(count(NOT_YET, kept), 0);
    assert_eq!(count(NOT_YET, "[package]\npublish = false\n"), 0);
    assert_eq!(count(NOT_YET, "[package]\n"), 1);
    assert_eq!(count(NOT_YET, "[package]\npublish = true\n"), 1);
    assert_eq!(count("publish = true\n", kept), 1);
}
