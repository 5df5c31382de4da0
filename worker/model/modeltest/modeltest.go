// Package modeltest is a model server for tests. It speaks chat completions
// (POST /v1/chat/completions) and Anthropic Messages (POST /v1/messages), plays
// one scripted Step per request, down to single bytes and broken sockets, and
// keeps what it was asked. Like the real servers it refuses requests that break
// their protocol with a 400, so that a test of anything above it notices.
//
// The program in its subfolder modelserver serves a YAML script from a process
// of its own; GET /requests shows what it was asked.
package modeltest

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/goccy/go-yaml"
)

// A Script says how the server answers.
type Script struct {
	// By is how the step of a request is found: "request" (the default) counts
	// requests, "turn" counts the assistant's messages since the user's last
	// words, so that a request that is made again gets the same answer.
	By    string `yaml:"by"`
	Steps []Step `yaml:"steps"`
	Loop  bool   `yaml:"loop"` // the last step answers all further requests
}

// A Step is one answer: reasoning, then text, then calls.
type Step struct {
	Reasoning string   `yaml:"reasoning"`
	Signature string   `yaml:"signature"` // Anthropic: of the reasoning
	Redacted  string   `yaml:"redacted"`  // Anthropic: a redacted_thinking block
	Text      string   `yaml:"text"`
	Refusal   string   `yaml:"refusal"` // chat completions: a refusal delta
	Calls     []Call   `yaml:"calls"`
	Finish    string   `yaml:"finish"` // the protocol's word; by default stop or calls
	Usage     Usage    `yaml:"usage"`
	Pace      Pace     `yaml:"pace"`
	Refuse    *Refuse  `yaml:"refuse"`
	Fault     string   `yaml:"fault"` // error | stall | end | cut, see Faults
	After     int      `yaml:"after"` // deltas before the fault; 0: all, -1: none; more than there are: the finish too
	Error     string   `yaml:"error"` // the error event's JSON, for fault error
	Quirks    []string `yaml:"quirks"`
}

// Faults of a stream: an error event, silence, a clean end that says nothing, a
// socket that is cut; and deaf, silence before the response begins.
const (
	FaultError = "error"
	FaultStall = "stall"
	FaultEnd   = "end"
	FaultCut   = "cut"
	FaultDeaf  = "deaf"
)

// Quirks of chat-completions servers.
const (
	OmitIndex      = "omit_index"      // tool call deltas without index
	ZeroIndex      = "zero_index"      // all of them with index 0
	RepeatID       = "repeat_id"       // id and name in every delta of a call
	NoID           = "no_id"           // calls without id
	WholeCalls     = "whole_calls"     // each call in one chunk
	ObjectArgs     = "object_args"     // arguments as an object, not a string; with whole_calls
	Interleave     = "interleave"      // deltas of the calls in turn
	NoUsage        = "no_usage"        // no usage chunk
	PlainReasoning = "plain_reasoning" // the member is called reasoning
	BothReasoning  = "both_reasoning"  // reasoning and reasoning_content
	NoDone         = "no_done"         // no [DONE]
	CRLF           = "crlf"            // both protocols
	Pings          = "pings"           // both: a comment or ping before every event
	WholeInput     = "whole_input"     // Anthropic: input in content_block_start
	NoStreamOption = "no_stream_options"
	WantsNewLimit  = "wants_max_completion_tokens"
)

// A Call of a tool.
type Call struct {
	ID   string `yaml:"id"` // call_<n> where empty
	Name string `yaml:"name"`
	Args string `yaml:"args"` // raw
}

// Usage in tokens.
type Usage struct {
	Input     int `yaml:"input"`
	Output    int `yaml:"output"`
	Reasoning int `yaml:"reasoning"`
	Cached    int `yaml:"cached"`
}

// Pace says how fast and in what pieces a stream comes.
type Pace struct {
	Start time.Duration `yaml:"start"` // before the response
	Delay time.Duration `yaml:"delay"` // between deltas
	Runes int           `yaml:"runes"` // per delta; 0: 8
	Bytes int           `yaml:"bytes"` // per TCP write; 0: a whole event
}

// Refuse answers with a status instead of a stream.
type Refuse struct {
	Status     int               `yaml:"status"`
	RetryAfter string            `yaml:"retry_after"`
	Headers    map[string]string `yaml:"headers"`
	Body       string            `yaml:"body"`
}

// Parse reads a script; errors say line and column.
func Parse(text []byte) (Script, error) {
	var s Script
	return s, yaml.UnmarshalWithOptions(text, &s, yaml.Strict())
}

// A Server answers on URL until Close. It is safe for concurrent use.
type Server struct {
	URL string // http://127.0.0.1:port

	script Script
	http   *http.Server
	closed chan struct{}

	mu       sync.Mutex
	requests []*Request
	arrived  chan struct{} // closed and renewed with each request
}

