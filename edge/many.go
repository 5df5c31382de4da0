package edge

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/runlog-dev/runlog/edge/dialect/native"
	"github.com/runlog-dev/runlog/edge/stream"
)

// maxSessions is how many sessions one connection may follow: each has a viewer.
const maxSessions = 100

// manySessions follows sessions over one connection, with one cursor for all. Like
// a session's own stream it does not end, and is aborted where it must.
func (s *Server) manySessions(w http.ResponseWriter, r *http.Request, c *call) error {
	ids, at, err := namedSessions(r)
	if err != nil {
		return err
	}
	base, err := s.manyRequest(r, c)
	if err != nil {
		return err
	}
	transport := base.Transport
	if _, ok := transport.(stream.NDJSON); ok {
		transport = stream.Lines{}
	}
	ctx, done, err := s.admit(r.Context())
	if err != nil {
		return err
	}
	defer done()
	leave, err := s.enterMany(c, len(ids))
	if err != nil {
		return err
	}
	defer leave()
	viewers, err := s.viewAll(ctx, c, ids, at, base.Part())
	defer func() {
		for _, v := range viewers {
			if v != nil {
				v.Close()
			}
		}
	}()
	if err != nil {
		return err
	}
	return s.serveMany(ctx, w, c, transport, at, viewers, base.NoFollow)
}

// namedSessions reads which sessions to follow, each from where: the cursor of all says
// so, or else each name, by a position behind a slash, which no id has. That is for
// those whose sessions have become others: their cursor fits no more.
func namedSessions(r *http.Request) (ids []string, at stream.Positions, err error) {
	named := r.URL.Query()["session"]
	if len(named) == 0 || len(named) > maxSessions {
		return nil, at, bad("session", "name 1 to %d sessions: ?session=a&session=b", maxSessions)
	}
	seen, from := map[string]bool{}, make([]stream.Position, len(named))
	for i, name := range named {
		id, after, _ := strings.Cut(name, "/")
		if seen[id] {
			return nil, at, bad("session", "session=%s is named twice", id)
		}
		if from[i], err = stream.ParsePosition(after); err != nil {
			return nil, at, err
		}
		ids, seen[id] = append(ids, id), true
	}
	at = stream.NewPositions(ids)
	at.At = from
	return ids, at, at.Parse(cursor(r))
}

// manyRequest reads what is the same for all sessions.
func (s *Server) manyRequest(r *http.Request, c *call) (stream.Request, error) {
	r = r.Clone(r.Context())
	r.Header.Del("Last-Event-ID")
	q := r.URL.Query()
	for _, name := range cursors {
		q.Del(name)
	}
	r.URL.RawQuery = q.Encode()
	req, err := s.streamRequest(r, c, native.Dialect{})
	if err != nil {
		return req, err
	}
	if req.Dialect != (native.Dialect{}) {
		return req, bad("dialect", "a stream of many sessions speaks the native dialect alone")
	}
	return req, nil
}

// viewAll subscribes to all sessions, or to none. Of their snapshots only the first is
// taken before the answer begins, so that an edge that has no room for any says so. All
// at once they might never have room: each would wait for one that is not sent before.
func (s *Server) viewAll(ctx context.Context, c *call, ids []string, at stream.Positions, base stream.Request) ([]*stream.Viewer, error) {
	c.note("sessions", strconv.Itoa(len(ids)))
	viewers := make([]*stream.Viewer, len(ids))
	first := slices.Index(at.At, stream.Position{})
	g, ctx := errgroup.WithContext(ctx) // what fails for one session is not waited for in the others
	g.SetLimit(16)
	for i, id := range ids {
		g.Go(func() error {
			if ctx.Err() != nil { // nothing more is asked for
				return context.Cause(ctx)
			}
			k, err := sessionKey(&call{who: c.who}, id)
			if err != nil {
				return err
			}
			req := base
			req.Key, req.After = k, at.At[i]
			req.Snapshot = base.Snapshot && req.After == stream.Position{} // else the client has one, or what it would tell
			req.Later = i != first
			v, err := s.view(ctx, req)
			if err != nil {
				return err
			}
			viewers[i] = v
			_, err = v.Prepare(ctx)
			return ofSession(id, err)
		})
	}
	return viewers, g.Wait()
}

// ofSession says which of many sessions has another log than the client thinks.
func ofSession(id string, err error) error {
	var ahead *stream.AheadError
	if !errors.As(err, &ahead) {
		return err
	}
	p := toProblem(err)
	p.Param, p.Detail = "session", "session "+id+": "+p.Detail
	return p
}

func (s *Server) serveMany(ctx context.Context, w http.ResponseWriter, c *call, t stream.Transport, at stream.Positions, viewers []*stream.Viewer, history bool) error {
	if c.method == http.MethodHead { // see begin
		writeStreamHeader(w, t)
		return nil
	}
	if err := s.beginStream(w, c, t); err != nil {
		return err
	}
	if !history {
		var leave context.CancelFunc
		ctx, leave = attended(ctx)
		defer leave()
	}
	return s.streamOver(c, history, s.hub.ServeMany(ctx, w, t, at, viewers))
}
