package stream

import (
	"testing"
	"unsafe"
)

// An edge has one of these for each session and each stream. Go rounds what it allocates
// up to a class of sizes, and what is over 512 bytes gets a word more: a bool that takes
// a word of its own may cost 64 bytes a stream.
func TestSizes(t *testing.T) {
	if size := unsafe.Sizeof(topic{}); size > 512 {
		t.Errorf("a topic has %d bytes, at most 512", size)
	}
	if size := unsafe.Sizeof(Viewer{}); size > 576-8 {
		t.Errorf("a Viewer has %d bytes, at most 568", size)
	}
}
