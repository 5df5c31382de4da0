package openai

import (
	"strings"

	"github.com/runlog-dev/runlog/edge/dialect"
	"github.com/runlog-dev/runlog/event"
)

// Chat is the stream of a chat completion: what the model writes, and the calls
// of the client's own tools. Nothing that was sent can be taken back, so where an
// attempt is discarded of which the client has something, the completion ends with
// an error; who repeats the request with its idempotency key gets the run without.
type Chat struct {
	dialect.Quiet

	Run   string    // the run
	ID    string    // of the completion; empty: the run's
	From  event.Seq // the completion is what comes after this event
	Usage bool      // the client wants a last chunk that counts tokens
	Whole bool      // nobody reads the stream: only what it comes to counts
}

// Name is openai-chat.
func (Chat) Name() string { return "openai-chat" }

// Begin returns an encoder.
func (d Chat) Begin() dialect.Encoder { return NewCompletion(d) }

// NewCompletion returns an encoder that can be asked for the completion so far.
func NewCompletion(d Chat) *Completion { return &Completion{d: d} }

// Event encodes an event as if it were the first.
func (d Chat) Event(e event.Event, line []byte, to dialect.Audience) []dialect.Message {
	return d.Begin().Next(e, line, to)
}

// Snapshot tells the run from a fold.
func (d Chat) Snapshot(kind dialect.Kind, s *event.Session, to dialect.Audience) []dialect.Message {
	return d.Begin().Snapshot(kind, s, to)
}

// Lost says what chat completions have no word for.
func (Chat) Lost() map[event.Type]string {
	const own = "a tool that runs here is not the client's to know"
	const beside = "a completion holds what the model says, and nothing beside it"
	lost := map[event.Type]string{
		event.StepStarted: "a completion has no steps", event.StepCompleted: "a completion has no steps",
		event.ToolArgs: "the arguments have come in pieces", event.ToolRunning: own, event.ToolProgress: own,
		event.ToolCompleted: own, event.ToolFailed: own,
		event.ApprovalRequested: "the completion waits", event.ApprovalResolved: "the completion goes on",
		event.MessageStarted: "a completion is one message", event.MessageCompleted: "a completion is one message",
		event.RunQueued: "the client has sent it", event.RunRecovered: "shows only in what is discarded",
		event.SessionCreated: "there are none", event.BudgetExceeded: "shows in the error",
	}
	for _, t := range []event.Type{event.ReasoningStarted, event.ReasoningDelta, event.ReasoningCompleted, event.ArtifactStarted,
		event.ArtifactProgress, event.ArtifactCompleted, event.StateSnapshot, event.StateDelta, event.ActivitySnapshot,
		event.ActivityDelta, event.Custom} {
		lost[t] = beside
	}
	return lost
}

// A Completion is a chat completion in the making.
type Completion struct {
	d      Chat
	id     string
	head   []byte // what each chunk begins with
	model  string
	at     int64
	begun  bool
	over   bool
	text   []byte
	calls  []*toolCall
	client map[string]*toolCall
	// What stands if the attempt is discarded.
	standing      int
	standingCalls int
	before        map[string][2]int // the two, before an answer

	message string // whose text came last
	finish  string
	usage   *chatUsage
	failed  *event.RunError
}

// Kept is the size of the text so far.
func (c *Completion) Kept() int { return len(c.text) }

type toolCall struct {
	Index    *int     `json:"index,omitempty"`
	ID       string   `json:"id,omitempty"`
	Type     string   `json:"type,omitempty"`
	Function function `json:"function"`
}

type function struct {
	Name string `json:"name,omitempty"`
	Args string `json:"arguments"`
}

type chatUsage struct {
	Prompt        int64 `json:"prompt_tokens"`
	Completion    int64 `json:"completion_tokens"`
	Total         int64 `json:"total_tokens"`
	PromptDetails struct {
		Cached int64 `json:"cached_tokens"`
	} `json:"prompt_tokens_details"`
	CompletionDetails struct {
		Reasoning int64 `json:"reasoning_tokens"`
	} `json:"completion_tokens_details"`
}

// CallID is the id by which the client knows a call: it brings its result to the
// run, since requests name no session.
func CallID(callID, runID string) string { return callID + "@" + runID }

// CutCallID takes it apart; runID is empty if it is another one.
func CutCallID(id string) (callID, runID string) {
	if at := strings.LastIndexByte(id, '@'); at >= 0 {
		return id[:at], id[at+1:]
	}
	return id, ""
}

