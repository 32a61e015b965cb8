//! A page contains what it was given, whatever that is, and nothing else.

use crate::report::{
    Axis, Bar, Bars, Cell, Histogram, Histograms, Line, Lines, Page, Section, Table, Tone, Unit, escape,
};

/// Strings that try to end the element or attribute that contains them.
const HOSTILE: [&str; 5] = [
    "</script><script>alert(1)</script>",
    "\"><img src=x onerror=alert(1)>",
    "'); }</style><!--",
    "&lt;b&gt; & <b>",
    "a\u{202e}txt.exe\u{0}\u{1b}[31m",
];

fn page_of(given: &str) -> String {
    let lines = Lines::new(given, Axis::log(given, Unit::Bytes), Axis::linear(given, Unit::PerSecond))
        .line(Line::new(given, [(1.0, 2.0), (10.0, 4.0)]).ranges([(1.0, 1.0, 3.0), (10.0, 3.0, 5.0)]))
        .line(Line::new(given, [(1.0, f64::NAN)]).dashed())
        .mark(10.0, given)
        .level(3.0, given);
    let histograms = Histograms::new(given, given, Unit::Nanoseconds)
        .histogram(Histogram::new(given, [1e3, 2e3, 1e6]).note(Tone::Bad, given).mark(1e6, given));
    let bars =
        Bars::new(given, Unit::Count).group(given, [Bar::new(given, 7.0).note(Tone::Warn, given).colour(9)]);
    let table = Table::new([given, given])
        .caption(given)
        .words(1)
        .toned(Tone::Good, [given.into(), Cell::from(given).bar(0.5)]);
    let section = Section::new(given)
        .text(given)
        .note(Tone::Bad, given, given)
        .facts([(given, given)])
        .code(given)
        .table(table.clone())
        .folded(given, table)
        .lines(lines)
        .histograms(histograms)
        .bars(bars);
    let json = format!("{{\"text\":\"{}\"}}", given.replace('"', "\\\""));
    Page::new(given, given).section(section).footer(given).data(json).to_html()
}

/// The names of the elements of a page, in order.
fn elements(html: &str) -> Vec<&str> {
    let starts = html.split('<').skip(1);
    starts
        .map(|rest| {
            rest.split(|character: char| !character.is_ascii_alphanumeric() && character != '/')
                .next()
                .unwrap_or("")
        })
        .collect()
}

#[test]
fn hostile_words_make_no_element() {
    let harmless = page_of("harmless");
    for given in HOSTILE {
        let html = page_of(given);
        assert_eq!(elements(&html), elements(&harmless), "{given}");
        assert_eq!(html.matches("</script").count(), 1, "{given}");
        assert_eq!(html.matches("</style").count(), 1, "{given}");
        assert!(!html.contains('\u{202e}') && !html.contains('\u{0}') && !html.contains('\u{1b}'), "{given}");
    }
}

#[test]
fn nothing_is_loaded_from_elsewhere() {
    let html = page_of("harmless");
    for word in ["http://", "https://", "src=", "href=", "url(", "@import", "javascript:"] {
        assert!(!html.contains(word), "{word}");
    }
    assert!(html.contains("default-src 'none'"));
}

#[test]
fn text_and_json_are_escaped_as_their_places_want_it() {
    for (given, expected) in [
        ("a < b & \"c\"'", "a &lt; b &amp; &quot;c&quot;&#39;"),
        ("två µs\n", "två µs\n"),
        ("\u{7}\u{202e}", "\\u{7}\\u{202e}"),
        ("&amp;", "&amp;amp;"),
    ] {
        assert_eq!(escape::text(given), expected);
    }
    assert_eq!(
        escape::json("{\"a\":\"</script>&\u{2028}\"}"),
        "{\"a\":\"\\u003c/script\\u003e\\u0026\\u2028\"}"
    );
}

#[test]
fn a_drawing_has_only_numbers_for_coordinates() {
    for html in [page_of("harmless"), page_of("NaN")] {
        let paths = html.split(" d=\"").skip(1).map(|rest| rest.split('"').next().unwrap_or(""));
        for path in paths {
            assert!(path.chars().all(|character| "MLHVZh.- 0123456789".contains(character)), "{path}");
        }
    }
}

#[test]
fn numbers_are_written_in_the_unit_that_fits() {
    for (unit, value, expected) in [
        (Unit::Nanoseconds, 999.0, "999 ns"),
        (Unit::Nanoseconds, 999.6, "1 µs"),
        (Unit::Nanoseconds, 1_500.0, "1.5 µs"),
        (Unit::Nanoseconds, 12_345_678.0, "12.3 ms"),
        (Unit::Nanoseconds, 9e12, "9,000 s"),
        (Unit::Bytes, 1024.0, "1 KiB"),
        (Unit::Bytes, 104_857_600.0, "100 MiB"),
        (Unit::PerSecond, 1_234_567.0, "1,234,567/s"),
        (Unit::Count, -1234.5, "-1,234"),
        (Unit::Percent, 0.05, "0.05 %"),
        (Unit::Count, f64::NAN, "?"),
        (Unit::Count, 0.0, "0"),
    ] {
        assert_eq!(unit.text(value), expected);
    }
}
