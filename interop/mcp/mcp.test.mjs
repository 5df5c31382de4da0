// @modelcontextprotocol/sdk against /mcp: agents as tools. The SDK goes on by
// itself when the stream of a call breaks off.
import '../lib/quiet.mjs'
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Client } from '@modelcontextprotocol/sdk/client/index.js'
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js'
import { ElicitRequestSchema } from '@modelcontextprotocol/sdk/types.js'
import { everyCut, offByOne } from '../lib/cuts.mjs'
import { Proxy } from '../lib/proxy.mjs'
import { drainEdge, edges, fresh, runState, scenarios, startEdge } from '../lib/stage.mjs'

// Servers say when to come back: in a second or so. Here in a moment.
const wait = globalThis.setTimeout
globalThis.setTimeout = (fn, ms, ...args) => wait(fn, ms >= 500 && ms < 6000 ? ms / 100 : ms, ...args)

/** A client, connected; ask answers elicitations. */
async function connect(base, { ask, ...options } = {}) {
  const client = new Client({ name: 'interop', version: '1' }, { capabilities: ask ? { elicitation: {} } : {} })
  if (ask) client.setRequestHandler(ElicitRequestSchema, ask)
  const transport = new StreamableHTTPClientTransport(new URL(base + '/mcp'), options)
  await client.connect(transport)
  return { client, transport, close: () => client.close() }
}

/** Calls an agent; what its caller knows at the end. */
async function call({ client }, name, { key, args = { input: 'go' }, ...options } = {}) {
  const progress = []
  const result = await client.callTool({ name, arguments: args, _meta: key && { 'dev.runlog/idempotency_key': key } }, undefined, {
    onprogress: (p) => { if (p._meta['dev.runlog/type'] !== 'heartbeat') progress.push(p) }, timeout: 30_000, resetTimeoutOnProgress: true, ...options,
  })
  return JSON.parse(JSON.stringify({ result, progress }))
}

const native = async (path, body) => {
  const r = await fetch(edges[1] + path, body && { method: 'POST', body: JSON.stringify(body) })
  assert(r.ok, `${path}: ${r.status} ${await r.clone().text()}`)
  return r.json()
}

const texts = {
  text: 'Hello, world.', empty: '', reasoning: 'Good evening!', tools: 'Sunny, and you are free.', 'tool-fails': 'That did not work.', state: 'Planned.',
  artifact: 'It is in note.md.', takeover: 'One. Two.', discarded: 'Here it is.', 'large-result': 'It is long.', subagent: 'In short: long.', approval: 'Sent, but not paid.',
}

for (const { name, ends } of scenarios) {
  test(`${name}: cut after every message`, async () => {
    const key = fresh('key')
    const once = (base) => asking(base, name, { key })
    if (name === 'approval') await once(edges[0]) // what was decided is not asked again
    if (name === 'cancel') {
      const first = once(edges[0])
      const run = await named(key, name)
      await runState(run, (s) => s.status === 'waiting_tool')
      await native(`/v1/runs/${run}/cancel`, { wait: true, reason: 'enough' })
      await first
    }
    const few = ['text', 'tools', 'failure', 'client-tool'].includes(name) ? () => true : (k) => k % 4 === 1
    const { state } = await everyCut(once, { only: few })
    const { isError, structuredContent: end, content } = state.result
    assert.equal(!!isError, ends !== 'run.completed')
    assert.equal(end.status, name === 'client-tool' ? 'waiting_tool' : ends.slice(4))
    if (name in texts) assert.deepEqual([end.text ?? '', content[0].text], [texts[name], texts[name]])
    more[name]?.(state)
    assert.equal((await native(`/v1/sessions/${end.session_id}`)).runs.length, name === 'subagent' ? 2 : 1, 'one run, however often it was called')
    const control = await offByOne(once, { only: (k) => k > 2 && k % 6 === 1 })
    assert.equal(control.wrong, control.early, 'one message too early is noticed')
  })
}

const decisions = { send: { approve: true }, pay: { approve: false, reason: 'too much' } }

