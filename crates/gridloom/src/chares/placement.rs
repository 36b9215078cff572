//! Where the elements of a program run. The command that starts them passes this to each of them in an argument.

use gridloom_chare::{Elements, Pe};
use gridloom_net::process::{Gang, room_for};
use gridloom_net::worker::checkpoints;
use gridloom_process::filter::{FilterChain, FilterSpec, PeerPair};
use serde::{Deserialize, Serialize};

use super::options::{CheckpointOptions, InMemory, Resizing, Restart};
use super::run_folder::Generation;
use super::timeline::Records;
use crate::Error;

/// Name of an element's function in a deployment.
pub const ELEMENT_FUNCTION: &str = "element";

/// Port of the first element on a host; each further one takes the next port.
const PORT: u16 = 4100;

/// The places of all elements, and which of them this one is.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct ElementPlacement {
    /// Number of this element.
    pub number: u32,
    /// The host and the site of each.
    pub elements: Vec<(String, u32)>,
    /// The port of each; empty for the default ports.
    #[serde(default)]
    pub ports: Vec<u16>,
    /// Filters for messages between sites, in the order in which they apply.
    #[serde(default)]
    pub filters: Vec<FilterSpec>,
    /// A load balancer that replaces the program's own.
    #[serde(default)]
    pub balance: Option<String>,
    /// The folder for checkpoints.
    #[serde(default)]
    pub checkpoint: Option<CheckpointOptions>,
    /// Set if checkpoints are kept in memory.
    #[serde(default)]
    pub memory: Option<InMemory>,
    /// The checkpoint from which the program resumes.
    #[serde(default)]
    pub restart: Option<Restart>,
    /// The files through which the command and the elements notify each other of losses and of changes of the number of elements.
    #[serde(default)]
    pub resizing: Option<Resizing>,
    /// Where elements write their records for a timeline.
    #[serde(default)]
    pub records: Option<Records>,
}

impl ElementPlacement {
    /// Encodes this as the argument of a process.
    pub fn to_argument(&self) -> String {
        serde_json::to_string(self).expect("names and numbers")
    }

    /// Parses the argument of a process.
    ///
    /// # Errors
    /// If the arguments do not contain places.
    pub(super) fn from_arguments(arguments: &[String]) -> Result<ElementPlacement, String> {
        let remedy = "elements are started by 'gridloom chares run -n NUMBER -- PROGRAM'";
        let (argument, number) = match arguments {
            [argument] => (argument, None),
            [argument, number] => (argument, Some(number)),
            _ => {
                return Err(format!(
                    "an element takes one argument, its placement, and its number if need be; {remedy}"
                ));
            }
        };
        let mut places: ElementPlacement =
            serde_json::from_str(argument).map_err(|error| format!("{argument}: {error}; {remedy}"))?;
        if let Some(number) = number {
            places.number =
                number.parse().map_err(|_| format!("'{number}' is not the number of an element; {remedy}"))?;
        }
        match (places.number as usize) < places.elements.len() {
            true => Ok(places),
            false => Err(format!("element {} of {}; {remedy}", places.number, places.elements.len())),
        }
    }

    /// Returns the places for an element that a server has started. Its folders are on the server, under the server's
    /// own checkpoint folder, whatever path the caller names.
    ///
    /// # Errors
    /// If the server has no such folder.
    pub(super) fn on_server(mut self, gang: &Gang) -> Result<ElementPlacement, String> {
        let folders = self.checkpoint.iter_mut().map(|keep| &mut keep.folder);
        for folder in folders.chain(self.restart.iter_mut().map(|restart| &mut restart.folder)) {
            *folder = checkpoints::folder_of(gang.checkpoints.as_deref(), &folder.to_string_lossy())?;
        }
        if self.memory.is_some() {
            return Err(
                "checkpoints in memory work only for elements on one machine; give a checkpoint name for elements on \
                    servers"
                    .into(),
            );
        }
        if let Some(records) = &mut self.records {
            let file = gang.records.clone().ok_or("the server does not accept a record of this element")?;
            records.own = Some((file, gang.shift_ns));
        }
        Ok(self)
    }

