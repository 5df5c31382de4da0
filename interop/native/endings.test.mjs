// Every ending is distinguishable, for clients that close their connections too.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { noPython } from '../lib/python.mjs'
import { drainEdge, edges, fresh, runState, startEdge } from '../lib/stage.mjs'
import { closing } from './endings.mjs'

async function play(agent, waits) {
  const run = fresh('run')
  const r = await fetch(edges[0] + '/v1/runs', { method: 'POST', body: JSON.stringify({ agent, run_id: run, input: 'go' }) })
  assert.equal(r.status, 202, await r.text())
  await runState(run, waits)
  return `/v1/runs/${run}/events`
}

for (const [name, read] of Object.entries(closing)) {
  const skip = /Python/.test(name) && noPython()
  test(`${name}: the end of a run is a clean end`, { skip }, async () => {
    assert.match(await read(edges[0] + (await play('text')), () => {}), /event: run\.completed/)
  })
  test(`${name}: a drained edge is an error`, { skip }, async () => {
    const edge = await startEdge()
    const path = await play('cancel', (s) => s.status === 'waiting_tool')
    let begun
    const first = new Promise((ok) => { begun = ok })
    const reading = read(edge.url + path, begun)
    reading.catch(() => {}) // it is looked at below
    await Promise.race([first, reading])
    await drainEdge(edge.id)
    await assert.rejects(reading, 'what was aborted looks whole')
  })
}
