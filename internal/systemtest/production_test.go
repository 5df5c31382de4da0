package systemtest

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/runlog-dev/runlog/internal/testservers"
	"github.com/runlog-dev/runlog/worker/model/modeltest"
)

// A production is an installation as the docs recommend it: three NATS nodes with replicated streams, Postgres, S3,
// two edges, two workers. Its key is one of the tenant acme that may see internal events.
type production struct {
	t       testing.TB
	nats    *testservers.Cluster
	pg      *testservers.PostgresServer
	s3      *testservers.S3Server
	edge    [2]*server
	worker  [2]*server
	at      [2]edge // the edges, for acme
	rival   string  // a key of another tenant
	env     []string
	ledger  ledger
	talking *modeltest.Server // what the agent talker asks
	calling *modeltest.Server // what the agent caller asks
}

// startProduction brings everything up; it ends with the test.
func startProduction(t testing.TB) *production {
	t.Helper()
	return startProductionOn(t, testservers.NATS(t, 3))
}

func startProductionOn(t testing.TB, nats *testservers.Cluster, env ...string) *production {
	t.Helper()
	p := &production{t: t, nats: nats, pg: testservers.StartPostgres(t), s3: testservers.StartS3(t)}
	p.ledger = ledger(filepath.Join(t.TempDir(), "ledger"))
	p.talking = modeltest.Serve(talk, "127.0.0.1:0")
	p.calling = modeltest.Serve(call, "127.0.0.1:0")
	t.Cleanup(p.talking.Close)
	t.Cleanup(p.calling.Close)
	p.env = []string{
		"RUNLOG_NATS_URL=" + p.nats.URL(), "RUNLOG_CATALOG_URL=" + p.pg.URL(), "RUNLOG_ARTIFACTS_URL=" + p.s3.URL(),
		"RUNLOG_REPLICAS=3", "RUNLOG_LEASE=" + lease.String(), "RUNLOG_LOG=info", "RUNLOG_GRACE=1s", "RUNLOG_PING=1s",
		"RUNLOG_AGENTS=" + agentFiles(t, "$LEDGER", string(p.ledger), "$MODEL", p.talking.OpenAI(), "$CALLER", p.calling.OpenAI(), "$CLAUDE", p.calling.Anthropic()),
	}
	p.env = append(p.env, env...)
	p.command("migrate")
	key := p.command("keys", "create", "--tenant", "acme", "--name", "tester", "--scopes", "audit")
	p.rival = p.command("keys", "create", "--tenant", "rival", "--scopes", "audit")
	for i := range 2 {
		p.startWorker(i)
		p.startEdge(i, key)
	}
	return p
}

// A small is an installation with one node of NATS, SQLite, a directory of artifacts, and a network before its first
// worker that can break.
type small struct {
	*production
	network *testservers.Proxy
}

func startSmall(t testing.TB) *small {
	t.Helper()
	p := &production{t: t, nats: testservers.NATS(t, 1)}
	dir := t.TempDir()
	p.ledger = ledger(filepath.Join(dir, "ledger"))
	p.env = []string{
		"RUNLOG_NATS_URL=" + p.nats.URL(), "RUNLOG_CATALOG_URL=sqlite:" + filepath.Join(dir, "catalog.db"),
		"RUNLOG_ARTIFACTS_URL=dir:" + filepath.Join(dir, "artifacts"), "RUNLOG_LEASE=" + lease.String(), "RUNLOG_LOG=info",
		"RUNLOG_AGENTS=" + agentFiles(t, "$LEDGER", string(p.ledger), "$MODEL", nobody, "$CALLER", nobody, "$CLAUDE", nobody),
	}
	p.command("migrate")
	s := &small{p, testservers.StartProxy(t, p.nats.Node(0).Addr())}
	p.startWorker(0, "RUNLOG_NATS_URL=nats://"+s.network.Addr())
	p.startWorker(1)
	for i := range p.edge {
		p.startEdge(i, "")
	}
	return s
}

// talk is a model that talks for a minute.
var talk = modeltest.Script{Loop: true, Steps: []modeltest.Step{
	{Text: strings.Repeat("Still talking. ", 1000), Pace: modeltest.Pace{Delay: 40e6, Runes: 8}},
}}

// call is a model that calls three tools at once after each of the user's messages.
var call = modeltest.Script{By: "turn", Loop: true, Steps: []modeltest.Step{
	{Text: "Three at once.", Calls: []modeltest.Call{
		{Name: "lookup", Args: `{"key":"mars"}`}, {Name: "count_slowly", Args: `{"n":30,"delay_ms":100}`}, {Name: "sleep", Args: `{"ms":3000}`},
	}},
	{Text: "Done."},
}}

// command runs one that has to succeed, and returns what it prints.
func (p *production) command(args ...string) string {
	p.t.Helper()
	stdout, stderr, code := runlog(p.t, p.env, args...)
	if code != 0 {
		p.t.Fatalf("runlog %s: exit %d: %s%s", strings.Join(args, " "), code, stdout, stderr)
	}
	return strings.TrimSpace(stdout)
}

func (p *production) startWorker(i int, env ...string) {
	p.t.Helper()
	admin := testservers.FreeAddr(p.t)
	env = append(env, "RUNLOG_ADMIN_LISTEN="+admin, "RUNLOG_LOG=debug") // shows what the tools say
	p.worker[i] = startServer(p.t, "http://"+admin+"/readyz", slices.Concat(p.env, env), "worker")
}

