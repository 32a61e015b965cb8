//! Some file systems refuse a generic word in mount(2)'s data, others accept it: each word must become its
//! flag.

use nix::mount::MsFlags;

use super::flags_and_data;

fn check(options: &str, flags: MsFlags, data: &str) {
    assert_eq!(flags_and_data(options), (flags, data.to_owned()), "{options}");
}

#[test]
fn each_generic_word_is_its_flag_and_nothing_else() {
    let words = [
        ("ro", MsFlags::MS_RDONLY, "rw"),
        ("noatime", MsFlags::MS_NOATIME, "atime"),
        ("nodiratime", MsFlags::MS_NODIRATIME, "diratime"),
        ("relatime", MsFlags::MS_RELATIME, "norelatime"),
        ("strictatime", MsFlags::MS_STRICTATIME, "nostrictatime"),
        ("nodev", MsFlags::MS_NODEV, "dev"),
        ("nosuid", MsFlags::MS_NOSUID, "suid"),
        ("noexec", MsFlags::MS_NOEXEC, "exec"),
        ("sync", MsFlags::MS_SYNCHRONOUS, "async"),
        ("lazytime", MsFlags::MS_LAZYTIME, "nolazytime"),
    ];
    for (word, flag, opposite) in words {
        check(word, flag, "");
        check(opposite, MsFlags::empty(), "");
        check(&format!("{word},{opposite}"), MsFlags::empty(), "");
        check(&format!("{opposite},{word}"), flag, "");
    }
    check("dirsync", MsFlags::MS_DIRSYNC, "");
    check("defaults", MsFlags::empty(), "");
}

/// Two of them at once would leave the choice to the kernel.
#[test]
fn the_last_word_about_access_times_holds() {
    check("noatime,strictatime", MsFlags::MS_STRICTATIME, "");
    check("strictatime,relatime,noatime", MsFlags::MS_NOATIME, "");
    check("nodiratime,relatime", MsFlags::MS_NODIRATIME.union(MsFlags::MS_RELATIME), "");
}

#[test]
fn all_other_words_reach_the_file_system_in_their_order() {
    check("", MsFlags::empty(), "");
    check("nouuid,,noatime,commit=7,data=journal,", MsFlags::MS_NOATIME, "nouuid,commit=7,data=journal");
    check("synchronous,ro=1", MsFlags::empty(), "synchronous,ro=1");
}
