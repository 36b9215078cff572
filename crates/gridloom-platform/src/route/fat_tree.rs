//! Fat trees: levels of switches, with d-mod-k routing.
//!
//! Parameters `L;d1..dL;u1..uL;n1..nL`: a node of level i has `d_i` children and its children have `u_i` parents, with
//! `n_i` parallel cables between the two. A leaf's position decides the route up, so that all flows to one leaf meet as
//! late as possible. Limiters belong to hosts and switches: each one on the route limits.
//!
//! Source: Zahavi, "D-Mod-K Routing Providing Non-Blocking Traffic for Shift Permutations on Real Life Fat Trees"
//! (2010), in the shape of SimGrid 4.1. Its numbering of switches and cables appears in the names of the links.
//! As in SimGrid, names are unique only for the first fat tree of a platform; a second one is rejected.

use super::leaves::{Leaves, LinkFactory};
use crate::element::LinkId;
use crate::error::PlatformError;

/// Maximum number of levels of switches; trees deeper than a handful are mistakes.
const LEVELS_MAX: usize = 16;
/// Maximum number of switches, and of cables, in one tree: some hundred bytes each, read in seconds.
const PARTS_MAX: usize = 1_000_000;

#[derive(Clone, Debug, Default)]
pub(crate) struct FatTree {
    children: Vec<usize>,
    parents: Vec<usize>,
    cables: Vec<usize>,
    /// Leaves first, then the switches level by level.
    nodes: Vec<Node>,
    pub(crate) leaves: Leaves,
}

#[derive(Clone, Debug)]
struct Node {
    /// SimGrid's number: leaves count upwards from 0, switches downwards from twice the number of leaves.
    id: usize,
    level: usize,
    position: usize,
    label: Vec<usize>,
    limiter: Option<LinkId>,
    parents: Vec<Option<Cable>>,
    children: Vec<Option<Cable>>,
}

/// A cable to the node `to`.
#[derive(Clone, Copy, Debug)]
struct Cable {
    to: usize,
    link: LinkId,
}

impl FatTree {
    /// Number of hosts, then of switches of each level.
    pub(crate) fn level_sizes(&self) -> Vec<usize> {
        let levels = self.children.len();
        (0..=levels).map(|level| self.nodes.iter().filter(|node| node.level == level).count()).collect()
    }

