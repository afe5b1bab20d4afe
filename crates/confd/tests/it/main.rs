//! The files of BIRD, compared with those that Calico rendered, and read by BIRD itself; the component on a real store.

mod capture;
mod captures;
mod component;
mod nodes;