func (p *production) startEdge(i int, key string) {
	p.t.Helper()
	addr := testservers.FreeAddr(p.t)
	p.edge[i] = startServer(p.t, "http://"+addr+"/readyz", slices.Concat(p.env, []string{"RUNLOG_LISTEN=" + addr}), "edge")
	p.at[i] = edge{"http://" + addr, key}
}

// alone keeps the second worker from taking anything, so that a test knows who has it, until both is called: it is
// paused, and what it has asked for is void.
func (p *production) alone(t *testing.T) (both func()) {
	t.Helper()
	p.worker[1].Pause()
	p.idle(t)
	return p.worker[1].Resume
}

// idle waits until only one worker asks for work.
func (p *production) idle(t *testing.T) {
	t.Helper()
	jobs := p.stream(t, "JOBS")
	eventually(t, "the paused worker's requests for work to be void", func() bool {
		c, err := jobs.Consumer(t.Context(), "workers")
		return err == nil && c.CachedInfo().NumWaiting <= slots
	})
}

// slots is how many sessions a worker takes at once, by default.
const slots = 64

// whole brings back whatever a test left down, so that the next one finds all of it.
func (p *production) whole() {
	p.t.Helper()
	for _, s := range []*server{p.worker[0], p.worker[1], p.edge[0], p.edge[1]} {
		select {
		case <-s.Done():
			s.again()
		default:
		}
	}
}

// complaints shows what the servers were not content with, if the test has failed.
func (p *production) complaints(t testing.TB) {
	t.Helper()
	if !t.Failed() {
		return
	}
	for name, s := range map[string]*server{"edge 0": p.edge[0], "edge 1": p.edge[1], "worker 0": p.worker[0], "worker 1": p.worker[1]} {
		var list []string
		for line := range strings.Lines(s.Log()) {
			if strings.Contains(line, "level=WARN") || strings.Contains(line, "level=ERROR") || strings.Contains(line, "handed over") {
				list = append(list, line)
			}
		}
		t.Logf("%s:\n%s", name, strings.Join(list[max(0, len(list)-40):], ""))
	}
}

// TestProduction shares one installation among tests: first those that only use it, side by side, then, one after
// the other, those that break something.
func TestProduction(t *testing.T) {
	p := startProduction(t)
	t.Run("calm", func(t *testing.T) {
		for _, c := range calm {
			t.Run(c.name, func(t *testing.T) {
				t.Parallel()
				defer p.complaints(t)
				c.test(t, p)
			})
		}
	})
	for _, c := range stormy {
		t.Run(c.name, func(t *testing.T) {
			defer p.whole()
			defer p.complaints(t)
			c.test(t, p)
		})
	}
}

// A productionTest is a test of an installation that it shares with others.
type productionTest struct {
	name string
	test func(*testing.T, *production)
}

var calm = []productionTest{
	{"ASilentToolIsExecutedOnce", silentTool}, // the longest comes first
	{"AStreamIsTheRunAndItsFoldTheSnapshot", streamIsTheRun},
	{"AFinishedRunResumesAfterAnyEventOnTheOtherEdge", resumeFinished},
	{"ALiveRunResumesAfterAnyEventOnTheOtherEdge", resumeLive},
	{"ASnapshotAndItsTailAreTheWhole", resumeFromSnapshot},
	{"EveryCursorGetsAnHonestAnswer", cursors},
	{"TextIsByteExact", byteExact},
	{"AnOlderCursorThanWhatIsKeptGetsAReset", cursorTooOld},
	{"ProvidersDifferByConfigurationOnly", providers},
	{"LongToolsOnTwoWorkersAreExecutedOnce", longTools},
	{"CancelReachesTheModel", cancelInModel},
	{"CancelReachesTheTools", cancelInTool},
	{"CancelLeavesAValidConversation", cancelledTurnIsValid},
	{"CancelWhilePending", cancelPending},
	{"CancelAtOnce", cancelAtOnce},
	{"CancelAfterTheEndChangesNothing", cancelAfterTheEnd},
	{"DisconnectIsNotStop", disconnectIsNotStop},
	{"AnArtifactAndItsParts", artifactRanges},
	{"ABigResultIsCutAndKeptWhole", bigResult},
	{"UploadsComeBack", upload},
	{"OneKeyIsOneRun", oneKeyOneRun},
	{"RunsOfASessionQueueUp", runsQueueUp},
	{"ARetriedStepLeavesOneText", retriedStep},
	{"AToolServerDies", toolServerDies},
	{"WhatIsWrongIsRefused", wrongIsRefused},
	{"ChatInOpenAIShape", chatOpenAI},
	{"ChatGoesOn", chatGoesOn},
	{"ChatInAnthropicShape", chatAnthropic},
	{"ChatAsAStream", chatStream},
	{"ChatRefuses", chatRefuses},
	{"TenantWalls", tenantWalls},
}

var stormy = []productionTest{
	{"AWorkerIsKilled", workerKilled},
	{"AWorkerIsPaused", workerPaused},
	{"AToolServerIsKilled", toolServerKilled},
	{"RollingRestart", rollingRestart},
	{"TheLogsLeaderIsKilled", leaderKilled},
	{"PostgresIsDown", postgresDown},
	{"S3IsDown", s3Down},
	{"NATSIsDown", natsDown},
	{"EverythingIsKilled", everythingKilled},
	{"NobodyWorks", nobodyWorks},
	{"Chaos", chaos},
	{"TheCatalogIsRebuilt", catalogRebuilt},
}
