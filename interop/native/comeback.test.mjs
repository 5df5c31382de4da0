// An EventSource that meets a limit comes back by itself, and loses nothing.
import assert from 'node:assert/strict'
import http from 'node:http'
import { test } from 'node:test'
import { EventSource } from 'eventsource'
import { noChromium, openPage } from '../lib/chromium.mjs'
import { Proxy } from '../lib/proxy.mjs'
import { edges, fresh, runState, startEdge } from '../lib/stage.mjs'
import { sse } from './clients.mjs'

const accept = 'text/event-stream'

/** Begins a run that waits until it is cancelled. */
async function waitingRun() {
  const run = fresh('run')
  const r = await fetch(edges[0] + '/v1/runs', { method: 'POST', body: JSON.stringify({ agent: 'cancel', run_id: run, input: 'go' }) })
  assert.equal(r.status, 202, await r.text())
  await runState(run, (s) => s.status === 'waiting_tool')
  return { path: `/v1/runs/${run}/events`, cancel: () => fetch(`${edges[0]}/v1/runs/${run}/cancel`, { method: 'POST', body: '{}' }) }
}

/** Takes the only place that an edge has for a stream, once it is free; leave() gives it back. */
async function place(url) {
  for (;;) {
    const leave = new AbortController()
    const r = await fetch(url, { headers: { accept }, signal: leave.signal })
    if (r.status === 200) {
      r.text().catch(() => {}) // a body that nobody reads may be collected, and then nobody is there
      return () => leave.abort()
    }
    await r.text()
    assert.equal(r.status, 429)
  }
}

const until = async (ok) => {
  for (const end = Date.now() + 30_000; !ok(); ) {
    assert(Date.now() < end, 'it did not come back')
    await new Promise((go) => setTimeout(go, 10))
  }
}

/** What a browser's page and a program do alike: the ids of all events up to the last one. */
const follow = (url, types) => new Promise((ok, no) => {
  const source = new EventSource(url)
  const ids = []
  for (const type of types) {
    source.addEventListener(type, (e) => {
      ids.push(e.lastEventId)
      if (type !== 'run.cancelled') return
      source.close()
      ok(ids)
    })
  }
  source.onerror = () => { if (source.readyState === EventSource.CLOSED) no(new Error(`it gave up after ${ids}`)) }
})

/** Has a page follow, which calls home. */
function inPage(t, url, types) {
  const script = `const follow = ${follow}
follow(${JSON.stringify(url)}, ${JSON.stringify(types)}).catch(String).then((ids) => fetch('/', { method: 'POST', body: JSON.stringify(ids) }))`
  return new Promise((ok, no) => {
    const home = http.createServer(async (req, res) => {
      if (req.method !== 'POST') return void res.setHeader('content-type', 'text/html').end(req.url === '/' ? `<script>${script}</script>` : '')
      let body = ''
      for await (const part of req) body += part
      res.end()
      const ids = JSON.parse(body)
      if (Array.isArray(ids)) ok(ids)
      else no(new Error(ids))
    })
    home.listen(0, '127.0.0.1', () => {
      const page = openPage(`http://127.0.0.1:${home.address().port}/`)
      t.after(() => { page.close(); home.close(); home.closeAllConnections() })
    })
  })
}

const clients = { 'the package eventsource': [(_, url, types) => follow(url, types)], Chromium: [inPage, noChromium()] }

for (const [name, [read, skip]] of Object.entries(clients)) {
  test(`${name}: a limit that is met on coming back is waited for`, { skip, timeout: 60_000 }, async (t) => {
    const before = await waitingRun()
    await before.cancel()
    const types = [...new Set((await sse(edges[0], before.path)).map((e) => e.type))]
    const run = await waitingRun()
    const edge = await startEdge({ streams: 1 })
    const tries = []
    const proxy = await Proxy.start({ to: [edge.url], after: 2, tamper: (ask) => tries.push([Date.now(), ask.headers['last-event-id']]) })
    t.after(() => proxy.stop())
    const reading = read(t, proxy.url + run.path, types)
    reading.catch(() => {}) // it is looked at below
    await until(() => proxy.cuts === 1)
    const leave = await place(edge.url + run.path)
    await until(() => tries.length > 3) // it came back twice in vain, at least
    await run.cancel()
    leave()
    const ids = await reading
    const want = (await sse(edges[0], run.path)).map((e) => String(e.seq))
    assert.deepEqual(ids, want)
    for (const [i, [at, last]] of tries.slice(1).entries()) {
      assert(at - tries[i][0] > 900, `it came back after ${at - tries[i][0]} ms`)
      assert.equal(last, ids[1])
    }
  })
}
