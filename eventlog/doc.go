// Package eventlog keeps the sessions' logs, inboxes and tickets in NATS
// JetStream. It alone knows subjects, headers and stream settings.
//
//	edge   --Submit-->  INBOX   inbox.<tenant>.<session>.q|c   --wake.…-->  owner
//	       --Wake---->  JOBS    jobs.<tenant>.<session>        --Next---->  a worker
//	worker --Writer-->  LOG_<p> log.<p>.<tenant>.<session>     --live.…-->  edges
//
// One stored message is a frame: 1..n consecutive events as NDJSON. A frame is
// appended only if the session's previous frame is the one its writer saw last
// (compare-and-set on the session's own subject). A takeover appends a claim in
// the same way, so whatever an older writer still sends is refused: the log has
// one writer at any time, whoever is paused, killed or cut off.
//
// Ownership is decided by appends and by reads from the stream's leader, never
// by followers, consumers or tickets. A ticket only says that somebody should
// look at a session.
package eventlog
