package event

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strings"
)

// A View chooses what of a session goes into a provider's messages. The zero
// value is the request with which a model continues the conversation: valid for
// the provider whatever prefix of the log was folded. Open tool calls have a
// result that says why there is none, an attempt that is being written is left
// out, user and assistant take turns, and the last word is not the assistant's.
type View struct {
	System string // rendered system prompt; system messages of the log follow it
	// RunID of a sub-agent's run leaves only that run; any other value shows the
	// conversation without its sub-agents.
	RunID string
	// Reasoning adds what the model thought to the OpenAI form, as
	// reasoning_content. Anthropic's form always has what is signed.
	Reasoning bool
	// Transcript shows the conversation as it stands, for readers: ids, names
	// and order as they are in the log, nothing added to please a provider, calls
	// without result left open, texts that are being written as far as they are.
	Transcript bool
	Public     bool // without what is internal
	// Cut is what is left out of a request; nil: what the log says of RunID.
	Cut *Cut
}

// OpenAIMessages returns the messages array of a chat-completions request that
// continues the conversation. The session is read, not changed.
func (s *Session) OpenAIMessages(system string) json.RawMessage {
	return s.OpenAIView(View{System: system})
}

// AnthropicMessages returns the system prompt and the messages array of an
// Anthropic Messages request that continues the conversation.
func (s *Session) AnthropicMessages(system string) (sys string, messages json.RawMessage) {
	return s.AnthropicView(View{System: system})
}

// What stands in for a turn that a provider demands and nobody wrote.
const (
	wordBegin    = "Begin."
	wordContinue = "Continue."
)

// A turn is what one side says before it is the other's turn.
type turn struct {
	role   Role
	blocks []block
}

// A block is a piece of a turn: text, reasoning, or a call with its result.
type block struct {
	kind      PartType // PartText, PartReasoning or PartToolCall
	text      string
	signature string
	call      *wireCall
}

// A wireCall is a call with its result as a model reads it.
type wireCall struct {
	id, name string
	args     string // a JSON object
	raw      string // the model's own text
	result   string
	failed   bool
	open     bool // transcripts only: no result yet
}

func (t *turn) calls() []*wireCall {
	var calls []*wireCall
	for _, b := range t.blocks {
		if b.kind == PartToolCall {
			calls = append(calls, b.call)
		}
	}
	return calls
}

// text joins the texts of the turn.
func (t *turn) text() string { return t.join(PartText) }

func (t *turn) join(kind PartType) string {
	var texts []string
	for _, b := range t.blocks {
		if b.kind == kind && b.text != "" {
			texts = append(texts, b.text)
		}
	}
	return strings.Join(texts, "\n\n")
}

// turns brings the session into the order that both providers share. System
// messages are joined into the first result, except in transcripts.
func (v View) turns(s *Session) (system string, turns []*turn) {
	if v.Public {
		s = s.Public()
	}
	b := v.builder(s)
	shown := without(s.Messages, func(m *Message) bool { return !v.shows(b.runs, m) })
	shown = b.cut(s, shown)
	for i, m := range shown {
		b.add(m, i == len(shown)-1)
	}
	if !v.Transcript {
		b.end()
	}
	return strings.Join(b.system, "\n\n"), b.turns
}

// shows keeps sub-agents and their parents apart.
func (v View) shows(runs map[string]*Run, m *Message) bool {
	if child := runs[v.RunID]; child != nil && child.ParentRunID != "" {
		return m.RunID == v.RunID
	}
	r := runs[m.RunID]
	return r == nil || r.ParentRunID == ""
}

// A turnBuilder walks the messages once.
type turnBuilder struct {
	View
	calls  map[string]*ToolCall
	ofMsg  map[string][]*ToolCall
	runs   map[string]*Run
	used   map[string]bool // calls that have been placed
	system []string
	turns  []*turn
	short  map[string]bool // messages whose calls' results are shortened
}

// cut leaves out what is too much for the model.
func (b *turnBuilder) cut(s *Session, shown []*Message) []*Message {
	if b.Transcript {
		return shown
	}
	cut := s.CutOf(b.RunID)
	if b.Cut != nil {
		cut = *b.Cut
	}
	if cut.Results != "" && s.messages[cut.Results] != nil {
		b.short = map[string]bool{}
		for _, m := range shown {
			if b.short[m.MessageID] = true; m.MessageID == cut.Results {
				break
			}
		}
	}
	list, some := cut.kept(shown)
	if some {
		b.say(wordCut)
	}
	return list
}

func (v View) builder(s *Session) *turnBuilder {
	b := &turnBuilder{View: v, calls: map[string]*ToolCall{}, ofMsg: map[string][]*ToolCall{},
		runs: map[string]*Run{}, used: map[string]bool{}}
	if !blank(v.System) {
		b.system = append(b.system, v.System)
	}
	for _, c := range s.ToolCalls {
		b.calls[c.CallID] = c
		b.ofMsg[c.MessageID] = append(b.ofMsg[c.MessageID], c)
	}
	for _, r := range s.Runs {
		b.runs[r.RunID] = r
	}
	return b
}

func (b *turnBuilder) add(m *Message, last bool) {
	switch {
	case m.Role == RoleAssistant:
		if !b.unfinished(m, last) {
			b.push(RoleAssistant, b.assistant(m))
		}
	case m.Role == RoleSystem && !b.Transcript:
		b.system = append(b.system, texts(m)...)
	case m.Role == RoleSystem:
		b.push(RoleSystem, textBlocks(texts(m)))
	default:
		b.push(RoleUser, textBlocks(texts(m)))
	}
}

