package edge

import (
	"encoding/json"
	"net/http"
	"slices"
	"strconv"

	"github.com/runlog-dev/runlog/edge/dialect"
	"github.com/runlog-dev/runlog/edge/dialect/openai"
	"github.com/runlog-dev/runlog/edge/stream"
)

// inputItems lists what a response was asked: messages, or the answers that its
// run went on with. What came with earlier responses is theirs.
func (s *Server) inputItems(w http.ResponseWriter, r *http.Request, c *call) error {
	n, err := s.findNamed(r.Context(), c, r.PathValue("response"))
	if err != nil {
		return err
	}
	d := responseDialect(n)
	asked := openai.NewInputs(d)
	req := stream.Request{Dialect: dialect.With(d, asked), NoFollow: true, Ends: parksAfter(d.From)}
	if err := s.readThrough(r.Context(), n.place, n.start, req); err != nil {
		return err
	}
	page, err := itemsPage(r, asked.Items)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, page)
	return nil
}

// An itemPage is a list as OpenAI's SDKs page through it.
type itemPage struct {
	Object  string            `json:"object"`
	Data    []json.RawMessage `json:"data"`
	FirstID *string           `json:"first_id"`
	LastID  *string           `json:"last_id"`
	HasMore bool              `json:"has_more"`
}

// Limits of a page.
const (
	itemsLimit    = 20
	maxItemsLimit = 100
)

// itemsPage takes order (desc if none is named), after and limit.
func itemsPage(r *http.Request, items []openai.InputItem) (itemPage, error) {
	q := r.URL.Query()
	page := itemPage{Object: "list", Data: []json.RawMessage{}}
	switch order := q.Get("order"); order {
	case "asc":
	case "", "desc":
		slices.Reverse(items)
	default:
		return page, bad("order", "order=%s is neither asc nor desc", order)
	}
	if after := q.Get("after"); after != "" {
		i := slices.IndexFunc(items, func(i openai.InputItem) bool { return i.ID == after })
		if i < 0 {
			return page, bad("after", "after=%s is none of the response's input items", after)
		}
		items = items[i+1:]
	}
	limit := itemsLimit
	if v := q.Get("limit"); v != "" {
		n, err := strconv.Atoi(v)
		if err != nil || n < 1 || n > maxItemsLimit {
			return page, bad("limit", "limit=%s is not a number from 1 to %d", v, maxItemsLimit)
		}
		limit = n
	}
	page.HasMore = len(items) > limit
	items = items[:min(limit, len(items))]
	for _, i := range items {
		page.Data = append(page.Data, i.JSON)
	}
	if n := len(items); n > 0 {
		page.FirstID, page.LastID = &items[0].ID, &items[n-1].ID
	}
	return page, nil
}

// deleteResponse refuses: a response is a part of its session's log, from which
// nothing is taken away, and who was told that it is gone would rely on it.
func (s *Server) deleteResponse(_ http.ResponseWriter, r *http.Request, c *call) error {
	n, err := s.findNamed(r.Context(), c, r.PathValue("response"))
	if err != nil {
		return err
	}
	return unsupported("response_id", "a response cannot be deleted: it is a part of the log of its session, %s, which is kept as a whole; "+
		"to end a response that is under way, cancel it", n.place.key.Session)
}
