//! Sizes and offsets of C structs on this machine, computed by the compiler. The derive macro's code relies on them.

/// Offset of each field of a struct whose fields have these sizes and alignments.
pub const fn offsets<const N: usize>(fields: [(usize, usize); N]) -> [usize; N] {
    let mut offsets = [0; N];
    let (mut end, mut at) = (0usize, 0);
    while at < N {
        offsets[at] = end.next_multiple_of(fields[at].1);
        end = offsets[at] + fields[at].0;
        at += 1;
    }
    offsets
}

/// Size and alignment of a struct whose fields have these sizes and alignments.
pub const fn of_struct<const N: usize>(fields: [(usize, usize); N]) -> (usize, usize) {
    let (mut end, mut align, mut at) = (0usize, 1, 0);
    while at < N {
        end = end.next_multiple_of(fields[at].1) + fields[at].0;
        if fields[at].1 > align {
            align = fields[at].1;
        }
        at += 1;
    }
    (end.next_multiple_of(align), align)
}

/// Size and alignment of a union whose cases have these sizes and alignments.
pub const fn of_union<const N: usize>(cases: [(usize, usize); N]) -> (usize, usize) {
    let (mut size, mut align, mut at) = (0usize, 1, 0);
    while at < N {
        if cases[at].0 > size {
            size = cases[at].0;
        }
        if cases[at].1 > align {
            align = cases[at].1;
        }
        at += 1;
    }
    (size.next_multiple_of(align), align)
}
