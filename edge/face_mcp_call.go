package edge

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/runlog-dev/runlog/edge/dialect"
	"github.com/runlog-dev/runlog/edge/dialect/mcp"
	"github.com/runlog-dev/runlog/edge/stream"
	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/eventlog"
)

// mcpParams are those of a call.
type mcpParams struct {
	Name      string          `json:"name"`
	Arguments json.RawMessage `json:"arguments"`
	Meta      struct {
		Token json.RawMessage `json:"progressToken"`
		Key   string          `json:"dev.runlog/idempotency_key"`
	} `json:"_meta"`
}

// An mcpRun is the run that a call is about, and where its caller stands.
type mcpRun struct {
	*namedRun
	key   mcpKey
	after stream.Position
}

// An mcpKey says, within the ids of a stream's events, whose answer it is.
type mcpKey struct {
	Run   string          `json:"r"`
	ID    json.RawMessage `json:"i"`
	Token json.RawMessage `json:"t,omitempty"`
	Asks  bool            `json:"a,omitempty"`
	From  event.Seq       `json:"f,omitempty"`
	Still int64           `json:"s,omitempty"`
}

func (k mcpKey) String() string { return base64.RawURLEncoding.EncodeToString(event.Encode(k)) }

func (k mcpKey) dialect() mcp.Dialect {
	return mcp.Dialect{Run: k.Run, ID: string(k.ID), Token: string(k.Token), Asks: k.Asks, From: k.From, Still: k.Still}
}

// readMCPKey takes an event's id apart.
func readMCPKey(id string) (k mcpKey, at stream.Position, err error) {
	whose, position, _ := strings.Cut(id, ":")
	raw, err := base64.RawURLEncoding.DecodeString(whose)
	if err == nil {
		err = json.Unmarshal(raw, &k)
	}
	if err != nil || len(k.ID) == 0 || !jsonScalar(k.ID) || len(k.Token) > 0 && !jsonScalar(k.Token) {
		return k, at, bad("Last-Event-ID", "%.100q is no id of an event of this server", id)
	}
	at, err = stream.ParsePosition(position)
	return k, at, err
}

// jsonScalar reports whether a value may be an id or a token.
func jsonScalar(raw json.RawMessage) bool {
	return strings.ContainsRune(`"-0123456789`, rune(raw[0]))
}

// mcpCall runs an agent, and answers when the run ends or waits for somebody whom
// the client cannot ask: in a stream, or, for who takes nothing but JSON, at once.
func (s *Server) mcpCall(w http.ResponseWriter, r *http.Request, c *call, m *mcpMessage) error {
	n, err := s.acceptCall(r, c, m)
	if err != nil {
		p := toProblem(err)
		if p.Code == rpcNoMethod {
			return writeRPC(w, rpcAnswer{ID: m.ID, Error: &rpcError{Code: rpcParams, Message: p.Detail}})
		}
		if p.Status >= 500 || p.Status == http.StatusTooManyRequests {
			return err
		}
		return writeRPC(w, rpcAnswer{ID: m.ID, Result: mcpRefused(p)})
	}
	if !acceptsStream(r) {
		return s.mcpWhole(w, r, c, n)
	}
	return s.mcpStream(w, r, c, n)
}

// acceptsStream reports whether a client reads event streams.
func acceptsStream(r *http.Request) bool {
	accept := strings.ToLower(strings.Join(r.Header.Values("Accept"), ","))
	return accept == "" || strings.Contains(accept, "text/event-stream") || strings.Contains(accept, "*/*")
}

// mcpRefused is a result that says what the caller, a model most likely, did wrong.
func mcpRefused(p *Problem) any {
	type text struct {
		Type string `json:"type"`
		Text string `json:"text"`
	}
	return struct {
		Content []text `json:"content"`
		IsError bool   `json:"isError"`
	}{[]text{{"text", string(p.Code) + ": " + p.Detail}}, true}
}