// A call by a client whose user decides at once; also what that was asked.
async function asking(base, name, options) {
  const asked = []
  const ask = async ({ params }) => {
    asked.push(params.message)
    return { action: 'accept', content: decisions[/Allow (\w+)/.exec(params.message)[1]] }
  }
  const c = await connect(base, { ask })
  try {
    return { ...await call(c, name, options), asked }
  } finally {
    await c.close()
  }
}

test('approvals are asked for, each once, wherever the stream is cut', async () => {
  const run = async (base) => {
    const state = await asking(base, 'approval-live')
    const { run_id, session_id } = state.result.structuredContent
    delete state.result._meta['dev.runlog/trace_id']
    return JSON.parse(JSON.stringify(state).replaceAll(run_id, 'R').replaceAll(session_id, 'S'))
  }
  const { state } = await everyCut(run)
  assert.deepEqual(state.asked, ['Allow send?\n{"to":"bob"}', 'Allow pay?\n{"amount":3}'])
  assert.equal(state.result.structuredContent.text, 'Sent, but not paid.')
})

// The run of a key, as soon as there is one.
async function named(key, agent) {
  const c = await connect(edges[1])
  try {
    return await new Promise((ok, no) => {
      call(c, agent, { key, onprogress: (p) => {
        if (p._meta['dev.runlog/type'] === 'run.started') ok(p._meta['dev.runlog/data'].command_id.replace(/\.invoke$/, ''))
      } }).catch(no)
    })
  } finally {
    await c.close()
  }
}

const more = {
  text({ progress }) {
    const said = progress.filter((p) => p._meta['dev.runlog/type'] === 'text.delta').map((p) => p.message)
    assert.equal(said.join(''), 'Hello, world.')
    assert(progress.every((p, i) => i === 0 || p.progress > progress[i - 1].progress), 'progress only grows')
  },
  tools({ progress }) {
    const told = progress.map((p) => p.message)
    for (const what of ['weather runs', 'weather: asking the station', 'calendar has returned']) assert(told.includes(what), what)
    assert(!JSON.stringify(progress).includes('hidden'))
  },
  failure({ result }) {
    assert.match(result.content[0].text, /^model_error: .*overloaded/)
    assert.equal(result.structuredContent.error.retryable, true)
  },
  cancel({ result }) {
    assert.equal(result.content[0].text, 'the run was cancelled by client: enough')
  },
  artifact({ result }) {
    assert.deepEqual([result.content[1].type, result.content[1].name, result.content[1].mimeType], ['resource_link', 'note.md', 'text/markdown'])
  },
  'client-tool'({ result }) {
    assert.equal(result.structuredContent.waits_for[0].tool, 'pick_date')
    assert.match(result.content[0].text, /a client runs: POST \/v1\/runs\/.*follow_run/s)
  },
  approval({ progress }) {
    assert(progress.some((p) => p.message === 'send was approved by client'))
    assert(progress.some((p) => p.message === 'pay has failed: denied by client: too much'))
  },
}

test('cut while it is being written', async () => {
  for (const name of ['text', 'tools', 'takeover']) {
    await everyCut(async (base) => {
      const c = await connect(base)
      try {
        const state = await call(c, name + '-live')
        const { run_id, session_id } = state.result.structuredContent
        delete state.result._meta['dev.runlog/trace_id']
        return JSON.parse(JSON.stringify(state).replaceAll(run_id, 'R').replaceAll(session_id, 'S'))
      } finally {
        await c.close()
      }
    }, { only: (k) => k % 3 === 1 })
  }
})

test('who wants no progress has the answer all the same, from another edge', async () => {
  const front = await Proxy.start({ after: 1 }) // after the event that is an id and no more
  const c = await connect(front.url)
  const r = await c.client.callTool({ name: 'text-live', arguments: { input: 'go' } })
  assert.equal(r.structuredContent.text, 'Hello, world.')
  assert.equal(front.cuts, 1)
  await c.close()
  await front.stop()
})

