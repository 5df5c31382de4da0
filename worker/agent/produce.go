package agent

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"hash"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/worker/tool"
)

// progressEvery bounds how often a call's or an artifact's progress is logged.
const progressEvery = 200 * time.Millisecond

// progressLog logs what a tool reports while it runs: the first report at once,
// later ones at most every progressEvery, the newest when the call returns.
type progressLog struct {
	call *toolCall

	mu     sync.Mutex
	last   time.Time
	held   *event.Progress
	closed bool
}

func (p *progressLog) report(report event.Progress) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return // late: the call has its result
	}
	if time.Since(p.last) < progressEvery {
		p.held = &report
		return
	}
	p.write(report)
}

func (p *progressLog) write(report event.Progress) {
	p.last, p.held = time.Now(), nil
	report.Message = head(p.call.run.Redactor.String(report.Message), 4<<10)
	// A journal that takes no more shows at the call's result.
	_ = p.call.append(p.call.run.hidden(p.call.internal, event.ToolProgress, event.ToolProgressData{CallID: p.call.call.CallID, Progress: report}))
}

func (p *progressLog) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.held != nil {
		p.write(*p.held)
	}
	p.closed = true
}

// artifactLog gives a call its artifacts, and logs them while they grow.
type artifactLog struct {
	call *toolCall

	mu      sync.Mutex
	writers []*artifactWriter
	again   []*event.Artifact // completed before, by lost attempts, and not taken up again yet
}

// newArtifactLog finds what the call's lost attempts have completed: when the
// same is written again, it is not a second artifact.
func newArtifactLog(t *toolCall) *artifactLog {
	l := &artifactLog{call: t}
	if t.call.Attempt < 2 {
		return l
	}
	used := map[string]bool{} // by calls that have their result
	for _, c := range t.view.ToolCalls {
		if c.Artifact != nil {
			used[c.Artifact.ArtifactID] = true
		}
		for _, p := range c.Content {
			used[p.ArtifactID] = true
		}
	}
	for _, a := range t.view.Artifacts {
		mine := a.CallID == t.call.CallID
		if a.RunID == t.run.id && mine && a.Status == event.Completed && !used[a.ArtifactID] {
			l.again = append(l.again, a)
		}
	}
	return l
}

// keptBy is for files that no call has written, but the agent of the run itself, which
// lives elsewhere.
func keptBy(r *Run) *artifactLog {
	l := &artifactLog{call: &toolCall{run: r, call: &event.ToolCall{}}}
	r.Journal.Look(func(s *event.Session) {
		for _, a := range s.Artifacts {
			if a.RunID == r.id && a.Status == event.Completed {
				there := *a
				l.again = append(l.again, &there)
			}
		}
	})
	return l
}

// same takes up what a lost attempt has completed with this content, or nil.
func (l *artifactLog) same(p event.Part, sha256 string) *event.Artifact {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, a := range l.again {
		if a.Name == p.Name && a.MediaType == p.MediaType && a.Bytes == p.Bytes && a.SHA256 == sha256 {
			l.again = slices.Delete(l.again, i, i+1)
			return a
		}
	}
	return nil
}

func (l *artifactLog) create(ctx context.Context, name, mediaType string) (tool.ArtifactWriter, error) {
	id := event.NewID("art")
	name = l.call.run.Redactor.String(name)
	blob, err := l.call.run.Artifacts.Create(ctx, id, name, mediaType)
	if err != nil {
		return nil, err
	}
	w := &artifactWriter{from: l, call: l.call, blob: blob, sum: sha256.New(),
		part: event.ArtifactPart(id, name, mediaType, 0)}
	l.mu.Lock()
	l.writers = append(l.writers, w)
	silent := len(l.again) > 0 // until it shows that it is another one
	l.mu.Unlock()
	if silent {
		return w, nil
	}
	if err := w.announce(); err != nil {
		w.Abort()
		return nil, err
	}
	return w, nil
}

func (l *artifactLog) read(ctx context.Context, id string) (io.ReadSeekCloser, event.Part, error) {
	r, err := l.call.run.Artifacts.Open(ctx, id)
	if err != nil {
		return nil, event.Part{}, err
	}
	name, mediaType, bytes := r.About()
	return r, event.ArtifactPart(id, name, mediaType, bytes), nil
}

// close drops what the tool began and did not commit.
func (l *artifactLog) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, w := range l.writers {
		w.Abort()
	}
}

// An artifactWriter is one artifact of a call. Its bytes are the tool's own:
// artifacts are not redacted.
type artifactWriter struct {
	from *artifactLog
	call *toolCall
	blob Blob
	part event.Part
	sum  hash.Hash

	announced bool
	last      time.Time
	reported  int64
	done      bool
}

func (w *artifactWriter) announce() error {
	w.announced = true
	return w.log(event.ArtifactStarted, event.ArtifactStartedData{
		ArtifactID: w.part.ArtifactID, CallID: w.call.call.CallID, Name: w.part.Name, MediaType: w.part.MediaType})
}

func (w *artifactWriter) log(t event.Type, data any) error {
	return w.call.append(w.call.run.hidden(w.call.internal, t, data))
}

// progressBytes is how much an artifact grows at least between two reports.
const progressBytes = 64 << 10

func (w *artifactWriter) Write(p []byte) (int, error) {
	n, err := w.blob.Write(p)
	w.part.Bytes += int64(n)
	w.sum.Write(p[:n])
	if err != nil {
		return n, err
	}
	if w.announced && w.part.Bytes-w.reported >= progressBytes && time.Since(w.last) >= progressEvery {
		w.last, w.reported = time.Now(), w.part.Bytes
		err = w.log(event.ArtifactProgress, event.ArtifactProgressData{ArtifactID: w.part.ArtifactID, Bytes: w.part.Bytes})
	}
	return n, err
}

func (w *artifactWriter) Commit(ctx context.Context) (event.Part, error) {
	if !w.announced {
		if a := w.from.same(w.part, hex.EncodeToString(w.sum.Sum(nil))); a != nil {
			w.Abort()
			w.part.ArtifactID, w.part.URL = a.ArtifactID, a.URL
			return w.part, nil
		}
		if err := w.announce(); err != nil {
			return event.Part{}, err
		}
	}
	bytes, sum, err := w.blob.Commit(ctx)
	if err != nil {
		return event.Part{}, err // what is left of it goes when the call returns
	}
	w.done = true
	w.part.Bytes = bytes
	p := w.part
	return p, w.log(event.ArtifactCompleted, event.ArtifactCompletedData{
		ArtifactID: p.ArtifactID, CallID: w.call.call.CallID, Name: p.Name, MediaType: p.MediaType, Bytes: bytes, SHA256: sum, URL: p.URL})
}

func (w *artifactWriter) Abort() {
	if !w.done {
		w.done = true
		w.blob.Abort()
	}
}
