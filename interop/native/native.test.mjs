// The native dialect with nothing but fetch: the harness itself, and the
// smallest example of how a folder of tests looks.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { everyCut, offByOne } from '../lib/cuts.mjs'
import { edges, fresh, scenarios } from '../lib/stage.mjs'

// A client of the native stream: it keeps the data of every message that has an
// id, and comes back with the last id until its run has ended.
async function follow(url, path) {
  const got = []
  for (let last = '', over = false; !over; ) {
    try {
      const r = await fetch(url + path, { headers: { accept: 'text/event-stream', ...(last && { 'last-event-id': last }) } })
      assert([200, 204].includes(r.status), `${r.status} ${r.status === 200 || (await r.clone().text())}`)
      if (r.status === 204) break
      let rest = ''
      for await (const chunk of r.body.pipeThrough(new TextDecoderStream())) {
        const blocks = (rest + chunk).split('\n\n')
        rest = blocks.pop()
        for (const b of blocks) {
          const id = /^id: (.*)$/m.exec(b)
          if (!id) continue
          last = id[1]
          got.push(JSON.parse(/^data: (.*)$/m.exec(b)[1]))
        }
      }
      over = true
    } catch (e) {
      if (e.name === 'AssertionError') throw e
    }
  }
  return got.filter((e) => e.type) // without cursor moves
}

for (const { name, ends } of scenarios) {
  if (name === 'client-tool' || name === 'approval' || name === 'cancel') continue // parked for ever
  test(`${name}: cut after every message`, async () => {
    const run = fresh('run')
    const r = await fetch(edges[0] + '/v1/runs', { method: 'POST', body: JSON.stringify({ agent: name, run_id: run, input: 'go' }) })
    assert.equal(r.status, 202, await r.text())
    const path = `/v1/runs/${run}/events`
    const { state } = await everyCut((url) => follow(url, path))
    assert.equal(state.at(-1).type, ends)
    const { messages, wrong } = await offByOne((url) => follow(url, path))
    assert(wrong >= messages - 3, `coming back one message too early was noticed at ${wrong} of ${messages} cuts`)
  })
}
