package edge

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/url"

	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/eventlog"
)

// An a2aAgentCard says what an agent is and where it is reached.
type a2aAgentCard struct {
	Name         string         `json:"name"`
	Description  string         `json:"description"`
	Version      string         `json:"version"`
	Interfaces   []a2aInterface `json:"supportedInterfaces"`
	Capabilities struct {
		Streaming bool `json:"streaming"`
		Push      bool `json:"pushNotifications"`
		Extended  bool `json:"extendedAgentCard"`
	} `json:"capabilities"`
	Schemes      json.RawMessage `json:"securitySchemes,omitempty"`
	Requirements json.RawMessage `json:"securityRequirements,omitempty"`
	Input        []string        `json:"defaultInputModes"`
	Output       []string        `json:"defaultOutputModes"`
	Skills       []a2aSkill      `json:"skills"`
}

type a2aInterface struct {
	URL     string `json:"url"`
	Binding string `json:"protocolBinding"`
	Version string `json:"protocolVersion"`
}

type a2aSkill struct {
	ID          string   `json:"id"`
	Name        string   `json:"name"`
	Description string   `json:"description"`
	Tags        []string `json:"tags"`
}

// Callers need a key, unless everybody may call.
var (
	a2aSchemes      = json.RawMessage(`{"key":{"httpAuthSecurityScheme":{"scheme":"Bearer"}}}`)
	a2aRequirements = json.RawMessage(`[{"schemes":{"key":{"list":[]}}}]`)
)

// a2aCard answers with an agent's card, or with the default agent's. Where callers
// need a key, this needs one too: agents are nobody else's business.
func (s *Server) a2aCard(w http.ResponseWriter, r *http.Request, c *call) error {
	name, err := s.chooseAgent(r.Context(), eventlog.Key{Tenant: c.who.Tenant}, eventlog.RunRef{Agent: r.PathValue("agent")})
	if err != nil {
		return err
	}
	about, err := s.Log.Agent(r.Context(), name)
	if err != nil && !errors.Is(err, eventlog.ErrNotFound) {
		return err
	}
	card := cardOf(name, about)
	card.Interfaces = []a2aInterface{{s.base(r) + "/a2a/" + url.PathEscape(name), "JSONRPC", a2aVersion}}
	if !c.who.Open {
		card.Schemes, card.Requirements = a2aSchemes, a2aRequirements
	}
	writeJSON(w, http.StatusOK, card)
	return nil
}

// cardOf is what an announcement, which may be anything, says of an agent.
func cardOf(name string, about []byte) a2aAgentCard {
	var said struct {
		Description string `json:"description"`
		Version     string `json:"version"`
	}
	_ = json.Unmarshal(about, &said)
	if said.Description == "" {
		said.Description = "The agent " + name + "."
	}
	if said.Version == "" {
		said.Version = "1"
	}
	card := a2aAgentCard{Name: name, Description: said.Description, Version: said.Version,
		Input: []string{"text/plain", "application/json"}, Output: []string{"text/plain", "application/json"},
		Skills: []a2aSkill{{event.WireName(name), name, said.Description, []string{"agent"}}}}
	card.Capabilities.Streaming = true
	return card
}
