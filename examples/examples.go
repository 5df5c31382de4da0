// Package examples holds starting points: agents to copy and change. The demo
// agent among them is what runlog dev runs when there is no other.
package examples

import (
	"embed"
	"io/fs"
)

//go:embed agents
var files embed.FS

// Agents are the example agents' files.
func Agents() fs.FS {
	sub, err := fs.Sub(files, "agents")
	if err != nil {
		panic(err) // the folder is embedded
	}
	return sub
}
