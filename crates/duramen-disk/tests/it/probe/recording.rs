//! Recorded machines: one text file each, unpacked into a directory of its own.
//!
//! Format: `fixtures/probe/README.md`.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use duramen_disk::FileSystem;
use duramen_disk::probe::{DeviceNumber, Host, Inodes, Kernel, PathFacts, Report, Roots, probe};

/// The entry at a path of a recorded tree.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Entry {
    Text(Vec<u8>),
    Link(PathBuf),
}

/// A machine, as described in its file.
#[derive(Debug, Clone)]
pub(super) struct Recording {
    pub(super) entries: BTreeMap<String, Entry>,
    pub(super) kernel: RecordedKernel,
}

/// The recorded kernel's results; any other path does not exist.
#[derive(Debug, Clone, Default)]
pub(super) struct RecordedKernel(pub(super) HashMap<PathBuf, PathFacts>);

impl Kernel for RecordedKernel {
    fn path_facts(&self, path: &Path) -> io::Result<PathFacts> {
        self.0.get(path).cloned().ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

/// A recording in a directory, removed with it.
pub(super) struct Unpacked {
    pub(super) root: tempfile::TempDir,
    pub(super) host: Host,
}

pub(super) fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/probe")
}

/// Every recorded machine, by the name of its file, with the path to probe: the first that its kernel knows.
pub(super) fn all() -> Vec<(String, PathBuf)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder()).unwrap() {
        let path = entry.unwrap().path();
        let text = fs::read_to_string(&path).unwrap();
        let first = text.lines().find_map(|line| line.strip_prefix("kernel ")?.split_once('\t'));
        if let Some((asked, _)) = first.filter(|_| path.extension().is_some_and(|ending| ending == "txt")) {
            let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
            found.push((name, PathBuf::from(asked)));
        }
    }
    found.sort();
    assert!(found.len() >= 15, "only {} recordings were found", found.len());
    found
}

impl Recording {
    pub(super) fn load(name: &str) -> Recording {
        let mut recording = Recording { entries: BTreeMap::new(), kernel: RecordedKernel::default() };
        recording.read(&format!("{name}.txt"));
        recording
    }

    fn read(&mut self, file: &str) {
        let text = fs::read_to_string(folder().join(file)).unwrap();
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            if let Some(other) = line.strip_prefix("include ") {
                self.read(other);
            } else if let Some(rest) = line.strip_prefix("kernel ") {
                let (path, words) = rest.split_once('\t').unwrap();
                self.kernel.0.insert(PathBuf::from(path), path_facts(words));
            } else if let Some((path, text)) = line.split_once('\t') {
                self.set(path, &text.replace("\\n", "\n"));
            } else {
                let (path, target) = line.split_once(" -> ").unwrap_or_else(|| panic!("{file}: {line}"));
                self.entries.insert(path.to_owned(), Entry::Link(PathBuf::from(target)));
            }
        }
    }

    /// Sets the text of a file. Files of `/sys` end with a newline.
    pub(super) fn set(&mut self, path: &str, text: &str) {
        self.entries.insert(path.to_owned(), Entry::Text(format!("{text}\n").into_bytes()));
    }

    /// The only path with this ending.
    pub(super) fn path_of(&self, ending: &str) -> String {
        let mut found = self.entries.keys().filter(|path| path.ends_with(ending));
        let path = found.next().unwrap_or_else(|| panic!("no {ending}")).clone();
        assert_eq!(found.next(), None, "{ending} is not the only one");
        path
    }

    pub(super) fn unpack(&self) -> Unpacked {
        let root = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        for (path, entry) in &self.entries {
            let place = root.path().join(path);
            fs::create_dir_all(place.parent().unwrap()).unwrap();
            match entry {
                Entry::Text(bytes) => fs::write(&place, bytes).unwrap(),
                Entry::Link(target) => std::os::unix::fs::symlink(target, &place).unwrap(),
            }
        }
        let roots = Roots { sys: root.path().join("sys"), proc: root.path().join("proc") };
        Unpacked { host: Host::recorded(roots, Box::new(self.kernel.clone())), root }
    }

    pub(super) fn report(&self, path: &str) -> Report {
        probe(&self.unpack().host, Path::new(path)).unwrap()
    }
}

/// `type=ext4 device=8:1 mount=36 block=4096 free=10 total=20 inodes=1/2`; optionally `special=8:2 nocow=1`.
fn path_facts(words: &str) -> PathFacts {
    let words: HashMap<&str, &str> =
        words.split(' ').map(|word| word.split_once('=').unwrap_or_else(|| panic!("{word}"))).collect();
    let number = |name: &str| words[name].parse::<u64>().unwrap();
    let inodes = words["inodes"].split_once('/').unwrap();
    let inodes = Inodes { free: inodes.0.parse().unwrap(), total: inodes.1.parse().unwrap() };
    PathFacts {
        file_system: FileSystem {
            name: words["type"].to_owned(),
            network: Some(false),
            read_only: false,
            block_bytes: number("block"),
            free_bytes: number("free") * number("block"),
            total_bytes: number("total") * number("block"),
        },
        device: DeviceNumber::parse(words["device"]),
        special_device: words.get("special").and_then(|text| DeviceNumber::parse(text)),
        mount_id: Some(number("mount")),
        inodes: Some(inodes).filter(|inodes| inodes.total > 0),
        direct: None,
        atomic_write_bytes_max: None,
        no_copy_on_write: words.get("nocow").map(|text| *text == "1"),
    }
}
