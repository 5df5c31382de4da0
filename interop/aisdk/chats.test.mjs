// What an app can count on besides resuming.
import '../lib/quiet.mjs'
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { command, drainEdge, edges, fresh, runState, startEdge } from '../lib/stage.mjs'
import { newChat, resuming } from './chats.mjs'

const [A, B] = edges
const snapshot = async (chat) => (await fetch(`${A}/v1/sessions/${chat.id}/snapshot`)).json()
const post = (body, headers = {}) =>
  fetch(A + '/api/chat', { method: 'POST', headers: { 'content-type': 'application/json', ...headers }, body: JSON.stringify(body) })
const hello = (id, text = 'hello') => ({ id, role: 'user', parts: [{ type: 'text', text }] })

test('a conversation: what the session knows is not said again', async () => {
  const chat = newChat(() => A, 'text')
  for (const turn of [1, 2, 3]) {
    await chat.sendMessage({ text: 'turn ' + turn })
    assert.equal(chat.status, 'ready')
    assert.equal(chat.messages.length, 2 * turn)
  }
  const { messages, runs } = await snapshot(chat)
  assert.deepEqual(messages.map((m) => m.role), ['user', 'assistant', 'user', 'assistant', 'user', 'assistant'])
  assert.deepEqual(messages.filter((m) => m.role === 'user').map((m) => m.message_id), chat.messages.filter((m) => m.role === 'user').map((m) => m.id))
  assert.deepEqual(runs.map((r) => r.run_id), chat.messages.filter((m) => m.role === 'assistant').map((m) => m.id))
})

test('the same request again, on both edges, is one run', async () => {
  const id = fresh('chat')
  const ask = { id, messages: [hello('u1')], trigger: 'submit-message', agent: 'tools-live' }
  const body = JSON.stringify(ask)
  const texts = await Promise.all([A, B, A].map(async (url) => {
    const r = await fetch(url + '/api/chat', { method: 'POST', body })
    assert.equal(r.status, 200)
    assert.equal(r.headers.get('x-vercel-ai-ui-message-stream'), 'v1')
    return (await r.text()).split('\n').filter((l) => l.startsWith('data:'))
  }))
  assert.deepEqual(texts[1], texts[0])
  assert.deepEqual(texts[2], texts[0])
  assert.equal(texts[0].at(-1), 'data: [DONE]')
  assert.equal((await snapshot({ id })).runs.length, 1)
})

test('regenerate, edit, and sending again after a failure are new runs', async () => {
  const chat = newChat(() => A, 'text')
  await chat.sendMessage({ text: 'one' })
  const first = chat.messages.at(-1).id
  await chat.regenerate()
  const second = chat.messages.at(-1).id
  assert.notEqual(second, first)
  await chat.sendMessage({ text: 'another one', messageId: chat.messages[0].id })
  assert.equal(chat.messages.length, 2)
  const fold = await snapshot(chat)
  assert.equal(fold.runs.length, 3)
  assert.deepEqual(fold.messages.filter((m) => m.role === 'user').map((m) => m.parts[0].text), ['one', 'one', 'another one'])

  const failing = newChat(() => A, 'failure')
  await failing.sendMessage({ text: 'one' })
  assert.equal(failing.status, 'error')
  await failing.regenerate()
  await failing.sendMessage({ text: 'one', messageId: failing.messages[0].id })
  assert.equal(failing.status, 'error')
  assert.equal((await snapshot(failing)).runs.length, 3)
})