// Start serves the steps, one per request.
func Start(steps ...Step) *Server { return Serve(Script{Steps: steps}, "127.0.0.1:0") }

// Serve plays a script on an address. It panics where it cannot listen.
func Serve(script Script, address string) *Server {
	l, err := net.Listen("tcp", address)
	if err != nil {
		panic(err)
	}
	s := &Server{URL: "http://" + l.Addr().String(), script: script, closed: make(chan struct{}), arrived: make(chan struct{})}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/chat/completions", func(w http.ResponseWriter, r *http.Request) { s.answer(w, r, OpenAI) })
	mux.HandleFunc("POST /v1/messages", func(w http.ResponseWriter, r *http.Request) { s.answer(w, r, Anthropic) })
	mux.HandleFunc("GET /requests", s.show)
	s.http = &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = s.http.Serve(l) }()
	return s
}

// OpenAI returns the base URL for chat completions, Anthropic that for Messages.
func (s *Server) OpenAI() string    { return s.URL + "/v1" }
func (s *Server) Anthropic() string { return s.URL }

// Close ends the server, streams that stall included.
func (s *Server) Close() {
	close(s.closed)
	_ = s.http.Close()
}

// Protocol of a request.
type Protocol string

// Protocols.
const (
	OpenAI    Protocol = "openai"
	Anthropic Protocol = "anthropic"
)

// A Request that the server got. Step is the index of the step that answers it,
// -1 where it was refused; Problem says why.
type Request struct {
	Protocol Protocol        `json:"protocol"`
	Step     int             `json:"step"`
	Problem  string          `json:"problem,omitempty"`
	Header   http.Header     `json:"-"`
	Body     json.RawMessage `json:"body"`
	Began    time.Time       `json:"began"`

	done    chan struct{} // the answer is over
	mu      sync.Mutex
	ended   time.Time
	dropped bool
}

// Done is closed when the server is through with the request.
func (r *Request) Done() <-chan struct{} { return r.done }

// Dropped reports whether the client closed its socket before the answer was
// over, and when the server noticed. Only valid after Done.
func (r *Request) Dropped() (bool, time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.dropped, r.ended
}

func (r *Request) end(dropped bool) {
	r.mu.Lock()
	r.ended, r.dropped = time.Now(), dropped
	r.mu.Unlock()
	close(r.done)
}

// Requests returns what came so far, in order of arrival.
func (s *Server) Requests() []*Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]*Request(nil), s.requests...)
}

// Wait returns the n-th request (1, 2, …), waiting until it comes or ctx ends.
func (s *Server) Wait(ctx context.Context, n int) (*Request, error) {
	for {
		s.mu.Lock()
		if len(s.requests) >= n {
			defer s.mu.Unlock()
			return s.requests[n-1], nil
		}
		arrived := s.arrived
		s.mu.Unlock()
		select {
		case <-arrived:
		case <-s.closed:
			return nil, net.ErrClosed
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// take records a request and finds its step.
func (s *Server) take(r *http.Request, p Protocol) (*Request, *Step) {
	body, _ := io.ReadAll(r.Body)
	req := &Request{Protocol: p, Header: r.Header.Clone(), Body: body, Began: time.Now(), done: make(chan struct{}), Step: -1}
	asked, err := check(p, r.Header, body)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests = append(s.requests, req)
	close(s.arrived)
	s.arrived = make(chan struct{})
	if err != nil {
		req.Problem = err.Error()
		return req, nil
	}
	n := len(s.requests) - 1
	if s.script.By == "turn" {
		n = asked.turn
	}
	if n >= len(s.script.Steps) && s.script.Loop {
		n = len(s.script.Steps) - 1
	}
	if n < 0 || n >= len(s.script.Steps) {
		req.Problem = "the script has no step " + strconv.Itoa(n+1)
		return req, nil
	}
	step := &s.script.Steps[n]
	if req.Problem = asked.refused(step); req.Problem != "" {
		return req, nil
	}
	req.Step = n
	return req, step
}

// show lists the requests as JSON; ?wait=N first waits for the N-th.
func (s *Server) show(w http.ResponseWriter, r *http.Request) {
	if n, err := strconv.Atoi(r.URL.Query().Get("wait")); err == nil {
		if _, err := s.Wait(r.Context(), n); err != nil {
			return
		}
	}
	type shown struct {
		*Request
		Ended   *time.Time `json:"ended,omitempty"`
		Dropped bool       `json:"dropped,omitempty"`
	}
	list := []shown{}
	for _, req := range s.Requests() {
		one := shown{Request: req}
		select {
		case <-req.done:
			dropped, at := req.Dropped()
			one.Dropped, one.Ended = dropped, &at
		default:
		}
		list = append(list, one)
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(list)
}
