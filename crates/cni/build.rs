//! Links the benchmark like a release: at a fixed address.
//!
//! A plugin lives for milliseconds. With an address that is only known at the start, the loader must first write to
//! every page that holds a pointer, and each page costs some microseconds: together about a third of the plugin's own
//! time.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-link-arg-benches=-no-pie");
}
