/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/*
 * What the program at a device's driver found, for the one at traffic control: it stands in front of the packet, where both may
 * look. A driver that has no room there loses it, and the packet is judged again.
 */
#ifndef NOTE_H
#define NOTE_H

#include "kernel.h"

/* Others write there, too. */
#define NOTE_SIGN 0x746f7274

enum note_verdict {
	NOTE_NONE,
	NOTE_NO_OPINION = 0x40, /* policy without tracking was asked, and said nothing */
	NOTE_ALLOWED = 0x80,
};

struct note {
	u32 sign;
	u32 verdict; /* enum note_verdict */
};
ASSERT_SIZE(struct note, 8);

#ifdef AT_DRIVER
/* 0, or not done. */
INLINE int leave_note(struct xdp_md *buffer, enum note_verdict verdict)
{
	if (adjust_note(buffer, -(int)sizeof(struct note)))
		return -1;
	struct note *note = (void *)(long)buffer->data_meta;
	if ((void *)(note + 1) > (void *)(long)buffer->data)
		return -1;
	note->sign = NOTE_SIGN;
	note->verdict = verdict;
	return 0;
}
#else
INLINE enum note_verdict read_note(struct __sk_buff *buffer)
{
	struct note *note = (void *)(long)buffer->data_meta;
	if ((void *)(note + 1) > (void *)(long)buffer->data || note->sign != NOTE_SIGN)
		return NOTE_NONE;
	return note->verdict;
}
#endif

#endif
