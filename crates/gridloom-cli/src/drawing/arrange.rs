//! Arrangements of blocks: in rows, in columns, around a hub, or at given places.

use super::block::{Block, Side, shelves};

/// Gap between the rows at a hub, in pixels.
const GAP: f64 = 12.0;
/// Gap beside each link on a line to the hub, in pixels.
const REACH: f64 = 18.0;

/// A member, or several drawn as one, and its links towards the hub.
pub struct Row {
    pub member: Block,
    /// Links in the order from the member to the hub.
    pub links: Vec<Block>,
}

/// Arranges blocks without lines between them.
pub fn packed(blocks: &[Block]) -> Block {
    let area: f64 = blocks.iter().map(|block| (block.width + 16.0) * (block.height + 16.0)).sum();
    shelved(blocks, (area * 2.0).sqrt())
}

/// Arranges blocks in rows of about the given width.
pub fn shelved(blocks: &[Block], width_aimed: f64) -> Block {
    let sizes: Vec<(f64, f64)> = blocks.iter().map(|block| (block.width, block.height)).collect();
    let (places, size) = shelves(&sizes, width_aimed, 16.0);
    let mut all = Block::new(size.0, size.1);
    for (block, (x, y)) in blocks.iter().zip(places) {
        all.put(block, x, y);
    }
    all
}

/// Stacks blocks vertically.
pub fn stacked(blocks: &[Block], gap: f64) -> Block {
    let width = blocks.iter().map(|block| block.width).fold(0.0, f64::max);
    let height: f64 = blocks.iter().map(|block| block.height + gap).sum::<f64>() - gap;
    let (mut all, mut y) = (Block::new(width, height.max(0.0)), 0.0);
    for block in blocks {
        all.put(block, (width - block.width) / 2.0, y);
        y += block.height + gap;
    }
    all
}

/// Arranges blocks in a column, joined by lines.
pub fn column(parts: &[Block]) -> Block {
    let all = stacked(parts, 20.0);
    let mut block = Block::new(all.width, all.height);
    if let (Some(first), Some(last)) = (parts.first(), parts.last()) {
        for shift in [-16.0, 0.0, 16.0] {
            let x = all.width / 2.0 + shift;
            block.line((x, first.height / 2.0), (x, all.height - last.height / 2.0), "wire");
        }
    }
    block.put(&all, 0.0, 0.0);
    block
}

/// Places blocks with those centres, and draws the lines behind them.
pub fn placed(blocks: &[Block], centres: &[(f64, f64)], edges: &[(usize, usize)], class: &str) -> Block {
    let corner = |at: usize| (centres[at].0 - blocks[at].width / 2.0, centres[at].1 - blocks[at].height / 2.0);
    let left = (0..blocks.len()).map(|at| corner(at).0).fold(f64::MAX, f64::min);
    let top = (0..blocks.len()).map(|at| corner(at).1).fold(f64::MAX, f64::min);
    let right = (0..blocks.len()).map(|at| corner(at).0 + blocks[at].width).fold(left, f64::max);
    let bottom = (0..blocks.len()).map(|at| corner(at).1 + blocks[at].height).fold(top, f64::max);
    let mut all = Block::new(right - left, bottom - top);
    for (a, b) in edges {
        let at = |at: usize| (centres[at].0 - left, centres[at].1 - top);
        all.line(at(*a), at(*b), class);
    }
    for (at, block) in blocks.iter().enumerate() {
        all.put(block, corner(at).0 - left, corner(at).1 - top);
    }
    all
}

/// Maximum number of rows on one side of a hub, so that the hub can be on the other side.
const ONE_SIDED_MAX: usize = 8;

/// Places half of the rows on each side of a hub that contains the blocks `inside`. If `hub` is given and there are
/// few rows, the hub is on that side and all rows are on the other.
pub fn around(mut rows: Vec<Row>, inside: &[Block], hub: Option<Side>) -> Block {
    let hub = hub.filter(|_| rows.len() <= ONE_SIDED_MAX);
    let left_rows = match hub {
        None => rows.len().div_ceil(2),
        Some(Side::Left) => 0,
        Some(Side::Right) => rows.len(),
    };
    let right = rows.split_off(left_rows);
    let core = stacked(inside, 10.0);
    let extent = |rows: &[Row]| {
        let member = rows.iter().map(|row| row.member.width).fold(0.0, f64::max);
        let links = |row: &Row| row.links.iter().map(|link| link.width + REACH).sum::<f64>();
        let widest = rows.iter().map(links).fold(0.0, f64::max);
        let height = rows.iter().map(|row| height_of(row) + GAP).sum::<f64>() - GAP;
        (if rows.is_empty() { 0.0 } else { member + widest + REACH }, height.max(0.0))
    };
    let ((left_width, left_height), (right_width, right_height)) = (extent(&rows), extent(&right));
    let hub_width = core.width + 16.0;
    let height = left_height.max(right_height).max(core.height + 20.0);
    let mut block = Block::new(left_width + hub_width + right_width, height);
    let hub_x = left_width;
    for (side, total, is_left) in [(&rows, left_height, true), (&right, right_height, false)] {
        let mut y = (height - total) / 2.0;
        for row in side {
            let middle = y + height_of(row) / 2.0;
            let (start, end) = if is_left { (0.0, hub_x) } else { (hub_x + hub_width, block.width) };
            // A row's member is at the outer edge; its links are spread evenly between it and the hub.
            let (from, to) = if is_left { (row.member.width, end) } else { (start, end - row.member.width) };
            block.line((from, middle), (to, middle), "wire");
            block.put(&row.member, if is_left { 0.0 } else { to }, middle - row.member.height / 2.0);
            let links: Vec<&Block> =
                if is_left { row.links.iter().collect() } else { row.links.iter().rev().collect() };
            let free = (to - from - links.iter().map(|link| link.width).sum::<f64>()) / (links.len() + 1) as f64;
            let mut x = from + free;
            for link in links {
                block.put(link, x, middle - link.height / 2.0);
                x += link.width + free;
            }
            y += height_of(row) + GAP;
        }
    }
    block.rectangle((hub_x, 0.0), (hub_width, height), "hub");
    block.put(&core, hub_x + 8.0, (height - core.height) / 2.0);
    block.hub = hub.map(|side| (side, height / 2.0));
    block
}

fn height_of(row: &Row) -> f64 {
    row.links.iter().map(|link| link.height).fold(row.member.height, f64::max)
}