test('an edge that shuts down in mid-call', async () => {
  const edge = await startEdge()
  const front = await Proxy.start({ to: [edge.url, edges[0]] })
  const c = await connect(front.url)
  const key = fresh('key')
  const done = call(c, 'cancel', { key })
  const run = await named(key, 'cancel')
  await runState(run, (s) => s.status === 'waiting_tool')
  await drainEdge(edge.id)
  await native(`/v1/runs/${run}/cancel`, { wait: true })
  const { result } = await done
  assert.deepEqual([result.isError, result.structuredContent.status], [true, 'cancelled'])
  await c.close()
  await front.stop()
})

test('a call that is cancelled is a run that is cancelled', async () => {
  for (const key of [undefined, fresh('key')]) {
    const c = await connect(edges[0])
    if (key) await named(key, 'cancel') // the run has another call already
    const gone = new AbortController()
    let run
    const done = call(c, 'cancel', { key, signal: gone.signal, onprogress: (p) => {
      if (p._meta['dev.runlog/type'] === 'run.started') run = p._meta['dev.runlog/data'].command_id.replace(/\.invoke$/, '')
      if (p._meta['dev.runlog/type'] === 'tool.running') gone.abort('enough of it')
    } })
    await assert.rejects(done, /enough of it/)
    await runState(run, (s) => s.status === 'cancelled')
    await c.close()
  }
})

test('closing the client is not cancelling', async () => {
  const c = await connect(edges[0])
  const key = fresh('key')
  const done = call(c, 'cancel', { key })
  const run = await named(key, 'cancel')
  await runState(run, (s) => s.status === 'waiting_tool')
  await c.close()
  await assert.rejects(done, /closed/)
  assert.equal((await runState(run, (s) => s.status === 'waiting_tool')).status, 'waiting_tool')
  await native(`/v1/runs/${run}/cancel`, { wait: true })
})

test('whom nobody can ask is told what the run waits for, and follows it', async () => {
  const c = await connect(edges[0])
  const { result } = await call(c, 'approval')
  const { run_id, session_id, status, waits_for } = result.structuredContent
  assert.deepEqual([status, waits_for.map((w) => [w.tool, w.kind])], ['waiting_approval', [['send', 'approval'], ['pay', 'approval']]])
  const busy = await call(c, 'approval', { args: { input: 'well?', session_id } })
  assert.equal(busy.result.isError, true)
  assert.match(busy.result.content[0].text, /this conversation waits for somebody/)
  await native(`/v1/runs/${run_id}/approvals/${waits_for[0].call_id}`, { decision: 'approve' })
  await runState(run_id)
  const end = await call(c, 'follow_run', { args: { run_id } })
  assert.equal(end.result.structuredContent.text, 'Sent, but not paid.')
  await c.close()
})

test('who declines, or cannot ask, has denied', async () => {
  for (const ask of [async () => ({ action: 'decline' }), async () => ({ action: 'cancel' }), async () => { throw new Error('no window') }]) {
    const c = await connect(edges[0], { ask })
    const { result } = await call(c, 'approval') // the scenario goes on with the first answer
    assert.equal(result.structuredContent.status, 'completed')
    await c.close()
  }
})

test('tools are the agents; a conversation goes on by its session', async () => {
  const c = await connect(edges[0])
  assert.match(c.transport.sessionId, /^mcp_/)
  const { tools } = await c.client.listTools()
  const text = tools.find((t) => t.name === 'text')
  assert.deepEqual([text.description, text.inputSchema.required], ['One answer in a few deltas.', ['input']])
  assert(tools.some((t) => t.name === 'follow_run'))
  const first = (await call(c, 'text')).result.structuredContent
  const second = (await call(c, 'text', { args: { input: 'more', session_id: first.session_id } })).result.structuredContent
  assert.equal(second.session_id, first.session_id)
  assert.notEqual(second.run_id, first.run_id)
  assert.equal((await native(`/v1/sessions/${first.session_id}`)).runs.length, 2)
  await c.client.ping()
  await c.transport.terminateSession()
  await c.close()
})

