package model_test

import (
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/worker/model"
	"github.com/runlog-dev/runlog/worker/model/modeltest"
)

func TestStatuses(t *testing.T) {
	date := time.Now().Add(90 * time.Second).UTC().Format(http.TimeFormat)
	for name, c := range map[string]struct {
		refuse modeltest.Refuse
		code   event.Code
		retry  bool
		after  time.Duration
		says   string
	}{
		"429 seconds":  {modeltest.Refuse{Status: 429, RetryAfter: "7"}, event.CodeUnavailable, true, 7 * time.Second, "429"},
		"429 date":     {modeltest.Refuse{Status: 429, RetryAfter: date}, event.CodeUnavailable, true, 90 * time.Second, "429"},
		"429 ms":       {modeltest.Refuse{Status: 429, RetryAfter: "7", Headers: map[string]string{"Retry-After-Ms": "1500"}}, event.CodeUnavailable, true, 1500 * time.Millisecond, "429"},
		"429 quota":    {modeltest.Refuse{Status: 429, Body: `{"error":{"message":"pay","type":"insufficient_quota","code":"insufficient_quota"}}`}, event.CodeModelError, false, 0, "quota"},
		"529":          {modeltest.Refuse{Status: 529, RetryAfter: "1"}, event.CodeUnavailable, true, time.Second, "529"},
		"503 page":     {modeltest.Refuse{Status: 503, Body: "<html>busy</html>"}, event.CodeUnavailable, true, 0, "503"},
		"502 text":     {modeltest.Refuse{Status: 502, Body: "upstream is down"}, event.CodeUnavailable, true, 0, "upstream is down"},
		"500":          {modeltest.Refuse{Status: 500}, event.CodeUnavailable, true, 0, "500"},
		"408":          {modeltest.Refuse{Status: 408}, event.CodeUnavailable, true, 0, "408"},
		"500 no retry": {modeltest.Refuse{Status: 500, Headers: map[string]string{"X-Should-Retry": "false"}}, event.CodeUnavailable, false, 0, "500"},
		"400":          {modeltest.Refuse{Status: 400, Body: `{"error":{"message":"bad schema","type":"invalid_request_error"}}`}, event.CodeModelError, false, 0, "bad schema"},
		"400 too long": {modeltest.Refuse{Status: 400, Body: `{"error":{"message":"prompt is too long: 9 tokens","type":"invalid_request_error"}}`}, event.CodeModelError, false, 0, "longer than the model takes"},
		"400 filter":   {modeltest.Refuse{Status: 400, Body: `{"error":{"message":"no","code":"content_filter"}}`}, event.CodeModelRefused, false, 0, "content filter"},
		"422 detail":   {modeltest.Refuse{Status: 422, Body: `{"detail":[{"msg":"field required"}]}`}, event.CodeModelError, false, 0, "field required"},
		"401":          {modeltest.Refuse{Status: 401, Body: `{"error":{"message":"Incorrect API key provided: ` + key + `"}}`}, event.CodeModelError, false, 0, "check api_key"},
		"404":          {modeltest.Refuse{Status: 404, Body: `{"error":"model 'test' not found"}`}, event.CodeModelError, false, 0, `a model "test"`},
		"200 json":     {modeltest.Refuse{Status: 200, Headers: map[string]string{"Content-Type": "application/json"}, Body: `{"choices":[]}`}, event.CodeModelError, false, 0, "base_url"},
	} {
		t.Run(name, func(t *testing.T) {
			each(t, []modeltest.Step{{Refuse: &c.refuse}}, func(t *testing.T, p provider, s *modeltest.Server) {
				e := failure(t, p.model(t, s))
				off := c.after - e.RetryAfter
				if e.Code != c.code || e.Retryable != c.retry || off < 0 || off > 30*time.Second || !strings.Contains(e.Message, c.says) {
					t.Errorf("got %+v, want code %s, retry %v after %s, saying %q", e, c.code, c.retry, c.after, c.says)
				}
				if n := len(s.Requests()); n != 1 {
					t.Errorf("%d requests, want 1: retries are the loop's", n)
				}
			})
		})
	}
}

func TestFaultsOfStreams(t *testing.T) {
	calls := []modeltest.Call{{Name: "plain", Args: `{"a":"a long argument that is cut"}`}}
	for name, c := range map[string]struct {
		step  modeltest.Step
		code  event.Code
		retry bool
	}{
		"error":             {modeltest.Step{Text: spoken, Fault: modeltest.FaultError, After: 2}, event.CodeModelError, true},
		"error for good":    {modeltest.Step{Text: spoken, Fault: modeltest.FaultError, Error: `{"type":"error","error":{"type":"invalid_request_error","message":"no"}}`}, event.CodeModelError, false},
		"error at once":     {modeltest.Step{Text: spoken, Fault: modeltest.FaultError, After: -1}, event.CodeModelError, true},
		"end after text":    {modeltest.Step{Text: spoken, Fault: modeltest.FaultEnd}, event.CodeModelTruncated, true},
		"end at once":       {modeltest.Step{Text: spoken, Fault: modeltest.FaultEnd, After: -1}, event.CodeModelTruncated, true},
		"end in a call":     {modeltest.Step{Calls: calls, Fault: modeltest.FaultEnd, After: 2}, event.CodeModelTruncated, true},
		"end after a call":  {modeltest.Step{Calls: calls, Fault: modeltest.FaultEnd}, event.CodeModelTruncated, true},
		"cut":               {modeltest.Step{Text: spoken, Fault: modeltest.FaultCut, After: 1}, event.CodeModelTruncated, true},
		"cut after a call":  {modeltest.Step{Calls: calls, Fault: modeltest.FaultCut}, event.CodeModelTruncated, true},
		"stall":             {modeltest.Step{Text: spoken, Fault: modeltest.FaultStall, After: 1}, event.CodeModelTimeout, true},
		"stall before text": {modeltest.Step{Text: spoken, Fault: modeltest.FaultStall, After: -1}, event.CodeModelTimeout, true},
		"deaf":              {modeltest.Step{Fault: modeltest.FaultDeaf}, event.CodeModelTimeout, true},
	} {
		t.Run(name, func(t *testing.T) {
			each(t, []modeltest.Step{c.step}, func(t *testing.T, p provider, s *modeltest.Server) {
				m := p.model(t, s, func(e *model.Endpoint) {
					if c.code == event.CodeModelTimeout {
						e.IdleTimeout, e.StartTimeout = 50*time.Millisecond, 300*time.Millisecond
					}
				})
				if e := failure(t, m); e.Code != c.code || e.Retryable != c.retry {
					t.Errorf("got %+v, want %s, retry %v", e, c.code, c.retry)
				}
				<-s.Requests()[0].Done() // a stalled stream is closed, not left
			})
		})
	}
}

func TestConnectionRefused(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Close()
	for _, p := range providers {
		m, err := p.new(model.Endpoint{BaseURL: "http://" + l.Addr().String() + "/v1", Name: "test"})
		if err != nil {
			t.Fatal(err)
		}
		if e := failure(t, m); e.Code != event.CodeUnavailable || !e.Retryable || !strings.Contains(e.Message, l.Addr().String()) {
			t.Errorf("%s: %+v", p.name, e)
		}
	}
}
