package engine

import (
	"bytes"
	"strconv"
	"time"
)

var base = time.Now()

// Now is a monotonic clock shared by publishers and clients of one process.
func Now() int64 { return int64(time.Since(base)) }

const filler = "The quick brown fox jumps over the lazy dog and then it streams another token delta to the client, which renders it at once, word after word, until the answer is complete; nothing may be lost, doubled or swapped on the way. "

// AppendPayload appends one JSON event of about size bytes:
// topic k, dense per-topic sequence s (from 1), publish time t and scheduled time i.
func AppendPayload(b []byte, topic int, seq uint64, sent, intended int64, size int) []byte {
	start := len(b)
	b = append(b, `{"k":`...)
	b = strconv.AppendInt(b, int64(topic), 10)
	b = append(b, `,"s":`...)
	b = strconv.AppendUint(b, seq, 10)
	b = append(b, `,"t":`...)
	b = strconv.AppendInt(b, sent, 10)
	b = append(b, `,"i":`...)
	b = strconv.AppendInt(b, intended, 10)
	b = append(b, `,"type":"text-delta","delta":"`...)
	for n := size - (len(b) - start) - 2; n > 0; {
		k := min(n, len(filler))
		b = append(b, filler[:k]...)
		n -= k
	}
	return append(b, `"}`...)
}

type event struct {
	topic          int
	seq            uint64
	sent, intended int64
}

func parsePayload(p []byte) (e event, ok bool) {
	k, p, ok1 := intAfter(p, `"k":`)
	s, p, ok2 := intAfter(p, `"s":`)
	t, p, ok3 := intAfter(p, `"t":`)
	i, _, ok4 := intAfter(p, `"i":`)
	return event{int(k), uint64(s), t, i}, ok1 && ok2 && ok3 && ok4
}

func intAfter(p []byte, key string) (v int64, rest []byte, ok bool) {
	i := bytes.Index(p, []byte(key))
	if i < 0 {
		return 0, p, false
	}
	p = p[i+len(key):]
	n := 0
	for n < len(p) && p[n] >= '0' && p[n] <= '9' {
		v = v*10 + int64(p[n]-'0')
		n++
	}
	return v, p[n:], n > 0
}

// SentAt finds a payload of AppendPayload in p and returns its publish time.
func SentAt(p []byte) (sent int64, ok bool) {
	e, ok := parsePayload(p)
	return e.sent, ok
}
