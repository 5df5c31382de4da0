package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/runlog-dev/runlog/artifacts"
	"github.com/runlog-dev/runlog/audit"
	"github.com/runlog-dev/runlog/eventlog"
)

// fsckOptions say what to check and how to tell.
type fsckOptions struct {
	session, tenant, data string
	asJSON, rules         bool
	grace                 time.Duration
}

// errFindings is the exit status of a check that found something; the findings
// are printed already.
var errFindings = errors.New("the log is not sound")

// fsckCommand checks logs against what runlog promises of them. It changes
// nothing, and the installation may be at work meanwhile.
func fsckCommand(ctx context.Context, args []string) error {
	var o fsckOptions
	s, err := parse("fsck", args, storeSettings, func(f *flag.FlagSet, _ *settings) {
		f.StringVar(&o.session, "session", "", "check one session: tenant/id, or id of tenant default")
		f.StringVar(&o.tenant, "tenant", "", "check one tenant; empty: all")
		f.StringVar(&o.data, "data", "", "check the data directory of a runlog dev that is not running, instead of --nats")
		f.DurationVar(&o.grace, "grace", 0, "how long something may be on its way before it counts as left behind; 0: 3 leases")
		f.BoolVar(&o.asJSON, "json", false, "one finding a line, then the counts, as JSON")
		f.BoolVar(&o.rules, "rules", false, "list what is checked")
	})
	if err != nil {
		return err
	}
	if o.rules {
		return listRules(os.Stdout)
	}
	log, done, err := s.inspect(ctx, &o)
	if err != nil {
		return err
	}
	return errors.Join(o.check(ctx, log, os.Stdout), done())
}

// inspect opens the installation to be checked.
func (s *settings) inspect(ctx context.Context, o *fsckOptions) (*eventlog.Log, func() error, error) {
	var server *eventlog.Embedded
	var nc *nats.Conn
	var err error
	if o.data != "" {
		s.artifactsURL = "dir:" + filepath.Join(o.data, "artifacts")
		if server, err = eventlog.StartEmbedded(filepath.Join(o.data, "jetstream"), false); err == nil {
			nc, err = server.Connect()
		}
	} else {
		nc, err = s.connect("fsck")
	}
	if err != nil {
		return nil, nil, err
	}
	store, err := artifacts.Open(ctx, s.artifactsURL, artifacts.Options{})
	if err != nil {
		return nil, nil, err
	}
	log, err := eventlog.Inspect(ctx, nc, eventlog.Options{Logger: s.log, Blobs: snapshots{store}})
	return log, func() error {
		nc.Close()
		if server != nil {
			return errors.Join(store.Close(), server.Close())
		}
		return store.Close()
	}, err
}

// check tells the findings as they come.
func (o *fsckOptions) check(ctx context.Context, log *eventlog.Log, to io.Writer) (err error) {
	out := bufio.NewWriter(to)
	defer func() { err = errors.Join(err, out.Flush()) }()
	tell := func(f audit.Finding) {
		if o.asJSON {
			_ = json.NewEncoder(out).Encode(f)
		} else {
			fmt.Fprintln(out, f)
		}
		_ = out.Flush()
	}
	a := audit.New(log, audit.Options{Grace: o.grace})
	var report audit.Report
	if o.session != "" {
		var list []audit.Finding
		list, report, err = a.Session(ctx, sessionKey(o.session))
		for _, f := range list {
			tell(f)
		}
	} else {
		report, err = a.All(ctx, o.tenant, tell)
	}
	if err != nil {
		return fmt.Errorf("not all could be checked: %w", err)
	}
	o.summary(out, report)
	if report.Findings > 0 {
		return errFindings
	}
	return nil
}

func sessionKey(name string) eventlog.Key {
	tenant, session, ok := strings.Cut(name, "/")
	if !ok {
		return eventlog.Key{Tenant: "default", Session: name}
	}
	return eventlog.Key{Tenant: tenant, Session: session}
}

func (o *fsckOptions) summary(out io.Writer, r audit.Report) {
	if o.asJSON {
		_ = json.NewEncoder(out).Encode(r)
		return
	}
	fmt.Fprintf(out, "%d sessions, %d runs, %d events in %d frames, %d bytes: %d findings\n",
		r.Sessions, r.Runs, r.Events, r.Frames, r.Bytes, r.Findings)
}

func listRules(out io.Writer) error {
	for _, p := range audit.Promises {
		if _, err := fmt.Fprintf(out, "%-16s %s\n", p.Rule, p.Text); err != nil {
			return err
		}
	}
	return nil
}
