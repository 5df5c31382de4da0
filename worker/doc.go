// Package worker runs sessions: it takes a ticket, claims the session, folds
// its log, runs the agent, appends what happens, and lets go.
//
//	ticket ──> load fold ──> claim (append) ──> commands ──> run … run ──> release
//	               │             │ fenced: start over            │
//	               │ nothing to do                               └ snapshot
//	               └──> release the ticket without a claim
//
// Holding a ticket means that somebody should look at the session; only a
// committed claim makes this worker its owner, and only until another claim is
// committed. From then on nothing it appends gets in, and it stops by itself.
package worker
