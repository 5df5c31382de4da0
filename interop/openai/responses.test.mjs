// The Responses API: cut after every event, retrieved with starting_after on
// another edge; and what an app can count on besides.
import '../lib/quiet.mjs'
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { everyCut, offByOne } from '../lib/cuts.mjs'
import { Proxy } from '../lib/proxy.mjs'
import { command, drainEdge, edges, fresh, runState, scenarios, startEdge } from '../lib/stage.mjs'
import { alike, follow, majors, newClient, outcome } from './clients.mjs'

const [A, B] = edges
const parked = ['client-tool', 'approval', 'cancel']
const statuses = { 'run.completed': 'completed', 'run.failed': 'failed', 'run.cancelled': 'cancelled' }

for (const [major, OpenAI] of Object.entries(majors)) {
  const at = (name, fn) => test(`${major}: ${name}`, fn)
  const client = newClient(OpenAI, A)

  const ask = (model) => async (url) => {
    const events = await follow(newClient(OpenAI, url), { model, input: 'go' })
    return alike(events, events[0].response.id)
  }

  for (const { name, ends } of scenarios) {
    if (parked.includes(name)) continue
    at(`${name}: cut after every event`, async () => {
      const { state } = await everyCut(ask(name), { only: major === 'openai 7' ? undefined : (k) => k % 5 === 1 })
      assert.equal(state.at(-1).response.status, statuses[ends])
    })
    at(`${name}: the helper's response is the one that retrieve gives`, async () => {
      const stream = client.responses.stream({ model: name, input: 'go' })
      const final = await stream.finalResponse()
      const got = await newClient(OpenAI, B).responses.retrieve(final.id)
      assert.deepEqual(outcome(final), outcome(got))
      assert.deepEqual(JSON.parse(JSON.stringify(got.output)), JSON.parse(JSON.stringify(final.output.map(({ parsed, ...i }) => i).map((i) =>
        i.content ? { ...i, content: i.content.map(({ parsed, ...p }) => p) } : 'parsed_arguments' in i ? (({ parsed_arguments, ...r }) => r)(i) : i))))
      assert.equal(final.status, statuses[ends])
      const replay = await newClient(OpenAI, B).responses.stream({ response_id: final.id, starting_after: 100 }).finalResponse()
      assert.deepEqual(outcome(replay), outcome(final))
    })
  }

  at('event by event, cut after every event', async () => {
    for (const name of ['tools-live', 'takeover-live']) await everyCut(ask(name), { only: (k) => k % 3 === 0 })
  })

  at('the control: a number too low', async () => {
    const tamper = (ask) => {
      const { url } = ask
      ask.url = url.replace(/starting_after=(\d+)/, (_, n) => `starting_after=${n - 1}`)
      return ask.url !== url
    }
    const { early, wrong } = await offByOne(ask('tools'), { tamper })
    assert(wrong >= early - 4, `${wrong} of ${early}`)
  })

  at('what a response was asked is listed, in pages; nothing is deleted, and it says so', async () => {
    const input = [{ role: 'user', content: 'one' }, { role: 'user', content: [{ type: 'input_text', text: 'two' }, { type: 'input_image', image_url: 'https://example.com/cat.png', detail: 'auto' }] }, { role: 'user', content: 'three' }]
    const made = await client.responses.create({ model: 'text', input })
    const texts = []
    for await (const item of newClient(OpenAI, B).responses.inputItems.list(made.id, { limit: 2, order: 'asc' })) texts.push(item.content.map((p) => p.text ?? p.image_url))
    assert.deepEqual(texts, [['one'], ['two', 'https://example.com/cat.png'], ['three']])
    const last = await client.responses.inputItems.list(made.id, { limit: 1 })
    assert.equal(last.data[0].content[0].text, 'three')
    assert.equal(last.has_more, true)

    const asked = await client.responses.create({ model: 'client-tool', input: 'go' })
    const call = asked.output.find((i) => i.type === 'function_call')
    const done = await client.responses.create({ model: 'client-tool', previous_response_id: asked.id, input: [{ type: 'function_call_output', call_id: call.call_id, output: '2026-05-01' }] })
    const items = async (id) => (await client.responses.inputItems.list(id, { order: 'asc' })).data.map((i) => i.content?.[0].text ?? `${i.call_id} ${i.output}`)
    assert.deepEqual(await items(asked.id), ['go'])
    assert.deepEqual(await items(done.id), [`${call.call_id} 2026-05-01`])
    await assert.rejects(client.responses.inputItems.list('resp_none'), OpenAI.NotFoundError)
    await assert.rejects(client.responses.inputItems.list(done.id, { after: 'nothing' }), OpenAI.BadRequestError)

    let requests = 0
    const counting = newClient(OpenAI, A, { maxRetries: 2, fetch: (...a) => (requests++, fetch(...a)) })
    await assert.rejects(counting.responses.delete(made.id), (e) => e instanceof OpenAI.BadRequestError && e.code === 'unsupported' && /kept as a whole/.test(e.message))
    assert.equal(requests, 1, 'the SDK does not ask again')
    await assert.rejects(client.responses.delete('resp_none'), OpenAI.NotFoundError)
    assert.equal((await client.responses.retrieve(made.id)).output_text ?? 'Hello, world.', 'Hello, world.')
  })

  at('what was taken back is in no final text', async () => {
    for (const [name, text] of [['takeover', 'One. Two.'], ['discarded', 'Here it is.'], ['failure', '']]) {
      const whole = await client.responses.create({ model: name, input: 'go' })
      assert.equal(whole.output_text, text)
      const stream = client.responses.stream({ model: name, input: 'go' })
      assert.equal(outcome(await stream.finalResponse()).text, text)
    }
  })

  at('background: queued or further, then polled to its end', async () => {
    const r = await client.responses.create({ model: 'tools-held', input: 'go', background: true })
    assert.match(r.status, /queued|in_progress/)
    assert.equal(r.model, 'tools-held')
    const { session_id } = await runState(r.id, (s) => s.session_id)
    for (let i = 0; i < 2; i++) await command({ kind: 'steer', session_id, run_id: r.id })
    await runState(r.id)
    const done = await newClient(OpenAI, B).responses.retrieve(r.id)
    assert.equal(done.status, 'completed')
    assert.deepEqual(done.output.map((i) => i.type), ['message', 'mcp_call', 'mcp_call', 'message'])
    assert.equal(done.output[1].arguments, '{"city":"Köln","id":9007199254740993}')
    assert.equal(done.output[2].output, 'nothing on monday')
    assert.equal(done.output_text, 'Let me look.Sunny, and you are free.')
    assert.equal(done.usage.total_tokens, done.usage.input_tokens + done.usage.output_tokens)
  })

  at('previous_response_id goes on with the conversation', async () => {
    const one = await client.responses.create({ model: 'text', input: 'one', instructions: 'be brief' })
    const two = await client.responses.create({ model: 'text', input: [{ role: 'user', content: [{ type: 'input_text', text: 'two' }] }], previous_response_id: one.id, instructions: 'be brief' })
    const run = await runState(two.id)
    const fold = await (await fetch(`${A}/v1/sessions/${run.session_id}/snapshot`)).json()
    assert.deepEqual(fold.runs.map((r) => r.run_id), [one.id, two.id])
    assert.deepEqual(fold.messages.map((m) => m.role + ':' + m.parts[0].text), ['system:be brief', 'user:one', 'assistant:Hello, world.', 'user:two', 'assistant:Hello, world.'])
    assert.equal(fold.messages.filter((m) => m.role === 'user').length, 2)
  })

  at('a client tool: function_call, then function_call_output', async () => {
    const tools = [{ type: 'function', name: 'pick_date', parameters: { type: 'object' }, strict: false }]
    const go = async (url) => {
      const first = await client.responses.create({ model: 'client-tool', input: 'go', tools })
      assert.equal(first.status, 'completed')
      const [call] = first.output
      assert.deepEqual([call.type, call.name, call.arguments], ['function_call', 'pick_date', '{"title":"When?"}'])
      const events = await follow(newClient(OpenAI, url), { model: 'client-tool', tools, previous_response_id: first.id,
        input: [{ type: 'function_call_output', call_id: call.call_id, output: '2026-05-01' }] })
      const second = events.at(-1).response
      assert.notEqual(second.id, first.id)
      assert.deepEqual(outcome(second), { status: 'completed', text: 'May it is.', items: ['message'] })
      assert.deepEqual(outcome(await newClient(OpenAI, B).responses.retrieve(first.id)), outcome(first))
      assert.deepEqual(outcome(await newClient(OpenAI, B).responses.retrieve(second.id)), outcome(second))
      return alike(events, second.id, first.id)
    }
    await everyCut(go)
  })

  at('approvals: mcp_approval_request, then mcp_approval_response', async () => {
    const go = async (url) => {
      const events = await follow(newClient(OpenAI, url), { model: 'approval', input: 'go' })
      const first = events.at(-1).response
      const asked = first.output.filter((i) => i.type === 'mcp_approval_request')
      assert.deepEqual(asked.map((a) => [a.name, a.arguments]), [['send', '{"to":"bob"}'], ['pay', '{"amount":3}']])
      const answer = { model: 'approval', previous_response_id: first.id, input: asked.map((a, n) => ({ type: 'mcp_approval_response', approval_request_id: a.id, approve: n === 0 })) }
      const second = await newClient(OpenAI, B).responses.stream(answer).finalResponse()
      assert.deepEqual(outcome(second), { status: 'completed', text: 'Sent, but not paid.', items: ['mcp_call', 'mcp_call', 'message'] })
      assert.deepEqual(second.output.slice(0, 2).map((i) => [i.name, i.status, i.output, i.approval_request_id]), [['pay', 'failed', null, asked[1].id], ['send', 'completed', 'sent', asked[0].id]])
      const again = await client.responses.create(answer)
      assert.equal(again.id, second.id)
      return alike(events, first.id)
    }
    await everyCut(go, { only: (k) => k % 4 === 1 })
    const first = await client.responses.create({ model: 'approval', input: 'go' })
    const [a] = first.output.filter((i) => i.type === 'mcp_approval_request')
    await assert.rejects(client.responses.create({ model: 'approval', previous_response_id: first.id, input: [{ type: 'mcp_approval_response', approval_request_id: a.id, approve: true }] }),
      (e) => e.status === 409 && /missing: .*pay/.test(e.message))
  })

  at('cancel', async () => {
    const stream = await client.responses.create({ model: 'cancel', input: 'go', stream: true })
    const events = []
    let cancelled
    for await (const e of stream) {
      events.push(e)
      if (e.type === 'response.mcp_call.in_progress') cancelled = newClient(OpenAI, B).responses.cancel(events[0].response.id)
    }
    assert.equal((await cancelled).status, 'cancelled')
    assert.equal(events.at(-1).type, 'response.incomplete')
    assert.equal(events.at(-1).response.status, 'cancelled')
    assert.equal((await client.responses.cancel(events[0].response.id)).status, 'cancelled')
    const helped = client.responses.stream({ model: 'cancel', input: 'go' })
    helped.on('response.mcp_call.in_progress', async () => void client.responses.cancel(id))
    let id
    helped.on('response.created', (e) => (id = e.response.id))
    assert.equal((await helped.finalResponse()).status, 'cancelled')
  })

  at('failure is a failed response, with the reason', async () => {
    const r = await client.responses.create({ model: 'failure', input: 'go' })
    assert.equal(r.status, 'failed')
    assert.equal(r.error.code, 'model_error')
    assert.match(r.error.message, /answered 500/)
  })

  at('with an idempotency key a request that is repeated is one response', async () => {
    const key = fresh('key')
    const body = { model: 'tools', input: 'go' }
    const [one, two] = await Promise.all([A, B].map((url) => newClient(OpenAI, url).responses.create(body, { headers: { 'Idempotency-Key': key } })))
    assert.equal(one.id, two.id)
    await assert.rejects(client.responses.create({ ...body, input: 'another' }, { headers: { 'Idempotency-Key': key } }), (e) => e.status === 422)
  })

  at('errors are the SDK\'s, and repeated only where that helps', async () => {
    const proxy = await Proxy.start({})
    const trying = newClient(OpenAI, proxy.url, { maxRetries: 2 })
    const refused = async (fn, kind, what) => {
      const before = proxy.requests.length
      await assert.rejects(fn, (e) => e instanceof OpenAI[kind] && what.test(e.message) && Boolean(e.code))
      assert.equal(proxy.requests.length, before + 1, 'it was repeated')
    }
    await refused(() => trying.responses.create({ model: 'nobody', input: 'go' }), 'NotFoundError', /there is no agent .*nobody/)
    await refused(() => trying.responses.create({ model: 'text', input: [] }), 'BadRequestError', /input is a text/)
    await refused(() => trying.responses.retrieve('resp_none'), 'NotFoundError', /resp_none/)
    await refused(() => trying.responses.create({ model: 'text', input: 'x', previous_response_id: 'resp_none' }), 'NotFoundError', /resp_none/)
    const done = await client.responses.create({ model: 'text', input: 'go' })
    await refused(() => trying.responses.create({ model: 'text', previous_response_id: done.id, input: [{ type: 'function_call_output', call_id: 'c', output: 'x' }] }), 'ConflictError', /nothing in this conversation waits/)
    await refused(() => trying.responses.retrieve(done.id, { stream: true, starting_after: 1_000_000 }), 'ConflictError', /beyond the last event/)
    await proxy.stop()
  })

  at('an edge that shuts down does not look like the end', async () => {
    const edge = await startEdge()
    const proxy = await Proxy.start({ to: [edge.url, B] })
    const raw = await newClient(OpenAI, edge.url).responses.create({ model: 'cancel', input: 'go', stream: true })
    let id
    await assert.rejects(async () => {
      for await (const e of raw) {
        id ??= e.response?.id
        if (e.type === 'response.mcp_call.in_progress') await drainEdge(edge.id)
      }
    })
    const rest = await newClient(OpenAI, B).responses.retrieve(id, { stream: true })
    await command({ kind: 'cancel', session_id: (await runState(id, () => true)).session_id, run_id: id })
    let last
    for await (const e of rest) last = e
    assert.equal(last.response.status, 'cancelled')
    await proxy.stop()
  })
}
