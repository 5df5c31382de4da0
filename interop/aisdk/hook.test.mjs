// useChat in a component: it resumes when the page is loaded again, in the middle
// of a run.
import '../lib/quiet.mjs'
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { useChat } from '@ai-sdk/react'
import { DefaultChatTransport } from 'ai'
import { act, createElement } from 'react'
import { create } from 'react-test-renderer'
import { command, edges, fresh } from '../lib/stage.mjs'

globalThis.IS_REACT_ACT_ENVIRONMENT = true

// A page with a chat; now() is what it shows.
async function page(edge, options) {
  let chat
  const Page = () => {
    chat = useChat({ ...options, transport: new DefaultChatTransport({ api: edge + '/api/chat', body: { agent: options.agent } }) })
    return null
  }
  let root
  await act(async () => { root = create(createElement(Page)) })
  return {
    now: () => chat,
    close: () => act(async () => root.unmount()),
    until: async (holds) => {
      for (let end = Date.now() + 20_000; !holds(chat); ) {
        assert(Date.now() < end, 'it does not happen')
        await act(async () => { await new Promise((ok) => setTimeout(ok, 2)) })
      }
    },
  }
}

const calls = (chat) => chat.messages.at(-1)?.parts.filter((p) => p.type.startsWith('tool-')) ?? []

test('useChat: a page that is loaded again in mid-run goes on', async () => {
  const id = fresh('chat')
  const first = await page(edges[0], { id, agent: 'cancel' })
  await act(async () => void first.now().sendMessage({ text: 'go' }))
  await first.until((chat) => calls(chat)[0]?.state === 'input-available')
  const { messages } = first.now()
  await first.close()

  const again = await page(edges[1], { id, agent: 'cancel', resume: true, messages: messages.slice(0, 1) })
  await again.until((chat) => calls(chat)[0]?.state === 'input-available')
  assert.equal(again.now().status, 'streaming')
  await command({ kind: 'cancel', session_id: id, run_id: messages.at(-1).id })
  await again.until((chat) => chat.status === 'ready')
  assert.equal(again.now().messages.length, 2)
  assert.equal(again.now().messages[1].id, messages[1].id)
  assert.equal(calls(again.now())[0].state, 'output-error')
  await again.close()
})

test('useChat: nothing to resume is no error', async () => {
  const p = await page(edges[0], { id: fresh('chat'), agent: 'text', resume: true })
  await p.until((chat) => chat.status === 'ready')
  await act(async () => void p.now().sendMessage({ text: 'go' }))
  // What finds nothing to resume may say ready while the message is on its way.
  await p.until((chat) => chat.messages[1]?.parts.at(-1)?.text === 'Hello, world.' && chat.status === 'ready')
  assert.equal(p.now().messages.length, 2)
  await p.close()
})
