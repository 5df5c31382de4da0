// The native dialect over each transport: the harness itself, and the smallest
// example of how a folder of tests looks.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { everyCut, offByOne } from '../lib/cuts.mjs'
import { drainEdge, edges, fresh, runState, scenarios, startEdge } from '../lib/stage.mjs'
import { ndjson, sse, websocket } from './clients.mjs'

const transports = { sse, ndjson, websocket }

async function play(agent) {
  const run = fresh('run')
  const r = await fetch(edges[0] + '/v1/runs', { method: 'POST', body: JSON.stringify({ agent, run_id: run, input: 'go' }) })
  assert.equal(r.status, 202, await r.text())
  return `/v1/runs/${run}/events`
}

for (const { name, ends } of scenarios) {
  if (name === 'client-tool' || name === 'approval' || name === 'cancel') continue // parked for ever
  test(`${name}: cut after every message, over each transport, and all tell the same`, async () => {
    const path = await play(name)
    const states = []
    for (const [transport, follow] of Object.entries(transports)) {
      const all = transport === 'sse' || name === 'tools'
      const some = (k) => all || k % 4 === 1
      const { state } = await everyCut((url) => follow(url, path), { only: some, sockets: true })
      assert.equal(state.at(-1).type, ends)
      states.push(state)
      if (!all) continue
      const { early, wrong } = await offByOne((url, _, early) => follow(url, path, early), { tamper: () => false, sockets: true })
      assert.equal(wrong, early, `${transport}: coming back one message too early is noticed`)
    }
    for (const s of states) assert.deepEqual(s, states[0], 'every transport tells the same')
  })
}

for (const [transport, follow] of Object.entries(transports)) {
  test(`${transport}: an edge drained in mid-run breaks the stream off, and the client goes on elsewhere`, async () => {
    const edge = await startEdge()
    const path = await play('cancel')
    const run = path.split('/')[3]
    const moving = follow([edge.url, edges[0]], path)
    await runState(run, (s) => s.status === 'waiting_tool')
    await drainEdge(edge.id)
    const r = await fetch(`${edges[1]}/v1/runs/${run}/cancel`, { method: 'POST', body: '{}' })
    assert(r.ok)
    const got = await moving
    assert.equal(got.at(-1).type, 'run.cancelled')
    assert.deepEqual(got, await sse(edges[1], path), 'nothing is missing or twice')
  })
}
