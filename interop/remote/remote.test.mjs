// Agents of an AG-UI server behind runlog: what a client has in the end is what it
// has of the server itself, whoever breaks off in between.
import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import { HttpAgent } from '@ag-ui/client'
import { agents } from './agents.mjs'
import { startServer } from './server.mjs'
import { startRunlog } from './runlog.mjs'
import { resumingFetch } from '../agui/resuming-fetch.mjs'

let server, runlog
before(async () => {
  server = await startServer(agents)
  runlog = await startRunlog(server.url, Object.keys(agents))
})
after(async () => {
  await runlog?.stop()
  await server?.stop()
})

let threads = 0
const direct = (name) => new HttpAgent({ url: `${server.url}/${name}`, threadId: `direct-${++threads}`, initialMessages: hello() })
const behind = (name, fetch) => new HttpAgent({ url: `${runlog.url}/agui/${name}`, threadId: `behind-${++threads}`, initialMessages: hello(), ...(fetch && { fetch }) })
const hello = () => [{ id: `hello-${threads}`, role: 'user', content: 'hello' }]

/** One run: how it ended, and what was told of it besides messages and state. */
async function run(agent, options = {}) {
  const seen = { errors: [], customs: [], finished: 0 }
  await agent.runAgent(options, {
    onRunErrorEvent: ({ event }) => void seen.errors.push(event.message),
    onCustomEvent: ({ event }) => void seen.customs.push([event.name, event.value]),
    onRunFinishedEvent: () => void seen.finished++,
  })
  return seen
}

/** What an app has: ids of reasoning and of results are the server's own business, metadata is runlog's. */
const known = (agent) => ({
  state: agent.state,
  messages: agent.messages.map(({ id, metadata, ...m }) => (m.role === 'assistant' || m.role === 'activity' ? { id, ...m } : m)),
})

async function same(name, agent = behind(name)) {
  const plain = direct(name)
  const want = await run(plain)
  const got = await run(agent)
  assert.deepEqual(known(agent), normal(known(plain)))
  assert.deepEqual(got, want)
  return { plain, agent }
}

/** runlog gives an assistant's message a text, if only an empty one. */
const normal = (k) => ({ ...k, messages: k.messages.map((m) => (m.role === 'assistant' ? { content: '', ...m } : m)) })

test('a client sees what the server says, over two turns', async () => {
  const { plain, agent } = await same('story')
  for (const a of [plain, agent]) a.addMessage({ id: `more-${threads}`, role: 'user', content: 'more' })
  await run(plain)
  await run(agent)
  assert.deepEqual(known(agent), normal(known(plain)))
  // The server was told the same both times, but for reasoning, which runlog keeps to itself, and the order of results.
  const [first, second] = server.inputs.story.filter((i) => i.messages.length > 1)
  const told = (i) => normal(known({ state: i.state, messages: i.messages.filter((m) => m.role !== 'reasoning') }))
  const results = (t) => t.messages.filter((m) => m.role === 'tool').sort((a, b) => a.toolCallId.localeCompare(b.toolCallId))
  const others = (t) => t.messages.filter((m) => m.role !== 'tool')
  assert.deepEqual([told(second).state, others(told(second)), results(told(second))], [told(first).state, others(told(first)), results(told(first))])
  assert.equal(second.protocolVersion, '1.0')
})

test('a run that says nothing ends as one', async () => {
  const agent = behind('empty')
  assert.equal((await run(agent)).finished, 1)
  assert.equal(agent.messages.length, 1)
})

test('a server that breaks off is asked anew, and nothing is told twice', async () => {
  const agent = behind('fragile')
  const got = await run(agent)
  const plain = direct('story')
  await run(plain)
  assert.equal(server.inputs.fragile.length, 4)
  assert.equal(new Set(server.inputs.fragile.map((i) => i.runId)).size, 1)
  const kept = known(agent)
  assert.deepEqual(kept.state, known(plain).state)
  const texts = (k) => k.messages.map((m) => [m.role, m.content, m.toolCalls?.map((c) => [c.function.name, c.function.arguments])])
  // Reasoning that was taken back stays as an empty one with clients of AG-UI.
  assert.deepEqual(texts(kept).filter(([role, content]) => role !== 'reasoning' || content), texts(normal(known(plain))))
  assert.equal(got.finished, 1)
})