func (s *Server) acceptCall(r *http.Request, c *call, m *mcpMessage) (*mcpRun, error) {
	var p mcpParams
	if err := decodeOpen(m.Params, &p); err != nil {
		return nil, err
	}
	if len(p.Meta.Token) > 0 && (!jsonScalar(p.Meta.Token) || len(p.Meta.Token) > maxKey) {
		return nil, bad("_meta.progressToken", "progressToken is a string or a number, of at most %d bytes", maxKey)
	}
	agent, err := s.mcpAgent(r, p.Name)
	if err != nil {
		return nil, err
	}
	var n *mcpRun
	switch {
	case agent != "":
		n, err = s.invokeCall(r, c, m, &p, agent)
	case p.Name == mcp.FollowTool:
		n, err = s.followCall(r, c, &p)
	default:
		err = problem(http.StatusNotFound, rpcNoMethod, "there is no tool %q: tools/list has those there are", p.Name)
	}
	if err != nil {
		return nil, err
	}
	n.key.Run, n.key.ID, n.key.Token, n.key.Asks = n.place.runID, m.ID, p.Meta.Token, strings.HasSuffix(m.session, mcpAsks)
	return n, nil
}

// attach is about a run that there was before: what it has waited for is nobody's
// business any more, but for what it waits for now.
func (s *Server) attach(ctx context.Context, at runPlace) (*mcpRun, error) {
	st, _, err := s.state(ctx, at)
	n := &mcpRun{namedRun: there(at), key: mcpKey{From: st.Seq}}
	if st.ExpiresAt != nil {
		n.key.Still = st.ExpiresAt.UnixMicro()
	}
	return n, err
}

// followCall is about a run that is there.
func (s *Server) followCall(r *http.Request, c *call, p *mcpParams) (*mcpRun, error) {
	var args struct {
		RunID string `json:"run_id"`
	}
	if err := decode(p.Arguments, &args); err != nil {
		return nil, err
	}
	at, err := s.findRun(r.Context(), c, args.RunID)
	if err != nil {
		return nil, err
	}
	return s.attach(r.Context(), at)
}

// invokeCall starts a run. The same request of a session again is the same run,
// and so is, of whichever session, one with the same idempotency key.
func (s *Server) invokeCall(r *http.Request, c *call, m *mcpMessage, p *mcpParams, agent string) (*mcpRun, error) {
	var args struct {
		Input     json.RawMessage `json:"input"`
		SessionID string          `json:"session_id"`
	}
	if err := decode(p.Arguments, &args); err != nil {
		return nil, err
	}
	req := runRequest{Agent: agent, SessionID: args.SessionID, Input: args.Input}
	if m.session != "" {
		req.RunID = mcpRunID(m.session, m.ID)
	}
	sub, err := s.submission(r, c, event.Encode([]any{agent, p.Arguments}), req)
	if err != nil {
		return nil, err
	}
	if sub.idempotencyKey = ""; p.Meta.Key != "" {
		sub.idempotencyKey = "mcp/" + cut(p.Meta.Key, maxKey)
	}
	ref, _, err := s.reserve(r.Context(), sub)
	if err == nil && !ref.Accepted {
		err = s.mcpFree(r.Context(), c, args.SessionID, ref.RunID)
	}
	if err == nil && req.RunID != "" && ref.RunID != req.RunID {
		err = s.alsoCalled(r.Context(), c, ref, req.RunID)
	}
	if err != nil {
		return nil, err
	}
	if ref.Accepted {
		return s.attach(r.Context(), placeOf(sub.tenant, ref))
	}
	return &mcpRun{namedRun: s.reserved(sub, ref)}, nil
}

// mcpFree refuses to say something to a conversation that waits for something
// else: a model would cancel what somebody is asked about.
func (s *Server) mcpFree(ctx context.Context, c *call, session, run string) error {
	if session == "" {
		return nil
	}
	fold, err := s.threadFold(ctx, c, session)
	if err != nil {
		return err
	}
	if parked := fold.Parked(); parked != nil && parked.RunID != run && fold.Run(run) == nil {
		return problem(http.StatusConflict, event.CodeConflict, "this conversation waits for somebody: follow its run %s with %s, or begin a new conversation", parked.RunID, mcp.FollowTool)
	}
	return nil
}

