package systemtest

import (
	"bytes"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/runlog-dev/runlog/event"
)

// Another tenant's ids are not there, on any route; and what another tenant creates under the same ids is its own.
func tenantWalls(t *testing.T, p *production) {
	mine, theirs := p.at[0], p.at[1].with(p.rival)
	r := mine.finish(t, request{Input: "write secret of acme"})
	art := r.Artifacts[0].ArtifactID
	eventually(t, "the catalog", func() bool {
		a, err := mine.try(t.Context(), http.MethodGet, "/v1/traces/"+r.TraceID, "")
		return err == nil && a.StatusCode == http.StatusOK
	})
	paths := []struct{ method, mine, nobody string }{
		{"GET", "/v1/runs/" + r.RunID, "/v1/runs/run_nobody"},
		{"GET", "/v1/runs/" + r.RunID + "/events", "/v1/runs/run_nobody/events"},
		{"POST", "/v1/runs/" + r.RunID + "/cancel", "/v1/runs/run_nobody/cancel"},
		{"GET", "/v1/sessions/" + r.SessionID, "/v1/sessions/ses_nobody"},
		{"GET", "/v1/sessions/" + r.SessionID + "/events", "/v1/sessions/ses_nobody/events"},
		{"GET", "/v1/sessions/" + r.SessionID + "/snapshot", "/v1/sessions/ses_nobody/snapshot"},
		{"GET", "/v1/sessions/" + r.SessionID + "/messages", "/v1/sessions/ses_nobody/messages"},
		{"GET", "/v1/traces/" + r.TraceID, "/v1/traces/nobody"},
		{"GET", "/v1/traces/" + r.TraceID + "/events", "/v1/traces/nobody/events"},
		{"GET", "/artifacts/" + art, "/artifacts/art_nobody"},
		{"GET", "/v1/artifacts/" + art, "/v1/artifacts/art_nobody"},
	}
	for _, path := range paths {
		body := ""
		if path.method == "POST" {
			body = "{}"
		}
		status := http.StatusOK
		if s := into404(t, theirs, path.method, path.mine, body); !bytes.Equal(s, into404(t, theirs, path.method, path.nobody, body)) {
			t.Errorf("%s %s does not read like what was never there: %s", path.method, path.mine, s)
		}
		mine.do(t, status, path.method, path.mine+end(path.mine), body)
	}
	theirs.do(t, http.StatusNotFound, http.MethodHead, "/artifacts/"+art, "")
	theirs.refused(t, http.StatusNotFound, event.CodeNotFound, "GET", "/artifacts/"+art, "", "Range", "bytes=0-3")
	theirs.refused(t, http.StatusNotFound, event.CodeNotFound, "GET", "/v1/sessions/"+r.SessionID+"/events", "", "Accept", sse, "Last-Event-ID", "999999")
	theirs.refused(t, http.StatusNotFound, event.CodeNotFound, "GET", "/v1/runs/"+r.RunID+"/events?include=internal&snapshot=1", "", "Accept", ndjson)
	list := theirs.get(t, "/v1/runs?trace_id="+r.TraceID)
	if bytes.Contains(list.body, []byte(r.RunID)) {
		t.Errorf("the search shows %s", list.body)
	}
	sameIDs(t, p, mine, theirs, r)
}

// end makes a path one that answers at once, as those of traces do.
func end(path string) string {
	if strings.HasSuffix(path, "/events") && !strings.HasPrefix(path, "/v1/traces/") {
		return "?follow=false"
	}
	return ""
}

// into404 returns the problem of a request, without the id that was asked for.
func into404(t *testing.T, e edge, method, path, body string) []byte {
	t.Helper()
	p := e.refused(t, http.StatusNotFound, event.CodeNotFound, method, path, body, "Accept", "*/*")
	return []byte(string(p.Code) + wordsOnly(p.Detail))
}

// wordsOnly leaves out what is quoted.
func wordsOnly(s string) string {
	out, quoted := "", false
	for _, r := range s {
		if r == '"' {
			quoted = !quoted
		}
		if !quoted {
			out += string(r)
		}
	}
	return out
}

// sameIDs lets the other tenant use the very ids: it gets a session of its own.
func sameIDs(t *testing.T, p *production, mine, theirs edge, r run) {
	t.Helper()
	before := mine.get(t, "/v1/sessions/"+r.SessionID+"/snapshot").body
	got := theirs.finish(t, request{SessionID: r.SessionID, TraceID: r.TraceID, Input: "create if absent"})
	if got.Text != "You said: create if absent" {
		t.Errorf("%+v", got)
	}
	log := checkLog(t, theirs, r.SessionID)
	for _, e := range log {
		if bytes.Contains(e.Data, []byte("secret")) {
			t.Errorf("event %d shows %s", e.Seq, e.Data)
		}
	}
	sameConversation(t, "my session after another tenant used its id", mine.get(t, "/v1/sessions/"+r.SessionID+"/snapshot").body, before)
	checkLog(t, mine, r.SessionID)
	// The run's id is taken in this tenant alone.
	body := string(event.Encode(map[string]string{"agent": "probe", "run_id": r.RunID, "input": "mine now"}))
	if own := into[run](t, theirs.do(t, http.StatusOK, "POST", "/v1/runs?wait=60s", body)); own.RunID != r.RunID || own.SessionID == r.SessionID {
		t.Errorf("%+v", own)
	}
	if still := mine.state(t, r.RunID); still.SessionID != r.SessionID {
		t.Errorf("my run is %+v", still)
	}
	// A key without the audit scope sees nothing internal.
	plain := p.at[0].with(p.command("keys", "create", "--tenant", "acme"))
	plain.refused(t, http.StatusForbidden, event.CodeForbidden, "GET", "/v1/sessions/"+r.SessionID+"/events?include=internal", "", "Accept", sse)
	plain.refused(t, http.StatusForbidden, event.CodeForbidden, "GET", "/v1/sessions/"+r.SessionID+"/snapshot?include=internal", "")
	keyLife(t, p)
}

// keyLife revokes a key before it was used: nobody takes it.
func keyLife(t *testing.T, p *production) {
	t.Helper()
	secret := p.command("keys", "create", "--tenant", "short-lived", "--name", "gone")
	list := strings.Fields(p.command("keys", "list", "--tenant", "short-lived"))
	i := slices.IndexFunc(list, func(word string) bool { return strings.HasPrefix(word, "key_") })
	if i < 0 || strings.Contains(strings.Join(list, " "), secret) {
		t.Fatalf("keys list shows %v", list)
	}
	p.command("keys", "revoke", "--tenant", "short-lived", "--id", list[i])
	p.at[0].with(secret).refused(t, http.StatusUnauthorized, event.CodeUnauthorized, "GET", "/v1/runs", "")
	if again := p.command("keys", "list", "--tenant", "short-lived"); !strings.Contains(again, "revoked") {
		t.Errorf("keys list shows %s", again)
	}
}
