package edge

import (
	"context"
	"crypto/sha256"
	"encoding/base32"
	"strconv"
	"strings"

	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/eventlog"
)

// named gives messages without an id one that a repetition of the request
// gives again. In a resent conversation the messages that the session holds get
// the ids that they have there, so that they are known; the last one is new
// input unless it stands there too.
func (s *Server) named(ctx context.Context, k eventlog.Key, ref eventlog.RunRef, list []inputMessage) ([]event.InputMessage, error) {
	var held []*event.Message
	if ref.After > 0 && len(list) > 1 {
		fold, err := s.load(ctx, k)
		if err != nil {
			return nil, err
		}
		held = fold.Messages
	}
	list, err := distinct(list)
	if err != nil {
		return nil, err
	}
	matched := len(list) > 1 // as long as both conversations are the same
	messages := make([]event.InputMessage, len(list))
	for i, m := range list {
		matched = matched && i < len(held) && same(held[i], m)
		switch {
		case m.MessageID != "":
		case matched:
			m.MessageID = held[i].MessageID
		case i == len(list)-1:
			m.MessageID = derivedID("msg", ref.RunID, strconv.Itoa(i), string(m.Role), m.text)
		default:
			m.MessageID = derivedID("msg", "", strconv.Itoa(i), string(m.Role), m.text)
		}
		messages[i] = m.InputMessage
	}
	return messages, nil
}

// same reports whether a held message is what a client sends again: role and
// text, and the calls' ids where it has no text.
func same(held *event.Message, m inputMessage) bool {
	if held.Role != m.Role {
		return false
	}
	var had, has strings.Builder
	for _, p := range held.Parts {
		writePart(&had, *p)
	}
	for _, p := range m.Parts {
		writePart(&has, p)
	}
	for _, c := range m.Calls {
		writePart(&has, event.Part{Type: event.PartToolCall, CallID: c.CallID})
	}
	return had.String() == has.String()
}

func writePart(b *strings.Builder, p event.Part) {
	switch p.Type {
	case event.PartReasoning: // clients do not send it back
	case event.PartText:
		b.WriteString(p.Text)
	default:
		b.WriteString("\x00" + string(p.Type) + "\x00" + p.CallID + p.ArtifactID + p.URL)
	}
}

var idDigits = base32.NewEncoding("0123456789abcdefghjkmnpqrstvwxyz").WithPadding(base32.NoPadding)

// derivedID makes an id of what it stands for.
func derivedID(prefix string, of ...string) string {
	h := sha256.New()
	for _, s := range of {
		h.Write([]byte(strconv.Itoa(len(s)) + ":" + s))
	}
	return prefix + "_" + idDigits.EncodeToString(h.Sum(nil)[:16])
}