// alsoCalled gives a run another name, by which it can be cancelled.
func (s *Server) alsoCalled(ctx context.Context, c *call, ref eventlog.RunRef, name string) error {
	also, _, err := s.Log.Reserve(ctx, c.who.Tenant, "", eventlog.RunRef{RunID: name, SessionID: ref.SessionID, TraceID: ref.TraceID, Agent: ref.Agent,
		CommandID: name + ".follow", After: ref.After, BodyHash: ref.BodyHash, Created: event.At(time.Now()), Continues: ref.RunID})
	if err != nil {
		return err
	}
	return s.Log.Accept(ctx, also)
}

// mcpResume goes on with the stream of a call. A stream for what belongs to no
// call there is not.
func (s *Server) mcpResume(w http.ResponseWriter, r *http.Request, c *call) error {
	id := r.Header.Get("Last-Event-ID")
	if id == "" {
		p := problem(http.StatusMethodNotAllowed, event.CodeBadRequest, "there is nothing to listen to but answers to calls; GET goes on with one, by Last-Event-ID")
		p.allow = http.MethodPost
		return p
	}
	key, after, err := readMCPKey(id)
	if err != nil {
		return err
	}
	at, err := s.findRun(r.Context(), c, key.Run)
	if err != nil {
		return err
	}
	return s.mcpStream(w, r, c, &mcpRun{namedRun: there(at), key: key, after: after})
}

// made is what the call is encoded by, to where it is answered.
func (n *mcpRun) made() (*mcp.Call, stream.Request) {
	d := n.key.dialect()
	made := mcp.NewCall(d)
	return made, stream.Request{Dialect: dialect.With(d, made), Ends: func(event.Event) bool { return made.Over() }}
}

func (s *Server) mcpStream(w http.ResponseWriter, r *http.Request, c *call, n *mcpRun) error {
	_, req := n.made()
	primes := r.Header.Get(mcpVersionHeader) >= mcpPrimes
	req.After, req.Transport, req.Empty = n.after, mcpEvents{n.key.String(), n.after.String(), primes}, true
	return s.startStream(w, r, c, n.namedRun, req)
}

// mcpWhole answers with the response alone.
func (s *Server) mcpWhole(w http.ResponseWriter, r *http.Request, c *call, n *mcpRun) error {
	n.key.Token, n.key.Asks = nil, false // there is no way to
	made, req := n.made()
	if err := s.readThrough(r.Context(), n.place, n.start, req); err != nil {
		return err
	}
	c.note("session", n.place.key.Session)
	c.note("run", n.place.runID)
	if !made.Over() {
		return writeRPC(w, rpcAnswer{ID: n.key.ID, Result: mcpRefused(problem(0, event.CodeUnavailable,
			"the run takes longer than a request may: call %s with the run_id %s", mcp.FollowTool, n.place.runID))})
	}
	writeJSON(w, http.StatusOK, made.Response())
	return nil
}

// mcpEvents are server-sent events whose ids name their call. A stream begins with
// the id of where it begins, so that it can be resumed before anything was said.
type mcpEvents struct {
	key, at string
	primes  bool
}

// ContentType of server-sent events.
func (mcpEvents) ContentType() string { return stream.SSE{}.ContentType() }

// Append writes id and data.
func (t mcpEvents) Append(b []byte, id string, m dialect.Message) []byte {
	if id != "" {
		id = t.key + ":" + id
	}
	return stream.SSE{}.Append(b, id, m)
}

// Hello says where the stream begins, and when to come back.
func (t mcpEvents) Hello(b []byte) []byte {
	b = strconv.AppendInt(append(b, "retry: "...), 500+rand.Int64N(1000), 10)
	b = fmt.Appendf(b, "\nid: %s:%s\n", t.key, t.at)
	if t.primes {
		b = append(b, "data: \n"...)
	}
	return append(b, '\n')
}

// Ping is a comment.
func (mcpEvents) Ping(b []byte) []byte { return stream.SSE{}.Ping(b) }