    /// Returns the places of that generation.
    pub(super) fn in_generation(&self, generation: &Generation) -> ElementPlacement {
        let Generation { epoch, elements, restart, .. } = generation.clone();
        let mut places = ElementPlacement { elements, restart, ..self.clone() };
        places.records.iter_mut().for_each(|records| records.run += epoch as u32);
        places
    }

    pub(super) fn me(&self) -> Pe {
        Pe(self.number)
    }

    pub(super) fn elements(&self) -> Elements {
        Elements::new(self.elements.iter().map(|(_, site)| *site).collect())
    }

    pub(super) fn host(&self, element: Pe) -> &str {
        &self.elements[element.0 as usize].0
    }

    pub(super) fn port(&self, element: Pe) -> u16 {
        self.ports.get(element.0 as usize).copied().unwrap_or(PORT + element.0 as u16)
    }

    /// The number of connections from an element to those of other processes: one to each, or several with `stripe`.
    fn connections(&self, own: &[ElementPlacement]) -> usize {
        let others = (0..self.elements.len() as u32).filter(|number| own.iter().all(|places| places.number != *number));
        others.map(|number| self.chain(Pe(number)).connections()).sum()
    }

    /// The filters between that element and this one.
    pub(super) fn chain(&self, element: Pe) -> FilterChain {
        let site = |number: u32| self.elements[number as usize].1;
        let is_apart = site(element.0) != site(self.number);
        let filters = if is_apart { &self.filters[..] } else { &[] };
        FilterChain::new(filters, PeerPair { from: element.0, to: self.number })
    }
}

/// Checks that this process may open as many connections as its elements need.
///
/// # Errors
/// If the limit is too low.
pub(super) fn check_connections(own: &[ElementPlacement]) -> Result<(), Error> {
    let connections = own.iter().map(|places| places.connections(own)).sum();
    room_for(connections, own.len()).map_err(|why| {
        let numbers: Vec<String> = own.iter().map(|places| places.number.to_string()).collect();
        let which = if numbers.len() == 1 { "element" } else { "the process of elements" };
        let remedy = "or give fewer elements, or fewer connections (stripe=NUMBER)";
        Error::Input(format!("{which} {}: {why}, {remedy}", numbers.join(", ")))
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn the_folders_of_an_element_on_a_server_are_the_server_s() {
        let gang = Gang { checkpoints: Some("/kept".into()), records: Some("/own".into()), shift_ns: -3 };
        let keep = |folder: &str| ElementPlacement {
            checkpoint: Some(CheckpointOptions { folder: folder.into(), every: 1, ..CheckpointOptions::default() }),
            records: Some(Records { folder: "/etc".into(), ..Records::default() }),
            ..ElementPlacement::default()
        };
        let places = keep("heat").on_server(&gang).unwrap();
        assert_eq!(places.checkpoint.unwrap().folder, Path::new("/kept/heat"));
        assert_eq!(places.records.unwrap().own, Some(("/own".into(), -3)));
        let restart = |folder: &str| ElementPlacement {
            restart: Some(Restart { folder: folder.into(), number: Some(2) }),
            ..ElementPlacement::default()
        };
        assert_eq!(restart("heat").on_server(&gang).unwrap().restart.unwrap().folder, Path::new("/kept/heat"));
        for wrong in [keep("/etc"), keep(".."), restart("/tmp/other")] {
            assert!(wrong.on_server(&gang).unwrap_err().contains("by name, not by folder"));
        }
        assert!(keep("heat").on_server(&Gang::default()).unwrap_err().contains("serve --checkpoints DIR"));
    }

    #[test]
    fn elements_of_a_process_need_no_connections_among_one_another() {
        let place = |number| ElementPlacement {
            number,
            elements: [0, 0, 1, 1].map(|site| (String::new(), site)).to_vec(),
            filters: vec!["stripe=3".parse().unwrap()],
            ..ElementPlacement::default()
        };
        let connections = |own: &[ElementPlacement]| own.iter().map(|places| places.connections(own)).sum::<usize>();
        assert_eq!(connections(&[place(0)]), 1 + 3 + 3);
        assert_eq!(connections(&[place(0), place(1)]), 2 * (3 + 3));
        assert_eq!(connections(&[0, 1, 2].map(place)), 3 + 3 + 1);
    }
}
