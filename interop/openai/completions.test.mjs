// Chat Completions: streams and whole answers, the client's tools, and what
// cannot be taken back.
import '../lib/quiet.mjs'
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Proxy } from '../lib/proxy.mjs'
import { command, drainEdge, edges, fresh, runState, startEdge } from '../lib/stage.mjs'
import { majors, newClient } from './clients.mjs'

const [A, B] = edges
const messages = [{ role: 'user', content: 'go' }]

for (const [major, OpenAI] of Object.entries(majors)) {
  const at = (name, fn) => test(`${major}: ${name}`, fn)
  const client = newClient(OpenAI, A)
  const whole = (model, o = {}) => client.chat.completions.create({ model, messages, ...o })

  at('the stream and the whole answer say the same', async () => {
    for (const model of ['text', 'empty', 'reasoning', 'tools', 'tool-fails', 'state', 'artifact', 'activity', 'subagent', 'custom', 'large-result', 'unicode', 'tools-live']) {
      const one = await whole(model)
      const two = await client.chat.completions.stream({ model, messages, stream_options: { include_usage: true } }).finalChatCompletion()
      const says = (c) => [c.object, c.model, c.choices.length, c.choices[0].message.role, c.choices[0].message.content || '', c.choices[0].finish_reason, c.usage]
      assert.deepEqual(says(two), says(one), model)
      assert.equal(one.choices[0].finish_reason, 'stop')
    }
    assert.equal((await whole('tools')).choices[0].message.content, 'Let me look.\n\nSunny, and you are free.')
  })

  at('a client tool: tool_calls, then role tool; again it is the same answer', async () => {
    const tools = [{ type: 'function', function: { name: 'pick_date', parameters: { type: 'object' } } }]
    for (const streams of [false, true]) {
      const headers = { 'Idempotency-Key': fresh('key') }
      const ask = (url) => streams
        ? newClient(OpenAI, url).chat.completions.stream({ model: 'client-tool', messages, tools }, { headers }).finalChatCompletion()
        : newClient(OpenAI, url).chat.completions.create({ model: 'client-tool', messages, tools }, { headers })
      const first = await ask(A)
      const repeated = await ask(B)
      assert.deepEqual([repeated.id, repeated.choices[0].message.tool_calls[0].id], [first.id, first.choices[0].message.tool_calls[0].id])
      assert.equal(first.choices[0].finish_reason, 'tool_calls')
      const [call] = first.choices[0].message.tool_calls
      assert.deepEqual([call.type, call.function.name, call.function.arguments], ['function', 'pick_date', '{"title":"When?"}'])
      const more = { model: 'client-tool', tools, messages: [...messages, { role: 'assistant', tool_calls: [{ id: call.id, type: 'function', function: { name: 'pick_date', arguments: call.function.arguments } }] },
        { role: 'tool', tool_call_id: call.id, content: '2026-05-01' }] }
      const second = streams
        ? await newClient(OpenAI, B).chat.completions.stream(more).finalChatCompletion()
        : await newClient(OpenAI, B).chat.completions.create(more)
      assert.equal(second.choices[0].message.content, 'May it is.')
      assert.equal(second.choices[0].finish_reason, 'stop')
      assert.equal((await runState(first.id)).status, 'completed')
      const again = await client.chat.completions.create(more)
      assert.deepEqual([again.id, again.choices[0].message.content], [second.id, 'May it is.'])
    }
  })

  at('runTools runs the client\'s tools by itself', async () => {
    const asked = []
    const runner = client.chat.completions.runTools({ model: 'client-tool', messages: [...messages],
      tools: [{ type: 'function', function: { name: 'pick_date', parse: JSON.parse, parameters: { type: 'object' }, function: (a) => (asked.push(a), '2026-05-01') } }] })
    assert.equal(await runner.finalContent(), 'May it is.')
    assert.deepEqual(asked, [{ title: 'When?' }])
  })

  at('what cannot be taken back is an error; the same key gets the answer', async () => {
    for (const [model, text] of [['takeover', 'One. Two.'], ['discarded', 'Here it is.']]) {
      const headers = { 'Idempotency-Key': fresh('key') }
      const stream = () => client.chat.completions.stream({ model, messages }, { headers }).finalChatCompletion()
      await assert.rejects(stream(), (e) => e instanceof OpenAI.OpenAIError && /same Idempotency-Key/.test(e.message))
      const done = await stream()
      assert.equal(done.choices[0].message.content, text)
      assert.equal((await whole(model)).choices[0].message.content, text)
    }
  })

  at('failure and cancel are errors, and not repeated', async () => {
    const proxy = await Proxy.start({})
    const trying = newClient(OpenAI, proxy.url, { maxRetries: 2 })
    await assert.rejects(trying.chat.completions.create({ model: 'failure', messages }), (e) => e.status === 502 && e.code === 'model_error' && /answered 500/.test(e.message))
    assert.equal(proxy.requests.length, 1)
    await assert.rejects(trying.chat.completions.create({ model: 'nobody', messages }), OpenAI.NotFoundError)
    await assert.rejects(trying.chat.completions.create({ model: 'text', messages: [] }), OpenAI.BadRequestError)
    await assert.rejects(client.chat.completions.stream({ model: 'budget', messages }).finalChatCompletion(), (e) => e.code === 'budget_exceeded')
    const headers = { 'Idempotency-Key': fresh('key') }
    const stream = await client.chat.completions.create({ model: 'cancel', messages, stream: true }, { headers })
    let id
    await assert.rejects(async () => {
      for await (const c of stream) {
        if (c.choices[0].delta.content !== 'I begin.') continue
        id = c.id
        await runState(id, (s) => s.status === 'waiting_tool')
        await command({ kind: 'cancel', session_id: (await runState(id, () => true)).session_id, run_id: id, reason: 'enough' })
      }
    }, (e) => e.code === 'cancelled')
    await proxy.stop()
  })

  at('with an idempotency key, cut after any chunk, a repeated request gets all of it', async () => {
    const n = 6
    for (let after = 1; after <= n; after++) {
      const proxy = await Proxy.start({ after })
      const ask = () => newClient(OpenAI, proxy.url).chat.completions.stream({ model: 'tools', messages }, { headers }).finalChatCompletion()
      const headers = { 'Idempotency-Key': fresh('key') }
      await assert.rejects(ask())
      const done = await ask()
      assert.equal(done.choices[0].message.content, 'Let me look.\n\nSunny, and you are free.')
      assert.notEqual(proxy.requests[0].edge, proxy.requests.at(-1).edge)
      await proxy.stop()
    }
  })

  at('session_id goes on with a session', async () => {
    const session_id = fresh('session')
    await client.chat.completions.create({ model: 'text', session_id, messages })
    await client.chat.completions.create({ model: 'text', session_id, messages: [...messages, { role: 'assistant', content: 'Hello, world.' }, { role: 'user', content: [{ type: 'text', text: 'more' }] }] })
    const fold = await (await fetch(`${A}/v1/sessions/${session_id}/snapshot`)).json()
    assert.deepEqual(fold.messages.map((m) => m.parts[0].text), ['go', 'Hello, world.', 'more', 'Hello, world.'])
  })

  at('an edge that shuts down does not look like the end', async () => {
    const edge = await startEdge()
    const stream = await newClient(OpenAI, edge.url).chat.completions.create({ model: 'cancel', messages, stream: true })
    let id
    await assert.rejects(async () => {
      for await (const c of stream) {
        id = c.id
        if (c.choices[0].delta.content === 'I begin.') await drainEdge(edge.id)
      }
    })
    const { session_id } = await runState(id, (s) => s.status === 'waiting_tool')
    await command({ kind: 'cancel', session_id, run_id: id })
  })
}
