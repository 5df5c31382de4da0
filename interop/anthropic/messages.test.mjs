// @anthropic-ai/sdk against POST /v1/messages. The SDK has no resume: an app sends
// its request again, and an Idempotency-Key makes that the same message.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import Anthropic from '@anthropic-ai/sdk'
import { everyCut, offByOne } from '../lib/cuts.mjs'
import { drainEdge, edges, fresh, runState, scenarios, startEdge } from '../lib/stage.mjs'

const client = (baseURL) => new Anthropic({ baseURL, apiKey: 'none', maxRetries: 0 })
const hello = [{ role: 'user', content: 'go' }]
const request = (model, messages = hello) => ({ model, max_tokens: 1000, messages })

/** Streams a message; what an app knows at its end. */
async function message(urls, body, { key, session, onRun }) {
  const headers = { ...(key && { 'Idempotency-Key': key }), ...(session && { 'Runlog-Session-Id': session }) }
  for (let tries = 0; tries < 20; tries++) {
    try {
      const stream = client(urls[tries % urls.length]).messages.stream(body, { headers })
      const { response } = await stream.withResponse()
      onRun?.(response.headers.get('runlog-run-id'))
      return { message: JSON.parse(JSON.stringify(await stream.finalMessage())) }
    } catch (e) {
      if (e.status !== undefined || e.error?.type === 'error' || e.error?.error) return { failed: e.message, type: e.type ?? e.error?.error?.type }
      assert(!(e instanceof assert.AssertionError), e)
    }
  }
  throw new Error('the message has no end')
}

const native = async (path, body) => {
  const r = await fetch(edges[1] + path, { method: 'POST', body: JSON.stringify(body) })
  assert(r.ok, `${path}: ${r.status} ${await r.clone().text()}`)
}

// settle gives a run what it waits for.
const settle = {
  cancel: (run) => native(`/v1/runs/${run}/cancel`, { wait: true }),
  approval: (run) => native(`/v1/runs/${run}/approvals/${run}_call_1`, { decision: 'approve' }),
}

const texts = {
  text: ['Hello, world.'], empty: [], reasoning: ['Good ', 'evening!'], tools: ['Let me look.', 'Sunny, and you are free.'],
  'tool-fails': ['That did not work.'], 'client-tool': [], approval: ['I would like to send this.', 'Sent, but not paid.'],
  cancel: ['I begin.'], unicode: undefined,
}
const stops = { 'run.completed': 'end_turn', 'run.cancelled': 'pause_turn' }

for (const { name, ends } of scenarios) {
  test(`${name}: cut, and asked for again`, async () => {
    const key = fresh('key')
    const once = (url) => message([url], request(name), { key })
    if (settle[name]) {
      let named
      const run = new Promise((ok) => { named = ok })
      const first = message([edges[0]], request(name), { key, onRun: named })
      await runState(await run, (s) => /^waiting/.test(s.status))
      await settle[name](await run)
      await first
    }
    const all = ['text', 'reasoning', 'tools', 'client-tool', 'failure', 'cancel'].includes(name)
    const { state } = await everyCut(once, { only: (k) => all || k % 4 === 1 })
    if (ends === 'run.failed') {
      assert.match(state.failed, /overloaded|limit of 1 steps/)
      assert.equal(state.type, 'api_error')
      return
    }
    assert.equal(state.message.stop_reason, name === 'client-tool' ? 'tool_use' : stops[ends])
    if (texts[name]) assert.deepEqual(state.message.content.filter((b) => b.type === 'text').map((b) => b.text), texts[name])
    if (!['text', 'tools', 'unicode'].includes(name)) return
    const control = await offByOne(once, {
      only: (k) => k % 4 === 1,
      tamper: (ask, ids) => ids.length > 1 && delete ask.headers['idempotency-key'],
    })
    assert.equal(control.wrong, control.early, 'without the key it is another message')
  })
}

test('tools that ran here are told with their results', async () => {
  const { message: m } = await message(edges, request('tools'), { key: fresh('key') })
  const uses = m.content.filter((b) => b.type === 'server_tool_use')
  assert.deepEqual(uses.map((b) => b.name), ['weather', 'calendar'])
  assert.equal(uses[0].input.city, 'Köln')
  assert.deepEqual(m.content.filter((b) => b.type === 'mcp_tool_result').map((b) => b.content[0].text), ['nothing on monday', 'sunny\n{"low":5,"high":12}'])
  assert(!JSON.stringify(m).includes('hidden'))
  const again = await message(edges, request('text', [...hello, { role: 'assistant', content: m.content }, { role: 'user', content: 'thanks' }]), {})
  assert.equal(again.message.content[0].text, 'Hello, world.', 'what the SDK was given it can send back')
})

test('a tool of the client\'s: its result continues the run, once', async () => {
  const session = fresh('ses')
  const { message: asked } = await message(edges, request('client-tool'), { session })
  const call = asked.content.find((b) => b.type === 'tool_use')
  assert.deepEqual(call.input, { title: 'When?' })
  const answer = request('client-tool', [...hello, { role: 'assistant', content: asked.content },
    { role: 'user', content: [{ type: 'tool_result', tool_use_id: call.id, content: '2026-05-01' }] }])
  const { state } = await everyCut((url) => message([url], answer, { session }))
  assert.equal(state.message.stop_reason, 'end_turn')
  assert.deepEqual(state.message.content, [{ type: 'text', text: 'May it is.' }])
  const runs = (await (await fetch(`${edges[0]}/v1/sessions/${session}`)).json()).runs
  assert.equal(runs.length, 1)
})

test('without a stream: the message, or an error', async () => {
  const m = await client(edges[0]).messages.create(request('reasoning'))
  assert.deepEqual(m.content.map((b) => b.type), ['thinking', 'text', 'thinking', 'text'])
  assert.equal(m.stop_reason, 'end_turn')
  await assert.rejects(client(edges[0]).messages.create(request('failure')), (e) => e.status === 502 && /overloaded/.test(e.message))
  await assert.rejects(client(edges[0]).messages.create(request('nobody')), (e) => e instanceof Anthropic.NotFoundError && e.type === 'not_found_error')
  await assert.rejects(client(edges[0]).messages.create(request('text', [])), Anthropic.BadRequestError)
})

test('an edge drained in mid-run breaks the stream off: the same key goes on elsewhere', async () => {
  const edge = await startEdge()
  const key = fresh('key')
  let named
  const run = new Promise((ok) => { named = ok })
  const state = message([edge.url, edges[0]], request('cancel'), { key, onRun: named })
  await runState(await run, (s) => s.status === 'waiting_tool')
  await drainEdge(edge.id)
  await settle.cancel(await run)
  assert.equal((await state).message.stop_reason, 'pause_turn')
})
