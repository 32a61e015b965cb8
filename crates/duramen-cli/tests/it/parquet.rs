//! Parquet in and out, in builds with the feature `parquet`; other builds name it.

use crate::runner::Scratch;

#[cfg(not(feature = "parquet"))]
#[test]
fn a_build_without_parquet_names_its_feature() {
    let scratch = Scratch::with_rows("id\n1\n", &["--key", "id"]);
    scratch.write("rows.parquet", "PAR1");
    for words in [&["import", "db", "rows.parquet"][..], &["export", "db", "--format", "parquet"]] {
        let ran = scratch.run(&[words, &["-c", "rows"]].concat());
        assert_eq!(ran.code, Some(2), "{}", ran.stderr);
        assert!(ran.stderr.contains("--features parquet"), "{}", ran.stderr);
    }
}

#[cfg(feature = "parquet")]
mod built {
    use std::fs::File;

    use super::Scratch;
    use crate::runner::{FLIGHTS, output_into};

    fn export(scratch: &Scratch, collection: &str) {
        let words = ["export", "db", "-c", collection, "--format", "parquet"];
        let file = File::create(scratch.path("rows.parquet")).unwrap();
        let ran = output_into(&mut scratch.command(&words), file).unwrap();
        assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    }

    fn documents(scratch: &Scratch, db: &str, collection: &str) -> String {
        scratch.ok(&["export", db, "-c", collection, "--format", "ndjson"])
    }

    #[test]
    fn flights_come_out_as_they_went_in() {
        let scratch = Scratch::with_january();
        export(&scratch, "flights");
        scratch.ok(&[&["import", "again", "rows.parquet"], FLIGHTS].concat());
        assert_eq!(documents(&scratch, "again", "flights"), documents(&scratch, "db", "flights"));
    }

    /// Every type, nulls, the ends of integers, and times before 1970.
    #[test]
    fn every_type_comes_back() {
        let rows = "{\"id\":1,\"n\":9223372036854775807,\"f\":0.1,\"t\":\"é\",\"ok\":true,\
                    \"at\":\"1969-12-31T23:59:59.999999Z\",\"none\":null}\n\
                    {\"id\":2,\"n\":-9223372036854775808,\"f\":-1e300,\"t\":\"\",\"ok\":false,\
                    \"at\":\"2013-01-01T10:00:00Z\",\"none\":null}\n\
                    {\"id\":3,\"n\":null,\"f\":null,\"t\":null,\"ok\":null,\"at\":null,\"none\":null}\n";
        let scratch = Scratch::new();
        scratch.write("rows.ndjson", rows);
        let import = ["import", "db", "rows.ndjson", "-c", "rows", "--key", "id", "--type", "at=time"];
        scratch.ok(&import);
        export(&scratch, "rows");
        scratch.ok(&["import", "again", "rows.parquet", "-c", "rows", "--key", "id"]);
        assert_eq!(documents(&scratch, "again", "rows"), rows);
        scratch.ok(&["check", "again", "--deep"]);
    }

    #[test]
    fn what_does_not_fit_is_refused_on_both_ways() {
        let check = |rows: &str, words: &str| {
            let scratch = Scratch::new();
            scratch.write("rows.ndjson", rows);
            scratch.ok(&["import", "db", "rows.ndjson", "-c", "rows", "--key", "id", "--type", "at=time"]);
            let ran = scratch.run(&["export", "db", "-c", "rows", "--format", "parquet"]);
            assert!(ran.code == Some(1) && ran.stderr.contains(words), "{}", ran.stderr);
        };
        check("{\"id\":18446744073709551615,\"at\":null}\n", "the field id holds an integer beyond 63 bits");
        check("{\"id\":1,\"at\":\"2013-01-01T10:00:00.000000001Z\"}\n", "no count of microseconds");
        let scratch = Scratch::with_january();
        export(&scratch, "flights");
        let whole = std::fs::read(scratch.path("rows.parquet")).unwrap();
        for bytes in [&whole[..whole.len() - 9], &whole[4..], b"PAR1", b"", b"id,n\n1,2\n"] {
            scratch.write("bad.parquet", bytes);
            let ran = scratch.run(&[&["import", "bad", "bad.parquet"], FLIGHTS].concat());
            assert!(
                ran.code == Some(1) && ran.stderr.contains("cannot be read as Parquet"),
                "{}",
                ran.stderr
            );
            assert!(!scratch.path("bad").exists());
        }
        let words = ["import", "bad", "-", "--format", "parquet", "-c", "rows", "--key", "id"];
        let ran = scratch.run_with_input(&words, &whole);
        assert!(ran.code == Some(2) && ran.stderr.contains("no regular file"), "{}", ran.stderr);
    }
}
