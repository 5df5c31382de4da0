// The stage: two edges over one event log, and a player that answers an invoke of
// the agent NAME with the scenario of that name (NAME-live: event by event).
import assert from 'node:assert/strict'

const at = process.env.RUNLOG_STAGE
assert(at, 'RUNLOG_STAGE is not set: run these tests by go test ./interop')

const ask = async (method, path, body) => {
  const r = await fetch(at + path, { method, body: body && JSON.stringify(body) })
  assert(r.ok, `${method} ${path}: ${r.status} ${r.ok || (await r.text())}`)
  return r.json()
}

const about = await ask('GET', '/')

/** The addresses of the two edges. */
export const edges = about.edges.map((e) => e.url)
/** What can be played: {name, about, ends}; ends is the type of the last event. */
export const scenarios = about.scenarios
/** One more edge: {id, url}. It has so many streams open at once; 0: as many as it can. */
export const startEdge = ({ streams = 0 } = {}) => ask('POST', `/edges?streams=${streams}`)
/** Shuts an edge down as SIGTERM does: its streams are aborted. */
export const drainEdge = (id) => ask('DELETE', '/edges/' + id)
/** Puts a command into a session's inbox: {kind, session_id, run_id, …}. */
export const command = (cmd) => ask('POST', '/commands', cmd)

/** Ids that no other test uses. */
let ids = 0
export const fresh = (kind) => `${kind}-${process.pid}-${++ids}`

/** A run as the native API has it, once it stands as wanted. */
export async function runState(runId, wanted = (s) => /completed|failed|cancelled/.test(s.status)) {
  for (let end = Date.now() + 30_000; ; ) {
    const r = await fetch(`${edges[0]}/v1/runs/${encodeURIComponent(runId)}`)
    const state = r.ok ? await r.json() : { status: r.status }
    if (wanted(state)) return state
    assert(Date.now() < end, `run ${runId} is ${state.status}`)
    await new Promise((ok) => setTimeout(ok, 10))
  }
}
