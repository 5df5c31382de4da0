package mcp_test

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/runlog-dev/runlog/examples/demotools"
)

// roleEnv makes the test binary a server, or a worker that has one.
const roleEnv = "MCP_TEST_ROLE"

func TestMain(m *testing.M) {
	switch role := os.Getenv(roleEnv); role {
	case "":
		os.Exit(m.Run())
	case "demo":
		exit(demotools.Main(context.Background(), os.Stdin, os.Stdout))
	case "worker":
		exit(runWorker())
	default:
		exit(newOddServer(role).serve())
	}
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}
