//! The pure text functions, in cases that the recordings do not contain.

use super::mounts::{parse_line, unescape};
use super::tree::parse_chosen;

fn check(line: &str, expected: Option<(&str, &str, &[&str])>) {
    let found = parse_line(line);
    let shown = found.as_ref().map(|line| {
        let options: Vec<&str> = line.options.iter().map(String::as_str).collect();
        (line.point.to_str().unwrap(), line.mounted_from.as_str(), options)
    });
    assert_eq!(shown, expected.map(|(point, from, options)| (point, from, options.to_vec())), "{line}");
}

#[test]
fn lines_of_mountinfo_are_read_or_passed_over() {
    let root = "27 1 254:0 / / rw,relatime - ext4 /dev/vda rw,discard";
    check(root, Some(("/", "/dev/vda", &["rw", "relatime", "discard"])));
    let shared = "36 35 98:0 /sub /a\\040b\\134 rw shared:1 master:2 - xfs /dev/sd\\040a rw,nobarrier";
    check(shared, Some(("/a b\\", "/dev/sd a", &["rw", "nobarrier"])));
    check("36 35 98:0 / /x rw - tmpfs none", Some(("/x", "none", &["rw"])));
    check("36 35 98 / /x rw - tmpfs none rw", None);
    check("36 35 98:0 / /x - tmpfs none rw", None);
    check("a - b", None);
    check("", None);
}

/// A backslash without an octal number stays as it is, also at the end and before other bytes.
#[test]
fn escapes_that_are_none_are_kept() {
    for (escaped, plain) in
        [("a\\", "a\\"), ("\\9", "\\9"), ("\\777", "\\777"), ("é\\040é", "é é"), ("\\0é", "\\0é")]
    {
        assert_eq!(unescape(escaped), plain);
    }
}

#[test]
fn the_chosen_word_is_in_brackets_or_alone() {
    for (text, chosen) in [
        ("none [mq-deadline] bfq", Some("mq-deadline")),
        ("none", Some("none")),
        ("a b", None),
        ("", None),
        ("[]", None),
        ("] [", None),
    ] {
        assert_eq!(parse_chosen(text).as_deref(), chosen, "{text}");
    }
}
