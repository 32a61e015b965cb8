//! The tables of data/nycflights as text, for tests of this crate and of the server.

pub(crate) const FLIGHTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../data/nycflights/flights.csv.gz");

/// These cells of every flight, in the file's order.
pub(crate) fn cells<const N: usize>(wanted: [&str; N]) -> Vec<[String; N]> {
    cells_of(FLIGHTS, wanted)
}

/// These cells of every line of a table.
pub(crate) fn cells_of<const N: usize>(path: &str, wanted: [&str; N]) -> Vec<[String; N]> {
    let file = std::fs::File::open(path).unwrap();
    let text = std::io::read_to_string(flate2::read::GzDecoder::new(file)).unwrap();
    let mut lines = text.lines();
    let names: Vec<&str> = lines.next().unwrap().split(',').collect();
    let at = wanted.map(|name| names.iter().position(|known| *known == name).unwrap());
    let row = |line: &str| {
        let cells: Vec<&str> = line.split(',').collect();
        at.map(|index| cells[index].to_owned())
    };
    lines.map(row).collect()
}
