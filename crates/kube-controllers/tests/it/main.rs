//! The controllers on a real kube-apiserver, with each datastore underneath.

mod bookkeeping;
mod copies;
mod endpoints;
mod flannel;
mod gc;
mod nodes;
mod roles;
mod services;
mod stage;
mod trouble;
mod world;
