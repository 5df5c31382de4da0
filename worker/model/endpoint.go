package model

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"time"
)

// An Endpoint says where a provider's server is and how it is asked. Only Name
// is required.
type Endpoint struct {
	BaseURL string            // the provider's own where empty
	APIKey  string            // may be empty: local servers want none
	Name    string            // of the model
	Headers map[string]string // sent besides; may hold secrets
	// Temperature is left to the server where nil.
	Temperature *float64
	// MaxTokens bounds an answer whose Request does not.
	MaxTokens int
	// IdleTimeout ends a stream in which no byte arrives for so long; 0 is a minute.
	IdleTimeout time.Duration
	// StartTimeout is how long the first byte may take; 0 is 5 minutes. It is longer,
	// because a server may load a model or think before it speaks.
	StartTimeout time.Duration
	// SendReasoning gives an OpenAI-compatible server back what its model
	// thought, as reasoning_content. Some servers require it, others refuse it.
	SendReasoning bool
	// Extra holds further members of the request's body, e.g. reasoning_effort,
	// thinking or top_p; they win over what runlog sets.
	Extra map[string]any
}

// Check says what is wrong with the endpoint, or fills in the defaults.
// defaultURL is the provider's own server.
func (e Endpoint) Check(defaultURL string) (Endpoint, error) {
	if e.Name == "" {
		return e, errors.New("model name is missing: set model.name")
	}
	if e.BaseURL == "" {
		e.BaseURL = defaultURL
	}
	u, err := url.Parse(e.BaseURL)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return e, fmt.Errorf("model base_url %q: expected http://host/… or https://host/…", e.BaseURL)
	}
	e.IdleTimeout = cmp.Or(e.IdleTimeout, time.Minute)
	e.StartTimeout = cmp.Or(e.StartTimeout, 5*time.Minute)
	return e, nil
}

// String leaves out the secrets.
func (e Endpoint) String() string {
	where := "its provider's server"
	if u, err := url.Parse(e.BaseURL); err == nil && u.Host != "" {
		where = u.Host
	}
	return e.Name + " at " + where
}

// LogValue leaves out the secrets.
func (e Endpoint) LogValue() slog.Value { return slog.StringValue(e.String()) }
