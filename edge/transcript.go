package edge

import (
	"github.com/runlog-dev/runlog/event"
)

// A transcript is a finished run with what was said and done in it.
type transcript struct {
	runState
	Text      string            `json:"text"` // of its last message
	Messages  []*event.Message  `json:"messages"`
	ToolCalls []*event.ToolCall `json:"tool_calls,omitempty"`
	Artifacts []*event.Artifact `json:"artifacts,omitempty"`
}

func transcriptOf(st runState, fold *event.Session) transcript {
	t := transcript{runState: st, Messages: []*event.Message{}}
	public := fold.Public()
	for _, m := range public.Messages {
		if m.RunID == st.RunID {
			t.Messages = append(t.Messages, m)
			if m.Role == event.RoleAssistant {
				t.Text = event.TextOf(event.Values(m.Parts))
			}
		}
	}
	for _, tc := range public.ToolCalls {
		if tc.RunID == st.RunID {
			t.ToolCalls = append(t.ToolCalls, tc)
		}
	}
	for _, a := range public.Artifacts {
		if a.RunID == st.RunID {
			t.Artifacts = append(t.Artifacts, a)
		}
	}
	return t
}
