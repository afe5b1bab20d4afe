//! The controllers on a real kube-apiserver, with each datastore underneath.
