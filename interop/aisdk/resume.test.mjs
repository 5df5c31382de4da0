// Cut after every message: the chat asks for the stream again, and ends up with
// the message that it would have had.
import '../lib/quiet.mjs'
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { everyCut, offByOne } from '../lib/cuts.mjs'
import { command, edges, fresh, scenarios } from '../lib/stage.mjs'
import { newChat, resuming, stateOf } from './chats.mjs'

const parked = ['client-tool', 'approval', 'cancel']

const say = (agent) => async (url) => {
  const chat = newChat(() => url, agent)
  await resuming(chat, () => chat.sendMessage({ text: 'go' }))
  return stateOf(chat)
}

for (const { name, ends } of scenarios) {
  if (parked.includes(name)) continue
  test(`${name}: cut after every message`, async () => {
    const { state } = await everyCut(say(name))
    assert.equal(state.status, ends === 'run.completed' ? 'ready' : 'error')
    if (ends === 'run.completed') assert.equal(state.messages.length, 1)
  })
}

for (const name of ['text', 'tools', 'takeover', 'discarded', 'failure']) {
  test(`${name}, event by event: cut after every message`, async () => {
    await everyCut(say(name + '-live'))
  })
}

test('the control: with the tail alone the message is another one', async () => {
  for (const name of ['text', 'tools', 'reasoning']) {
    const tamper = (ask, ids) => {
      const chat = /\/api\/chat\/(.*)\/stream/.exec(ask.url)?.[1]
      if (chat) ask.url = `/v1/sessions/${chat}/events?follow=false&dialect=aisdk&after=${ids.at(-2)}`
      return Boolean(chat)
    }
    const { early, wrong } = await offByOne(say(name), { tamper })
    assert(wrong >= early / 2, `${name}: ${wrong} of ${early}`)
  }
})

test('client-tool: cut after every message before and after the result', async () => {
  const pick = (urls) => async (url) => {
    let [first, second] = urls(url)
    let at = first
    const chat = newChat(() => at, 'client-tool-live')
    await resuming(chat, () => chat.sendMessage({ text: 'go' }))
    const part = chat.messages.at(-1).parts.find((p) => p.type === 'tool-pick_date')
    assert.equal(part.state, 'input-available')
    assert.deepEqual(part.input, { title: 'When?' })
    at = second
    await resuming(chat, () => answered(chat, () => chat.addToolOutput({ tool: 'pick_date', toolCallId: part.toolCallId, output: '2026-05-01' })))
    return stateOf(chat)
  }
  for (const urls of [(u) => [u, edges[1]], (u) => [edges[0], u]]) {
    const { state } = await everyCut(pick(urls))
    assert.equal(state.status, 'ready')
    const parts = state.messages[0].parts
    assert.equal(parts.find((p) => p.type === 'tool-pick_date').output, '2026-05-01')
    assert.deepEqual(parts.filter((p) => p.type === 'text').map((p) => p.text), ['May it is.'])
  }
})

test('approval: cut after every message before and after the decisions', async () => {
  const decide = (urls) => async (url) => {
    let [first, second] = urls(url)
    let at = first
    const chat = newChat(() => at, 'approval')
    await resuming(chat, () => chat.sendMessage({ text: 'go' }))
    const [send, pay] = chat.messages.at(-1).parts.filter((p) => p.type.startsWith('tool-'))
    assert.deepEqual([send.state, pay.state], ['approval-requested', 'approval-requested'])
    at = second
    await chat.addToolApprovalResponse({ id: send.approval.id, approved: true })
    await resuming(chat, () => answered(chat, () => chat.addToolApprovalResponse({ id: pay.approval.id, approved: false, reason: 'too much' })))
    return stateOf(chat)
  }
  for (const urls of [(u) => [u, edges[1]], (u) => [edges[0], u]]) {
    const { state } = await everyCut(decide(urls))
    const tools = state.messages[0].parts.filter((p) => p.type.startsWith('tool-'))
    assert.deepEqual(tools.map((p) => [p.state, p.output, p.approval.approved]), [['output-available', 'sent', true], ['output-denied', undefined, false]])
    assert.equal(state.messages[0].parts.at(-1).text, 'Sent, but not paid.')
  }
})

test('cancel: cut after every message', async () => {
  const { state } = await everyCut(async (url) => {
    const chat = newChat(() => url, 'cancel')
    const ended = resuming(chat, () => chat.sendMessage({ text: 'go' }))
    const session = chat.id
    await until(() => chat.messages.at(-1)?.parts.some((p) => p.state === 'input-available'))
    await command({ kind: 'cancel', session_id: session, run_id: chat.messages.at(-1).id })
    await ended
    return stateOf(chat)
  })
  assert.equal(state.status, 'ready')
  assert.equal(state.messages[0].parts.at(-1).errorText, 'cancelled while it ran')
  assert.equal(state.messages[0].metadata.status, 'cancelled')
})

// answered gives the last answer and waits until the chat has sent it and has read
// what follows: it does so by itself.
async function answered(chat, fn) {
  await fn()
  await until(() => !['submitted', 'streaming'].includes(chat.status) && (chat.status === 'error' || chat.messages.at(-1).parts.at(-1).type === 'text'))
}

async function until(holds) {
  for (let end = Date.now() + 20_000; !holds(); ) {
    assert(Date.now() < end, 'it does not happen')
    await new Promise((ok) => setTimeout(ok, 2))
  }
}