// unfinished reports that the message is an attempt that nothing has followed
// yet: the model writes it anew.
func (b *turnBuilder) unfinished(m *Message, last bool) bool {
	if b.Transcript || !last || m.Status != Streaming {
		return false
	}
	for _, c := range b.ofMsg[m.MessageID] {
		if c.Status != Pending {
			return false
		}
	}
	return true
}

// push adds a turn, joined with the one before where both are the user's, and
// after a word of the user's where both are the assistant's.
func (b *turnBuilder) push(role Role, blocks []block) {
	if len(blocks) == 0 {
		return
	}
	last := b.last()
	switch {
	case b.Transcript:
	case last == nil:
		b.begin(role)
	case last.role != role:
	case role == RoleUser:
		last.blocks = append(last.blocks, blocks...)
		return
	case len(last.calls()) == 0:
		b.say(wordContinue)
	}
	b.turns = append(b.turns, &turn{role: role, blocks: blocks})
}

// begin gives the user the first word.
func (b *turnBuilder) begin(role Role) {
	if role != RoleUser {
		b.say(wordBegin)
	}
}

func (b *turnBuilder) last() *turn {
	if len(b.turns) == 0 {
		return nil
	}
	return b.turns[len(b.turns)-1]
}

func (b *turnBuilder) say(word string) {
	b.turns = append(b.turns, &turn{role: RoleUser, blocks: textBlocks([]string{word})})
}

// end gives the model the last word to answer.
func (b *turnBuilder) end() {
	switch last := b.last(); {
	case last == nil:
		b.say(wordBegin)
	case last.role == RoleAssistant && len(last.calls()) == 0:
		b.say(wordContinue)
	}
}

// assistant returns the blocks of an assistant's message. Reasoning at the end,
// which no provider takes, is left out of requests.
func (b *turnBuilder) assistant(m *Message) []block {
	var blocks []block
	for i, p := range m.Parts {
		switch p.Type {
		case PartReasoning:
			if text := m.textOf(i); p.Signature != "" || !blank(text) {
				blocks = append(blocks, block{kind: PartReasoning, text: text, signature: p.Signature})
			}
		case PartToolCall:
			blocks = b.appendCall(blocks, b.calls[p.CallID], m)
		default:
			if text := m.textOf(i); !blank(text) {
				blocks = append(blocks, block{kind: PartText, text: text})
			}
		}
	}
	for _, c := range b.ofMsg[m.MessageID] {
		blocks = b.appendCall(blocks, c, m)
	}
	for n := len(blocks); !b.Transcript && n > 0 && blocks[n-1].kind == PartReasoning; n-- {
		blocks = blocks[:n-1]
	}
	return blocks
}

// appendCall adds a call once. One whose arguments are still being written is
// left out.
func (b *turnBuilder) appendCall(blocks []block, c *ToolCall, m *Message) []block {
	if c == nil || b.used[c.CallID] || (m.Status == Streaming && c.Status == Pending && !b.Transcript) {
		return blocks
	}
	b.used[c.CallID] = true
	return append(blocks, block{kind: PartToolCall, call: b.wire(c)})
}

func (b *turnBuilder) wire(c *ToolCall) *wireCall {
	w := &wireCall{id: c.CallID, name: c.Name, raw: c.ArgsSoFar(), result: c.result(), failed: c.Status != Completed}
	if b.short[c.MessageID] {
		w.result = c.shortened(w.result)
	}
	var note string
	w.args, note = objectArgs(w.raw)
	if b.Transcript {
		w.open = !c.Done()
		return w
	}
	w.id, w.name, w.raw = wireID(c.CallID), WireName(c.Name), w.args
	w.result = join("\n\n", w.result, note)
	return w
}

// textOf returns a part as text, with what it is still gaining.
func (m *Message) textOf(i int) string {
	if p := m.Parts[i]; len(p.growing) > 0 {
		return p.Text + string(p.growing)
	}
	return m.Parts[i].asText()
}

func texts(m *Message) []string {
	var list []string
	for i, p := range m.Parts {
		if p.Type == PartReasoning || p.Type == PartToolCall {
			continue
		}
		if text := m.textOf(i); !blank(text) {
			list = append(list, text)
		}
	}
	return list
}

func textBlocks(texts []string) []block {
	var blocks []block
	for _, t := range texts {
		blocks = append(blocks, block{kind: PartText, text: t})
	}
	return blocks
}

func blank(s string) bool { return strings.TrimSpace(s) == "" }

// join joins what is not empty.
func join(sep string, list ...string) string {
	var kept []string
	for _, s := range list {
		if s != "" {
			kept = append(kept, s)
		}
	}
	return strings.Join(kept, sep)
}

// Limits that the strictest provider sets for ids and names.
const (
	maxWireID   = 40
	maxWireName = 64
)

// WireName returns the tool name that providers are told: the name itself where
// it is up to 64 letters, digits, _ and -, otherwise one made from it that no
// other name shares.
func WireName(name string) string { return wireWord(name, maxWireName, "tool") }

// wireID is WireName for call ids (40 characters).
func wireID(id string) string { return wireWord(id, maxWireID, "call") }

func wireWord(s string, limit int, empty string) string {
	plain := strings.Map(wireRune, s)
	if plain == s && s != "" && len(s) <= limit {
		return s
	}
	if plain == "" {
		plain = empty
	}
	sum := sha256.Sum256([]byte(s))
	tail := "_" + hex.EncodeToString(sum[:6])
	if over := len(plain) + len(tail) - limit; over > 0 {
		plain = plain[:len(plain)-over]
	}
	return plain + tail
}

func wireRune(r rune) rune {
	switch {
	case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '_', r == '-':
		return r
	}
	return '_'
}
