// @langchain/langgraph-sdk against /langgraph. The SDK goes on by itself when a
// stream breaks off: with Last-Event-ID, at the Location that it was given.
import '../lib/quiet.mjs'
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Client } from '@langchain/langgraph-sdk'
import { everyCut, offByOne } from '../lib/cuts.mjs'
import { drainEdge, edges, fresh, runState, scenarios, startEdge } from '../lib/stage.mjs'
import { Conversation } from './conversation.mjs'

// The SDK waits a second and more before it goes on: so that every cut can be
// tested, that is a hundredth here. How long it takes for a silence, 6 s or more,
// stays as it is.
const wait = globalThis.setTimeout
globalThis.setTimeout = (fn, ms, ...args) => wait(fn, ms >= 500 && ms < 6000 ? ms / 100 : ms, ...args)

const client = (base) => new Client({ apiUrl: base + '/langgraph', apiKey: null, callerOptions: { maxRetries: 2 } })
const hello = { messages: [{ type: 'human', id: 'u1', content: 'go' }] }
const native = async (path, body) => {
  const r = await fetch(edges[1] + path, body && { method: 'POST', body: JSON.stringify(body) })
  assert(r.ok, `${path}: ${r.status} ${await r.clone().text()}`)
  return r.json()
}

const all = ['values', 'messages-tuple', 'updates', 'custom', 'tools', 'events']

/** Reads a stream to its end; what an app knows then. */
async function read(stream, { onRun } = {}) {
  const talk = new Conversation()
  const parts = []
  for await (const { id, event, data } of stream) {
    assert(id, `${event} has no id`)
    if (event === 'metadata') onRun?.(data)
    talk.add(event, data)
    parts.push([event, data])
  }
  return JSON.parse(JSON.stringify({ parts, ...talk.state() }))
}

/** Joins a run from its start. */
const join = (base, { thread, run, modes = all }) => read(client(base).runs.joinStream(thread, run, { streamMode: modes, lastEventId: '-1' }))

async function begin(agent, o = {}) {
  const thread = fresh('thread')
  const run = await client(edges[0]).runs.create(thread, agent, { input: hello, ...o })
  return { thread, run: run.run_id }
}

const settle = {
  cancel: (run) => native(`/v1/runs/${run}/cancel`, { wait: true, reason: 'enough' }),
}

const texts = {
  text: 'Hello, world.', empty: '', reasoning: 'Good evening!', tools: 'Let me look.|Sunny, and you are free.', 'tool-fails': '|That did not work.',
  state: 'Planned.', takeover: 'One. Two.', discarded: 'Here it is.', 'large-result': '|It is long.', 'client-tool': '',
  approval: 'I would like to send this.', cancel: 'I begin.',
}
const lasts = { 'run.completed': 'end', 'run.failed': 'error', 'run.cancelled': 'error' }

for (const { name, ends } of scenarios) {
  test(`${name}: cut after every message`, async () => {
    const at = { ...await begin(name), modes: name === 'large-result' ? ['values', 'messages-tuple'] : all }
    if (settle[name]) {
      await runState(at.run, (s) => /^waiting/.test(s.status))
      await settle[name](at.run)
    }
    const parked = name === 'approval' || name === 'client-tool'
    await runState(at.run, (s) => parked ? /^waiting/.test(s.status) : /completed|failed|cancelled/.test(s.status))
    const few = ['text', 'tools', 'failure', 'approval', 'discarded'].includes(name) ? () => true : (k) => k % (name === 'large-result' ? 12 : 4) === 1
    const { state } = await everyCut((base) => join(base, at), { only: few })
    assert.equal(state.parts.at(-1)[0], lasts[ends])
    if (name in texts) {
      const said = (list) => list.filter((m) => m.type === 'ai').map((m) => m.content).join('|')
      assert.equal(said(state.values.messages), texts[name])
      assert.equal(said(state.chunks), texts[name].replace(/^$/, ''), 'chunks make the same')
    }
    more[name]?.(state)
    const control = await offByOne((base) => join(base, at), { only: (k) => k % (name === 'large-result' ? 12 : 5) === 1 })
    assert.equal(control.wrong, control.early, 'one message too early is noticed')
  })
}

