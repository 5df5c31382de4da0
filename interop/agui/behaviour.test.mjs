// What an app can count on besides resuming.
import { careless } from '../lib/quiet.mjs'
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { everyCut, offByOne } from '../lib/cuts.mjs'
import { Proxy } from '../lib/proxy.mjs'
import { command, drainEdge, edges, fresh, runState, startEdge } from '../lib/stage.mjs'
import { clients, hello, run } from './clients.mjs'

const [A, B] = edges
const get = async (path) => (await fetch(A + path)).json()
const snapshot = (thread) => get(`/v1/sessions/${thread}/snapshot`)
const events = async (thread) =>
  (await (await fetch(`${A}/v1/sessions/${thread}/events?follow=false`, { headers: { accept: 'application/x-ndjson' } })).text())
    .trim().split('\n').map((l) => JSON.parse(l)).filter((e) => e.seq && e.data)

const post = (agent, body, headers = {}) =>
  fetch(`${A}/agui/${agent}`, { method: 'POST', headers: { 'content-type': 'application/json', ...headers }, body: typeof body === 'string' ? body : JSON.stringify(body) })

for (const [version, HttpAgent] of Object.entries(clients)) {
  const at = (name, fn) => test(`${version}: ${name}`, fn)
  const newAgent = (name, options = {}) => new HttpAgent({ url: `${A}/agui/${name}`, threadId: fresh('thread'), initialMessages: [hello('u1')], ...options })

  at('a conversation: what the thread knows is not said again', async () => {
    const agent = newAgent('text')
    for (const turn of [1, 2, 3]) {
      if (turn > 1) agent.addMessage(hello('u' + turn, 'turn ' + turn))
      await agent.runAgent({ runId: fresh('run') })
      const fold = await snapshot(agent.threadId)
      assert.deepEqual(fold.messages.map((m) => m.message_id), agent.messages.map((m) => m.id))
      assert.equal(agent.messages.length, 2 * turn)
    }
  })

  at('nothing new to say is a run too', async () => {
    const agent = newAgent('text')
    await agent.runAgent()
    await agent.runAgent()
    assert.equal((await snapshot(agent.threadId)).runs.length, 2)
    assert.equal(agent.messages.filter((m) => m.role === 'assistant').length, 2)
  })

  at('a conversation that began elsewhere is taken over', async () => {
    const agent = newAgent('text', {
      initialMessages: [
        { id: 's1', role: 'system', content: 'be brief' },
        hello('u1'),
        { id: 'a1', role: 'assistant', content: 'Looking.', toolCalls: [{ id: 'c1', type: 'function', function: { name: 'look', arguments: '{"q":1}' } }] },
        { id: 't1', role: 'tool', toolCallId: 'c1', content: 'found' },
        { id: 'a2', role: 'assistant', content: 'Found.' },
        { id: 'u2', role: 'user', content: [{ type: 'text', text: 'and ' }, { type: 'image', source: { type: 'url', value: 'https://example.org/a.png', mimeType: 'image/png' } }] },
      ],
    })
    const { newMessages } = await agent.runAgent()
    assert.deepEqual(newMessages.map((m) => m.content), ['Hello, world.'])
    const fold = await snapshot(agent.threadId)
    assert.deepEqual(fold.messages.map((m) => m.role), ['system', 'user', 'assistant', 'assistant', 'user', 'assistant'])
    assert.equal(fold.messages[4].parts[1].url, 'https://example.org/a.png')
  })

  at('asked for twice at once, on two edges: one run', async () => {
    const ids = { threadId: fresh('thread'), runId: fresh('run') }
    const both = await Promise.all([A, B].map((url) => run(HttpAgent, url, 'tools-live', { ...ids, messages: [hello('u1')] })))
    assert.deepEqual(both[0], both[1])
    assert.equal((await snapshot(ids.threadId)).runs.length, 1)
  })

  at('a longer history with the same runId is the same run', async () => {
    const ids = { threadId: fresh('thread'), runId: fresh('run') }
    const first = await run(HttpAgent, A, 'text', { ...ids, messages: [hello('u1')] })
    const again = await run(HttpAgent, B, 'text', { ...ids, messages: [hello('u1'), hello('u2', 'more')] })
    assert.deepEqual(again.events, first.events)
    assert.equal((await snapshot(ids.threadId)).messages.length, 2)
  })

  at('an edge that shuts down does not look like the end', async () => {
    const edge = await startEdge()
    const threadId = fresh('thread')
    const runId = fresh('run')
    const agent = new HttpAgent({ url: `${edge.url}/agui/cancel`, threadId, initialMessages: [hello('u1')] })
    let started
    const running = new Promise((ok) => (started = ok))
    const ended = agent.runAgent({ runId }, { onToolCallEndEvent: () => void started() }).then(() => 'resolved', (e) => 'rejected ' + e)
    await running
    await careless(async () => {
      await drainEdge(edge.id)
      assert.match(await ended, /^rejected/)
    })
    await command({ kind: 'cancel', session_id: threadId, run_id: runId })
  })

  at('the client that resumes does not notice that its edge shuts down', async () => {
    const edge = await startEdge()
    const ids = { threadId: fresh('thread'), runId: fresh('run') }
    const proxy = await Proxy.start({ to: [edge.url, B] })
    const ended = run(HttpAgent, proxy.url, 'cancel', { ...ids, messages: [hello('u1')] })
    await runState(ids.runId, (s) => s.status === 'waiting_tool')
    await drainEdge(edge.id)
    await command({ kind: 'cancel', session_id: ids.threadId, run_id: ids.runId })
    const state = await ended
    assert.equal(state.rejected, undefined)
    assert.equal(state.events.at(-1).type, 'RUN_FINISHED')
    assert.equal(state.messages.find((m) => m.role === 'tool').content, 'cancelled while it ran')
    await proxy.stop()
  })

  at('a client that goes away does not stop its run', async () => {
    const agent = newAgent('tools-live')
    const runId = fresh('run')
    const ended = agent.runAgent({ runId }, { onTextMessageStartEvent: () => void agent.abortRun() }).catch(() => {})
    await ended
    assert.equal((await runState(runId)).status, 'completed')
  })

  at('errors say what to do', async () => {
    const refused = async (make, status, what) => {
      const r = await make()
      assert.match(r.rejected ?? '', new RegExp(`HTTP ${status}`))
      assert.match(r.rejected, what)
    }
    const ids = () => ({ threadId: fresh('thread'), runId: fresh('run') })
    const messages = [hello('u1')]
    await refused(() => run(HttpAgent, A, 'nobody', { ...ids(), messages }), 404, /there is no agent .*nobody.*known/)
    await refused(() => run(HttpAgent, A, 'text', { ...ids(), messages: [] }), 400, /send a message/)
    await refused(() => run(HttpAgent, A, 'text', { ...ids(), messages: [{ id: 'a/b', role: 'user', content: 'x' }] }), 400, /message id/)
    const mine = ids()
    await run(HttpAgent, A, 'text', { ...mine, messages })
    await refused(() => run(HttpAgent, A, 'text', { ...mine, threadId: fresh('thread'), messages }), 409, /another thread/)
  })

  at('a client tool: the run is parked, and goes on with the result', async () => {
    const tools = [{ name: 'pick_date', description: 'asks', parameters: { type: 'object' } }]
    const agent = newAgent('client-tool')
    const first = fresh('run')
    await agent.runAgent({ runId: first, tools })
    const call = agent.messages.at(-1).toolCalls[0]
    assert.deepEqual([call.function.name, call.function.arguments], ['pick_date', '{"title":"When?"}'])
    assert.equal((await runState(first, (s) => s.status === 'waiting_tool')).status, 'waiting_tool')
    const [started] = (await events(agent.threadId)).filter((e) => e.type === 'run.started')
    assert.deepEqual(started.data.config.client_tools[0].name, 'pick_date')

    agent.addMessage({ id: 't1', role: 'tool', toolCallId: call.id, content: '2026-05-01' })
    const parked = structuredClone(agent.messages)
    const ids = { threadId: agent.threadId, runId: fresh('run') }
    const answer = (url) => run(HttpAgent, url, 'client-tool', { ...ids, messages: parked, tools })
    const { state } = await everyCut(answer)
    assert.equal(state.rejected, undefined)
    assert.deepEqual(state.messages.map((m) => m.role), ['user', 'assistant', 'tool', 'assistant'])
    assert.equal(state.messages.at(-1).content, 'May it is.')
    assert.deepEqual([state.events[0], state.events.at(-1)].map((e) => [e.type, e.runId]), [['RUN_STARTED', ids.runId], ['RUN_FINISHED', ids.runId]])
    assert((await offByOne(answer)).wrong > 2)
    assert.equal((await snapshot(agent.threadId)).runs.length, 1, 'another name, the same run')
    assert.equal((await get('/v1/runs/' + ids.runId)).run_id, first)
  })

  at('approvals: interrupts that a resume answers', async () => {
    const agent = newAgent('approval')
    const first = fresh('run')
    await agent.runAgent({ runId: first })
    const interrupts = agent.pendingInterrupts
    assert.deepEqual(interrupts.map((i) => [i.reason, i.message]), [['tool_call', 'Allow send?'], ['tool_call', 'Allow pay?']])
    assert.equal(interrupts[0].toolCallId, agent.messages.at(-1).toolCalls[0].id)

    await assert.rejects(agent.runAgent({ runId: fresh('run') }), /interrupt/)
    const answered = (resume) => post('approval', { threadId: agent.threadId, runId: fresh('run'), messages: [], tools: [], context: [], state: {}, forwardedProps: {}, resume })
    for (const [resume, what] of [
      [[{ interruptId: interrupts[0].id, status: 'resolved' }], /missing/],
      [[{ interruptId: 'else', status: 'resolved' }, ...interrupts.map((i) => ({ interruptId: i.id, status: 'resolved' }))], /does not wait for/],
    ]) {
      const r = await answered(resume)
      assert.equal(r.status, 409)
      assert.match((await r.json()).detail, what)
    }
    const resume = [
      { interruptId: interrupts[0].id, status: 'resolved', payload: { approved: true } },
      { interruptId: interrupts[1].id, status: 'cancelled' },
    ]
    const ids = { threadId: agent.threadId, runId: fresh('run') }
    const messages = structuredClone(agent.messages)
    const answer = (url) => run(HttpAgent, url, 'approval', { ...ids, messages, resume })
    const { state } = await everyCut(answer)
    assert.equal(state.rejected, undefined)
    assert.equal(state.messages.at(-1).content, 'Sent, but not paid.')
    assert.deepEqual(state.messages.filter((m) => m.role === 'tool').map((m) => m.content), ['denied by client: too much', 'sent'])
    const late = await answered(resume)
    assert.equal(late.status, 409)
    assert.match((await late.json()).detail, /nothing in this thread waits/)
  })

  at('which tool calls are shown can be asked for', async () => {
    for (const [said, tools] of [[{ emit_tool_calls: false }, 'none'], [{ 'copilotkit:emit-tool-calls': ['a', 'b'] }, ['a', 'b']], [{ emit_tool_calls: 'a' }, ['a']]]) {
      const agent = newAgent('text')
      await agent.runAgent({ forwardedProps: said })
      const [started] = (await events(agent.threadId)).filter((e) => e.type === 'run.started')
      assert.deepEqual(started.data.config.emit.tools, tools)
    }
  })

  at('state, context and props are taken as they are', async () => {
    const agent = newAgent('text', { initialState: { deep: [{ a: null }] } })
    await agent.runAgent({ context: [{ description: 'd', value: 'v' }], forwardedProps: { anything: [1] } })
    assert.deepEqual(agent.state, { deep: [{ a: null }] })
  })
}