test('a failure is one', async () => {
  const agent = behind('failing')
  const seen = await run(agent)
  assert.deepEqual(seen.errors, ['the agent failed (E7): no luck'])
  assert.equal(seen.finished, 0)
  assert.equal(agent.messages.filter((m) => m.role === 'assistant' && m.content).length, 0)
})

test('a cancel closes the socket of the server', async () => {
  const runId = `endless-${process.pid}`
  const closed = server.closed
  const agent = behind('endless')
  const done = run(agent, { runId })
  while (!server.inputs.endless) await new Promise((ok) => setTimeout(ok, 10))
  const r = await fetch(`${runlog.url}/v1/runs/${runId}/cancel`, { method: 'POST', headers: { 'content-type': 'application/json' }, body: '{"wait":true}' })
  assert.equal((await r.json()).status, 'cancelled')
  await done
  while (server.closed === closed) await new Promise((ok) => setTimeout(ok, 10))
})

for (const [how, payload, says] of [['approved', { approved: true }, 'Paid.'], ['denied', { approved: false }, 'Not paid.']]) {
  test(`an interrupt about a call is ${how}`, async () => {
    const agent = behind('buyer')
    await run(agent)
    assert.deepEqual(agent.pendingInterrupts.map((i) => [i.reason, i.toolCallId]), [['tool_call', 'pay']])
    await run(agent, { resume: agent.pendingInterrupts.map((i) => ({ interruptId: i.id, status: 'resolved', payload })) })
    assert.equal(agent.messages.filter((m) => m.role === 'assistant').at(-1).content, says)
    assert.equal(agent.messages.filter((m) => m.role === 'tool').length, 1)
    const { resume, runId } = server.inputs.buyer.at(-1)
    assert.deepEqual(resume, [{ interruptId: 'i1', status: 'resolved', payload }])
    assert.notEqual(runId, server.inputs.buyer.at(-2).runId)
  })
}

/** A client that runs a tool brings the result in a message. */
async function withTool(agent, name, content, options = {}) {
  await run(agent, options)
  const call = agent.messages.flatMap((m) => m.toolCalls ?? []).find((c) => c.function.name === name)
  assert(call, 'the tool was not called')
  agent.addMessage({ id: `${call.id}-of-${threads}`, role: 'tool', toolCallId: call.id, content })
  await run(agent, options)
  return call
}

test('an interrupt that asks for something is a call that the client answers', async () => {
  const agent = behind('asker')
  const call = await withTool(agent, 'interrupt', '{"n":3}')
  assert.deepEqual(JSON.parse(call.function.arguments), { reason: 'input_required', message: 'How many?' })
  assert.equal(agent.messages.at(-1).content, 'So {"n":3}.')
  // The server never hears of the call that stood for its question.
  assert(!JSON.stringify(server.inputs.asker.at(-1).messages).includes('interrupt'))
})

test("a client's tool is the client's to run", async () => {
  const agent = behind('guide')
  const tools = [{ name: 'locate', description: 'where', parameters: { type: 'object' } }]
  await withTool(agent, 'locate', 'Rome', { tools })
  assert.equal(agent.messages.at(-1).content, 'You are in Rome.')
  assert.equal(server.inputs.guide[0].tools[0].name, 'locate')
})

test('kill -9 of the worker in the middle of a stream', async () => {
  const agent = behind('slow', resumingFetch(2000, 20))
  const plain = direct('story')
  await run(plain)
  const done = run(agent)
  while (!agent.messages.some((m) => m.toolCalls?.length > 1)) await new Promise((ok) => setTimeout(ok, 5))
  await runlog.kill()
  await runlog.start()
  const got = await done
  assert.equal(server.inputs.slow.length, 2)
  assert.equal(server.inputs.slow[0].runId, server.inputs.slow[1].runId)
  const texts = (k) => k.messages.filter((m) => m.role !== 'reasoning').map((m) => [m.role, m.content, m.toolCalls?.length])
  assert.deepEqual(texts(known(agent)), texts(normal(known(plain))))
  assert.deepEqual(agent.state, plain.state)
  assert.equal(got.finished, 1)
})