const more = {
  tools(s) {
    const [a, b] = s.values.messages[1].tool_calls
    assert.deepEqual([a.args.city, b.args.day], ['Köln', 'monday'])
    assert.deepEqual(s.values.messages.filter((m) => m.type === 'tool').map((m) => m.content), ['sunny\n{"low":5,"high":12}', 'nothing on monday'])
    assert(!JSON.stringify(s).includes('hidden'))
    assert.deepEqual(s.parts.filter(([e]) => e === 'tools').map(([, d]) => d.event),
      ['on_tool_start', 'on_tool_start', 'on_tool_event', 'on_tool_end', 'on_tool_event', 'on_tool_end'])
  },
  state(s) {
    assert.deepEqual([s.values.steps, s.values.done], [['plan', 'do'], true])
  },
  failure(s) {
    assert.deepEqual(s.parts.at(-1)[1].error, 'model_error')
    assert.match(s.parts.at(-1)[1].message, /overloaded/)
  },
  cancel(s) {
    assert.deepEqual(s.parts.at(-1)[1], { error: 'UserInterrupt', message: 'the run was cancelled by client: enough' })
    assert.equal(s.values.messages.at(-1).content, 'cancelled while it ran')
  },
  approval(s) {
    assert.deepEqual(s.values.__interrupt__[0].value.action_requests.map((a) => a.name), ['send', 'pay'])
    assert.equal(s.parts.at(-1)[1].status, 'interrupted')
  },
  custom(s) {
    const own = s.parts.filter(([e, d]) => e === 'custom' && d.type === 'custom').map(([, d]) => d.name)
    assert.deepEqual(own, ['weather.station', 'bare'])
  },
  unicode(s) {
    assert(s.values.messages[1].content.includes('data: x\n\nid: 7\r\nevent: y\r\r'))
  },
}

test('runs.stream: cut while it is being written, the SDK goes on elsewhere', async () => {
  for (const name of ['text', 'tools', 'takeover']) {
    await everyCut(async (base) => {
      const thread = fresh('thread')
      let run
      const state = await read(client(base).runs.stream(thread, name + '-live', { input: hello, streamMode: ['values', 'messages-tuple'] }), { onRun: (m) => { run = m.run_id } })
      assert.equal((await native(`/v1/sessions/${thread}`)).runs.length, 1, 'one run, however often its stream broke off')
      return JSON.parse(JSON.stringify(state).replaceAll(thread, 'T').replaceAll(run, 'R'))
    }, { only: (k) => k % 2 === 1 })
  }
})

test('any size of reads, and resets', async () => {
  const at = await begin('unicode')
  await runState(at.run)
  await everyCut((base) => join(base, at), { shred: 7, only: (k) => k % 9 === 0 })
  await everyCut((base) => join(base, at), { reset: true, only: (k) => k % 9 === 4 })
})

test('an edge that shuts down: the SDK goes on at another one', async () => {
  const edge = await startEdge()
  const thread = fresh('thread')
  let named
  const known = new Promise((ok) => { named = ok })
  const front = await (await import('../lib/proxy.mjs')).Proxy.start({ to: [edge.url, edges[0]] })
  try {
    const state = read(client(front.url).runs.stream(thread, 'cancel', { input: hello, streamMode: all }), { onRun: (m) => named(m.run_id) })
    const run = await known
    await runState(run, (s) => s.status === 'waiting_tool')
    await drainEdge(edge.id)
    await settle.cancel(run)
    const s = await state
    assert.equal(s.parts.at(-1)[1].error, 'UserInterrupt')
    assert.equal(s.parts.filter(([e]) => e === 'metadata').length, 1, 'nothing is told twice')
    assert.deepEqual(new Set(front.requests.map((r) => r.edge)).size, 2)
  } finally {
    await front.stop()
  }
})

