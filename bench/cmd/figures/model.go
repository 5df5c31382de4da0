package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"time"
)

// A modelServer speaks chat-completions. The user's last message says what it
// answers:
//
//	stream KEY       talks until the connection is closed
//	hold KEY         says a word and then nothing
//	tools KEY N SIZE calls the tool give for SIZE bytes, N times, then is done
//	say KEY N        says N words, 50 a second
type modelServer struct {
	*httptest.Server

	mu     sync.Mutex
	asked  map[string][]time.Time // by key: when requests came
	called map[string][]time.Time // by key: when answers with a call were sent
	closed map[string]time.Time   // by key: when the connection of stream was closed
}

func serveModel() *modelServer {
	m := &modelServer{asked: map[string][]time.Time{}, called: map[string][]time.Time{}, closed: map[string]time.Time{}}
	m.Server = httptest.NewServer(m)
	return m
}

// requests are the times at which the requests of a key came.
func (m *modelServer) requests(key string) []time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.asked[key]
}

// answered are the times at which answers with a call were sent.
func (m *modelServer) answered(key string) []time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.called[key]
}

// closedAt waits until the connection of a stream is closed.
func (m *modelServer) closedAt(key string) (time.Time, error) {
	for began := time.Now(); time.Since(began) < 30*time.Second; time.Sleep(time.Millisecond) {
		m.mu.Lock()
		at, ok := m.closed[key]
		m.mu.Unlock()
		if ok {
			return at, nil
		}
	}
	return time.Time{}, fmt.Errorf("the model's connection of %s is still open", key)
}

// A modelRequest is what matters of a request.
type modelRequest struct {
	Messages []struct {
		Role    string
		Content json.RawMessage
	}
}

// asks returns the words of the user's last message, and how many results of
// tools follow it.
func (q modelRequest) asks() (words []string, results int) {
	for i := len(q.Messages) - 1; i >= 0; i-- {
		switch m := q.Messages[i]; m.Role {
		case "tool":
			results++
		case "user":
			var text string
			_ = json.Unmarshal(m.Content, &text)
			return strings.Fields(text), results
		}
	}
	return nil, results
}

func (m *modelServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	came := time.Now()
	var q modelRequest
	if err := json.NewDecoder(r.Body).Decode(&q); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	words, results := q.asks()
	if len(words) < 2 {
		http.Error(w, "the user's message is none of those in model.go", http.StatusBadRequest)
		return
	}
	key := words[1]
	m.mu.Lock()
	m.asked[key] = append(m.asked[key], came)
	m.mu.Unlock()
	w.Header().Set("Content-Type", "text/event-stream")
	switch words[0] {
	case "stream":
		m.talk(w, r, key, 1<<30)
	case "hold":
		chunk(w, `{"content":"word "}`, "null")
		<-r.Context().Done()
	case "say":
		m.talk(w, r, key, number(words, 2))
	case "tools":
		if results >= number(words, 2) {
			chunk(w, `{"content":"Done."}`, `"stop"`)
		} else {
			m.mu.Lock()
			m.called[key] = append(m.called[key], time.Now())
			m.mu.Unlock()
			chunk(w, fmt.Sprintf(`{"tool_calls":[{"index":0,"id":"%s_%d","type":"function","function":{"name":"give","arguments":"{\"bytes\":%d}"}}]}`,
				key, results, number(words, 3)), `"tool_calls"`)
		}
	}
	fmt.Fprint(w, "data: [DONE]\n\n")
}

func number(words []string, i int) int {
	if i >= len(words) {
		return 0
	}
	n, _ := strconv.Atoi(words[i])
	return n
}

// talk says a word every 20 ms.
func (m *modelServer) talk(w http.ResponseWriter, r *http.Request, key string, n int) {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for i := range n {
		chunk(w, fmt.Sprintf(`{"content":"word%d "}`, i%10), "null")
		select {
		case <-r.Context().Done():
			m.mu.Lock()
			m.closed[key] = time.Now()
			m.mu.Unlock()
			return
		case <-tick.C:
		}
	}
	chunk(w, `{}`, `"stop"`)
}

func chunk(w http.ResponseWriter, delta, finish string) {
	fmt.Fprintf(w, `data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"figures","choices":[{"index":0,"delta":%s,"finish_reason":%s}]}`+"\n\n", delta, finish)
	w.(http.Flusher).Flush()
}
