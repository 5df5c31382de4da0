package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// settled is how long a process is left alone before its memory counts.
const settled = 10 * time.Second

// idle starts runlog dev several times: how long until it is ready, and what it
// holds when nobody asks for anything; the same after it has worked.
func idle(b *bench) ([]row, error) {
	var fresh []*proc
	var ready times
	for range max(b.rounds, 3) {
		dir, err := b.newDir("idle")
		if err != nil {
			return nil, err
		}
		p, err := b.dev(dir, "")
		if err != nil {
			return nil, err
		}
		defer p.stop()
		fresh, ready = append(fresh, p), append(ready, p.ready)
	}
	used, err := b.restarted()
	if err != nil {
		return nil, err
	}
	defer used.stop()
	time.Sleep(settled)
	var rss []memory
	for _, p := range fresh {
		m, err := memoryOf(p.pid())
		if err != nil {
			return nil, err
		}
		rss = append(rss, m)
	}
	after, err := memoryOf(used.pid())
	if err != nil {
		return nil, err
	}
	m := rss[len(rss)/2]
	return []row{
		{"`runlog dev`, fresh: start → ready", "≤ 1 s", ms(ready.median()), ready.median() <= time.Second},
		{"the same on the data of 100 runs", "≤ 1 s", ms(used.ready), used.ready <= time.Second},
		{"`runlog dev`, idle: RSS", "≤ 80 MB", m.String(), m.rss <= 80<<10},
		{"the same on the data of 100 runs", "≤ 80 MB", after.String(), after.rss <= 80<<10},
	}, nil
}

// restarted is a runlog dev that finds the data of an earlier one.
func (b *bench) restarted() (*proc, error) {
	dir, err := b.newDir("used")
	if err != nil {
		return nil, err
	}
	agents := filepath.Join(b.dir, "agents")
	p, err := b.dev(dir, agents)
	if err != nil {
		return nil, err
	}
	for range 100 {
		if _, err := startedIn(p.url()); err != nil {
			return nil, err
		}
	}
	p.stop()
	return b.dev(dir, agents)
}

// memory of a process in KB: file is the program itself and other mapped files.
type memory struct{ rss, anon, file int }

func (m memory) String() string {
	return fmt.Sprintf("%d MB (%d of its own, %d of the binary)", m.rss>>10, m.anon>>10, m.file>>10)
}

func memoryOf(pid int) (m memory, err error) {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		return m, err
	}
	for line := range strings.Lines(string(data)) {
		f := strings.Fields(line)
		if len(f) < 2 {
			continue
		}
		n, _ := strconv.Atoi(f[1])
		switch f[0] {
		case "VmRSS:":
			m.rss = n
		case "RssAnon:":
			m.anon = n
		case "RssFile:":
			m.file = n
		}
	}
	return m, nil
}
