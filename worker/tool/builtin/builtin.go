// Package builtin holds the tools that every worker has: write_artifact and
// read_artifact.
package builtin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/worker/tool"
)

// Names lists the built-in tools.
func Names() []string { return []string{"write_artifact", event.ReadArtifactTool} }

// Source offers the named tools; without names, all. A name that is none of
// Names is an error of its Tools.
func Source(names ...string) tool.Source {
	if len(names) == 0 {
		names = Names()
	}
	return source(names)
}

type source []string

func (s source) Tools(context.Context) ([]tool.Tool, error) {
	var tools []tool.Tool
	for _, name := range s {
		switch name {
		case "write_artifact":
			tools = append(tools, writeArtifact{})
		case event.ReadArtifactTool:
			tools = append(tools, readArtifact{})
		default:
			return nil, fmt.Errorf("no built-in tool %q: use %s", name, strings.Join(Names(), " or "))
		}
	}
	return tools, nil
}

func (source) Close() error { return nil }

// decode reads the arguments of a model into a struct of pointers. What is
// wrong with them is told for the model to read; empty if nothing is.
func decode(args string, into any, names string) (problem string) {
	d := json.NewDecoder(strings.NewReader(args))
	d.DisallowUnknownFields()
	err := d.Decode(into)
	var kind *json.UnmarshalTypeError
	switch {
	case err == nil && strings.TrimSpace(args[d.InputOffset():]) != "":
		return "The arguments must be one JSON object, with nothing after it."
	case err == nil:
		return ""
	case errors.As(err, &kind) && kind.Field != "":
		return fmt.Sprintf("The argument %q must be %s (got: %s).", kind.Field, wanted(kind.Type.String()), kind.Value)
	case strings.Contains(err.Error(), "unknown field"):
		_, field, _ := strings.Cut(err.Error(), "unknown field ")
		return fmt.Sprintf("There is no argument %s. The arguments are %s.", field, names)
	}
	return "The arguments must be one JSON object with " + names + ": " + err.Error() + "."
}

func wanted(goType string) string {
	switch goType {
	case "string":
		return "a string"
	case "int64":
		return "a whole number"
	}
	return "an object"
}

func failed(format string, args ...any) tool.Result {
	return tool.Failed(fmt.Sprintf(format, args...))
}