    /// All cables: the lower node, the upper one, and the link up; nodes are counted from the hosts upwards.
    pub(crate) fn cables(&self) -> impl Iterator<Item = (usize, usize, LinkId)> + '_ {
        let of_node = |(at, node): (usize, &'_ Node)| -> Vec<(usize, usize, LinkId)> {
            node.parents.iter().flatten().map(|cable| (at, cable.to, cable.link)).collect()
        };
        self.nodes.iter().enumerate().flat_map(of_node)
    }

    /// Parses a parameter text into an empty tree.
    pub(crate) fn parse(text: &str, leaves: usize) -> Result<FatTree, String> {
        let wrong = |why: &str| format!("topo_parameters '{text}' {why}");
        let parts: Vec<&str> = text.split(';').collect();
        let [levels, children, parents, cables] = parts[..] else { return Err(wrong("are not 'L;d..;u..;n..'")) };
        let levels: usize = levels.trim().parse().map_err(|_| wrong("do not start with a number of levels"))?;
        if levels == 0 || levels > LEVELS_MAX {
            return Err(wrong(&format!("must have between 1 and {LEVELS_MAX} levels")));
        }
        let list = |text: &str| -> Result<Vec<usize>, String> {
            let numbers: Option<Vec<usize>> = text.split(',').map(|word| word.trim().parse().ok()).collect();
            let valid = |numbers: &Vec<usize>| numbers.len() == levels && !numbers.contains(&0);
            numbers.filter(valid).ok_or_else(|| wrong(&format!("must have {levels} numbers above 0 in each list")))
        };
        let (children, parents, cables) = (list(children)?, list(parents)?, list(cables)?);
        let product = |list: &[usize]| list.iter().try_fold(1usize, |product, n| product.checked_mul(*n));
        if product(&children) != Some(leaves) {
            let want = product(&children).map_or("too many".to_owned(), |want| want.to_string());
            return Err(wrong(&format!("need {want} hosts, but there are {leaves}")));
        }
        let tree = FatTree { children, parents, cables, ..FatTree::default() };
        match tree.size() {
            Some((switches, cables)) if switches.max(cables) <= PARTS_MAX => Ok(tree),
            size => {
                let (many, more) = ("more than can be counted".to_owned(), format!("; at most {PARTS_MAX} of each"));
                let made = size.map_or(many, |(switches, cables)| format!("{switches} switches and {cables} cables"));
                Err(wrong(&format!("make a tree of {made}{more}: give fewer parents or cables")))
            }
        }
    }

    /// Joins the hosts by the tree's switches and cables.
    pub(crate) fn join(
        &mut self,
        leaves: Leaves,
        hosts: usize,
        cabling: &mut dyn LinkFactory,
    ) -> Result<(), PlatformError> {
        self.leaves = leaves;
        self.make_nodes(hosts, cabling)?;
        self.make_cables(cabling)
    }

    /// Number of nodes of a level. Below the level a label runs over parents, above it over children.
    fn count(&self, level: usize) -> Option<usize> {
        (0..self.children.len()).try_fold(1usize, |product, j| product.checked_mul(self.digits(level, j)))
    }

    /// Number of values of digit `j` in the label of a node of that level.
    fn digits(&self, level: usize, j: usize) -> usize {
        if j < level { self.parents[j] } else { self.children[j] }
    }

    /// Number of switches and of cables.
    fn size(&self) -> Option<(usize, usize)> {
        let levels = 0..self.children.len();
        let switches = levels.clone().try_fold(0usize, |sum, level| sum.checked_add(self.count(level + 1)?));
        let cables = levels.into_iter().try_fold(0usize, |sum, level| {
            let of_one = self.parents[level].checked_mul(self.cables[level])?;
            sum.checked_add(self.count(level)?.checked_mul(of_one)?)
        });
        Some((switches?, cables?))
    }

    /// Creates leaves and switches with their labels, not yet joined.
    fn make_nodes(&mut self, hosts: usize, cabling: &mut dyn LinkFactory) -> Result<(), PlatformError> {
        let levels = self.children.len();
        let mut switch = 2 * hosts;
        for level in 0..=levels {
            let count = self.count(level).expect("the tree's size was checked");
            for position in 0..count {
                let mut rest = position;
                let mut label = Vec::with_capacity(levels);
                for j in 0..levels {
                    label.push(rest % self.digits(level, j));
                    rest /= self.digits(level, j);
                }
                let id = if level == 0 {
                    position
                } else {
                    switch = switch.wrapping_sub(1);
                    switch
                };
                let limiter = match level {
                    0 => self.leaves.limiter(position),
                    _ => cabling.limiter(id)?,
                };
                let ports = |counts: &[usize], at: usize| counts[at] * self.cables[at];
                self.nodes.push(Node {
                    id,
                    level,
                    position,
                    label,
                    limiter,
                    parents: vec![None; if level < levels { ports(&self.parents, level) } else { 0 }],
                    children: vec![None; if level > 0 { ports(&self.children, level - 1) } else { 0 }],
                });
            }
        }
        Ok(())
    }

    /// Joins every node to its parents.
    fn make_cables(&mut self, cabling: &mut dyn LinkFactory) -> Result<(), PlatformError> {
        let levels = self.children.len();
        let starts: Vec<usize> = (0..=levels + 1).map(|l| self.nodes.partition_point(|node| node.level < l)).collect();
        let mut number = 0;
        for child in 0..starts[levels] {
            let level = self.nodes[child].level;
            // The parents have the child's label, except for the digit of its level, which runs over its parents: one
            // parent per value, a fixed number of nodes apart. The first digit of a label changes first.
            let label = &self.nodes[child].label;
            let apart: usize = self.parents[..level].iter().product();
            let digit = |j: usize| if j == level { 0 } else { label[j] };
            let first = (0..levels).rev().fold(0, |sum, j| sum * self.digits(level + 1, j) + digit(j));
            for number_above in 0..self.parents[level] {
                let parent = starts[level + 1] + first + number_above * apart;
                let (below, above) = (&self.nodes[child], &self.nodes[parent]);
                let (down_port, up_port) = (below.label[level], above.label[level]);
                let (below_id, above_id) = (below.id, above.id);
                for cable in 0..self.cables[level] {
                    let name = format!("link_from_{below_id}_{above_id}_{number}");
                    number += 1;
                    let (up, down) = cabling.cable(&name, 1)?;
                    let (from_above, from_below) =
                        (down_port + cable * self.children[level], up_port + cable * self.parents[level]);
                    self.nodes[parent].children[from_above] = Some(Cable { to: child, link: down });
                    self.nodes[child].parents[from_below] = Some(Cable { to: parent, link: up });
                }
            }
        }
        Ok(())
    }

    fn is_above(&self, root: &Node, leaf: &Node) -> bool {
        root.level > leaf.level && (root.level..self.children.len()).all(|i| root.label[i] == leaf.label[i])
    }

    /// Returns the links between two hosts, by position.
    pub(crate) fn route(&self, from: usize, to: usize) -> Option<Vec<LinkId>> {
        let (source, target) = (&self.nodes[from], &self.nodes[to]);
        let mut links = Vec::new();
        let mut node = source;
        while !self.is_above(node, target) {
            let below: usize = (0..node.level).map(|i| self.parents[i] * self.cables[i]).product();
            let ports = self.parents.get(node.level)? * self.cables[node.level];
            let cable = node.parents[target.position / below % ports]?;
            links.extend(node.limiter.into_iter().chain([cable.link]));
            node = &self.nodes[cable.to];
        }
        while node.level > 0 {
            let port = source.position % self.cables[node.level - 1];
            let cable = node.children[port * self.children[node.level - 1] + target.label[node.level - 1]]?;
            links.extend([cable.link].into_iter().chain(node.limiter));
            node = &self.nodes[cable.to];
        }
        links.extend(node.limiter);
        Some(links)
    }
}
