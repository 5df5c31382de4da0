package event

import (
	"strconv"
	"strings"
)

// An Epoch tells events that were appended after the log was restored from a backup from
// those that the backup lacks: of the same session and with the same seq, but others. It
// is 0 until the log is restored for the first time, and then the time of the latest
// restore in Unix seconds, so that no two are the same, whichever backup was used.
type Epoch uint32

// String is what positions and ids carry behind a ~: digits and small letters. It is
// empty for 0.
func (e Epoch) String() string {
	if e == 0 {
		return ""
	}
	return strconv.FormatUint(uint64(e), 36)
}

// ParseEpoch reads what String writes.
func ParseEpoch(s string) (Epoch, error) {
	n, err := strconv.ParseUint(s, 36, 32)
	return Epoch(n), err
}

// AppendPosition appends the name of an event in its session: 41, or 41~tkqezo where the
// event was appended after a restore.
func AppendPosition(b []byte, seq Seq, epoch Epoch) []byte {
	b = strconv.AppendUint(b, uint64(seq), 10)
	if epoch == 0 {
		return b
	}
	return strconv.AppendUint(append(b, '~'), uint64(epoch), 36)
}

// NameIn is the id of an event of a session: <session>-<seq>, and ~<epoch> if that is not 0.
func NameIn(session string, seq Seq, epoch Epoch) string {
	b := make([]byte, 0, len(session)+24)
	return string(AppendPosition(append(append(b, session...), '-'), seq, epoch))
}

// Epoch is the one in which the event was appended, by its id.
func (e Event) Epoch() Epoch {
	tail, ours := strings.CutPrefix(e.ID, e.SessionID)
	if _, epoch, ok := strings.Cut(tail, "~"); ok && ours {
		n, _ := ParseEpoch(epoch)
		return n
	}
	return 0
}