test('failure is an error, with the reason, and no text that was taken back', async () => {
  const chat = newChat(() => A, 'failure')
  await chat.sendMessage({ text: 'go' })
  assert.equal(chat.status, 'error')
  assert.match(chat.error.message, /^model_error: the model's server answered 500/)
  assert.deepEqual(chat.messages.at(-1).parts.filter((p) => p.type === 'text'), [])
})

test('errors say what to do', async () => {
  const chat = newChat(() => A, 'nobody')
  await chat.sendMessage({ text: 'go' })
  assert.equal(chat.status, 'error')
  assert.match(chat.error.message, /there is no agent .*nobody.*known/)
  for (const [body, status, what] of [
    [{ id: fresh('chat'), messages: [] }, 400, /send a message/],
    [{ id: 'a/b', messages: [hello('u1')] }, 400, /id holds/],
    [{ id: fresh('chat'), agent: 'text', messages: [{ id: 'u', role: 'user', parts: [] }] }, 400, /is empty/],
    [{ id: fresh('chat'), agent: 'text', messages: [{ id: 'a', role: 'assistant', parts: [{ type: 'text', text: 'x' }] }] }, 409, /nothing in this chat waits/],
    [{ id: fresh('chat'), agent: 'text', messages: [{ id: 'u', role: 'user', parts: [{ type: 'file', url: 'data:x' }] }] }, 400, /data URL/],
  ]) {
    const r = await post(body)
    assert.equal(r.status, status)
    assert.match((await r.json()).detail, what)
  }
})

test('a file becomes an artifact', async () => {
  const chat = newChat(() => A, 'text')
  await chat.sendMessage({ text: 'look', files: [{ type: 'file', mediaType: 'image/png', filename: 'a.png', url: 'data:image/png;base64,iVBORw0KGgo=' }] })
  assert.equal(chat.status, 'ready')
  const [file] = (await snapshot(chat)).messages[0].parts
  assert.deepEqual([file.type, file.name, file.media_type, file.bytes], ['image', 'a.png', 'image/png', 8])
  const r = await fetch(B + file.url)
  assert.equal(r.headers.get('content-type'), 'image/png')
  assert.equal(Buffer.from(await r.arrayBuffer()).toString('base64'), 'iVBORw0KGgo=')
})

test('data parts: state is whole, one activity is one part, files are files', async () => {
  const parts = async (agent) => {
    const seen = []
    const chat = newChat(() => A, agent, { onData: (d) => seen.push(structuredClone(d.data)) })
    await chat.sendMessage({ text: 'go' })
    return { seen, parts: chat.messages.at(-1).parts }
  }
  const state = await parts('state')
  assert.deepEqual(state.parts.filter((p) => p.type === 'data-state').map((p) => p.data), [{ steps: ['plan', 'do'], done: true }])
  assert.deepEqual(state.seen.map((s) => s.steps.length), [0, 1, 2, 2, 2])
  const activity = await parts('activity')
  assert.deepEqual(activity.seen.map((a) => a.content.a2ui_operations.length), [2, 3, 1])
  assert.equal(activity.parts.filter((p) => p.type === 'data-activity').length, 1)
  const artifact = await parts('artifact')
  assert.deepEqual(artifact.parts.filter((p) => p.type === 'file').map((p) => p.mediaType), ['text/markdown'])
  assert.deepEqual((await parts('custom')).parts.filter((p) => p.type === 'data-weather.station').map((p) => p.data.text), ['a\u2028b'])
})

test('a page that is loaded again has nothing to resume, or all of the run', async () => {
  const none = newChat(() => A, 'text')
  await none.resumeStream()
  assert.equal(none.status, 'ready')
  assert.equal((await fetch(`${A}/api/chat/${fresh('chat')}/stream`)).status, 204)

  const chat = newChat(() => A, 'client-tool')
  await chat.sendMessage({ text: 'go' })
  const reloaded = newChat(() => B, 'client-tool', { id: chat.id, messages: chat.messages.slice(0, 1) })
  await reloaded.resumeStream()
  assert.deepEqual(JSON.parse(JSON.stringify(reloaded.messages)), JSON.parse(JSON.stringify(chat.messages)))
})

test('answers that leave the run waiting are refused, late ones too', async () => {
  const chat = newChat(() => A, 'approval')
  await chat.sendMessage({ text: 'go' })
  const said = structuredClone(chat.messages)
  const [send, pay] = said.at(-1).parts.filter((p) => p.type.startsWith('tool-'))
  Object.assign(send, { state: 'approval-responded', approval: { id: send.approval.id, approved: true } })
  const some = await post({ id: chat.id, messages: said })
  assert.equal(some.status, 409)
  assert.match((await some.json()).detail, /missing: .*pay/)
  Object.assign(pay, { state: 'approval-responded', approval: { id: pay.approval.id, approved: true } })
  const twice = await Promise.all([A, B].map(async (url) => (await fetch(url + '/api/chat', { method: 'POST', body: JSON.stringify({ id: chat.id, messages: said }) })).text()))
  const chunks = twice.map((t) => t.split('\n').filter((l) => l.startsWith('data:')))
  assert.deepEqual(chunks[1], chunks[0])
  assert.equal(chunks[0].filter((l) => l.includes('tool-approval-request')).length, 0, 'what the client has is said again')
  pay.approval.approved = false
  assert.equal((await post({ id: chat.id, messages: said })).status, 409)
})

test('an edge that shuts down does not look like the end', async () => {
  const edge = await startEdge()
  let at = edge.url
  const chat = newChat(() => at, 'cancel')
  const ended = chat.sendMessage({ text: 'go' })
  while (!chat.messages.at(-1)?.parts.some((p) => p.state === 'input-available')) await new Promise((ok) => setTimeout(ok, 2))
  const run = chat.messages.at(-1).id
  await drainEdge(edge.id)
  await ended
  assert.equal(chat.status, 'error')
  at = B
  const resumed = resuming(chat, () => chat.resumeStream())
  await command({ kind: 'cancel', session_id: chat.id, run_id: run })
  await resumed
  assert.equal(chat.status, 'ready')
  assert.equal(chat.messages.at(-1).metadata.status, 'cancelled')
})

test('a client that goes away does not stop its run', async () => {
  let named
  const known = new Promise((ok) => { named = ok })
  const chat = newChat(() => A, 'tools-held', { onRun: named })
  const ended = chat.sendMessage({ text: 'go' })
  const run = await known
  const go = () => command({ kind: 'steer', session_id: chat.id, run_id: run })
  await go()
  while (!(chat.messages.at(-1).role === 'assistant' && chat.messages.at(-1).parts.length)) await new Promise((ok) => setTimeout(ok, 1))
  await chat.stop()
  await ended
  await go()
  assert.equal((await runState(run)).status, 'completed')
})
