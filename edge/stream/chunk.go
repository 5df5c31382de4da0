package stream

import "strconv"

// chunkHead is room for the head of a chunk (RFC 9112, 7.1), to be filled in when
// its size is known.
const chunkHead = "00000000\r\n"

// lastChunk ends a body.
const lastChunk = "0\r\n\r\n"

// chunk fills in the head of a buffer of chunkHead, data and CRLF, and returns
// what is to be written.
func chunk(b []byte) []byte {
	var digits [16]byte
	size := strconv.AppendInt(digits[:0], int64(len(b)-len(chunkHead)-len("\r\n")), 16)
	start := len(chunkHead) - len("\r\n") - len(size)
	copy(b[start:], size)
	return b[start:]
}
