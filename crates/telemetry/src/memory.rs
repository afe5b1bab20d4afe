//! Settings of the C library and the kernel that keep resident memory small, because it counts on every node of a cluster.
//!
//! By default the allocator gives each thread its own heap, up to eight for each processor, and keeps the memory that a
//! burst of work has freed in all of them; and the kernel keeps every page of the program that ever ran among the
//! process's pages. A daemon that reads a whole cluster once and then one change at a time would keep the memory of its
//! first minute forever. This module only changes these settings; with another C library the first two do nothing at
//! all.
//!
//! Part of the project's little unsafe code is here: the functions are plain calls with numbers, pass no pointer to
//! anything that Rust knows, and may be called by any thread at any time.

/// Makes all threads share one heap. For daemons whose threads take turns rather than compete; call it before they
/// start.
#[cfg_attr(
    target_env = "gnu",
    expect(
        unsafe_code,
        reason = "a call into the C library that has no safe wrapper; see the module's text"
    )
)]
pub fn share_one_heap() {
    #[cfg(target_env = "gnu")]
    // SAFETY: mallopt takes two numbers and is safe to call by any thread.
    let set = unsafe { libc::mallopt(libc::M_ARENA_MAX, 1) };
    #[cfg(target_env = "gnu")]
    if set != 1 {
        tracing::debug!("the allocator does not take a limit of heaps");
    }
}

/// Makes the allocator merge freed chunks with their neighbours at once, whatever their size. By default it keeps small
/// ones separate and merges all of them for every larger allocation: while a cluster is read, that is a tenth of the
/// work. For daemons that free as many small chunks as they allocate, on several threads; call it before these start.
#[cfg_attr(
    target_env = "gnu",
    expect(
        unsafe_code,
        reason = "a call into the C library that has no safe wrapper; see the module's text"
    )
)]
pub fn join_small_pieces() {
    #[cfg(target_env = "gnu")]
    // SAFETY: mallopt takes two numbers and is safe to call by any thread.
    let set = unsafe { libc::mallopt(libc::M_MXFAST, 0) };
    #[cfg(target_env = "gnu")]
    if set != 1 {
        tracing::debug!("the allocator keeps small pieces apart");
    }
}

/// Returns free memory to the kernel, also from the middle of the heaps. It scans every heap: for the end of a burst.
#[cfg_attr(
    target_env = "gnu",
    expect(
        unsafe_code,
        reason = "a call into the C library that has no safe wrapper; see the module's text"
    )
)]
pub fn give_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: malloc_trim takes a number and is safe to call by any thread.
    let _ = unsafe { libc::malloc_trim(0) };
}

/// Releases the pages of the program's code: those needed again return one by one from the kernel's page cache, and
/// those that only the start needed no longer count as this process's memory. For the end of a start.
#[expect(unsafe_code, reason = "the kernel's advice has no safe wrapper; see the module's text")]
pub fn let_go_of_code() {
    let here = let_go_of_code as *const () as usize;
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let Some((start, length)) = maps.lines().find_map(|line| code_around(line, here)) else { return };
    let start = std::ptr::with_exposed_provenance_mut(start);
    // SAFETY: the pages are of a file, private, executable and not writable, so they are unmodified, and the next
    // access to them reads the same contents from the file.
    let given = unsafe { libc::madvise(start, length, libc::MADV_DONTNEED) };
    if given != 0 {
        let error = std::io::Error::last_os_error();
        tracing::debug!(%error, "the kernel keeps the pages of the program's code");
    }
}

/// The start and length of the mapping on this line of `/proc/self/maps`, if it is code from a file and contains
/// `address`.
fn code_around(line: &str, address: usize) -> Option<(usize, usize)> {
    let mut words = line.split_ascii_whitespace();
    let (range, rights) = (words.next()?, words.next()?);
    let is_file = words.nth(2)? != "0";
    let (start, end) = range.split_once('-')?;
    let start = usize::from_str_radix(start, 16).ok()?;
    let end = usize::from_str_radix(end, 16).ok()?;
    let fits = rights == "r-xp" && is_file && (start..end).contains(&address);
    fits.then_some((start, end - start))
}

#[cfg(test)]
mod tests {
    use super::code_around;

    #[test]
    fn the_mapping_of_the_code_is_found() {
        let code = "00809000-02f34000 r-xp 00608000 fe:00 131 /usr/bin/tortie";
        assert_eq!(code_around(code, 0x0080_9000), Some((0x0080_9000, 0x0272_b000)));
        assert_eq!(code_around(code, 0x02f3_4000), None);
        for line in [
            "00809000-02f34000 rwxp 00608000 fe:00 131 /usr/bin/tortie",
            "00809000-02f34000 r--p 00608000 fe:00 131 /usr/bin/tortie",
            "00809000-02f34000 r-xp 00000000 00:00 0 ",
            "00809000 r-xp",
            "",
        ] {
            assert_eq!(code_around(line, 0x0080_9000), None, "{line}");
        }
    }
}
