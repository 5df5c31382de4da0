package terminal

import (
	"errors"
	"flag"
	"fmt"
	"strings"

	runlog "github.com/runlog-dev/runlog/clients/go"
)

// A flagSet is a command's flags with those that all commands have.
type flagSet struct {
	*flag.FlagSet
	env    Env
	server string
	key    string
	json   bool
}

func (env Env) flags() *flagSet {
	f := &flagSet{FlagSet: flag.NewFlagSet(env.command.Name, flag.ContinueOnError), env: env}
	f.SetOutput(new(strings.Builder)) // errors are returned; they need not be printed too
	f.StringVar(&f.server, "server", "", "address of an edge, or several with commas between (default RUNLOG_SERVER or "+runlog.DefaultBaseURL+")")
	f.StringVar(&f.key, "key", "", "API key (default RUNLOG_KEY)")
	f.BoolVar(&f.json, "json", false, "print one JSON object per line and nothing else")
	return f
}

// parse takes flags before, between and after the arguments; after -- all are
// arguments. It returns the arguments, of which there must be from least to most.
func (f *flagSet) parse(args []string, least, most int) ([]string, error) {
	var rest []string
	for len(args) > 0 {
		if err := f.Parse(args); errors.Is(err, flag.ErrHelp) {
			return nil, f.help()
		} else if err != nil {
			return nil, usageError(err.Error())
		}
		ended := f.NArg() < len(args) && args[len(args)-f.NArg()-1] == "--"
		args = f.Args()
		if ended {
			rest, args = append(rest, args...), nil
		}
		if len(args) > 0 {
			rest, args = append(rest, args[0]), args[1:]
		}
	}
	switch {
	case len(rest) < least:
		return nil, usageError("an argument is missing")
	case len(rest) > most:
		return nil, usageError(fmt.Sprintf("unexpected argument %q", rest[most]))
	}
	return rest, nil
}

func (f *flagSet) help() error {
	c := f.env.command
	fmt.Fprintf(f.env.Stdout, "runlog %s %s\n%s\n\n", c.Name, c.Args, c.Help)
	f.SetOutput(f.env.Stdout)
	f.PrintDefaults()
	return flag.ErrHelp
}

// client returns a client of the server that flags or environment name.
func (f *flagSet) client() *runlog.Client {
	c := &runlog.Client{Key: orEnv(f.key, f.env, "RUNLOG_KEY")}
	for base := range strings.SplitSeq(orEnv(f.server, f.env, "RUNLOG_SERVER"), ",") {
		if base = strings.TrimSpace(base); base == "" {
			continue
		}
		if !strings.Contains(base, "://") {
			base = "http://" + base
		}
		c.Fallbacks = append(c.Fallbacks, base)
	}
	return c
}

func orEnv(value string, env Env, name string) string {
	if value != "" {
		return value
	}
	return env.Getenv(name)
}
