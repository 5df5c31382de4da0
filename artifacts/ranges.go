package artifacts

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// maxRanges bounds a multipart answer; each range may cost a request to S3.
const maxRanges = 16

// cleanRange returns header with the ranges of it that a representation of
// size bytes can satisfy, or "" if it is to be ignored. If it is valid and
// none can be satisfied, what it returns cannot be either (416).
//
// It stands before http.ServeContent, which answers 416 where RFC 9110 wants
// the header ignored, and 206 to a suffix of zero bytes.
func cleanRange(header string, size int64) string {
	unit, set, ok := strings.Cut(header, "=")
	if !ok || !strings.EqualFold(unit, "bytes") || size == 0 || strings.Count(set, ",") > 4*maxRanges {
		return ""
	}
	var keep []string
	given := 0
	for spec := range strings.SplitSeq(set, ",") {
		spec = strings.Trim(spec, " \t")
		if spec == "" {
			continue
		}
		first, last, valid := parseRange(spec, size)
		if given++; !valid || given > maxRanges {
			return ""
		}
		if first <= last {
			keep = append(keep, fmt.Sprintf("%d-%d", first, last))
		}
	}
	switch {
	case given == 0:
		return ""
	case len(keep) == 0:
		return fmt.Sprintf("bytes=%d-", size)
	}
	return "bytes=" + strings.Join(keep, ",")
}

// parseRange returns the first and last position that spec takes of size
// bytes; last < first if it takes none.
func parseRange(spec string, size int64) (first, last int64, valid bool) {
	from, to, ok := strings.Cut(spec, "-")
	if !ok || from == "" && to == "" {
		return 0, 0, false
	}
	first, okFirst := position(from, 0)
	last, okLast := position(to, math.MaxInt64)
	if !okFirst || !okLast {
		return 0, 0, false
	}
	if from == "" {
		return size - min(last, size), size - 1, true
	}
	return first, min(last, size-1), first <= last
}

// position reads digits; a number beyond int64 is as good as the largest.
func position(s string, absent int64) (int64, bool) {
	if s == "" {
		return absent, true
	}
	if strings.Trim(s, "0123456789") != "" {
		return 0, false
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return math.MaxInt64, true
	}
	return n, true
}