test('an approval: the interrupt is answered by a resume, cut after every message', async () => {
  const thread = fresh('thread')
  const first = await read(client(edges[0]).runs.stream(thread, 'approval', { input: hello, streamMode: all }))
  const asked = first.values.__interrupt__[0]
  const c = client(edges[1])
  const st = await c.threads.getState(thread)
  assert.deepEqual([st.next, st.tasks[0].interrupts[0].id], [['agent'], asked.id])
  assert.equal((await c.threads.get(thread)).status, 'interrupted')
  await assert.rejects(c.runs.wait(thread, 'approval', { command: { resume: { decisions: [{ type: 'approve' }] } } }), /1 decisions for 2 calls/)
  await assert.rejects(c.runs.wait(thread, 'approval', { command: { resume: { decisions: [{ type: 'edit' }, { type: 'approve' }] } } }), /cannot be taken/)

  const run = await c.runs.create(thread, 'approval', { command: { resume: { decisions: [{ type: 'approve' }, { type: 'reject', message: 'too much' }] } } })
  assert.notEqual(run.run_id, first.parts[0][1].run_id)
  const at = { thread, run: run.run_id }
  const { state } = await everyCut((base) => join(base, at))
  assert.equal(state.values.messages.at(-1).content, 'Sent, but not paid.')
  const begun = state.parts.find(([e]) => e === 'metadata')[1]
  assert.deepEqual([begun, state.parts.at(-1)], [{ run_id: run.run_id, thread_id: thread }, ['end', { run_id: run.run_id, status: 'success' }]])
  assert.deepEqual(state.values.messages.filter((m) => m.type === 'tool').map((m) => [m.name, m.status]), [['send', 'success'], ['pay', 'error']])
  assert.equal((await native(`/v1/sessions/${thread}`)).runs.length, 1, 'another name, the same run')
  const { events } = await read(c.runs.joinStream(thread, first.parts[0][1].run_id, { streamMode: ['values'], lastEventId: '-1' }))
  assert.equal(events, undefined)
  await assert.rejects(c.runs.wait(thread, 'approval', { command: { resume: true } }), /nothing in this thread waits/)
})

test('a tool of the client\'s is an interrupt, as its headless tools are', async () => {
  for (const keyed of [true, false]) {
    const thread = fresh('thread')
    const first = await read(client(edges[0]).runs.stream(thread, 'client-tool', { input: hello, streamMode: ['values'] }))
    const [{ id, value }] = first.values.__interrupt__
    assert.deepEqual([value.type, value.toolCall.name, value.toolCall.args], ['tool', 'pick_date', { title: 'When?' }])
    const resume = keyed ? { [id]: { [value.toolCall.id]: '2026-05-01' } } : '2026-05-01'
    const done = await client(edges[1]).runs.wait(thread, 'client-tool', { command: { resume } })
    assert.deepEqual(done.messages.slice(-2).map((m) => m.content), ['2026-05-01', 'May it is.'])
  }
})

test('wait, join, get, list, cancel', async () => {
  const c = client(edges[0])
  const thread = (await c.threads.create()).thread_id
  let made
  const values = await c.runs.wait(thread, 'tools', { input: { messages: 'go' }, onRunCreated: (m) => { made = m } })
  assert.equal(values.messages.at(-1).content, 'Sunny, and you are free.')
  assert.equal(made.thread_id, thread)
  assert.equal((await c.runs.get(thread, made.run_id)).status, 'success')
  assert.deepEqual((await c.runs.join(thread, made.run_id)).messages, values.messages)
  await assert.rejects(c.runs.wait(thread, 'failure', { input: { messages: [['human', 'again']] } }), /model_error: .*overloaded/)
  const failed = await c.runs.wait(thread, 'failure', { input: { messages: [{ role: 'user', content: 'again' }] }, raiseError: false })
  assert.equal(failed.__error__.error, 'model_error')
  const list = await c.runs.list(thread)
  assert.deepEqual(list.map((r) => [r.assistant_id, r.status]), [['failure', 'error'], ['failure', 'error'], ['tools', 'success']])
  assert.equal((await c.threads.get(thread)).status, 'error')

  const waits = await c.runs.create(thread, 'cancel', { input: hello })
  await runState(waits.run_id, (s) => s.status === 'waiting_tool')
  assert.equal((await c.runs.get(thread, waits.run_id)).status, 'running')
  assert.equal((await c.threads.get(thread)).status, 'busy')
  await c.runs.cancel(thread, waits.run_id, true)
  assert.equal((await client(edges[1]).runs.get(thread, waits.run_id)).status, 'interrupted')
  await c.runs.cancel(thread, waits.run_id, true)
  await assert.rejects(c.runs.cancel(thread, waits.run_id, true, 'rollback'), /stays said/)
})

