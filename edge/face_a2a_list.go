package edge

import (
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/runlog-dev/runlog/edge/dialect/a2a"
	"github.com/runlog-dev/runlog/event"
)

type a2aListParams struct {
	ContextID string    `json:"contextId"`
	Status    a2a.State `json:"status"`
	Since     string    `json:"statusTimestampAfter"`
	PageSize  *int      `json:"pageSize"`
	PageToken string    `json:"pageToken"` // the last task of the page before
	History   *int      `json:"historyLength"`
	Artifacts bool      `json:"includeArtifacts"`
}

// Sizes of a page.
const (
	a2aPage    = 50
	a2aMaxPage = 100
)

type a2aTasks struct {
	Tasks []a2a.Task `json:"tasks"`
	Next  string     `json:"nextPageToken"`
	Size  int        `json:"pageSize"`
	Total int        `json:"totalSize"`
}

// a2aList lists the agent's tasks in a context, the newest one first. One that is
// on its way and has no event yet is not there.
func (s *Server) a2aList(r *http.Request, c *call, q *rpcCall) (any, error) {
	var p a2aListParams
	if err := decodeOpen(q.Params, &p); err != nil {
		return nil, err
	}
	if p.ContextID == "" {
		return nil, a2aUnsupported("name a contextId: tasks are listed context by context; GET /v1/runs searches all of them")
	}
	fold, err := s.foldToTell(r.Context(), c, p.ContextID)
	var missing *Problem
	switch {
	case errors.As(err, &missing) && missing.Status == http.StatusNotFound:
		fold = event.NewSession(p.ContextID)
	case err != nil:
		return nil, err
	}
	return p.page(fold, r.PathValue("agent"), a2a.Dialect{Base: s.base(r)})
}

func (p *a2aListParams) page(fold *event.Session, agent string, d a2a.Dialect) (a2aTasks, error) {
	page := a2aTasks{Tasks: []a2a.Task{}, Size: a2aPage}
	if p.PageSize != nil {
		page.Size = *p.PageSize
	}
	if page.Size < 1 || page.Size > a2aMaxPage {
		return page, bad("pageSize", "pageSize is %d; send 1 to %d", page.Size, a2aMaxPage)
	}
	all, err := p.wanted(fold, agent, d)
	if err != nil {
		return page, err
	}
	page.Total = len(all)
	if p.PageToken != "" {
		i := slices.IndexFunc(all, func(run *event.Run) bool { return run.RunID == p.PageToken })
		if i < 0 {
			return page, bad("pageToken", "pageToken is none of this list's: start without one")
		}
		all = all[i+1:]
	}
	for _, run := range all[:min(page.Size, len(all))] {
		page.Tasks = append(page.Tasks, p.task(fold, run, d))
	}
	if n := len(page.Tasks); n < len(all) {
		page.Next = page.Tasks[n-1].ID
	}
	return page, nil
}

func (p *a2aListParams) task(fold *event.Session, run *event.Run, d a2a.Dialect) a2a.Task {
	history := a2a.AllHistory
	if p.History != nil {
		history = max(*p.History, 0)
	}
	t := d.Task(fold, run, history)
	if !p.Artifacts {
		t.Artifacts = nil
	}
	return t
}

// wanted are the runs whose tasks are asked for, the newest one first.
func (p *a2aListParams) wanted(fold *event.Session, agent string, d a2a.Dialect) (list []*event.Run, err error) {
	var since time.Time
	if p.Since != "" {
		if since, err = time.Parse(time.RFC3339, p.Since); err != nil {
			return nil, bad("statusTimestampAfter", "statusTimestampAfter is no time like 2006-01-02T15:04:05Z")
		}
	}
	for _, run := range slices.Backward(fold.Runs) {
		if run.ParentRunID != "" || agent != "" && run.Agent != agent {
			continue
		}
		stands := d.Status(fold, run)
		at, _ := time.Parse(time.RFC3339, stands.Timestamp) // none: it has not begun
		if (p.Status == "" || stands.State == p.Status) && !at.Before(since) {
			list = append(list, run)
		}
	}
	return list, nil
}
