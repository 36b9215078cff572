//! Transfers of data to and from a storage: see [`crate::storage`].

use gridloom_base::limits::EAGER_BYTES_MAX;
use gridloom_base::{DatumId, NodeId};
use gridloom_core::node::Input;
use gridloom_flow::{LinkIndex, Transfer};

use crate::kernel::Purpose;
use crate::network::Route;
use crate::observe::{Observation, TransferContents};
use crate::simulation::Simulation;
use crate::storage::{File, FileTransfer};
use crate::store::StoredValue;
use crate::trace::Interval;

impl Simulation {
    pub(crate) fn store_datum(&mut self, holder: NodeId, to: NodeId, datum: DatumId) {
        let value = self.node(holder).store.value(datum).cloned();
        let storage = self.storages.hosts.get(&self.node(holder).host).copied();
        let (Some(value), Some(storage)) = (value, storage) else { return self.send_datum(holder, to, datum) };
        let is_small = value.meta.size_bytes() <= EAGER_BYTES_MAX;
        let way = (self.node(holder).host, storage);
        if is_small || self.sessions.share_memory(holder, to) || self.routes.between(way).is_err() {
            return self.send_datum(holder, to, datum);
        }
        match self.storages.files.get_mut(&(holder, datum)) {
            Some(file) if file.is_complete => self.read(holder, to, datum, value),
            Some(file) => file.readers.push(to),
            None => {
                self.storages.files.insert((holder, datum), File { is_complete: false, readers: vec![to] });
                self.move_file((holder, None), datum, value, way);
            }
        }
    }

    fn read(&mut self, holder: NodeId, to: NodeId, datum: DatumId, value: StoredValue) {
        let storage = self.storages.hosts.get(&self.node(to).host).copied();
        let way = storage.map(|storage| (storage, self.node(to).host));
        match way.filter(|way| self.routes.between(*way).is_ok()) {
            Some(way) => self.move_file((holder, Some(to)), datum, value, way),
            None => {
                let why = "the storage cannot be reached".into();
                self.kernel.deliver(to, Input::DatumBroken { from: holder, datum, no_memory: false, why });
            }
        }
    }

    fn move_file(
        &mut self,
        (holder, reader): (NodeId, Option<NodeId>),
        datum: DatumId,
        value: StoredValue,
        way: Route,
    ) {
        let (bytes, path) = (value.meta.size_bytes(), self.routes.path(way));
        let moved = TransferContents::Datum { datum, from: holder, to: reader.unwrap_or(holder) };
        let transfer = self.kernel.begin_transfer(moved, bytes, &path.links);
        self.storages.begun += 1;
        let number = self.storages.begun;
        let links: Vec<LinkIndex> = path.links.iter().copied().chain(self.routes.upload(way)).collect();
        let flow = Transfer { return_links: &path.return_links, ..Transfer::new(&links, path.latency_s, bytes as f64) };
        let action = self.kernel.start_transfer(&flow, Purpose::Storage(number));
        let moving = FileTransfer { action, transfer, started: self.kernel.now(), way, holder, reader, datum, value };
        self.storages.transfers.insert(number, moving);
    }

    /// Handles a file that was completely written or read.
    pub(crate) fn on_storage(&mut self, number: u64) {
        let moving = self.storages.transfers.remove(&number).expect("a transfer that ends has begun");
        let FileTransfer { transfer, started: start, way, holder, reader, datum, value, .. } = moving;
        let path = self.routes.path(way);
        self.kernel.observe(|| Observation::TransferEnds { transfer });
        let Some(to) = reader else {
            self.kernel.record(|trace, _| trace.count_bytes(value.meta.size_bytes(), &path.links));
            let file = self.storages.files.get_mut(&(holder, datum)).expect("it stops with its file");
            file.is_complete = true;
            for to in std::mem::take(&mut file.readers) {
                self.read(holder, to, datum, value.clone());
            }
            return;
        };
        let (from, end) = (holder, self.now());
        if !self.links.is_connected(to, from) {
            return;
        }
        if end < self.node(to).full_until {
            let why = "no memory to store it".to_string();
            return self.handle(to, Input::DatumBroken { from, datum, no_memory: true, why }, 0);
        }
        let (meta, size_bytes) = (value.meta.clone(), value.meta.size_bytes());
        self.kernel.record(|trace, _| {
            trace.count_datum(from, to, size_bytes, &path.links);
            trace.record_interval(Interval::Transfer { from, to, datum, size_bytes, start, end });
        });
        self.kernel.observe(|| Observation::DatumArrived { transfer, to, datum });
        self.links.forget_partial(to, datum);
        self.store_value(to, datum, value);
        // Its time does not measure the route between the two nodes.
        self.handle(to, Input::DatumArrived { from, datum, meta, duration_ns: 0 }, 0);
    }

    /// Removes the file of a datum that a server no longer has. Reads in progress continue.
    pub(crate) fn remove_file(&mut self, holder: NodeId, datum: DatumId) {
        let Some(file) = self.storages.files.remove(&(holder, datum)) else { return };
        self.stop_files(|moving| moving.reader.is_none() && (moving.holder, moving.datum) == (holder, datum));
        for to in file.readers {
            let why = format!("{} no longer has it", self.node(holder).name);
            self.kernel.deliver(to, Input::DatumBroken { from: holder, datum, no_memory: false, why });
        }
    }

    /// Removes the files and transfers of a node that has ended.
    pub(crate) fn end_files(&mut self, node: NodeId) {
        self.storages.files.retain(|(holder, _), _| *holder != node);
        self.storages.files.values_mut().for_each(|file| file.readers.retain(|reader| *reader != node));
        self.stop_files(|moving| moving.holder == node || moving.reader == Some(node));
    }

    /// Panics if a file exists whose datum its server does not have.
    pub(crate) fn check_files(&self) {
        for (holder, datum) in self.storages.files.keys() {
            let has_it = !self.node(*holder).is_dead() && self.node(*holder).store.value(*datum).is_some();
            assert!(has_it, "{holder} has no datum for its file of {datum}");
        }
    }

    fn stop_files(&mut self, is_one: impl Fn(&FileTransfer) -> bool) {
        let stopped: Vec<u64> =
            self.storages.transfers.iter().filter(|(_, moving)| is_one(moving)).map(|(number, _)| *number).collect();
        for number in stopped {
            let moving = self.storages.transfers.remove(&number).expect("just seen");
            self.kernel.cancel(moving.action);
            self.kernel.observe(|| Observation::TransferEnds { transfer: moving.transfer });
        }
    }
}