test('on_disconnect: only who asks for it cancels by leaving', async () => {
  for (const [onDisconnect, status] of [['cancel', 'cancelled'], ['continue', 'waiting_tool']]) {
    const thread = fresh('thread')
    const gone = new AbortController()
    let named
    const known = new Promise((ok) => { named = ok })
    const reading = read(client(edges[0]).runs.stream(thread, 'cancel', { input: hello, onDisconnect, signal: gone.signal }), { onRun: (m) => named(m.run_id) })
    const run = await known
    await runState(run, (s) => s.status === 'waiting_tool')
    gone.abort()
    await assert.rejects(reading, /abort/i)
    assert.equal((await runState(run, (s) => s.status === status)).status, status)
    await settle.cancel(run)
  }
})

test('threads: state and history', async () => {
  const c = client(edges[0])
  const empty = (await c.threads.create({ metadata: { a: 1 }, graphId: 'text' }))
  assert.deepEqual([empty.status, empty.values, empty.metadata.a], ['idle', { messages: [] }, 1])
  assert.deepEqual(await c.threads.getHistory(empty.thread_id), [])
  const blank = await c.threads.getState(empty.thread_id)
  assert.deepEqual([blank.values, blank.checkpoint], [{ messages: [] }, null])

  const thread = fresh('thread')
  for (const content of ['one', 'two', 'three']) await c.runs.wait(thread, 'text', { input: { messages: [{ type: 'human', content }] } })
  const history = await c.threads.getHistory(thread)
  assert.deepEqual(history.map((s) => s.values.messages.length), [6, 4, 2])
  assert.deepEqual(history.map((s) => s.parent_checkpoint?.checkpoint_id), [history[1].checkpoint.checkpoint_id, history[2].checkpoint.checkpoint_id, undefined])
  const [head, middle] = history
  assert.deepEqual(await c.threads.getState(thread), head)
  assert.deepEqual(await c.threads.getState(thread, middle.checkpoint.checkpoint_id), middle)
  assert.deepEqual(await c.threads.getState(thread, middle.checkpoint), middle)
  assert.deepEqual(await c.threads.getHistory(thread, { limit: 1, before: { configurable: {} , checkpoint_id: head.checkpoint.checkpoint_id } }), [middle])
  await assert.rejects(c.threads.getState(thread, '99'), /HTTP 404/)
  await assert.rejects(c.threads.create({ threadId: thread }), /HTTP 409/)
  assert.equal((await c.threads.create({ threadId: thread, ifExists: 'do_nothing' })).values.messages.length, 6)
  const again = await c.runs.wait(thread, 'text', { input: { messages: head.values.messages.concat({ type: 'human', content: 'four' }) }, checkpointId: head.checkpoint.checkpoint_id })
  assert.equal(again.messages.length, 8, 'what the thread holds is not said again')
  await assert.rejects(c.runs.wait(thread, 'text', { input: hello, checkpointId: middle.checkpoint.checkpoint_id }), /goes on from its end/)
})

test('a failed run goes on when nothing new is said', async () => {
  const c = client(edges[0])
  const thread = fresh('thread')
  await assert.rejects(c.runs.wait(thread, 'failure', { input: hello }), /overloaded/)
  await assert.rejects(c.runs.wait(thread, 'failure', { input: null }), /overloaded/)
  const runs = (await native(`/v1/sessions/${thread}`)).runs
  assert.equal(runs.length, 2)
  await assert.rejects(c.runs.wait(fresh('thread'), 'failure', { input: null }), /nothing was said in this thread/)
})

