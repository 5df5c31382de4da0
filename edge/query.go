package edge

import (
	"encoding/json"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"
)

// queries are what each route of openapi.json takes in its query, by pattern. The
// value says whether a parameter may be repeated.
var queries = sync.OnceValue(func() map[string]map[string]bool {
	var doc struct {
		Paths map[string]map[string]struct {
			Parameters []struct {
				Name, In string
				Explode  bool
			}
		}
	}
	if err := json.Unmarshal(openAPIDocument, &doc); err != nil {
		panic("openapi.json: " + err.Error()) // it is built in, and a test reads it
	}
	all := map[string]map[string]bool{}
	for path, methods := range doc.Paths {
		for method, op := range methods {
			known := map[string]bool{}
			for _, p := range op.Parameters {
				if p.In == "query" {
					known[p.Name] = p.Explode
				}
			}
			all[strings.ToUpper(method)+" "+path] = known
		}
	}
	return all
})

// checkQuery refuses what a route of runlog's own does not know: ?afer=41 must not
// replay everything. Faces of other protocols take what their clients add.
func checkQuery(r *http.Request, pattern string) error {
	if r.URL.RawQuery == "" || !strings.Contains(pattern, " /v1/") {
		return nil
	}
	known, ours := queries()[pattern]
	if !ours {
		return nil
	}
	q, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return bad("", "the query cannot be read: %s; percent-encode what it holds", err)
	}
	for _, name := range slices.Sorted(maps.Keys(q)) {
		repeats, ok := known[name]
		if !ok {
			return unknownQuery(name, known)
		}
		if len(q[name]) > 1 && !repeats {
			return bad(name, "%s is there %d times in the query; send it once", name, len(q[name]))
		}
	}
	return nil
}

func unknownQuery(name string, known map[string]bool) error {
	p := bad(name, "there is no parameter %q here", name)
	if p.Known = slices.Sorted(maps.Keys(known)); len(p.Known) > 0 {
		p.Detail += "; known: " + strings.Join(p.Known, ", ")
	}
	return p
}

func boolParam(r *http.Request, name string, def bool) (bool, error) {
	switch v := r.URL.Query().Get(name); v {
	case "":
		return def, nil
	case "1", "true":
		return true, nil
	case "0", "false":
		return false, nil
	default:
		return def, bad(name, "%s=%s is neither true nor false", name, v)
	}
}

func timeParam(v, name string) (time.Time, error) {
	if v == "" {
		return time.Time{}, nil
	}
	t, err := time.Parse(time.RFC3339, v)
	if err != nil {
		return t, bad(name, "%s=%s is not a time like 2006-01-02T15:04:05Z", name, v)
	}
	return t, nil
}

// waitParam reads ?wait=: a duration, or seconds.
func (s *Server) waitParam(r *http.Request) (time.Duration, error) {
	v := r.URL.Query().Get("wait")
	if v == "" {
		return 0, nil
	}
	d, err := time.ParseDuration(v)
	if err != nil {
		d, err = time.ParseDuration(v + "s")
	}
	if err != nil || d < 0 || d > s.opts.MaxWait {
		return 0, bad("wait", "wait=%s is not a time from 0s to %s", v, s.opts.MaxWait)
	}
	return d, nil
}