test('errors as the SDK shows them', async () => {
  const c = await connect(edges[0])
  await assert.rejects(call(c, 'nobody'), /-32602.*there is no tool "nobody"/)
  for (const [name, args, what] of [
    ['text', {}, /input is missing/],
    ['text', { input: 'x', other: 1 }, /unknown field "other"/],
    ['text', { input: 'x', session_id: 'a b' }, /session_id/],
    ['follow_run', { run_id: 'none' }, /there is no run "none"/],
  ]) {
    const { result } = await call(c, name, { args })
    assert.equal(result.isError, true)
    assert.match(result.content[0].text, what)
  }
  await assert.rejects(c.client.listResources(), /resources|-32601/)
  await c.close()
})

const post = (body, headers = {}) => fetch(edges[0] + '/mcp', { method: 'POST', headers: { accept: 'application/json, text/event-stream', ...headers }, body: typeof body === 'string' ? body : JSON.stringify(body) })
const ask = (method, params, id = 1) => ({ jsonrpc: '2.0', id, method, params })

test('on the wire', async () => {
  const hello = await post(ask('initialize', { protocolVersion: '2024-10-07', capabilities: {}, clientInfo: {} }))
  assert.equal((await hello.json()).result.protocolVersion, '2025-11-25')
  const session = { 'mcp-session-id': hello.headers.get('mcp-session-id'), 'mcp-protocol-version': '2025-11-25' }
  assert.equal((await post({ jsonrpc: '2.0', method: 'notifications/initialized' }, session)).status, 202)
  assert.equal((await post({ jsonrpc: '2.0', id: 'not/mine', result: {} }, session)).status, 404)
  assert.equal((await post({ jsonrpc: '2.0', id: 4, result: {} }, session)).status, 202)
  for (const [body, headers, status, code] of [
    ['{', {}, 400, -32700],
    [[ask('ping')], {}, 400, -32600],
    [{ jsonrpc: '2.0', id: 1 }, {}, 400, -32600],
    [ask('ping', {}, { a: 1 }), {}, 400, -32600],
    [ask('ping'), { 'mcp-protocol-version': '2026-07-28' }, 400, -32022],
    [ask('server/discover'), {}, 200, -32601],
    [ask('ping'), { 'mcp-session-id': 'a b' }, 400, -32600],
  ]) {
    const r = await post(body, headers)
    assert.deepEqual([r.status, (await r.json()).error.code], [status, code], JSON.stringify(body))
  }
  const stream = await post(ask('tools/call', { name: 'text', arguments: { input: 'go' }, _meta: { progressToken: 'p' } }, 'x'), session)
  assert.equal(stream.headers.get('content-type'), 'text/event-stream; charset=utf-8')
  const text = await stream.text()
  assert(!text.includes('\r'))
  const ids = [...text.matchAll(/^id: (.*)$/gm)].map((m) => m[1])
  assert.equal(new Set(ids).size, ids.length)
  assert.match(text, /^retry: \d+\nid: \S+:0\ndata: \n\n/)

  const again = await post(ask('tools/call', { name: 'text', arguments: { input: 'go' } }, 'x'), session)
  const twice = await post(ask('tools/call', { name: 'text', arguments: { input: 'go' } }, 'x'), { ...session, accept: 'application/json' })
  const last = (t) => JSON.parse(/^data: (\{.*"result".*)$/m.exec(t)[1])
  assert.deepEqual(last(await again.text()), last(text), 'a request that comes twice is one run')
  assert.deepEqual(await twice.json(), last(text), 'and without a stream it is the same answer')
  const other = await post(ask('tools/call', { name: 'text', arguments: { input: 'other' } }, 'x'), session)
  assert.equal((await other.json()).result.isError, true)

  const get = (id) => fetch(edges[1] + '/mcp', { headers: { accept: 'text/event-stream', ...session, ...(id && { 'last-event-id': id }) } })
  assert.equal((await get()).status, 405)
  for (const id of ['x', 'e30:0', ids[0].slice(0, -1) + 'x']) assert.equal((await get(id)).status, 400, id)
  assert.equal((await get(ids[0].slice(0, -1) + '999')).status, 409)
  const whole = await (await get(ids[0])).text()
  assert.equal(whole.replace(/^retry.*\n/, ''), text.replace(/^retry.*\n/, ''))
  assert.equal((await fetch(edges[0] + '/mcp', { method: 'DELETE', headers: session })).status, 405)
})
