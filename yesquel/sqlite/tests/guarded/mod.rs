//! Memory allocator that ends small byte buffers at inaccessible pages: a read beyond the end of a
//! record ends the process, as under valgrind.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    ptr,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
};

const PAGE: usize = 4096;
/// Buffers at one time; further ones come from the system. A process may have 65,530 mappings.
const SLOTS: usize = 8192;
/// Largest guarded buffer.
const BYTES_MAX: usize = 256;

static BASE: AtomicUsize = AtomicUsize::new(0);
static NEXT: AtomicUsize = AtomicUsize::new(0);
static IS_USED: [AtomicBool; SLOTS] = [const { AtomicBool::new(false) }; SLOTS];

pub(crate) struct GuardedAllocator;

/// Guards buffers from now on.
pub(crate) fn guard() {
    let length = SLOTS * 2 * PAGE;
    // SAFETY: a new mapping, of which every second page becomes inaccessible before any use.
    unsafe {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let base = libc::mmap(ptr::null_mut(), length, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0);
        assert_ne!(base, libc::MAP_FAILED);
        for slot in 0..SLOTS {
            let page = base.byte_add((slot * 2 + 1) * PAGE);
            assert_eq!(libc::mprotect(page, PAGE, libc::PROT_NONE), 0);
        }
        BASE.store(base as usize, SeqCst);
    }
}

// SAFETY: a slot is given to one buffer at a time, and has its size and alignment; all else is the
// system's.
unsafe impl GlobalAlloc for GuardedAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let base = BASE.load(SeqCst);
        if base != 0 && layout.align() == 1 && layout.size() <= BYTES_MAX {
            let slot = NEXT.fetch_add(1, SeqCst) % SLOTS;
            if !IS_USED[slot].swap(true, SeqCst) {
                return (base + (slot * 2 + 1) * PAGE - layout.size()) as *mut u8;
            }
        }
        // SAFETY: as for this function.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, buffer: *mut u8, layout: Layout) {
        let (base, at) = (BASE.load(SeqCst), buffer as usize);
        if base != 0 && (base..base + SLOTS * 2 * PAGE).contains(&at) {
            IS_USED[(at - base) / (2 * PAGE)].store(false, SeqCst);
            return;
        }
        // SAFETY: as for this function.
        unsafe { System.dealloc(buffer, layout) }
    }
}
