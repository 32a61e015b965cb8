//! The bitmap against a set of blocks.

use super::*;

// A check of a hostile database: the memory for what its pages name is bounded by the space map.
#[test]
fn blocks_beyond_the_map_take_no_memory() {
    let mut used = Bitmap::default();
    used.set(0, 10);
    let blocks = TreeBlocks(used);
    let reached = [(1 << 60, 4), (u64::MAX, 1), (8, u32::MAX), (2, 3)];
    assert_eq!(blocks.map_of(&reached).end(), 10);
    assert_eq!(blocks.not_in(&reached), [(0, 2), (5, 3)]);
}

// D7: blocks freed in one call over the end of a page of the map are found on its second page, too.
#[test]
fn blocks_freed_across_pages_of_the_map_are_found() {
    let pages = u32::try_from(PAGE_BLOCKS).unwrap();
    let mut map = Bitmap::default();
    map.set(0, pages);
    map.set(PAGE_BLOCKS, pages);
    assert_eq!(map.find(1), 2 * PAGE_BLOCKS, "both pages are full, and known to be");
    map.clear(PAGE_BLOCKS - 3, 40);
    assert_eq!(map.find(37), PAGE_BLOCKS, "the longer part lies on the second page");
    assert_eq!(map.find(3), PAGE_BLOCKS - 3);
}

#[test]
fn a_bitmap_equals_a_set_and_finds_the_first_run() {
    for seed in 1..=4 {
        println!("seed {seed}");
        let mut random = Random(seed);
        let (mut map, mut set) = (Bitmap::default(), BTreeSet::new());
        for _ in 0..3000 {
            let longest = if random.below(20) == 0 { 300 } else { 8 };
            let count = u32::try_from(1 + random.below(longest)).unwrap();
            if random.below(5) < 3 {
                let block = map.find(count);
                let run = block..block + u64::from(count);
                assert!(run.clone().all(|block| !set.contains(&block)), "a run of free blocks");
                assert_eq!(block / PAGE_BLOCKS, (run.end - 1) / PAGE_BLOCKS, "within one page of the map");
                map.set(block, count);
                set.extend(run);
            } else if let Some(block) =
                set.iter().nth(usize::try_from(random.below(set.len() as u64 + 1)).unwrap())
            {
                let block = *block;
                map.clear(block, count);
                set.retain(|used| !(block..block + u64::from(count)).contains(used));
            }
            assert_eq!(map.used(), set.len() as u64);
            assert_eq!(map.end(), set.last().map_or(0, |last| last + 1));
        }
        let runs = map.runs_not_in(&Bitmap::default());
        let blocks: BTreeSet<u64> = runs.iter().flat_map(|(at, n)| *at..*at + u64::from(*n)).collect();
        assert_eq!(blocks, set);
        for count_min in [1, 2, 9] {
            let free: BTreeSet<u64> = (0..map.end()).filter(|block| !set.contains(block)).collect();
            let runs = map.free_runs(count_min);
            assert!(runs.iter().all(|(_, n)| *n >= count_min));
            let found: BTreeSet<u64> = runs.iter().flat_map(|(at, n)| *at..*at + u64::from(*n)).collect();
            assert!(found.is_subset(&free));
            let single =
                |block: &u64| !free.contains(&(block + 1)) && (*block == 0 || !free.contains(&(block - 1)));
            assert!(free.difference(&found).all(|block| count_min > 1 && (count_min > 2 || single(block))));
        }
        let mut other = Bitmap::default();
        (0..200).for_each(|count| other.set(random.below(set.len() as u64 * 2), 1 + count % 7));
        let mut left = set.clone();
        left.retain(|block| other.none_set(*block, 1));
        assert_eq!(map.without(&other).used(), left.len() as u64);
        assert_eq!(map.without(&other).end(), left.last().map_or(0, |last| last + 1));
        assert_eq!(map.end_not_in(&other), left.last().map_or(0, |last| last + 1));
        let cut = random.below(map.end());
        map.clear_from(cut);
        assert_eq!(map.used(), set.range(..cut).count() as u64);
        assert_eq!(map.end(), set.range(..cut).next_back().map_or(0, |last| last + 1));
    }
}