// Next tells of an event.
func (c *Completion) Next(e event.Event, _ []byte, _ dialect.Audience) []dialect.Message {
	if e.Internal || e.Agent != "" {
		return nil
	}
	if c.client == nil || e.Type == event.RunStarted {
		c.reset(e)
	}
	tell := chatTellers[e.Type]
	if tell == nil || c.over && e.Type != event.RunStarted {
		return nil
	}
	if e.Seq <= c.d.From && e.Type != event.RunStarted {
		return nil
	}
	return tell(c, e)
}

// Snapshot tells the run anew, if it has begun.
func (c *Completion) Snapshot(_ dialect.Kind, s *event.Session, to dialect.Audience) []dialect.Message {
	run := s.Run(c.d.Run)
	if run == nil || run.StartedAt == nil {
		return nil
	}
	c.d.From = 0
	return dialect.Retold(c, s, run, to)
}

func (c *Completion) reset(e event.Event) {
	*c = Completion{d: c.d, id: c.d.ID, at: max(e.Time.Unix(), 0), client: map[string]*toolCall{}, before: map[string][2]int{}}
	if c.id == "" {
		c.id = e.RunID
	}
}

var done = dialect.Message{Data: []byte("[DONE]")}

// begin says who speaks.
func (c *Completion) begin() []dialect.Message {
	if c.begun {
		return nil
	}
	c.begun = true
	head := dialect.NewObject(256).Text("id", c.id).Text("object", "chat.completion.chunk").Value("created", c.at).Text("model", c.model)
	c.head = append(head, `,"choices":[`...)
	return []dialect.Message{c.chunk(`{"role":"assistant","content":""}`, "")}
}

// chunk is a piece of the only choice.
func (c *Completion) chunk(delta, finish string) dialect.Message {
	b := make([]byte, 0, len(c.head)+len(delta)+64)
	b = append(append(b, c.head...), `{"index":0,"delta":`...)
	b = append(append(b, delta...), `,"finish_reason":`...)
	if finish == "" {
		b = append(b, "null"...)
	} else {
		b = append(append(append(b, '"'), finish...), '"')
	}
	return dialect.Message{Data: append(b, "}]}"...)}
}

func (c *Completion) textDelta(e event.Event) []dialect.Message {
	id, text, ok := dialect.Delta(e.Data)
	if !ok {
		return nil
	}
	list := c.begin()
	if string(id) != c.message {
		if c.message != "" && len(c.text) > 0 { // another step's text is another paragraph
			c.text = append(c.text, "\n\n"...)
			list = append(list, c.chunk(`{"content":"\n\n"}`, ""))
		}
		c.message = string(id)
	}
	c.text = append(c.text, dialect.Unquoted(text)...)
	b := make([]byte, 0, len(c.head)+len(text)+80)
	b = append(append(b, c.head...), `{"index":0,"delta":{"content":`...)
	b = append(append(b, text...), `},"finish_reason":null}]}`...)
	return append(list, dialect.Message{Data: b})
}

func (c *Completion) toolStarted(e event.Event, d event.ToolStartedData) []dialect.Message {
	if d.Executor != event.ByClient || e.CommandID != "" {
		return nil
	}
	n := len(c.calls)
	t := &toolCall{&n, CallID(d.CallID, e.RunID), "function", function{Name: d.Name}}
	c.calls = append(c.calls, t)
	c.client[d.CallID] = t
	return append(c.begin(), c.chunk(string(event.Encode(callDelta{[]toolCall{*t}})), ""))
}

type callDelta struct {
	Calls []toolCall `json:"tool_calls"`
}

func (c *Completion) argsDelta(e event.Event, d event.ToolArgsDeltaData) []dialect.Message {
	t := c.client[d.CallID]
	if t == nil {
		return nil
	}
	t.Function.Args += d.Delta
	return []dialect.Message{c.chunk(string(event.Encode(callDelta{[]toolCall{{Index: t.Index, Function: function{Args: d.Delta}}}})), "")}
}

// messageCompleted: what has been said stands, unless all of it is taken back.
func (c *Completion) messageCompleted(_ event.Event, d event.MessageCompletedData) []dialect.Message {
	c.before[d.MessageID] = [2]int{c.standing, c.standingCalls}
	c.standing, c.standingCalls = len(c.text), len(c.calls)
	return nil
}

// discarded fails the stream if the client has something of the attempt.
func (c *Completion) discarded(_ event.Event, d event.MessageDiscardedData) []dialect.Message {
	if stood, ok := c.before[d.MessageID]; ok {
		c.standing, c.standingCalls = stood[0], stood[1]
	}
	if len(c.text) == c.standing && len(c.calls) == c.standingCalls {
		return nil
	}
	c.text, c.calls, c.message = c.text[:c.standing], c.calls[:c.standingCalls], ""
	if c.d.Whole {
		return nil
	}
	return c.fails("interrupted", "the model broke off, and begins its answer anew: repeat the request with the same Idempotency-Key to get it")
}
