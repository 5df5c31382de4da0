package demotools

import (
	"fmt"
	"os"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// LedgerEnv names the file in which invocations are recorded.
const LedgerEnv = "DEMO_TOOLS_LEDGER"

// record appends "time key attempt tool" to the ledger, if there is one, before
// the tool does anything. The write is a single one, so that lines of several
// processes do not mix; what is unknown is a dash.
func record(req *mcp.CallToolRequest, tool string) error {
	path := os.Getenv(LedgerEnv)
	if path == "" {
		return nil
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("record the call in the ledger: %w", err)
	}
	defer f.Close()
	_, err = fmt.Fprintf(f, "%s %s %s %s\n",
		time.Now().UTC().Format(time.RFC3339Nano), idempotencyKey(req), attempt(req), tool)
	return err
}

func idempotencyKey(req *mcp.CallToolRequest) string {
	if key, ok := req.Params.Meta["runlog/idempotency_key"].(string); ok && key != "" {
		return key
	}
	return "-"
}

func attempt(req *mcp.CallToolRequest) string {
	if n, ok := req.Params.Meta["runlog/attempt"].(float64); ok {
		return fmt.Sprint(int(n))
	}
	return "-"
}