test('messages in every form', async () => {
  const { HumanMessage, AIMessage, ToolMessage } = await import('@langchain/core/messages')
  const c = client(edges[0])
  const thread = fresh('thread')
  await c.runs.wait(thread, 'text', { input: { messages: [
    new HumanMessage({ content: 'look', id: 'h1' }),
    new AIMessage({ content: '', tool_calls: [{ id: 'c1', name: 'look', args: { at: 'it' } }] }),
    new ToolMessage({ content: 'seen', tool_call_id: 'c1' }),
    { role: 'user', content: [{ type: 'text', text: 'and this' }, { type: 'image_url', image_url: { url: 'https://example.org/a.png' } }, { type: 'image', mimeType: 'image/png', data: 'AA==' }] },
  ] } })
  const { messages } = await native(`/v1/sessions/${thread}/messages`)
  assert.deepEqual(messages.map((m) => m.role), ['user', 'assistant', 'user', 'assistant'])
  assert.equal(messages[0].message_id, 'h1')
  assert.deepEqual(messages[2].parts.map((p) => p.type), ['text', 'image', 'image'])
  assert.match(messages[2].parts[2].url, /^\/artifacts\//)
})

test('assistants are the agents', async () => {
  const c = client(edges[0])
  const some = await c.assistants.search({ limit: 3 })
  assert.equal(some.length, 3)
  const [text] = await c.assistants.search({ graphId: 'text' })
  assert.deepEqual([text.assistant_id, text.description], ['text', 'One answer in a few deltas.'])
  assert.deepEqual(await c.assistants.get('text'), text)
  assert(await c.assistants.count() > 30)
  assert.equal((await c.assistants.getSchemas('text')).graph_id, 'text')
  await assert.rejects(c.assistants.get('nobody'), /HTTP 404.*there is no agent.*nobody/)
})

test('errors as the SDK shows them', async () => {
  const c = client(edges[0])
  const thread = fresh('thread')
  const failing = (o, agent = 'text', on = thread) => c.runs.wait(on, agent, { input: hello, ...o })
  for (const [call, what] of [
    [() => failing({}, 'nobody'), /HTTP 404.*there is no agent/],
    [() => failing({ input: { messages: [] } }), /HTTP 400.*holds no messages/],
    [() => failing({ input: { topic: 'x' } }), /HTTP 400.*holds no messages/],
    [() => failing({ input: { messages: [{ type: 'robot', content: 'x' }] } }), /HTTP 400.*robot/],
    [() => failing({ multitaskStrategy: 'rollback' }), /HTTP 400.*stays said/],
    [() => failing({ interruptBefore: '*' }), /HTTP 400.*no nodes/],
    [() => failing({ webhook: 'https://example.org' }), /HTTP 400.*webhooks/],
    [() => failing({ afterSeconds: 3 }), /HTTP 400.*later/],
    [() => failing({ command: { resume: true } }), /HTTP 409.*nothing in this thread waits/],
    [() => failing({}, 'text', 'a b/c'), /HTTP 400.*thread_id/],
    [() => c.runs.get(thread, 'none'), /HTTP 404/],
    [() => c.runs.stream(thread, 'text', { input: hello, streamMode: 'debug' }).next(), /HTTP 400.*debug.*known: values/],
    [() => c.runs.joinStream(thread, 'none').next(), /HTTP 404/],
    [() => c.threads.joinStream(fresh('thread')).next(), /HTTP 404/],
  ]) await assert.rejects(call, (e) => what.test(String(e.message).replaceAll('\n', ' ')) || assert.fail(`${e.message} is not ${what}`))
  const at = await begin('text')
  await runState(at.run)
  await assert.rejects(c.runs.get(fresh('thread'), at.run), /HTTP 404/)
  await assert.rejects(c.runs.joinStream(at.thread, at.run, { lastEventId: '999' }).next(), /HTTP 409.*beyond/)
  await assert.rejects(c.runs.joinStream(at.thread, at.run, { lastEventId: 'x' }).next(), /HTTP 400.*malformed cursor/)
})

test('stateless runs, and a thread that is followed', async () => {
  const c = client(edges[0])
  const parts = []
  let made
  for await (const p of c.runs.stream(null, 'text', { input: hello, onRunCreated: (m) => { made = m } })) parts.push(p.event)
  assert.deepEqual([parts[0], parts.at(-1)], ['metadata', 'end'])
  assert(made.thread_id && made.run_id)
  assert.equal((await c.runs.wait(null, 'text', { input: hello })).messages.length, 2)

  const gone = new AbortController()
  const following = c.threads.joinStream(made.thread_id, { lastEventId: '-1', signal: gone.signal })
  let ends = 0
  await c.runs.wait(made.thread_id, 'text', { input: { messages: 'more' } })
  for await (const p of following) if (p.event === 'end' && ++ends === 2) break
  gone.abort()
})