test('on the wire: LF, one object per message, no null, no [DONE]', async () => {
  for (const { protocolVersion } of [{ protocolVersion: '1.0' }, {}]) {
    for (const agent of ['unicode', 'tools', 'approval', 'failure', 'artifact']) {
      const r = await post(agent, { threadId: fresh('thread'), runId: fresh('run'), protocolVersion, messages: [hello('u1')] })
      assert.equal(r.headers.get('content-type'), 'text/event-stream; charset=utf-8')
      assert.equal(r.headers.get('x-accel-buffering'), 'no')
      const text = await r.text()
      assert(!text.includes('\r') && !text.includes('[DONE]\n'))
      const found = text.split('\n\n').filter((b) => /^data: /m.test(b))
      for (const block of found) {
        const lines = block.split('\n')
        assert.deepEqual(lines.map((l) => l.split(':')[0]), ['id', 'data'])
        const { value, snapshot, delta, patch, content, result, ...own } = JSON.parse(lines[1].slice(6))
        assert(!JSON.stringify(own).includes(':null'), lines[1])
        if (!protocolVersion) assert(!('protocolVersion' in own || 'usage' in own || own.outcome?.type === 'cancelled'), 'what old clients do not know')
      }
    }
  }
})

test('bad requests', async () => {
  const thread = fresh('thread')
  for (const [body, headers, status, what] of [
    ['{', {}, 400, /malformed JSON/],
    ['', {}, 400, /empty/],
    ['[]', {}, 400, /array/],
    [{ threadId: 'a b', messages: [hello('u')] }, {}, 400, /threadId/],
    [{ threadId: thread, messages: [{ id: 'x', role: 'robot', content: 'x' }] }, {}, 400, /robot/],
    [{ threadId: thread, messages: [hello('u', [{ type: 'image', source: { type: 'data', value: 'AA==', mimeType: 'image/png' } }])] }, {}, 400, /artifacts/],
    [{ threadId: thread, messages: [hello('u')], resume: [{ interruptId: 'x', status: 'maybe' }] }, {}, 400, /resolved/],
    [{ threadId: thread, messages: [hello('u')], resume: [{ interruptId: 'x', status: 'resolved' }] }, {}, 409, /nothing in this thread waits/],
    [{ threadId: thread, messages: [hello('u')] }, { 'last-event-id': 'x' }, 400, /malformed cursor/],
    [{ threadId: thread, messages: [hello('u')] }, { accept: 'application/vnd.ag-ui.event+proto' }, 406, /text\/event-stream/],
    [{ threadId: thread, messages: [hello('u', 'x'.repeat(9 << 20))] }, {}, 413, /larger/],
  ]) {
    const r = await post('text', body, headers)
    assert.equal(r.status, status, JSON.stringify(body).slice(0, 200))
    assert.equal(r.headers.get('content-type'), 'application/problem+json')
    assert.match((await r.json()).detail, what)
  }
})

test('a body without ids is enough', async () => {
  const r = await post('text', { messages: [{ role: 'user', content: 'hi' }] })
  assert.equal(r.status, 200)
  assert.match(await r.text(), /RUN_FINISHED/)
})
